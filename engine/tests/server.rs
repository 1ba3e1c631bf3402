//! The public interface over real sockets: starting, limits of connections, stopping.
//!
//! What a connection does is tested where time is virtual and the wire is memory; here is
//! what only sockets and threads can show.

mod client;

use client::Client;
use selvedge::service::{Admission, CloseReason, Closed, Exchange, Incident};
use selvedge::{Limits, Observer, Request, Response, Running, Server, Status};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What was observed, in all workers, in the order in which it came.
#[derive(Clone)]
struct Reports {
    answered: Arc<AtomicUsize>,
    closed: Arc<Mutex<Vec<CloseReason>>>,
    incidents: Sender<Incident>,
}

impl Reports {
    fn new() -> (Self, Receiver<Incident>) {
        let (incidents, received) = channel();
        (Self { answered: Arc::default(), closed: Arc::default(), incidents }, received)
    }

    fn count(&self, reason: CloseReason) -> usize {
        self.closed.lock().expect("nobody panicked with it").iter().filter(|closed| **closed == reason).count()
    }
}

impl Observer for Reports {
    fn finished(&self, _: &Exchange<'_>) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    fn closed(&self, closed: &Closed) {
        self.closed.lock().expect("nobody panicked with it").push(closed.reason);
    }

    fn incident(&self, incident: &Incident) {
        let _ = self.incidents.send(incident.clone());
    }
}

/// A server, what it reports, and what lets `/wait` go on.
struct Site {
    running: Running,
    reports: Reports,
    incidents: Receiver<Incident>,
    entered: Receiver<()>,
    gate: Arc<Semaphore>,
}

impl Site {
    fn with(workers: usize, limits: Limits) -> Self {
        let (reports, incidents) = Reports::new();
        let (enter, entered) = channel();
        let gate = Arc::new(Semaphore::new(0));
        let waiting = gate.clone();
        let server = Server::bind_with_workers("127.0.0.1:0", workers).expect("a free port");
        let service = async move |request: &mut Request| match request.path() {
            "/worker" => Response::new(Status::OK).body(std::thread::current().name().unwrap_or("?").to_owned()),
            "/large" => Response::new(Status::OK).body(vec![b'x'; LARGE]),
            "/wait" => {
                enter.send(()).expect("the test lives");
                waiting.acquire().await.expect("it is not closed").forget();
                Response::new(Status::OK).body("waited")
            }
            _ => Response::new(Status::OK).body(request.path().to_owned()),
        };
        let running = server.limits(limits).observe(reports.clone()).serve(service).expect("threads start");
        Self { running, reports, incidents, entered, gate }
    }

    fn client(&self) -> Client {
        Client::connect(self.running.addresses()[0])
    }

    /// A client that has been served and is idle.
    fn idle(&self) -> Client {
        let mut client = self.client();
        assert_eq!(client.get("/idle"), "/idle");
        client
    }

    /// A client whose request is with the application.
    fn busy(&self, field: &str) -> Client {
        let mut client = self.client();
        client.send(format!("GET /wait HTTP/1.1\r\nHost: test\r\n{field}\r\n"));
        self.entered.recv().expect("the application is asked");
        client
    }
}

const LARGE: usize = 16 * 1024;

#[test]
fn the_application_says_which_connections_are_served() {
    let (reports, incidents) = Reports::new();
    let (arrived, counted) = (AtomicUsize::new(0), Arc::new(()));
    let kept = counted.clone();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(reports.clone());
    let server = server.admit(move |peer| {
        assert!(peer.ip().is_loopback());
        match arrived.fetch_add(1, Ordering::SeqCst) {
            0 => Admission::Serve(Box::new(kept.clone())),
            1 => Admission::Observe(Box::new(kept.clone())),
            _ => Admission::Refuse,
        }
    });
    let service = async |request: &mut Request| Response::new(Status::OK).body(request.path().to_owned());
    let running = server.serve(service).expect("a thread starts");
    let connect = || Client::connect(running.addresses()[0]);
    let (mut first, mut second) = (connect(), connect());
    assert_eq!((first.get("/1"), second.get("/2")), ("/1".to_owned(), "/2".to_owned()));
    let incident = incidents.recv_timeout(Duration::from_secs(60)).expect("it is reported");
    assert!(matches!(incident, Incident::TooManyFromClient { peer } if peer == second.address()), "{incident:?}");
    assert_eq!(Arc::strong_count(&counted), 4, "two connections have what was handed over");
    assert!(connect().rest().starts_with(b"HTTP/1.1 503 "));
    drop((first, second));
    while Arc::strong_count(&counted) > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reports.count(CloseReason::TooManyFromClient), 1);
    running.handle().stop_now();
    running.join();
}

#[test]
fn every_worker_gets_connections() {
    let site = Site::with(2, Limits::default());
    let mut seen = HashSet::new();
    let mut clients = Vec::new();
    // The kernel spreads them by their ports, so that this many on one worker are no chance.
    for _ in 0..256 {
        let mut client = site.client();
        seen.insert(client.get("/worker"));
        clients.push(client);
    }
    assert_eq!(seen, HashSet::from(["selvedge-0".to_owned(), "selvedge-1".to_owned()]));
    site.running.handle().stop_now();
    site.running.join();
    assert_eq!(site.reports.answered.load(Ordering::SeqCst), 256);
}

#[test]
fn the_usual_number_of_workers_serves() {
    let running = Server::bind("localhost:0")
        .expect("a free port")
        .serve(async |_: &mut Request| Response::new(Status::OK).body("hello"))
        .expect("threads start");
    for address in running.addresses() {
        assert_eq!(Client::connect(*address).get("/"), "hello");
    }
    running.handle().stop();
    running.join();
}

#[test]
fn a_port_that_somebody_has_is_an_error() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("it is bound");
    assert_eq!(Server::bind(taken).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    // Two servers of this kind could share a port, and would steal each other's clients.
    let first = Server::bind("127.0.0.1:0").expect("a free port");
    let taken = first.addresses()[0];
    assert_eq!(Server::bind(taken).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert_eq!(Server::bind(taken).expect("it is free again").addresses(), [taken]);
}

#[test]
fn a_name_without_an_address_is_an_error() {
    assert!(Server::bind(&[][..] as &[SocketAddr]).is_err());
    assert!(Server::bind("127.0.0.1").is_err(), "a port is missing");
}

#[test]
fn a_graceful_stop_finishes_what_runs() {
    let site = Site::with(2, Limits::default());
    let address = site.running.addresses()[0];
    let idle = site.idle();
    let mut busy = site.busy("");
    site.running.handle().stop();
    assert_eq!(idle.rest(), b"", "an idle connection ends at once");
    site.gate.add_permits(1);
    let (head, content) = busy.reply();
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    assert_eq!(content, "waited");
    assert_eq!(busy.rest(), b"");
    site.running.join();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    assert_eq!(site.reports.count(CloseReason::Draining), 2);
}

#[test]
fn a_graceful_stop_has_a_limit() {
    let site = Site::with(2, Limits { drain_time: Duration::from_millis(1), ..Limits::default() });
    let busy = site.busy("");
    site.running.handle().stop();
    site.running.join();
    assert_eq!(busy.rest(), b"");
    assert_eq!(site.reports.count(CloseReason::DrainLimit), 1);
}

#[test]
fn a_stop_at_once_reports_everybody() {
    const CLIENTS: usize = 400;
    let site = Site::with(1, Limits { connections_max: 1000, ..Limits::default() });
    let clients: Vec<Client> = (0..CLIENTS).map(|_| site.busy("")).collect();
    site.running.handle().stop();
    site.running.handle().stop_now();
    site.running.join();
    assert_eq!(site.reports.count(CloseReason::StoppedAtOnce), CLIENTS);
    clients.into_iter().for_each(|client| assert_eq!(client.rest(), b""));
}

fn two_connections() -> Site {
    Site::with(1, Limits { connections_max: 2, ..Limits::default() })
}

#[test]
fn as_many_connections_as_allowed_leave_each_other_alone() {
    let site = two_connections();
    let (mut first, mut second) = (site.idle(), site.idle());
    for _ in 0..10 {
        assert_eq!(first.get("/first"), "/first");
        assert_eq!(second.get("/second"), "/second");
    }
    assert_eq!(site.reports.count(CloseReason::MadeRoom), 0);
    assert!(site.incidents.try_recv().is_err(), "nobody waits");
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    let site = two_connections();
    let _busy = site.busy("");
    let idle = site.idle();
    assert_eq!(site.client().get("/new"), "/new");
    assert_eq!(idle.rest(), b"");
    assert_eq!(site.reports.count(CloseReason::MadeRoom), 1);
}

#[test]
fn a_new_connection_waits_while_none_is_idle() {
    let site = two_connections();
    let mut first = site.busy("Connection: close\r\n");
    let _second = site.busy("");
    let mut third = site.client();
    third.send("GET /third HTTP/1.1\r\nHost: test\r\n\r\n");
    let full = site.incidents.recv().expect("it is reported");
    assert!(matches!(full, Incident::ConnectionsFull { limit: 2 }), "{full:?}");
    assert_eq!(site.reports.answered.load(Ordering::SeqCst), 0);
    site.gate.add_permits(1);
    assert_eq!(first.reply().1, "waited");
    assert_eq!(third.reply().1, "/third");
    let free = site.incidents.recv().expect("it is reported");
    assert!(matches!(free, Incident::ConnectionsFree), "{free:?}");
}

#[test]
fn whoever_becomes_idle_makes_room_for_those_who_wait() {
    let site = two_connections();
    let mut first = site.busy("");
    let _second = site.busy("");
    let mut third = site.client();
    third.send("GET /third HTTP/1.1\r\nHost: test\r\n\r\n");
    let full = site.incidents.recv().expect("it is reported");
    assert!(matches!(full, Incident::ConnectionsFull { limit: 2 }), "{full:?}");
    site.gate.add_permits(1);
    assert_eq!(first.reply().1, "waited");
    assert_eq!(third.reply().1, "/third");
    assert_eq!(first.rest(), b"");
    assert_eq!(site.reports.count(CloseReason::MadeRoom), 1);
}

#[test]
fn a_client_that_does_not_read_is_not_answered_without_bounds() {
    const REQUESTS: usize = 10_000;
    let site = Site::with(1, Limits::default());
    let (mut other, mut answered) = (site.idle(), 0);
    // Sent by a thread, since the server may stop reading before all of it has left.
    let mut sending = site.client();
    let sender = std::thread::spawn(move || {
        sending.send(b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n".repeat(REQUESTS));
        sending
    });
    // The worker serves both in turn. Once the first stands still for many turns of the
    // second, the kernel's buffers are full.
    for _ in 0..1_000 {
        (0..100).for_each(|_| drop(other.get("/")));
        let now = site.reports.answered.load(Ordering::SeqCst);
        if now - answered == 100 && now > 1_000 {
            break;
        }
        answered = now;
    }
    let in_all = site.reports.answered.load(Ordering::SeqCst);
    assert!(in_all < REQUESTS / 2, "{in_all}");
    let mut sending = sender.join().expect("what is not read is kept by the kernel");
    for _ in 0..REQUESTS {
        assert_eq!(sending.reply().1.len(), LARGE);
    }
}
