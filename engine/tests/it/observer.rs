//! Checks what an observer receives about a request and its response.

use selvedge::proto::Persistence;
use selvedge::service::{Exchange, Phase, PhaseTimes, RequestPhase};
use selvedge::{Observer, Request, Response, RunningServer, Server, StatusCode};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The parts of an exchange that the tests check.
#[derive(Debug, PartialEq, Eq)]
struct ObservedExchange {
    status: u16,
    etag: Option<Vec<u8>>,
    head_bytes: usize,
    content_bytes: u64,
    persistence: Persistence,
    requests: u32,
    client: Option<IpAddr>,
    user: Option<String>,
    site_tag: Option<u32>,
    is_timed: bool,
}

#[derive(Clone)]
struct SendingObserver(Sender<ObservedExchange>);

impl Observer for SendingObserver {
    fn wants_elapsed(&self) -> bool {
        true
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        let observed = ObservedExchange {
            status: exchange.status.code(),
            etag: exchange.fields.get("etag").map(<[u8]>::to_vec),
            head_bytes: exchange.head_bytes,
            content_bytes: exchange.content_bytes,
            persistence: exchange.persistence,
            requests: exchange.requests,
            client: exchange.request.map(Request::client),
            user: exchange.request.and_then(Request::user).map(str::to_owned),
            site_tag: exchange.request.map(Request::site_tag),
            is_timed: exchange.elapsed.is_some(),
        };
        self.0.send(observed).expect("the test receives the exchange");
    }
}

async fn respond(request: &mut Request) -> Response {
    if request.path() == "/known" {
        request.set_client(IpAddr::from([192, 0, 2, 7]));
        request.set_user("ann".into());
        request.set_site_tag(3);
    }
    Response::new(StatusCode::OK).field("ETag", "\"a\"").body("content")
}

#[test]
fn observer_receives_request_properties_and_response() {
    let (sender, observed) = channel();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(SendingObserver(sender));
    let running = server.serve(respond).expect("a thread starts");
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let requests = "GET /known HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/9.9\r\n\r\n";
    stream.write_all(requests.as_bytes()).expect("the server reads");
    let mut responses = Vec::new();
    stream.read_to_end(&mut responses).expect("the server responds and closes");
    let observed: Vec<ObservedExchange> =
        (0..3).map(|_| observed.recv().expect("three exchanges are reported")).collect();
    let sent: u64 = observed.iter().map(|exchange| exchange.head_bytes as u64 + exchange.content_bytes).sum();
    assert_eq!(sent, responses.len() as u64);

    let [known, unknown, refused] = &observed[..] else { panic!("{observed:?}") };
    assert_eq!((known.client, known.user.as_deref()), (Some(IpAddr::from([192, 0, 2, 7])), Some("ann")));
    // The next request reuses the request struct and has none of these values.
    assert_eq!((unknown.client, unknown.user.as_deref()), (Some(IpAddr::from([127, 0, 0, 1])), None));
    assert_eq!((known.site_tag, unknown.site_tag, refused.site_tag), (Some(3), Some(0), None));
    for (number, exchange) in [(1, known), (2, unknown)] {
        assert_eq!(
            (exchange.status, exchange.content_bytes, exchange.requests, exchange.is_timed),
            (200, 7, number, true)
        );
        assert_eq!((exchange.etag.as_deref(), exchange.persistence), (Some(&b"\"a\""[..]), Persistence::KeepAlive));
    }
    assert_eq!((refused.status, refused.persistence, refused.etag.as_deref()), (505, Persistence::Close, None));
    running.handle().stop_now();
    running.join();
}

#[derive(Clone)]
struct PhaseObserver(Sender<PhaseTimes>);

impl Observer for PhaseObserver {
    fn wants_elapsed(&self) -> bool {
        true
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        self.0.send(exchange.phases).expect("the test receives the phases");
    }
}

/// Reads the content, and responds with more than a socket accepts at once, except at one path.
async fn respond_slowly(request: &mut Request) -> Response {
    if request.path() == "/at-once" {
        return Response::new(StatusCode::OK).body("content");
    }
    let mut content = request.take_body();
    while let Some(piece) = poll_fn(|cx| content.poll_chunk(cx)).await {
        piece.expect("the client sends all of it");
    }
    Response::new(StatusCode::OK).body(vec![b'x'; LONG_CONTENT])
}

const LONG_CONTENT: usize = 32 << 20;

/// Waits until a connection of the server is in a phase.
fn wait_for_phase(running: &RunningServer, phase: Phase) {
    while running.handle().connection_stats(Duration::from_secs(60)).in_phase(phase) == 0 {
        std::thread::yield_now();
    }
}

fn phases_over(observed: &Receiver<PhaseTimes>) -> Vec<RequestPhase> {
    let phases = observed.recv().expect("the exchange is reported");
    RequestPhase::ALL.into_iter().filter(|phase| phases.get(*phase).is_some()).collect()
}

#[test]
fn only_phases_with_a_wait_have_a_time() {
    use RequestPhase::{Accept, Application, Content, Head, Send};
    let (sender, observed) = channel();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(PhaseObserver(sender));
    let running = server.serve(respond_slowly).expect("a thread starts");
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let mut send = |text: &str| stream.write_all(text.as_bytes()).expect("the server reads");
    send("GET /at-once HTTP/1.1\r\nHo");
    wait_for_phase(&running, Phase::ReadingHead);
    send("st: a\r\n\r\n");
    assert_eq!(phases_over(&observed), [Accept, Head]);
    for _ in 0..3 {
        send("GET /at-once HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(phases_over(&observed), []);
    }
    send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    wait_for_phase(&running, Phase::ReadingContent);
    send("cd");
    let mut responses = vec![0; 4 * "content".len() + LONG_CONTENT];
    stream.read_exact(&mut responses).expect("the server responds");
    std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    assert_eq!(phases_over(&observed), [Content, Application, Send]);
    running.handle().stop_now();
    running.join();
}
