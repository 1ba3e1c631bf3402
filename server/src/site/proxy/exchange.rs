//! Forwards one request: chooses a server, sends the request, repeats it where that is safe, and returns the response.

use super::capacity::Entered;
use super::checks::start_checks;
use super::content::{ForwardedContent, Ongoing};
use super::failure::ForwardFailure;
use super::failure_history::Failure;
use super::max_forwards;
use super::outgoing::{RequestFacts, ServerRequest, UpgradeKind, proxy_header};
use super::proxy_rules::{ProxyRules, ProxyStatus, RequestBuffering, UrlRewriting};
use super::rewriting::{self, View};
use super::upstream::{NoServer, Place, Preference, RetryPermit, Upstream, count_try};
use super::worker::{ProxyWorker, Target, WorkerGroup};
use crate::site::headers::ResponseFacts;
use crate::syntax::RequestValues;
use crate::traces::TryResult;
use selvedge::client::{
    ClientError, ClientErrorKind, ClientPhase, ConnectionUse, Destination, IncomingResponse, OutgoingContent,
    RetrySafety,
};
use selvedge::proto::field::Fields;
use selvedge::proto::forward::Passage;
use selvedge::proto::head::Version;
use selvedge::service::{
    Body, ContentError, IncomingBody, UpgradeHandler, UpgradeResponse, UpstreamRecord, send_interim, set_upstream,
};
use selvedge::{Method, Request, Response, StatusCode};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most tries of one request.
const TRIES_MAX: u32 = 5;
/// Most addresses of one server that a request is tried at.
const ADDRESSES_MAX: usize = 4;
/// The log reason of a request that an adaptive limit would have held back.
const BEYOND_OBSERVED: &str = "the server is at its adaptive limit (dry run)";

/// A response, and who made it.
pub(in crate::site) enum Forwarded {
    /// A response of a server.
    Received(Response),
    /// An error of the proxy. An error page may replace it.
    Failed(Response),
}

/// One request while it is forwarded.
struct Forwarding<'a> {
    worker: &'a ProxyWorker,
    group: Rc<WorkerGroup>,
    rules: &'a ProxyRules,
    client: IpAddr,
    preference: Preference,
    outgoing: ServerRequest,
    content: OutgoingContent,
    record: UpstreamRecord,
    tried: Vec<usize>,
    tries: u32,
    /// Whether it was repeated although a server may have processed it.
    is_repeated: bool,
    retry_permit: Option<RetryPermit>,
}

/// A response, and the server that it is from.
struct ServerResponse {
    incoming: IncomingResponse,
    place: Place,
    address: Rc<str>,
}

/// Forwards a request to a server of the group.
pub(in crate::site) async fn forward(
    (worker, rules): (&Rc<ProxyWorker>, &ProxyRules),
    request: &mut Request,
    client: IpAddr,
    prepared: PreparedRequest,
) -> Forwarded {
    if let Some(response) = max_forwards::final_response(request) {
        return Forwarded::Received(response);
    }
    let PreparedRequest(outgoing) = prepared;
    if rules.upstream.needs_checks() {
        // The worker that ran them has ended.
        start_checks(worker, &rules.upstream);
    }
    let group = worker.group(&rules.upstream);
    let record = UpstreamRecord::new(group.name.clone());
    set_upstream(request, record.clone());
    let content = match outgoing.upgrade {
        // What follows belongs to the other protocol.
        UpgradeKind::ExtendedConnect => OutgoingContent::empty(),
        UpgradeKind::None | UpgradeKind::Field => match read_ahead(rules.buffering, request.take_body()).await {
            Ok(content) => content.hide_trailers(&rules.hidden_trailers),
            Err(error) => return Forwarded::Failed(Response::from(error)),
        },
    };
    let mut forwarding = Forwarding {
        worker,
        group,
        rules,
        client,
        preference: rules.upstream.preference(request, client),
        outgoing,
        content,
        record,
        tried: Vec::new(),
        tries: 0,
        is_repeated: false,
        retry_permit: None,
    };
    let forwarded = match forwarding.run(request).await {
        Ok(received) => forwarding.respond(received),
        Err(failure) => forwarding.refuse(failure),
    };
    worker.reuse_head(forwarding.outgoing.head);
    forwarded
}

/// A request to a server that is built, but not sent.
pub(in crate::site) struct PreparedRequest(pub(super) ServerRequest);

/// Builds the request to a server. It does not depend on the server.
pub(in crate::site) fn prepare<'v>(
    (worker, rules): (&ProxyWorker, &ProxyRules),
    request: &Request,
    facts: RequestFacts<'_>,
    values: &dyn Fn() -> RequestValues<'v>,
) -> PreparedRequest {
    let group = worker.group(&rules.upstream);
    let mut outgoing = ServerRequest::new((rules, worker.empty_head()), request, facts, values);
    if outgoing.upgrade == UpgradeKind::ExtendedConnect {
        let mut chooser = group.chooser.borrow_mut();
        outgoing.add_websocket_key([chooser.random_bits(), chooser.random_bits()]);
    }
    PreparedRequest(outgoing)
}

/// Refuses a request that has passed this server before.
//= RFC 9110 §7.6.3: Via is for the avoidance of request loops
pub(super) fn refuse_loop(outgoing: &ServerRequest) -> Result<(), ForwardFailure> {
    match outgoing.passage {
        Passage::Repeated => Err(ForwardFailure::Loop),
        Passage::First => Ok(()),
    }
}

/// Returns the cookie that keeps a client at a server, unless the client has sent it.
pub(super) fn new_cookie(
    upstream: &Upstream,
    preference: Preference,
    (server, outgoing): (usize, &ServerRequest),
) -> Option<String> {
    let sticky = upstream.sticky().filter(|_| preference != Preference::Server(server))?;
    Some(sticky.set_cookie(server, outgoing.scheme))
}

/// Returns the content of a request. Short content is received first, if the rules demand it.
async fn read_ahead(buffering: RequestBuffering, mut body: IncomingBody) -> Result<OutgoingContent, ContentError> {
    let RequestBuffering::UpTo(bytes_max) = buffering else { return Ok(OutgoingContent::request(body)) };
    match body.length() {
        Some(0) => Ok(OutgoingContent::empty()),
        Some(length) if length <= u64::from(bytes_max) => Ok(OutgoingContent::bytes(body.read_all().await?.into())),
        Some(_) => Ok(OutgoingContent::request(body)),
        None => read_ahead_of_unknown_length(bytes_max as usize, body).await,
    }
}

/// Reads content into what is kept for another attempt, and lets the first attempt begin there.
async fn read_ahead_of_unknown_length(bytes_max: usize, body: IncomingBody) -> Result<OutgoingContent, ContentError> {
    let mut content = OutgoingContent::request(body).keep(usize::MAX);
    let (mut received, mut all) = (0, Vec::new());
    while received <= bytes_max {
        let Some(piece) = poll_fn(|cx| content.poll_chunk(cx)).await else {
            // It is complete, so its length is known.
            return Ok(OutgoingContent::bytes(all.into()));
        };
        let piece = piece?;
        received += piece.len();
        all.extend_from_slice(&piece);
    }
    content.rewind();
    // What follows is not kept.
    Ok(content.keep(received))
}

impl Forwarding<'_> {
    /// Tries servers until one responds, or until the request may not be repeated.
    async fn run(&mut self, request: &Request) -> Result<ServerResponse, ForwardFailure> {
        refuse_loop(&self.outgoing)?;
        let upstream = &self.rules.upstream;
        let mut last = None;
        loop {
            let began = Instant::now();
            let place = match upstream.place(self.preference, &self.group.chooser, &self.tried).await {
                Ok(place) => place,
                Err(NoServer::Full(reason)) => return Err(ForwardFailure::NoPlace(reason)),
                // The failure of a server that was tried is more than that.
                Err(NoServer::AllFailChecks) => return Err(last.unwrap_or(ForwardFailure::NoneInUse)),
                Err(NoServer::AllTried) => match last {
                    // Without another server, this one may do better, unless it is unreachable.
                    Some(failure) if !has_reached_server(failure) || self.tried.is_empty() => return Err(failure),
                    None => return Err(ForwardFailure::NoAddress),
                    Some(_) => {
                        self.tried.clear();
                        continue;
                    }
                },
            };
            self.record.update(|facts| facts.queued += began.elapsed());
            let failure = match self.try_server(request, place).await {
                Ok(received) => return Ok(received),
                Err(failure) => failure,
            };
            if !self.may_repeat(failure, request.method()) {
                return Err(failure);
            }
            last = Some(failure);
        }
    }

    /// Sends the request to the addresses of a server until one accepts the connection.
    async fn try_server(&mut self, request: &Request, place: Place) -> Result<ServerResponse, ForwardFailure> {
        let upstream = &self.rules.upstream;
        let server = upstream.server(place.server);
        let targets = self.group.targets(place.server, server);
        self.outgoing.set_server(request, &self.rules.host, server);
        let first = upstream.working_address(place.server);
        let mut furthest: Option<(ClientError, Rc<str>)> = None;
        for offset in 0..targets.len().min(ADDRESSES_MAX) {
            let index = (first + offset) % targets.len();
            let error = match self.send(request, &targets[index], place.server).await {
                Ok(incoming) => {
                    upstream.set_working_address(place.server, index);
                    return Ok(ServerResponse { incoming, place, address: targets[index].text.clone() });
                }
                Err(error) => error,
            };
            // A refused connection to one address tells less than a failed handshake with another one.
            if furthest.as_ref().is_none_or(|(earlier, _)| error.phase >= earlier.phase) {
                furthest = Some((error, targets[index].text.clone()));
            }
            if has_reached_server(ForwardFailure::Exchange(error)) || !self.content.rewind() {
                break;
            }
        }
        let failure = match furthest {
            Some((error, address)) => {
                self.record.update(|facts| facts.address = address);
                ForwardFailure::Exchange(error)
            }
            None => ForwardFailure::NoAddress,
        };
        self.report_failure(failure, place.server);
        if !is_end_of_idle_connection(failure) {
            self.tried.push(place.server);
        }
        Err(failure)
    }

    async fn send(
        &mut self,
        request: &Request,
        target: &Target,
        server: usize,
    ) -> Result<IncomingResponse, ClientError> {
        let upstream = &self.rules.upstream;
        self.tries += 1;
        self.record.update(|facts| {
            facts.tries = self.tries;
            facts.address = target.text.clone();
        });
        let mut interim = |status: StatusCode, fields: &Fields| {
            //= RFC 9110 §15.2: a client of HTTP/1.0 gets no interim response
            if status == StatusCode::EARLY_HINTS && request.version() != Version::Http10 {
                // It is optional, and a client that has left is noticed elsewhere.
                let _ = send_interim(request, status, fields);
            }
        };
        let current = self.outgoing.begin_try(&target.text);
        let (head, timeouts) = (&self.outgoing.head, &upstream.rules().timeouts);
        let began = Instant::now();
        let with_header = upstream.server(server).proxy_header.map(|version| Destination {
            first_bytes: Some(proxy_header(version, request, self.client)),
            ..target.destination.clone()
        });
        let destination = with_header.as_ref().unwrap_or(&target.destination);
        let sent = self.worker.client.send(destination, head, &mut self.content, timeouts, &mut interim).await;
        let took = began.elapsed();
        if let Some(current) = current {
            current.end(try_result(&sent));
        }
        self.record_times(&sent, took);
        count_try(upstream, server, sent.is_ok().then_some(took));
        if let Ok(incoming) = &sent {
            self.record.update(|facts| {
                facts.status = Some(incoming.status);
                facts.response_time = Some(took);
            });
            match incoming.status.code() {
                500 | 502..=504 => {
                    let reason = format!("status {}", incoming.status.code());
                    upstream.failed(server, Failure::Status, &reason);
                }
                _ => upstream.succeeded(server, took),
            }
        }
        sent
    }

    /// Records how long the phases of a try took.
    fn record_times(&self, sent: &Result<IncomingResponse, ClientError>, took: Duration) {
        let connect_time = match sent {
            Ok(incoming) => incoming.connect_time,
            Err(error) => (error.phase <= ClientPhase::Tls).then_some(took),
        };
        self.record.update(|facts| {
            facts.connect_time = connect_time;
            facts.first_byte_time = Some(took.saturating_sub(connect_time.unwrap_or_default()));
        });
    }

    /// Records a failed try for the log, and counts it against the server.
    fn report_failure(&self, failure: ForwardFailure, server: usize) {
        if !failure.is_of_server() {
            return;
        }
        let text = failure.text();
        if !is_end_of_idle_connection(failure) {
            self.rules.upstream.failed(server, Failure::Exchange, &text);
        }
        self.record.update(|facts| {
            let tries = match facts.tries {
                1 => "1 try".to_owned(),
                tries => format!("{tries} tries"),
            };
            let name = &self.rules.upstream.server(server).name;
            let at = if facts.address.is_empty() { name } else { &*facts.address };
            facts.failure = Some(format!("{text} ({at} of {}, {tries})", facts.group).into());
            facts.failure_kind = failure.kind();
        });
    }

    /// Decides whether a request may be sent again, and prepares for it.
    fn may_repeat(&mut self, failure: ForwardFailure, method: Method) -> bool {
        if self.tries >= TRIES_MAX || !self.content.rewind() {
            return false;
        }
        let ForwardFailure::Exchange(error) = failure else { return failure == ForwardFailure::NoAddress };
        match error.retry {
            RetrySafety::NotSent => {}
            // A slow request is slow elsewhere, too, and its repetition doubles the load of slow servers.
            RetrySafety::NoResponse if error.kind == ClientErrorKind::TimedOut => return false,
            RetrySafety::NoResponse => {
                if !is_idempotent(method) || self.is_repeated {
                    return false;
                }
                // The end of an idle connection is no sign for the next try.
                self.is_repeated = !is_end_of_idle_connection(failure);
            }
            RetrySafety::Never => return false,
        }
        // A try without a connection, or on one that ended while it was idle, is no work for a server.
        let is_work = has_reached_server(failure) && !is_end_of_idle_connection(failure);
        if is_work && self.retry_permit.is_none() {
            self.retry_permit = self.rules.upstream.permit_retry();
            return self.retry_permit.is_some();
        }
        true
    }

    /// Returns the response to the client for that of a server.
    fn respond(&self, received: ServerResponse) -> Forwarded {
        let ServerResponse { incoming, place, address } = received;
        let status = incoming.status;
        if self.outgoing.upgrade == UpgradeKind::ExtendedConnect
            && incoming.upgrade.is_none()
            && (200..300).contains(&status.code())
        {
            return self.refuse(ForwardFailure::NoUpgrade);
        }
        //= RFC 9110 §7.8: a server MUST NOT switch to a protocol that the client did not indicate
        let offered = self.outgoing.head.upgrade.as_deref().unwrap_or_default();
        if incoming.upgrade.as_ref().is_some_and(|tunnel| !tunnel.protocol().eq_ignore_ascii_case(offered)) {
            return self.refuse(ForwardFailure::NoUpgrade);
        }
        let mut response = Response::new(status);
        *response.fields_mut() = incoming.fields;
        self.edit_fields(&mut response, place.server);
        if place.entered == Entered::BeyondObserved {
            response = response.log_reason(BEYOND_OBSERVED);
            let (limit, count) = self.rules.upstream.observed_limit(place.server);
            self.record.update(|facts| {
                let text = || format!("{BEYOND_OBSERVED}: {limit} requests at once; {count} beyond it so far");
                facts.failure.get_or_insert_with(|| text().into());
            });
        }
        if let Some(tunnel) = incoming.upgrade {
            if self.outgoing.upgrade == UpgradeKind::ExtendedConnect {
                // It belongs to the key that the proxy made.
                response.fields_mut().remove("sec-websocket-accept");
            }
            let protocol = tunnel.protocol().clone();
            let handler: UpgradeHandler = Box::new(move |client| {
                tokio::task::spawn_local(async move {
                    // Either end may fail at any time; both connections are closed then.
                    let _ = tunnel.run(client).await;
                    drop(place);
                });
            });
            response.body = Body::Upgrade(Box::new(UpgradeResponse { protocol, handler }));
            return Forwarded::Received(response);
        }
        response.body = match incoming.content.into_body() {
            Body::Stream { length, chunks } => {
                let ongoing = Ongoing { place, record: self.record.clone(), address };
                Body::Stream { length, chunks: Box::pin(ForwardedContent::new(chunks, ongoing)) }
            }
            complete => complete,
        };
        Forwarded::Received(response)
    }

    fn edit_fields(&self, response: &mut Response, server: usize) {
        let upstream = &self.rules.upstream;
        let status = response.status;
        let fields = response.fields_mut();
        if self.rules.url_rewriting == UrlRewriting::On {
            let own = upstream.server(server).authority.as_bytes();
            let sent = &self.outgoing.head.authority;
            rewriting::rewrite(fields, View { authorities: [own, sent], prefixes: &self.outgoing.prefixes });
        }
        if let Some(cookie) = new_cookie(upstream, self.preference, (server, &self.outgoing)) {
            fields.append("set-cookie", cookie).expect("the rules are validated");
        }
        let edits = self.outgoing.response_headers.as_ref().unwrap_or(&self.rules.response_headers);
        edits.apply(fields, ResponseFacts::default());
        if self.rules.proxy_status == ProxyStatus::On {
            let value = format!("selvedge; next-hop={}; received-status={}", quoted(&self.group.name), status.code());
            fields.append("proxy-status", value).expect("a quoted string is a valid value");
        }
    }

    /// Records why no server responded, and returns the response to the client.
    fn refuse(&self, failure: ForwardFailure) -> Forwarded {
        if !failure.is_of_server() {
            let group = &self.group.name;
            self.record.update(|facts| match failure {
                // The reason of the response has it.
                ForwardFailure::Exchange(_) => {}
                _ => facts.failure = Some(format!("{} ({group})", failure.text()).into()),
            });
        }
        Forwarded::Failed(failed_response(self.rules, failure))
    }
}

/// Returns the response to the client if no server responded.
pub(super) fn failed_response(rules: &ProxyRules, failure: ForwardFailure) -> Response {
    let upstream = rules.upstream.rules();
    let mut response = failure.response(upstream.capacity.queue_timeout);
    if rules.proxy_status == ProxyStatus::On {
        let value = format!("selvedge; next-hop={}; error={}", quoted(&upstream.name), failure.proxy_error());
        response.append("proxy-status", value).expect("a quoted string is a valid value");
    }
    response
}

/// Returns the result of a try, for its span.
fn try_result(sent: &Result<IncomingResponse, ClientError>) -> TryResult {
    match sent {
        Ok(incoming) => TryResult::Status(incoming.status),
        Err(error) => TryResult::Failed(ForwardFailure::Exchange(*error).kind()),
    }
}

/// Whether a server may have received something of the request. If all failures are others, a second round of tries fails,
/// too.
fn has_reached_server(failure: ForwardFailure) -> bool {
    match failure {
        ForwardFailure::Exchange(error) if error.kind == ClientErrorKind::UpgradeUnsupported => false,
        ForwardFailure::Exchange(error) => !matches!(error.phase, ClientPhase::Connect | ClientPhase::Tls),
        _ => false,
    }
}

/// Whether a server has closed an idle connection in the moment in which it was used. It is no sign of its health.
fn is_end_of_idle_connection(failure: ForwardFailure) -> bool {
    match failure {
        ForwardFailure::Exchange(error) => {
            error.connection == ConnectionUse::Reused
                && matches!(error.kind, ClientErrorKind::Reset | ClientErrorKind::Closed)
        }
        _ => false,
    }
}

/// Whether a request with this method may be sent twice (RFC 9110 §9.2.2).
const fn is_idempotent(method: Method) -> bool {
    method.is_safe() || matches!(method, Method::Put | Method::Delete)
}

/// Returns a text as a string of a structured field (RFC 8941 §3.3.3). Characters that such a string cannot have are left out.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars().filter(|char| matches!(char, ' '..='~')) {
        if matches!(char, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    quoted
}
