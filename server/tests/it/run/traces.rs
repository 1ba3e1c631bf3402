//! Traces of the real program: spans at a collector, and `traceparent` at upstreams and scripts.

use crate::support::backend::Backend;
use crate::support::client::{Client, Response};
use crate::support::collector::{Collector, Span, Verdict};
use crate::support::configured::{Folder, get, request};
use crate::support::program::{run_to_exit, selvedge_command};
use crate::support::script_server::{AfterResponse, Script, ScriptServer, record};
use crate::support::wait::wait_until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const ERROR: u64 = 2;

/// Returns a configuration whose traces go to a collector.
fn configuration(collector: &Collector, rules: &str, rest: &str) -> String {
    format!("traces \"{}\" {{ {rules}; }}\nlog {{ error \"error.log\" level=\"info\"; }}\n{rest}", collector.url())
}

/// Returns an address at which nothing listens.
fn closed_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound")
}

/// Sends a GET with `traceparent` of a sender, and with these fields.
fn get_below(client: &mut Client, target: &str, flags: &str, lines: &[&str]) -> Response {
    let parent = format!("traceparent: 00-{TRACE_ID}-{PARENT}-{flags}");
    let lines: Vec<&str> = [parent.as_str()].into_iter().chain(lines.iter().copied()).collect();
    request(client, "a.example", &format!("GET {target}"), &lines)
}

/// Returns the value of a line of the head that a backend sends back.
fn line<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn only<'s>(spans: &'s [Span], kind: u64) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.kind == kind).collect()
}

#[test]
fn a_request_and_each_of_its_tries_have_spans() {
    let (backend, collector, closed) = (Backend::start(), Collector::start(Verdict::Accept), closed_address());
    let upstream = format!(
        "upstream \"app\" {{ server \"http://{closed}\"; server \"http://{}\"; balance round-robin; }}\n",
        backend.address()
    );
    let rest =
        format!("{upstream}site \"a.example\" {{ route \"/app/*\" {{ name \"application\"; proxy \"app\"; }}; }}\n");
    let folder =
        Folder::new(&configuration(&collector, "service \"edge\"; ratio 0; header \"X-Key\" \"secret\"", &rest));
    let program = folder.serve();
    // In turn, so some begin with the closed server.
    let mut client = program.connect();
    let send = |_| get_below(&mut client, "/app/x?secret=1", "01", &["Tracestate: a=1", "Tracestate: b=2"]);
    let responses: Vec<Response> = (0..4).map(send).collect();
    // It sends all spans before its end.
    program.stop();
    let spans = collector.spans(9);
    assert_eq!(only(&spans, SERVER).len(), 4, "{spans:#?}");
    for (response, span) in responses.iter().zip(only(&spans, SERVER)) {
        assert_eq!(response.status, 200);
        assert_eq!((&*span.name, &*span.service), ("GET /app/*", "edge"));
        assert_eq!((&*span.trace_id, &*span.parent, &*span.state), (TRACE_ID, PARENT, "a=1,b=2"));
        for (name, value) in [
            ("http.request.method", "GET"),
            ("url.path", "/app/x"),
            ("url.scheme", "http"),
            ("http.response.status_code", "200"),
            ("http.route", "/app/*"),
            ("client.address", "127.0.0.1"),
            ("server.address", "a.example"),
            ("network.protocol.version", "1.1"),
            ("error.type", ""),
        ] {
            assert_eq!(span.attribute(name), value, "{name} of {span:#?}");
        }
        assert!(!span.attributes.values().any(|value| value.contains("secret")), "{span:#?}");
        let tries: Vec<_> = only(&spans, CLIENT).into_iter().filter(|one| one.parent == span.span_id).collect();
        let last = tries.last().expect("a try succeeds");
        let expected = format!("00-{TRACE_ID}-{}-01", last.span_id);
        assert_eq!(line(response.text(), "traceparent"), Some(&*expected));
        assert_eq!(line(response.text(), "tracestate"), Some("a=1,b=2"));
        assert_eq!((last.attribute("http.response.status_code"), last.status), ("200", 0));
        assert_eq!(last.attribute("server.port"), backend.address().port().to_string());
        assert!(tries.iter().all(|one| span.start <= one.start && one.start <= one.end && one.end <= span.end));
    }
    let failed = spans.iter().find(|span| span.status == ERROR).expect("a try fails");
    assert_eq!((failed.kind, failed.attribute("error.type")), (CLIENT, "connection_refused"), "{failed:#?}");
    assert_eq!(failed.attribute("server.port"), closed.port().to_string());
    assert_eq!((&*failed.name, failed.attribute("selvedge.upstream")), ("GET", "app"));
    let is_repeated = |span: &Span| span.attribute("http.request.resend_count") == "1" && span.parent == failed.parent;
    assert!(spans.iter().any(is_repeated), "{spans:#?}");
    for head in collector.heads() {
        let fields = ["content-type", "x-key"].map(|name| line(&head, name));
        assert_eq!(fields, [Some("application/x-protobuf"), Some("secret")], "{head}");
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\n"), "{head}");
    }
}

#[test]
fn a_failure_and_a_slow_request_are_exported_in_any_case() {
    let (collector, closed) = (Collector::start(Verdict::Accept), closed_address());
    let slow = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let slow_address = slow.local_addr().expect("it is bound");
    let rest = format!(
        "site \"a.example\" {{\n    route \"/fast\" {{ respond 200; }}\n    route \"/none\" {{ deny status=404; }}\n    \
         route \"/closed\" {{ proxy \"http://{closed}\"; }}\n    route \"/slow\" {{ proxy \"http://{slow_address}\"; }}\n}}\n"
    );
    let folder = Folder::new(&configuration(&collector, "ratio 0; slower \"5s\"", &rest));
    let program = folder.serve();
    for (target, status) in [("/fast", 200), ("/none", 404), ("/missing", 404), ("/closed", 502)] {
        // The sender has not chosen them.
        assert_eq!(get_below(&mut program.connect(), target, "00", &[]).status, status);
    }
    let spans = collector.spans(2);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    for span in only(&spans, SERVER) {
        assert_eq!(
            (&*span.name, span.status, span.attribute("error.type")),
            ("GET /closed", ERROR, "connection_refused")
        );
        assert_eq!(span.trace_id, TRACE_ID);
    }
    folder.configure(&configuration(&collector, "ratio 0; slower \"20ms\"", &rest));
    assert_eq!(folder.run("reload").code, Some(0));
    let server = thread::spawn(move || {
        let (mut stream, _) = slow.accept().expect("the program connects");
        let mut head = [0; 4096];
        let length = stream.read(&mut head).expect("the head arrives");
        // The request cannot be faster.
        thread::sleep(Duration::from_millis(30));
        let response = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        stream.write_all(response).expect("the program reads");
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    assert_eq!(get(&program, "a.example", "/slow").status, 204);
    let head = server.join().expect("the server does not panic");
    let parent = line(&head, "traceparent").expect("a trace begins here").to_owned();
    let spans = collector.spans(4);
    let slow = only(&spans, SERVER).into_iter().find(|span| span.attribute("url.path") == "/slow");
    let slow = slow.unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!(parent, format!("00-{}-{}-00", slow.trace_id, spans.last().expect("it has spans").span_id));
    assert_eq!((&*slow.parent, &*slow.state, slow.status), ("", "", 0));
    assert!(slow.end - slow.start >= 20_000_000, "{slow:#?}");
    program.stop();
}

#[test]
fn a_share_of_the_traces_that_begin_here_is_exported() {
    let collector = Collector::start(Verdict::Accept);
    let rest = "site \"a.example\" \"*\" { route \"/r/{rest...}\" { respond 200 \"x\"; }; }\n";
    let rest = format!("log {{ access \"access.log\" format=\"json\"; error \"error.log\"; }}\n{rest}");
    let rest = rest.as_str();
    let traces = format!("traces \"{}\" {{ ratio 1; }}\n", collector.url());
    let folder = Folder::new(&format!("{traces}{rest}"));
    let program = folder.serve();
    let mut client = program.connect();
    let lines = ["User-Agent: agent/1", "traceparent: 00-0-0-01", "tracestate: a=1"];
    assert_eq!(request(&mut client, "[::1]:8080", "GET /r/1?key=secret", &lines).status, 200);
    assert_eq!(request(&mut client, "b.example", "PURGE /r/2", &[]).status, 200);
    assert_eq!(request(&mut client, "b.example", "GET /none", &[]).status, 404);
    assert_eq!(get_below(&mut client, "/r/4", "01", &["tracestate: a=1"]).status, 200);
    program.stop();
    let mut spans = collector.spans(4);
    let lines = folder.lines("access.log");
    assert_eq!(lines.len(), spans.len());
    for (span, line) in spans.iter().zip(&lines) {
        assert!(line.contains(&format!(",\"trace_id\":\"{}\"", span.trace_id)), "{line}");
    }
    let below = spans.pop().expect("a span for each request");
    assert_eq!((&*below.trace_id, &*below.parent, &*below.state), (TRACE_ID, PARENT, "a=1"));
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["GET /r/{rest...}", "HTTP /r/{rest...}", "GET"], "{spans:#?}");
    for (number, name, value) in [
        (0, "server.address", "::1"),
        (0, "server.port", "8080"),
        (0, "user_agent.original", "agent/1"),
        (0, "url.path", "/r/1"),
        (1, "http.request.method", "_OTHER"),
        (1, "http.request.method_original", "PURGE"),
        (1, "http.response.status_code", "200"),
        (2, "http.route", ""),
    ] {
        assert_eq!(spans[number].attribute(name), value, "{name} of {:#?}", spans[number]);
    }
    // An invalid parent is none.
    assert!(spans.iter().all(|span| span.parent.is_empty() && span.state.is_empty() && span.status == 0));
    assert!(spans.iter().all(|span| span.kind == SERVER && span.service == "selvedge"));
}

#[test]
fn a_script_gets_the_trace_as_variables() {
    let (server, collector) = (ScriptServer::fastcgi(), Collector::start(Verdict::Accept));
    let route = format!("site \"a.example\" {{ route \"/app/*\" {{ fastcgi \"{}\"; }}; }}\n", server.address());
    let folder = Folder::new(&configuration(&collector, "ratio 0", &route));
    let program = folder.serve();
    let output = record(6, b"Status: 201\nContent-Length: 0\n\n", 0);
    server.respond(Script { pieces: vec![output, record(3, &[0; 8], 0)], after: AfterResponse::Close });
    assert_eq!(get_below(&mut program.connect(), "/app/x", "01", &["tracestate: a=1"]).status, 201);
    let variables = server.request().variables;
    program.stop();
    let spans = collector.spans(2);
    let [run] = only(&spans, CLIENT)[..] else { panic!("{spans:#?}") };
    assert_eq!(variables["HTTP_TRACEPARENT"], format!("00-{TRACE_ID}-{}-01", run.span_id));
    assert_eq!(variables["HTTP_TRACESTATE"], "a=1");
    assert_eq!(
        (run.attribute("http.response.status_code"), run.attribute("server.port")),
        ("201", &*server.address().port().to_string())
    );
    assert_eq!(spans[0].span_id, run.parent);
}

#[test]
fn without_traces_the_fields_of_the_client_are_passed_on() {
    let backend = Backend::start();
    let folder =
        Folder::new(&format!("site \"a.example\" {{ route \"/*\" {{ proxy \"http://{}\"; }}; }}\n", backend.address()));
    let program = folder.serve();
    let response = get_below(&mut program.connect(), "/", "01", &["tracestate: a=1"]);
    let head = response.text();
    assert_eq!(line(head, "traceparent"), Some(&*format!("00-{TRACE_ID}-{PARENT}-01")));
    assert_eq!(line(head, "tracestate"), Some("a=1"));
    assert_eq!(line(get(&program, "a.example", "/").text(), "traceparent"), None);
    program.stop();
}

/// Returns the number of spans that were dropped, by the metrics.
fn dropped(metrics: SocketAddr) -> u64 {
    let response = request(&mut Client::connect(metrics), "a", "GET /", &[]);
    let value = response.text().lines().find_map(|line| line.strip_prefix("selvedge_trace_spans_dropped_total "));
    value.expect("traces are configured").parse().expect("it is a number")
}

#[test]
fn a_collector_that_hangs_delays_no_request_and_spans_are_counted() {
    let collector = Collector::start(Verdict::Hang);
    let rest = "metrics \"127.0.0.2:0\"\nsite \"a.example\" { route \"/*\" { respond 200; }; }\n";
    let folder = Folder::new(&configuration(&collector, "ratio 1", rest));
    let program = folder.serve();
    let metrics = wait_until("the listener of metrics is reported", || {
        let text = program.standard_error();
        text.lines().find_map(|line| line.strip_prefix("serving metrics on "))?.parse().ok()
    });
    assert_eq!(dropped(metrics), 0);
    // More than a batch that is being sent, and one that is about to be, and the queue.
    let mut client = program.connect();
    for _ in 0..30 {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(110));
        (0..110).for_each(|_| assert_eq!(client.receive("GET").expect("a response").status, 200));
    }
    wait_until("spans are dropped", || (dropped(metrics) > 0).then_some(()));
    let mut command = selvedge_command();
    let exit = run_to_exit(command.args(["status", "--json", "--control"]).arg(folder.path("selvedge.sock")));
    let status: serde_json::Value = serde_json::from_str(&exit.out).expect("it is JSON");
    assert!(status["traces"]["spans_dropped"].as_u64() > Some(0), "{status}");
    assert_eq!(status["traces"]["spans_exported"], 0);
    let began = Instant::now();
    program.stop();
    assert!(began.elapsed() < Duration::from_secs(10), "the end does not wait for the collector");
}

#[test]
fn a_batch_is_sent_again_until_the_collector_accepts_it() {
    let collector = Collector::start(Verdict::Refuse(503, 0));
    let rest = "site \"a.example\" { route \"/*\" { respond 200; }; }\n";
    let folder = Folder::new(&configuration(&collector, "ratio 1", rest));
    let program = folder.serve();
    assert_eq!(get(&program, "a.example", "/").status, 200);
    wait_until("a batch is refused", || (!collector.heads().is_empty()).then_some(()));
    collector.set_verdict(Verdict::Accept);
    let has = |text: &str| folder.lines("error.log").iter().filter(|line| line.contains(text)).count();
    // A batch that was refused too often is dropped, and then another one is needed.
    wait_until("the collector accepts spans again", || {
        get(&program, "a.example", "/");
        (has("info SpansSent: the collector accepts spans again; ") > 0).then_some(())
    });
    assert_eq!(has("warn SpansNotSent: "), 1);
    assert_eq!(has("does not accept all spans: it responds with 503; spans beyond the queue are dropped"), 1);
    collector.set_verdict(Verdict::Refuse(400, 0));
    wait_until("a refusal is reported", || {
        get(&program, "a.example", "/");
        (has("does not accept all spans: it responds with 400") > 0).then_some(())
    });
    program.stop();
}
