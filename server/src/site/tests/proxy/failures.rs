//! Failures of servers: what the client and the log get, and which requests are repeated.

use super::*;
use selvedge::client::ClientTimeouts;
use std::net::SocketAddr;

/// Closes the connection without a response to the first requests, and responds to later ones.
fn closes_first(count: usize) -> TestUpstream {
    TestUpstream::new(move |mut received| {
        if received.number < count {
            return Then::Close;
        }
        received.respond(200, "", "late");
        Then::Continue
    })
}

#[test]
fn failures_have_their_status_and_a_reason_in_the_log() {
    let short = ClientTimeouts { response: Duration::from_millis(100), ..ClientTimeouts::default() };
    let silent = TestUpstream::new(|mut received| {
        received.await_close();
        Then::Close
    });
    let malformed = TestUpstream::new(|mut received| {
        received.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx");
        Then::Close
    });
    let closed = closed_address();
    for (address, status, reason) in [
        (closed, 502, format!("connect: connection refused ({closed} of app, 1 try)")),
        (silent.address, 504, format!("await response: timed out ({} of app, 1 try)", silent.address)),
        (malformed.address, 502, "await response: malformed response".to_owned()),
    ] {
        let mut group = group(&[address]);
        group.timeouts = short;
        let server = proxy(ProxyRules { proxy_status: ProxyStatus::On, ..rules(group) });
        let response = server.get("/");
        assert_eq!(response.status, status, "{reason}");
        assert!(response.field("proxy-status").unwrap().starts_with("selvedge; next-hop=\"app\"; error="));
        let logged = server.logged().upstream.unwrap();
        assert!(logged.contains(&reason), "{logged}");
    }
    assert_eq!((silent.count(), malformed.count()), (1, 1), "neither is repeated");
}

#[test]
fn idempotent_requests_are_repeated_once() {
    for (method, failures, status, tries) in
        [("GET", 1, 200, 2), ("PUT", 1, 200, 2), ("GET", 2, 502, 2), ("POST", 1, 502, 1), ("PATCH", 1, 502, 1)]
    {
        let upstream = closes_first(failures);
        let server = proxy_to(&upstream);
        let lines: &[&str] = if method == "GET" { &[] } else { &["Content-Length: 3", "", "abc"] };
        assert_eq!(server.request(method, "/", "test", lines).status, status, "{method} {failures}");
        assert_eq!(upstream.count(), tries, "{method} {failures}");
        let requests = upstream.requests();
        assert!(requests.iter().all(|request| *request == requests[0]), "the content is repeated, too");
    }
}

#[test]
fn a_request_that_was_not_sent_goes_to_another_server() {
    let upstream = TestUpstream::with_content("alive");
    let server = proxy(rules(group(&[closed_address(), upstream.address, closed_address()])));
    for number in 0..20 {
        let response = server.request("POST", "/", "test", &["Content-Length: 3", "", "abc"]);
        assert_eq!(response.status_and_text(), (200, "alive"), "{number}");
    }
    assert_eq!(upstream.count(), 20);
}

#[test]
fn a_websocket_goes_to_another_server_if_one_does_not_accept_it() {
    // The preface of HTTP/2 ends like a head. The settings of this server have no extended CONNECT.
    let without = TestUpstream::new(|mut received| {
        received.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        received.await_close();
        Then::Close
    });
    let with = TestUpstream::new(|mut received| {
        received.send("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello");
        received.await_close();
        Then::Close
    });
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let group_of = |addresses: &[SocketAddr]| {
        let mut group = group(addresses);
        group.balance = Balance::RoundRobin;
        group
            .servers
            .iter_mut()
            .filter(|server| server.authority.as_ref() == without.address.to_string())
            .for_each(|server| server.protocol = selvedge::client::Protocol::Http2);
        proxy(rules(group))
    };
    let server = group_of(&[without.address, with.address]);
    for number in 0..4 {
        let text = read_until(&mut connect(&server, request), "hello");
        assert!(text.starts_with("HTTP/1.1 101 "), "{number}: {text}");
    }
    assert_eq!((without.count(), with.count()), (1, 4), "one connection of HTTP/2 has told it");
    // Without another server, the client gets an error after one try.
    let alone = group_of(&[without.address]);
    let text = read_until(&mut connect(&alone, request), "</html>\n");
    assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
    assert_eq!(alone.logged().upstream.unwrap().split(' ').nth(1), Some("1"));
}

#[test]
fn all_addresses_of_a_server_are_tried() {
    let upstream = TestUpstream::with_content("second");
    let group = group(&[closed_address()]);
    let addresses = [closed_address(), upstream.address].map(selvedge::client::Address::Tcp);
    group.servers[0].addresses.replace(addresses);
    let server = proxy(rules(group));
    assert_eq!(server.get("/").status_and_text(), (200, "second"));
    assert_eq!(server.logged().upstream.unwrap().split(' ').nth(1), Some("2"));
    // The address that worked is remembered.
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.logged().upstream.as_deref(), Some("app 1 200 -"));
}

#[test]
fn a_server_without_an_address_is_a_failure() {
    let group = group(&[closed_address()]);
    group.servers[0].addresses.replace([]);
    let server = proxy(rules(group));
    assert_eq!(server.get("/").status, 503);
    assert!(server.logged().upstream.unwrap().contains("the name of the upstream is not resolved"));
}

#[test]
fn content_beyond_the_limit_of_the_route_is_refused() {
    let upstream = TestUpstream::with_content("");
    let mut route = route("/*", Action::Proxy(Arc::new(rules(group(&[upstream.address])))));
    route.body_bytes_max = 10;
    let server = TestServer::one(vec![route]);
    let response = server.request("POST", "/", "test", &["Content-Length: 11", "", "hello world"]);
    assert_eq!((response.status, upstream.count()), (413, 0));
    let chunked = ["Transfer-Encoding: chunked", "", "b", "hello world", "0", ""];
    assert_eq!(server.request("POST", "/", "test", &chunked).status, 413);
}

#[test]
fn an_incomplete_response_reaches_the_client_as_incomplete() {
    let (sender, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let upstream = TestUpstream::new(move |mut received| {
        received.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        let _ = gate.lock().unwrap().recv();
        Then::Close
    });
    let server = proxy_to(&upstream);
    let mut client = connect(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(read_until(&mut client, "hello\r\n").starts_with("HTTP/1.1 200 "));
    sender.send(()).unwrap();
    let mut rest = Vec::new();
    // The last chunk would tell that the content is complete. The connection may be reset.
    let _ = client.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    let logged = server.logged().upstream.unwrap();
    assert!(logged.contains(&format!("incomplete response of {}", upstream.address)), "{logged}");
}

#[test]
fn a_client_that_leaves_ends_the_exchange() {
    let (sender, closed) = std::sync::mpsc::channel();
    let upstream = TestUpstream::new(move |mut received| {
        if received.text.starts_with("GET /stream") {
            received.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        }
        received.await_close();
        sender.send(()).unwrap();
        Then::Close
    });
    let server = proxy_to(&upstream);
    let address = server.running.as_ref().unwrap().addresses()[0];
    for target in ["/stream", "/waits"] {
        let count = upstream.count();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        if target == "/stream" {
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"data: 1\n\n\r\n") {
                let mut buffer = [0; 512];
                let read = client.read(&mut buffer).unwrap();
                assert_ne!(read, 0);
                bytes.extend_from_slice(&buffer[..read]);
            }
        } else {
            until("the request arrives", || upstream.count() > count);
        }
        drop(client);
        closed.recv_timeout(Duration::from_secs(30)).expect("the connection to the server is closed");
    }
}

#[test]
fn requests_that_meet_the_end_of_idle_connections_need_no_budget_of_repetitions() {
    // More than may be repeated at once otherwise. All arrive before the first one is served or fails.
    const AT_ONCE: usize = 8;
    let barrier = std::sync::Barrier::new(AT_ONCE);
    let upstream = TestUpstream::new(move |mut received| {
        let round = received.number / AT_ONCE;
        barrier.wait();
        if round == 1 {
            return Then::Close;
        }
        received.respond(200, "", "ok");
        Then::Continue
    });
    let server = proxy_to(&upstream);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| connect(&server, request)).collect();
    for client in &mut clients {
        assert!(read_until(client, "\r\n\r\nok").starts_with("HTTP/1.1 200 "));
    }
    clients.iter_mut().for_each(|client| client.write_all(request.as_bytes()).unwrap());
    for client in &mut clients {
        assert!(read_until(client, "\r\n\r\nok").starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(upstream.count(), 3 * AT_ONCE);
}

#[cfg(feature = "program")]
#[test]
fn the_reason_is_that_of_the_address_that_got_furthest() {
    use selvedge::client::Address;
    use selvedge::tls::{ClientTlsBuilder, RootCertificates, Verification};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let tls = ClientTlsBuilder::new("localhost").roots(RootCertificates::System).verification(Verification::Skipped);
    let tls = Arc::new(tls.build().unwrap());
    let closed = closed_address();
    for addresses in [[plain, closed], [closed, plain]] {
        let mut group = group(&[plain]);
        group.servers[0].tls = Some(tls.clone());
        group.servers[0].addresses = Arc::new(AddressCell::new(addresses.map(Address::Tcp)));
        let server = proxy(ProxyRules { proxy_status: ProxyStatus::On, ..rules(group) });
        let response = server.get("/");
        let error = response.field("proxy-status").unwrap();
        assert!(response.status == 502 && error.contains("tls_protocol_error"), "{addresses:?}: {error}");
        let logged = server.logged().upstream.unwrap();
        let expected =
            format!("TLS handshake: handshake failed: the upstream does not use TLS ({plain} of app, 2 tries)");
        assert!(logged.contains(&expected), "{addresses:?}: {logged}");
    }
}
