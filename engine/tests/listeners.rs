//! Listening sockets over the public interface: Unix sockets, sockets that exist already, and
//! places that come and go while the server runs.

mod client;

use client::Client;
use selvedge::service::{Exchange, UNIX_PEER};
use selvedge::{Ending, Endpoint, Listener, Observer, Request, Response, Running, Server, Status};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

fn serve(listeners: Vec<Listener>, workers: usize) -> Running {
    let service = async |request: &mut Request| {
        let peer = if request.peer() == UNIX_PEER { "somebody here" } else { "an address" };
        Response::new(Status::OK).body(format!("{} for {peer}", request.path()))
    };
    Server::on(listeners, workers).serve(service).expect("threads start")
}

fn stop(running: Running) {
    running.handle().stop();
    assert_eq!(running.join(), Ending::Stopped);
}

fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("selvedge-listeners-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn get_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    answer.split_once("\r\n\r\n").expect("a whole head").1.to_owned()
}

fn address(listener: &Listener) -> SocketAddr {
    match listener.endpoint() {
        Endpoint::Inet(address) => *address,
        Endpoint::Unix(path) => panic!("{}", path.display()),
    }
}

/// Looks until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_unix_socket_and_ports_are_served_together() {
    let path = path("together");
    let inet = Listener::bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
    let unix = Listener::bind_unix(&path, 0o600).unwrap();
    assert_eq!(unix.endpoint().to_string(), format!("unix:{}", path.display()));
    let running = serve(vec![inet, unix], 2);
    assert_eq!(running.addresses().len(), 1, "a Unix socket has no address");
    // Whichever worker takes it.
    for _ in 0..16 {
        assert_eq!(get_unix(&path), "/a for somebody here");
        assert_eq!(Client::connect(running.addresses()[0]).get("/b"), "/b for an address");
    }
    stop(running);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sockets_that_exist_are_shared_among_workers_and_each_is_attended_to() {
    // Fewer sockets than workers, and more.
    for (sockets, workers) in [(1, 3), (3, 1), (2, 3), (5, 2)] {
        let bound = Listener::bind("127.0.0.1:0".parse().unwrap(), sockets).unwrap();
        let kept = bound.try_clone().unwrap();
        let given = bound.sockets().map(|socket| socket.try_clone_to_owned().unwrap()).collect();
        drop(bound);
        let running = serve(vec![Listener::from_sockets(given).unwrap()], workers);
        assert_eq!(running.addresses(), [address(&kept)]);
        // A socket without a worker would let some of these wait for ever.
        for _ in 0..64 {
            assert_eq!(Client::connect(address(&kept)).get("/"), "/ for an address");
        }
        stop(running);
        // They are open as long as somebody has them: the next one serves who waits.
        let mut waits = TcpStream::connect(address(&kept)).unwrap();
        waits.write_all(b"GET /w HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let running = serve(vec![kept], workers);
        let mut answer = String::new();
        waits.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("/w for an address"), "{answer}");
        stop(running);
    }
}

#[test]
fn what_does_not_listen_is_no_listener() {
    let refused = |socket: OwnedFd| Listener::from_sockets(vec![socket]).unwrap_err().to_string();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    assert_eq!(refused(connected.into()), "the descriptor is not a stream socket that listens");
    let datagrams = UnixDatagram::unbound().unwrap();
    assert_eq!(refused(datagrams.into()), "the descriptor is not a stream socket that listens");
    refused(std::fs::File::open("/dev/null").unwrap().into());
    Listener::from_sockets(vec![]).unwrap_err();
    Listener::inherited(1 << 20).unwrap_err();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let both = Listener::from_sockets(vec![listening.into(), other.into()]).unwrap_err();
    assert_eq!(both.to_string(), "the sockets listen at different endpoints");
}

#[test]
fn places_come_and_go_while_it_runs() {
    let running = serve(vec![], 2);
    let handle = running.handle();
    let (first, second) = (path("first"), path("second"));
    let inet =
        Listener::bind("[::1]:0".parse().unwrap(), 2).or_else(|_| Listener::bind("127.0.0.1:0".parse().unwrap(), 2));
    let inet = inet.unwrap();
    let (address, endpoint) = (address(&inet), inet.endpoint().clone());
    handle.listen(inet).unwrap();
    handle.listen(Listener::bind_unix(&first, 0o600).unwrap()).unwrap();
    let mut stays = Client::connect(address);
    assert_eq!(stays.get("/1"), "/1 for an address");
    assert_eq!(get_unix(&first), "/a for somebody here");
    handle.leave(&endpoint);
    until("the port is let go", || TcpStream::connect(address).is_err());
    assert_eq!(stays.get("/2"), "/2 for an address", "connections stay");
    handle.listen(Listener::bind_unix(&second, 0o600).unwrap()).unwrap();
    assert_eq!((get_unix(&first), get_unix(&second)), (get_unix(&second), get_unix(&first)));
    handle.leave(&Endpoint::Unix(first.clone()));
    until("the socket is let go", || UnixStream::connect(&first).is_err());
    assert_eq!(get_unix(&second), "/a for somebody here");
    stop(running);
    UnixStream::connect(&second).unwrap_err();
    // Who stops listens nowhere any more.
    handle.listen(Listener::bind_unix(&second, 0o600).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    until("the listener is let go", || UnixStream::connect(&second).is_err());
    for path in [first, second] {
        std::fs::remove_file(path).unwrap();
    }
}

/// It fails where no connection catches it.
#[derive(Clone)]
struct Fails;

impl Observer for Fails {
    fn finished(&self, _: &Exchange<'_>) {}

    fn tick(&self) {
        assert_ne!(thread::current().name(), Some("selvedge-1"), "the second worker is to be lost");
    }
}

#[test]
fn a_server_that_loses_a_worker_ends_and_says_so() {
    let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap().observe(Fails);
    let running = server.serve(async |_: &mut Request| Response::new(Status::OK)).expect("threads start");
    assert_eq!(running.join(), Ending::WorkerLost);
}
