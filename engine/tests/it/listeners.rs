//! Tests listeners with the public API: Unix sockets, existing sockets, and listeners that are added
//! and removed while the server runs.

use crate::support::client::Client;
use selvedge::service::{Exchange, UNIX_PEER};
use selvedge::{Driver, Endpoint, ExitCause, Listener, Observer, Request, Response, RunningServer, Server, StatusCode};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

fn serve(listeners: Vec<Listener>, workers: usize) -> RunningServer {
    let service = async |request: &mut Request| {
        let peer = if request.peer() == UNIX_PEER { "a Unix peer" } else { "an address" };
        Response::new(StatusCode::OK).body(format!("{} for {peer}", request.path()))
    };
    Server::from_listeners(listeners, workers).serve(service).expect("threads start")
}

fn stop(running: RunningServer) {
    running.handle().stop();
    assert_eq!(running.join(), ExitCause::Stopped);
}

fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("selvedge-listeners-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn get_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the server responds");
    response.split_once("\r\n\r\n").expect("the head is complete").1.to_owned()
}

fn address(listener: &Listener) -> SocketAddr {
    match listener.endpoint() {
        Endpoint::Inet(address) => *address,
        Endpoint::Unix(path) => panic!("{}", path.display()),
    }
}

/// Waits until the condition is true.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "timeout while waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn unix_socket_and_port_are_served_by_one_server() {
    let path = path("together");
    let inet = Listener::bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
    let unix = Listener::bind_unix(&path, 0o600).unwrap();
    assert_eq!(unix.endpoint().to_string(), format!("unix:{}", path.display()));
    let running = serve(vec![inet, unix], 2);
    assert_eq!(running.addresses().len(), 1, "a Unix socket has no address");
    // Any worker may accept the connection.
    for _ in 0..16 {
        assert_eq!(get_unix(&path), "/a for a Unix peer");
        assert_eq!(Client::connect(running.addresses()[0]).get("/b"), "/b for an address");
    }
    stop(running);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn existing_sockets_are_distributed_to_the_workers() {
    // Fewer sockets than workers, and more sockets than workers.
    for (sockets, workers) in [(1, 3), (3, 1), (2, 3), (5, 2)] {
        let bound = Listener::bind("127.0.0.1:0".parse().unwrap(), sockets).unwrap();
        let cloned = bound.try_clone().unwrap();
        let given = bound.sockets().map(|socket| socket.try_clone_to_owned().unwrap()).collect();
        drop(bound);
        let running = serve(vec![Listener::from_sockets(given).unwrap()], workers);
        assert_eq!(running.addresses(), [address(&cloned)]);
        // If a socket had no worker, some of these clients would wait forever.
        for _ in 0..64 {
            assert_eq!(Client::connect(address(&cloned)).get("/"), "/ for an address");
        }
        stop(running);
        // The sockets stay open while a process has a descriptor: the next server accepts the waiting
        // client.
        let mut waiting = TcpStream::connect(address(&cloned)).unwrap();
        waiting.write_all(b"GET /w HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let running = serve(vec![cloned], workers);
        let mut response = String::new();
        waiting.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("/w for an address"), "{response}");
        stop(running);
    }
}

#[test]
fn sockets_that_do_not_listen_are_refused() {
    let error_of = |socket: OwnedFd| Listener::from_sockets(vec![socket]).unwrap_err().to_string();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    assert_eq!(error_of(connected.into()), "the descriptor is not a listening stream socket");
    let datagrams = UnixDatagram::unbound().unwrap();
    assert_eq!(error_of(datagrams.into()), "the descriptor is not a listening stream socket");
    error_of(std::fs::File::open("/dev/null").unwrap().into());
    Listener::from_sockets(vec![]).unwrap_err();
    Listener::inherited(1 << 20).unwrap_err();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let both = Listener::from_sockets(vec![listening.into(), other.into()]).unwrap_err();
    assert_eq!(both.to_string(), "cannot use the sockets as one listener: they listen at different endpoints");
}

#[test]
fn listeners_are_added_and_removed_while_the_server_runs() {
    let running = serve(vec![], 2);
    let handle = running.handle();
    let (first, second) = (path("first"), path("second"));
    let inet =
        Listener::bind("[::1]:0".parse().unwrap(), 2).or_else(|_| Listener::bind("127.0.0.1:0".parse().unwrap(), 2));
    let inet = inet.unwrap();
    let (address, endpoint) = (address(&inet), inet.endpoint().clone());
    handle.add_listener(inet).unwrap();
    handle.add_listener(Listener::bind_unix(&first, 0o600).unwrap()).unwrap();
    let mut open = Client::connect(address);
    assert_eq!(open.get("/1"), "/1 for an address");
    assert_eq!(get_unix(&first), "/a for a Unix peer");
    handle.remove_listener(&endpoint);
    wait_until("the port is closed", || TcpStream::connect(address).is_err());
    assert_eq!(open.get("/2"), "/2 for an address", "open connections persist");
    handle.add_listener(Listener::bind_unix(&second, 0o600).unwrap()).unwrap();
    assert_eq!((get_unix(&first), get_unix(&second)), (get_unix(&second), get_unix(&first)));
    handle.remove_listener(&Endpoint::Unix(first.clone()));
    wait_until("the socket is closed", || UnixStream::connect(&first).is_err());
    assert_eq!(get_unix(&second), "/a for a Unix peer");
    stop(running);
    UnixStream::connect(&second).unwrap_err();
    // A stopped server closes a listener that is added.
    handle.add_listener(Listener::bind_unix(&second, 0o600).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    wait_until("the listener is closed", || UnixStream::connect(&second).is_err());
    for path in [first, second] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_removal_during_a_stop_returns_when_no_worker_accepts() {
    let listeners = [(); 2].map(|()| Listener::bind("127.0.0.1:0".parse().unwrap(), 2).unwrap());
    let (endpoints, addresses) =
        (listeners.each_ref().map(|l| l.endpoint().clone()), listeners.each_ref().map(address));
    let running = serve(listeners.into(), 2);
    // A worker with a connection does not end at once.
    let mut open = Client::connect(addresses[0]);
    assert_eq!(open.get("/1"), "/1 for an address");
    running.handle().stop();
    running.handle().remove_listeners(&endpoints);
    for address in addresses {
        TcpStream::connect(address).unwrap_err();
    }
    drop(open);
    assert_eq!(running.join(), ExitCause::Stopped);
}

/// Sends a request on a connection that was silent, and returns the response.
fn post(mut client: TcpStream) -> String {
    client.write_all(b"POST /p HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").expect("the server reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("the server responds and closes");
    response
}

#[test]
fn a_client_that_has_sent_nothing_has_a_moment_for_a_request_after_a_stop() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        for (wait, is_alone) in [(100, true), (100, false), (1500, true), (1500, false)] {
            let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap().driver(driver);
            // Longer than any pause of a slow machine.
            let server = server.shutdown_notice(Duration::from_secs(20));
            let running = server.serve(async |_: &mut Request| Response::new(StatusCode::OK)).expect("threads start");
            let address = running.addresses()[0];
            let mut other = (!is_alone).then(|| Client::connect(address));
            other.iter_mut().for_each(|other| drop(other.get("/")));
            // Each worker has such a client with high probability.
            let silent: Vec<_> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
            running.handle().stop();
            thread::sleep(Duration::from_millis(wait));
            for client in silent {
                let response = post(client);
                assert!(response.starts_with("HTTP/1.1 200 "), "{driver:?}, {wait} ms: {response}");
                assert!(response.to_ascii_lowercase().contains("connection: close"), "{response}");
            }
            drop(other);
            assert_eq!(running.join(), ExitCause::Stopped);
            TcpStream::connect(address).unwrap_err();
        }
    }
}

#[test]
fn a_stop_without_clients_does_not_wait_for_the_notice() {
    let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap().shutdown_notice(Duration::from_secs(60));
    let running = server.serve(async |_: &mut Request| Response::new(StatusCode::OK)).expect("threads start");
    let started = Instant::now();
    stop(running);
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// An observer that panics outside of a connection.
#[derive(Clone)]
struct PanickingObserver;

impl Observer for PanickingObserver {
    fn finished(&self, _: &Exchange<'_>) {}

    fn tick(&self) {
        assert_ne!(thread::current().name(), Some("selvedge-1"), "the second worker must panic");
    }
}

#[test]
fn server_stops_if_a_worker_panics() {
    let start = || {
        let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap().observe(PanickingObserver);
        server.serve(async |_: &mut Request| Response::new(StatusCode::OK)).expect("threads start")
    };
    assert_eq!(start().join(), ExitCause::WorkerPanicked);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    assert_eq!(runtime.block_on(start().ended()), ExitCause::WorkerPanicked);
}
