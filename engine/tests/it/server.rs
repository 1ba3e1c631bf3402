//! Tests the public API over sockets: start, connection limits, shutdown.
//!
//! The unit tests of the engine cover the behaviour of one connection, with virtual time and
//! in-memory streams. These tests cover behaviour that needs sockets and threads.

use crate::support::client::Client;
use selvedge::service::{Admission, CloseReason, Closed, Exchange, ServerEvent};
use selvedge::{Limits, Observer, Request, Response, RunningServer, Server, StatusCode};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// An observer that records the reports of all workers.
#[derive(Clone)]
struct RecordingObserver {
    responses: Arc<AtomicUsize>,
    closed: Arc<Mutex<Vec<CloseReason>>>,
    events: Sender<ServerEvent>,
}

impl RecordingObserver {
    fn new() -> (Self, Receiver<ServerEvent>) {
        let (events, received) = channel();
        (Self { responses: Arc::default(), closed: Arc::default(), events }, received)
    }

    fn count(&self, reason: CloseReason) -> usize {
        self.closed.lock().expect("no thread panicked with the lock").iter().filter(|closed| **closed == reason).count()
    }
}

impl Observer for RecordingObserver {
    fn finished(&self, _: &Exchange<'_>) {
        self.responses.fetch_add(1, Ordering::SeqCst);
    }

    fn closed(&self, closed: &Closed) {
        self.closed.lock().expect("no thread panicked with the lock").push(closed.reason);
    }

    fn event(&self, event: &ServerEvent) {
        let _ = self.events.send(event.clone());
    }
}

/// A server, its observer, and the semaphore on which `/wait` waits.
struct TestServer {
    running: RunningServer,
    observer: RecordingObserver,
    events: Receiver<ServerEvent>,
    entered: Receiver<()>,
    semaphore: Arc<Semaphore>,
}

impl TestServer {
    fn with(workers: usize, limits: Limits) -> Self {
        let (observer, events) = RecordingObserver::new();
        let (enter, entered) = channel();
        let semaphore = Arc::new(Semaphore::new(0));
        let waiting = semaphore.clone();
        let server = Server::bind_with_workers("127.0.0.1:0", workers).expect("a free port");
        let service = async move |request: &mut Request| match request.path() {
            "/worker" => Response::new(StatusCode::OK).body(std::thread::current().name().unwrap_or("?").to_owned()),
            "/large" => Response::new(StatusCode::OK).body(vec![b'x'; LARGE_BYTES]),
            "/wait" => {
                enter.send(()).expect("the test is running");
                waiting.acquire().await.expect("the semaphore is open").forget();
                Response::new(StatusCode::OK).body("waited")
            }
            _ => Response::new(StatusCode::OK).body(request.path().to_owned()),
        };
        let running = server.limits(limits).observe(observer.clone()).serve(service).expect("threads start");
        Self { running, observer, events, entered, semaphore }
    }

    fn client(&self) -> Client {
        Client::connect(self.running.addresses()[0])
    }

    /// Connects a client that has received a response and is idle.
    fn idle(&self) -> Client {
        let mut client = self.client();
        assert_eq!(client.get("/idle"), "/idle");
        client
    }

    /// Connects a client whose request the application is processing.
    fn busy(&self, field: &str) -> Client {
        let mut client = self.client();
        client.send(format!("GET /wait HTTP/1.1\r\nHost: test\r\n{field}\r\n"));
        self.entered.recv().expect("the application is called");
        client
    }
}

const LARGE_BYTES: usize = 16 * 1024;

#[test]
fn admission_hook_decides_which_connections_are_served() {
    let (observer, events) = RecordingObserver::new();
    let (arrived, counted) = (AtomicUsize::new(0), Arc::new(()));
    let owned = counted.clone();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(observer.clone());
    let server = server.admit(move |peer| {
        assert!(peer.ip().is_loopback());
        match arrived.fetch_add(1, Ordering::SeqCst) {
            0 => Admission::Serve(Box::new(owned.clone())),
            1 => Admission::ServeOverLimit(Box::new(owned.clone())),
            _ => Admission::Refuse,
        }
    });
    let service = async |request: &mut Request| Response::new(StatusCode::OK).body(request.path().to_owned());
    let running = server.serve(service).expect("a thread starts");
    let connect = || Client::connect(running.addresses()[0]);
    let (mut first, mut second) = (connect(), connect());
    assert_eq!((first.get("/1"), second.get("/2")), ("/1".to_owned(), "/2".to_owned()));
    let event = events.recv_timeout(Duration::from_secs(60)).expect("the event is reported");
    assert!(matches!(event, ServerEvent::ClientOverLimit { peer } if peer == second.local_address()), "{event:?}");
    assert_eq!(Arc::strong_count(&counted), 4, "two connections own the value of the hook");
    assert!(connect().read_until_close().starts_with(b"HTTP/1.1 503 "));
    drop((first, second));
    while Arc::strong_count(&counted) > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(observer.count(CloseReason::ClientOverLimit), 1);
    running.handle().stop_now();
    running.join();
}

#[test]
fn all_workers_receive_connections() {
    let server = TestServer::with(2, Limits::default());
    let mut seen = HashSet::new();
    let mut clients = Vec::new();
    // The kernel distributes connections by their ports. With this number, it is nearly impossible
    // that one worker receives all of them.
    for _ in 0..256 {
        let mut client = server.client();
        seen.insert(client.get("/worker"));
        clients.push(client);
    }
    assert_eq!(seen, HashSet::from(["selvedge-0".to_owned(), "selvedge-1".to_owned()]));
    server.running.handle().stop_now();
    server.running.join();
    assert_eq!(server.observer.responses.load(Ordering::SeqCst), 256);
}

#[test]
fn default_number_of_workers_serves() {
    let running = Server::bind("localhost:0")
        .expect("a free port")
        .serve(async |_: &mut Request| Response::new(StatusCode::OK).body("hello"))
        .expect("threads start");
    for address in running.addresses() {
        assert_eq!(Client::connect(*address).get("/"), "hello");
    }
    running.handle().stop();
    running.join();
}

#[test]
fn port_in_use_is_an_error() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("the listener is bound");
    assert_eq!(Server::bind(taken).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    // Two servers with SO_REUSEPORT could share a port and would take each other's connections.
    let first = Server::bind("127.0.0.1:0").expect("a free port");
    let taken = first.addresses()[0];
    assert_eq!(Server::bind(taken).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert_eq!(Server::bind(taken).expect("the port is free again").addresses(), [taken]);
}

#[test]
fn name_without_an_address_is_an_error() {
    assert!(Server::bind(&[][..] as &[SocketAddr]).is_err());
    assert!(Server::bind("127.0.0.1").is_err(), "a port is missing");
}

#[test]
fn graceful_shutdown_finishes_requests_in_progress() {
    let server = TestServer::with(2, Limits::default());
    let address = server.running.addresses()[0];
    let idle = server.idle();
    let mut busy = server.busy("");
    server.running.handle().stop();
    assert_eq!(idle.read_until_close(), b"", "an idle connection is closed immediately");
    server.semaphore.add_permits(1);
    let (head, content) = busy.read_response();
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    assert_eq!(content, "waited");
    assert_eq!(busy.read_until_close(), b"");
    server.running.join();
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
    assert_eq!(server.observer.count(CloseReason::Draining), 2);
}

#[test]
fn graceful_shutdown_has_a_timeout() {
    let server = TestServer::with(2, Limits { shutdown_timeout: Duration::from_millis(1), ..Limits::default() });
    let busy = server.busy("");
    server.running.handle().stop();
    server.running.join();
    assert_eq!(busy.read_until_close(), b"");
    assert_eq!(server.observer.count(CloseReason::ShutdownTimeout), 1);
}

#[test]
fn immediate_stop_reports_all_connections() {
    const CLIENTS: usize = 400;
    let server = TestServer::with(1, Limits { connections_max: 1000, ..Limits::default() });
    let clients: Vec<Client> = (0..CLIENTS).map(|_| server.busy("")).collect();
    server.running.handle().stop();
    server.running.handle().stop_now();
    server.running.join();
    assert_eq!(server.observer.count(CloseReason::StoppedImmediately), CLIENTS);
    clients.into_iter().for_each(|client| assert_eq!(client.read_until_close(), b""));
}

fn server_with_two_connections() -> TestServer {
    TestServer::with(1, Limits { connections_max: 2, ..Limits::default() })
}

#[test]
fn no_connection_is_evicted_at_the_limit() {
    let server = server_with_two_connections();
    let (mut first, mut second) = (server.idle(), server.idle());
    for _ in 0..10 {
        assert_eq!(first.get("/first"), "/first");
        assert_eq!(second.get("/second"), "/second");
    }
    assert_eq!(server.observer.count(CloseReason::Evicted), 0);
    assert!(server.events.try_recv().is_err(), "no client waits");
}

#[test]
fn idle_connection_is_evicted_for_a_new_one() {
    let server = server_with_two_connections();
    let _busy = server.busy("");
    let idle = server.idle();
    assert_eq!(server.client().get("/new"), "/new");
    assert_eq!(idle.read_until_close(), b"");
    assert_eq!(server.observer.count(CloseReason::Evicted), 1);
}

#[test]
fn new_connection_waits_if_none_is_idle() {
    let server = server_with_two_connections();
    let mut first = server.busy("Connection: close\r\n");
    let _second = server.busy("");
    let mut third = server.client();
    third.send("GET /third HTTP/1.1\r\nHost: test\r\n\r\n");
    let full = server.events.recv().expect("the event is reported");
    assert!(matches!(full, ServerEvent::ConnectionLimitReached { limit: 2 }), "{full:?}");
    assert_eq!(server.observer.responses.load(Ordering::SeqCst), 0);
    server.semaphore.add_permits(1);
    assert_eq!(first.read_response().1, "waited");
    assert_eq!(third.read_response().1, "/third");
    let free = server.events.recv().expect("the event is reported");
    assert!(matches!(free, ServerEvent::ConnectionLimitCleared), "{free:?}");
}

#[test]
fn connection_that_becomes_idle_is_evicted_for_a_waiting_one() {
    let server = server_with_two_connections();
    let mut first = server.busy("");
    let _second = server.busy("");
    let mut third = server.client();
    third.send("GET /third HTTP/1.1\r\nHost: test\r\n\r\n");
    let full = server.events.recv().expect("the event is reported");
    assert!(matches!(full, ServerEvent::ConnectionLimitReached { limit: 2 }), "{full:?}");
    server.semaphore.add_permits(1);
    assert_eq!(first.read_response().1, "waited");
    assert_eq!(third.read_response().1, "/third");
    assert_eq!(first.read_until_close(), b"");
    assert_eq!(server.observer.count(CloseReason::Evicted), 1);
}

#[test]
fn responses_to_a_client_that_does_not_read_are_bounded() {
    const REQUESTS: usize = 10_000;
    let server = TestServer::with(1, Limits::default());
    let (mut other, mut responses) = (server.idle(), 0);
    // A thread sends the requests, since the server may stop reading before all of them are sent.
    let mut sending = server.client();
    let sender = std::thread::spawn(move || {
        sending.send(b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n".repeat(REQUESTS));
        sending
    });
    // The worker alternates between both connections. If the first makes no progress during many
    // requests of the second, the kernel's buffers are full.
    for _ in 0..1_000 {
        (0..100).for_each(|_| drop(other.get("/")));
        let now = server.observer.responses.load(Ordering::SeqCst);
        if now - responses == 100 && now > 1_000 {
            break;
        }
        responses = now;
    }
    let total = server.observer.responses.load(Ordering::SeqCst);
    assert!(total < REQUESTS / 2, "{total}");
    let mut sending = sender.join().expect("the kernel buffers the requests");
    for _ in 0..REQUESTS {
        assert_eq!(sending.read_response().1.len(), LARGE_BYTES);
    }
}
