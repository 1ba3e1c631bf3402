//! Explains which server would get a request, and what it would be sent. Contacts none.

use super::exchange::{Forwarded, PreparedRequest, failed_response, new_cookie, refuse_loop};
use super::failure::ForwardFailure;
use super::max_forwards;
use super::outgoing::ServerRequest;
use super::proxy_rules::{ProxyRules, ProxyStatus};
use super::upstream::{self, NoServer, Preference, ServerCondition};
use super::wait_queue::NoPlace;
use super::worker::ProxyWorker;
use crate::site::headers::ResponseFacts;
use crate::site::step_recorder::{Producer, Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::site::step_texts::printable;
use selvedge::{Request, Response, StatusCode};
use std::net::IpAddr;
use std::rc::Rc;

/// Records the server that would get a request. Returns the response of the proxy, or an empty one in the place of that of
/// the server.
pub(in crate::site) fn explain(
    (worker, rules): (&Rc<ProxyWorker>, &ProxyRules),
    request: &Request,
    client: IpAddr,
    prepared: PreparedRequest,
    recorder: &StepRecorder,
) -> Forwarded {
    if let Some(response) = max_forwards::final_response(request) {
        recorder.step(
            Stage::Upstream,
            StepVerdict::No,
            StepOrigin::None,
            "max-forwards is 0, so the request is not forwarded",
        );
        return Forwarded::Received(response);
    }
    let PreparedRequest(mut outgoing) = prepared;
    if let Err(failure) = refuse_loop(&outgoing) {
        return refuse(rules, failure, recorder);
    }
    let servers = &rules.upstream;
    record_servers(rules, recorder);
    let preference = servers.preference(request, client);
    let group = worker.group(servers);
    let server = match upstream::would_choose(servers, preference, &mut group.chooser.borrow_mut()) {
        Ok(server) => server,
        Err(no_server) => return without_server(rules, &outgoing, no_server, recorder),
    };
    let text = format!("{}: {}", servers.server(server).name, reason(preference));
    recorder.step(Stage::Upstream, StepVerdict::Yes, StepOrigin::Setting("proxy"), text);
    let targets = group.targets(server, servers.server(server));
    if targets.is_empty() {
        recorder.step(
            Stage::Upstream,
            StepVerdict::No,
            StepOrigin::Setting("proxy"),
            "the name of the server is not resolved",
        );
    }
    outgoing.set_server(request, &rules.host, servers.server(server));
    record_request(&outgoing, request, recorder);
    let mut response = Response::new(StatusCode::OK);
    if let Some(cookie) = new_cookie(servers, preference, (server, &outgoing)) {
        let text = format!("the response gets set-cookie: {cookie}");
        recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("proxy"), text);
        response.append("set-cookie", cookie).expect("the rules are validated");
    }
    change_response(rules, &outgoing, &mut response, recorder);
    recorder.set_producer(Producer::Upstream);
    Forwarded::Received(response)
}

/// Makes and records the changes of the rules to the fields of a response.
fn change_response(rules: &ProxyRules, outgoing: &ServerRequest, response: &mut Response, recorder: &StepRecorder) {
    let edits = outgoing.response_headers.as_ref().unwrap_or(&rules.response_headers);
    edits.apply(response.fields_mut(), ResponseFacts::default());
    for edit in edits.iter() {
        let text = match edit.value {
            Some(value) => format!("the response gets {}: {value}", edit.name),
            None => format!("the response loses {}", edit.name),
        };
        recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("proxy"), text);
    }
    if rules.proxy_status == ProxyStatus::On {
        let text = "the response gets proxy-status with the status of the server";
        recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("proxy"), text);
    }
}

/// Records the state of each server.
fn record_servers(rules: &ProxyRules, recorder: &StepRecorder) {
    for server in rules.upstream.status().servers {
        let (verdict, condition) = match server.condition {
            ServerCondition::Healthy => (StepVerdict::Note, "in use".to_owned()),
            ServerCondition::Out(time) => {
                (StepVerdict::No, format!("out after failures, for {:.1} s", time.as_secs_f64()))
            }
            ServerCondition::Trial => (StepVerdict::Note, "on trial after failures".to_owned()),
            ServerCondition::CheckFailed => (StepVerdict::No, "out, because it fails its checks".to_owned()),
        };
        let text = format!("{}: {condition}, {} requests at work", server.name, server.at_work);
        recorder.step(Stage::Upstream, verdict, StepOrigin::Setting("proxy"), text);
    }
}

/// Returns why a server is chosen.
fn reason(preference: Preference) -> &'static str {
    match preference {
        Preference::LeastLoaded => "the less loaded one of two that are chosen at random",
        Preference::NextInTurn => "the next one in turn",
        Preference::Hash(_) => "the one of the hash",
        Preference::Server(_) => "the one that the cookie names, if it is in use",
    }
}

/// Returns the response if no server takes the request now.
fn without_server(
    rules: &ProxyRules,
    outgoing: &ServerRequest,
    no_server: NoServer,
    recorder: &StepRecorder,
) -> Forwarded {
    let capacity = &rules.upstream.rules().capacity;
    let failure = match no_server {
        NoServer::Full(_) if capacity.queue_max > rules.upstream.status().waiting => {
            let text = "all servers are full, so the request waits for a place";
            recorder.step(Stage::Upstream, StepVerdict::Note, StepOrigin::Setting("proxy"), text);
            let mut response = Response::new(StatusCode::OK);
            change_response(rules, outgoing, &mut response, recorder);
            recorder.set_producer(Producer::Upstream);
            return Forwarded::Received(response);
        }
        NoServer::Full(_) => ForwardFailure::NoPlace(NoPlace::QueueFull),
        NoServer::AllTried => ForwardFailure::NoAddress,
        NoServer::AllFailChecks => ForwardFailure::NoneInUse,
    };
    refuse(rules, failure, recorder)
}

/// Returns the response if no server gets the request.
fn refuse(rules: &ProxyRules, failure: ForwardFailure, recorder: &StepRecorder) -> Forwarded {
    recorder.step(Stage::Upstream, StepVerdict::Denied, StepOrigin::Setting("proxy"), failure.text());
    Forwarded::Failed(failed_response(rules, failure))
}

/// Records the request to a server, and how its fields differ from those of the client.
fn record_request(outgoing: &ServerRequest, request: &Request, recorder: &StepRecorder) {
    let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes));
    let head = &outgoing.head;
    let line = format!("it gets {} {} with host {}", text(&head.method), text(&head.target), text(&head.authority));
    recorder.step(Stage::Upstream, StepVerdict::Yes, StepOrigin::Setting("proxy"), line);
    let received: Vec<_> = request.fields().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let lines = head.fields.split(|&b| b == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let at = line.iter().position(|&b| b == b':')?;
        Some((line[..at].to_ascii_lowercase(), line[at + 1..].trim_ascii()))
    });
    let sent: Vec<_> = lines.collect();
    for (name, value) in sent.iter().filter(|field| !received.contains(field)) {
        // It is another one for each request.
        let value = if name == b"x-request-id" { "a new one".to_owned() } else { text(value) };
        let line = format!("it gets {}: {value}", text(name));
        recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("proxy"), line);
    }
    let is_dropped = |(name, _): &&(Vec<u8>, &[u8])| name != b"host" && sent.iter().all(|(other, _)| other != name);
    for (name, _) in received.iter().filter(is_dropped) {
        let line = format!("it does not get {}", text(name));
        recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("proxy"), line);
    }
}
