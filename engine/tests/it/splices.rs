//! Long content from an upstream to a client over sockets, with each I/O back end: it passes through a pipe.

use crate::support::client::Client as RawClient;
use selvedge::client::{
    Address, Client, ClientLimits, ClientTimeouts, Destination, OutgoingContent, OutgoingHead, ResponseUse,
};
use selvedge::{Driver, Request, Response, RunningServer, Server, StatusCode};
use std::cell::OnceCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];
/// More than the buffers of both connections and a pipe hold.
const LONG: usize = 20 << 20;

thread_local! {
    /// The client of a worker.
    static CLIENT: OnceCell<Client> = const { OnceCell::new() };
}

/// Text that differs at each place from that of another seed.
fn text(length: usize, seed: usize) -> String {
    const PERIOD: usize = 26 * 251;
    let period: String = (0..PERIOD).map(|at| char::from(b'a' + ((at * 7 + at / 251 + seed) % 26) as u8)).collect();
    let mut text = period.repeat(length / PERIOD + 1);
    text.truncate(length);
    text
}

/// What an upstream reports: each request, and for a client that leaves, that it noticed.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Request,
    Left,
}

/// Starts an upstream. The path of a request has a length, a seed, and how the content is sent.
fn upstream() -> (SocketAddr, Receiver<Event>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, events) = channel();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let events = sender.clone();
            thread::spawn(move || respond(&socket, &events));
        }
    });
    (address, events)
}

fn respond(mut socket: &TcpStream, events: &Sender<Event>) {
    socket.set_nodelay(true).expect("the option is set");
    let mut received = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        let Ok(count @ 1..) = socket.read(&mut bytes) else { return };
        received.extend_from_slice(&bytes[..count]);
        let Some(request) = received.strip_suffix(b"\r\n\r\n") else { continue };
        let target = String::from_utf8_lossy(request).split(' ').nth(1).unwrap_or_default().to_owned();
        received.clear();
        let _ = events.send(Event::Request);
        let parts: Vec<&str> = target.split('/').collect();
        let [_, length, seed, way] = parts[..] else { return };
        let length: usize = length.parse().expect("a number");
        let content = text(length, seed.parse().expect("a number"));
        let framing = if way == "close" { String::new() } else { format!("Content-Length: {length}\r\n") };
        let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n");
        let content = content.as_bytes();
        let (sent, piece_bytes) = match way {
            "early" => (&content[..length / 2], length),
            "pieces" => (content, 1_000),
            _ => (content, length),
        };
        let mut pieces = [head.as_bytes()].into_iter().chain(sent.chunks(piece_bytes));
        if pieces.try_for_each(|piece| socket.write_all(piece)).is_err() {
            let _ = events.send(Event::Left);
            return;
        }
        if matches!(way, "early" | "close") {
            return;
        }
    }
}

/// Starts a gateway to an upstream.
fn gateway(upstream: SocketAddr, driver: Driver) -> RunningServer {
    let to = Destination::plain(Address::Tcp(upstream));
    let app = async move |request: &mut Request| {
        let client = CLIENT.with(|client| client.get_or_init(|| Client::new(ClientLimits::default())).clone());
        let head = OutgoingHead {
            method: request.method_text().into(),
            target: request.target().into(),
            authority: b"upstream".to_vec(),
            response_use: ResponseUse::Forward,
            ..OutgoingHead::default()
        };
        let mut content = OutgoingContent::empty();
        match client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await {
            Ok(incoming) => Response::new(incoming.status).body(incoming.content.into_body()),
            Err(error) => Response::new(StatusCode::BAD_GATEWAY).body(error.to_string()),
        }
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").driver(driver);
    server.serve(app).expect("threads start")
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn long_responses_follow_each_other_on_one_connection() {
    for driver in DRIVERS {
        let (upstream, events) = upstream();
        let gateway = gateway(upstream, driver);
        let mut client = RawClient::connect(gateway.addresses()[0]);
        for (seed, length) in [65_536, 1 << 20, 100_000, 10, 65_536, 3 << 20, 40_000, 1].into_iter().enumerate() {
            client.send(get(&format!("/{length}/{seed}/whole")));
            let (head, content) = client.read_response();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(content == text(length, seed), "{length} bytes with {driver:?}");
            assert_eq!(events.recv(), Ok(Event::Request));
        }
        client.send(get("/200000/9/pieces"));
        assert!(client.read_response().1 == text(200_000, 9), "an upstream that sends slowly");
        // Responses to pipelined requests.
        client.send(get("/300000/1/whole") + &get("/20/2/whole") + &get("/300000/3/whole"));
        for (length, seed) in [(300_000, 1), (20, 2), (300_000, 3)] {
            assert!(client.read_response().1 == text(length, seed), "{length} bytes with {driver:?}");
        }
    }
}

#[test]
fn an_early_end_ends_the_client_and_the_next_one_is_served() {
    for driver in DRIVERS {
        let (upstream, _events) = upstream();
        let gateway = gateway(upstream, driver);
        for seed in 0..3 {
            let mut client = RawClient::connect(gateway.addresses()[0]);
            client.send(get(&format!("/1000000/{seed}/early")));
            let head = client.read_head();
            assert!(head.contains("\r\ncontent-length: 1000000\r\n"), "{head}");
            let content = client.read_until_close();
            assert!(content == text(1_000_000, seed).as_bytes()[..500_000], "{} bytes", content.len());
        }
    }
}

#[test]
fn content_until_the_end_of_the_connection_passes() {
    for driver in DRIVERS {
        let (upstream, _events) = upstream();
        let gateway = gateway(upstream, driver);
        let mut client = RawClient::connect(gateway.addresses()[0]);
        client.send("GET /1000000/4/close HTTP/1.0\r\nHost: a\r\n\r\n");
        client.read_head();
        assert!(client.read_until_close() == text(1_000_000, 4).as_bytes(), "{driver:?}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_upstream_and_no_byte_of_it_reaches_another() {
    for driver in DRIVERS {
        let (upstream, events) = upstream();
        let gateway = gateway(upstream, driver);
        for seed in 0..3 {
            let mut leaving = RawClient::connect(gateway.addresses()[0]);
            leaving.send(get(&format!("/{LONG}/{seed}/whole")));
            leaving.read_head();
            assert_eq!(events.recv(), Ok(Event::Request));
            drop(leaving);
            assert_eq!(events.recv(), Ok(Event::Left));
            let mut client = RawClient::connect(gateway.addresses()[0]);
            client.send(get(&format!("/500000/{}/whole", seed + 10)));
            assert!(client.read_response().1 == text(500_000, seed + 10), "{driver:?}");
            assert_eq!(events.recv(), Ok(Event::Request));
        }
    }
}

#[test]
fn clients_that_read_late_get_everything_while_others_are_served() {
    for driver in DRIVERS {
        let (upstream, events) = upstream();
        let gateway = gateway(upstream, driver);
        // More clients than a worker has pipes.
        let length = 2 << 20;
        let mut slow: Vec<_> = (0..40).map(|_| RawClient::connect(gateway.addresses()[0])).collect();
        for (seed, client) in slow.iter_mut().enumerate() {
            client.send(get(&format!("/{length}/{seed}/whole")));
            assert_eq!(events.recv(), Ok(Event::Request));
            client.read_head();
        }
        let mut fast = RawClient::connect(gateway.addresses()[0]);
        fast.send(get("/500000/50/whole"));
        assert!(fast.read_response().1 == text(500_000, 50), "{driver:?}");
        for (seed, client) in slow.iter_mut().enumerate() {
            assert!(client.read_content(length) == text(length, seed).as_bytes(), "{driver:?}");
        }
    }
}
