//! Content that streams, interim responses, and connections that switch to another protocol.

use super::*;

#[test]
fn both_directions_stream_at_once() {
    // The server returns each chunk of the request before the next one is sent.
    let upstream = TestUpstream::new(|mut received| {
        received.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        loop {
            let mut buffer = [0; 512];
            let Ok(read @ 1..) = received.stream.read(&mut buffer) else { return Then::Close };
            let bytes = buffer[..read].to_vec();
            received.send(&bytes);
            if bytes.ends_with(b"0\r\n\r\n") {
                return Then::Continue;
            }
        }
    });
    let server = proxy_to(&upstream);
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let mut client = connect(&server, &format!("{head}5\r\nhello\r\n"));
    assert!(read_until(&mut client, "hello\r\n").starts_with("HTTP/1.1 200 "));
    client.write_all(b"5\r\nworld\r\n").unwrap();
    read_until(&mut client, "world\r\n");
    client.write_all(b"0\r\n\r\n").unwrap();
    read_until(&mut client, "0\r\n\r\n");
}

#[test]
fn long_content_and_trailers_are_forwarded() {
    const LENGTH: usize = 3 << 20;
    let upstream = TestUpstream::new(|mut received| {
        let length = received.text.split("\r\n\r\n").nth(1).unwrap().len();
        received.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n");
        received.send(format!("{length:x}\r\n{}\r\n0\r\nX-Sum: {length}\r\n\r\n", "y".repeat(length)));
        Then::Continue
    });
    let server = proxy_to(&upstream);
    let content = "x".repeat(LENGTH);
    let response = server.request("POST", "/", "test", &[&format!("Content-Length: {LENGTH}"), "", &content]);
    assert_eq!((response.status, response.content.matches('y').count()), (200, LENGTH));
    assert!(response.content.ends_with(&format!("0\r\nx-sum: {LENGTH}\r\n\r\n")));
}

#[test]
fn buffered_content_has_a_length() {
    let upstream = TestUpstream::with_content("ok");
    let mut rules = rules(group(&[upstream.address]));
    rules.buffering = RequestBuffering::UpTo(100);
    let server = proxy(rules);
    let chunked = ["Transfer-Encoding: chunked", "", "3", "abc", "3", "def", "0", ""];
    assert_eq!(server.request("POST", "/", "test", &chunked).status, 200);
    let request = upstream.requests().pop().unwrap();
    assert!(request.contains("\r\ncontent-length: 6\r\n") && request.ends_with("\r\n\r\nabcdef"), "{request}");
}

#[test]
fn content_that_is_too_long_to_buffer_streams() {
    let upstream = TestUpstream::new(|mut received| {
        let mut content = Vec::new();
        while !content.ends_with(b"0\r\n\r\n") {
            let mut buffer = [0; 4096];
            let Ok(read @ 1..) = received.stream.read(&mut buffer) else { return Then::Close };
            content.extend_from_slice(&buffer[..read]);
        }
        let count = content.iter().filter(|byte| **byte == b'x').count();
        received.respond(200, "", &count.to_string());
        Then::Continue
    });
    let mut rules = rules(group(&[upstream.address]));
    rules.buffering = RequestBuffering::UpTo(1000);
    let server = proxy(rules);
    let long = "x".repeat(5000);
    let chunked = ["Transfer-Encoding: chunked", "", "5", "xxxxx", "1388", &long, "0", ""];
    assert_eq!(server.request("POST", "/", "test", &chunked).status_and_text(), (200, "5005"));
}

#[test]
fn early_hints_are_passed_on() {
    let upstream = TestUpstream::new(|mut received| {
        received.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        received.send("HTTP/1.1 102 Processing\r\n\r\n");
        received.respond(200, "", "page");
        Then::Continue
    });
    let server = proxy_to(&upstream);
    let mut client = connect(&server, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = read_until(&mut client, "page");
    assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 "), "{text}");
    let mut old = connect(&server, "GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert!(read_until(&mut old, "page").starts_with("HTTP/1.1 200 "));
}

#[test]
fn connections_switch_to_another_protocol() {
    let upstream = TestUpstream::new(|mut received| {
        assert!(received.text.contains("\r\nconnection: upgrade\r\nupgrade: websocket\r\n"), "{}", received.text);
        received.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n");
        received.send("from the server;");
        let mut buffer = [0; 16];
        while let Ok(read @ 1..) = received.stream.read(&mut buffer) {
            let bytes = buffer[..read].to_ascii_uppercase();
            received.send(&bytes);
        }
        received.send("end");
        Then::Close
    });
    let server = proxy_to(&upstream);
    let request = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
    let mut client = connect(&server, &format!("{request}early;"));
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nsec-websocket-accept: x\r\n"), "{head}");
    read_until(&mut client, "from the server;EARLY;");
    client.write_all(b"hello").unwrap();
    read_until(&mut client, "HELLO");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    read_until(&mut client, "end");
    // Upgrades that the server refuses are usual responses, and HTTP is never offered.
    let refusing = TestUpstream::with_content("no");
    let server = proxy_to(&refusing);
    let response = server.request("GET", "/", "test", &["Upgrade: h2c"]);
    assert_eq!(response.status, 200);
    assert!(!refusing.requests()[0].contains("upgrade"));
    // One protocol is passed on, and the first one is that of the client's choice.
    let fields = ["Connection: upgrade", "Upgrade: TLS/1.2, h2c", "Upgrade: foo, bar/2"];
    assert_eq!(server.request("GET", "/", "test", &fields).status, 200);
    let request = refusing.requests().pop().unwrap();
    assert!(request.contains("\r\nconnection: upgrade\r\nupgrade: foo\r\n"), "{request}");
}

#[test]
fn an_upload_moves_while_its_client_does_not_read() {
    // More than the buffers between the upstream and the client hold, and less than the limit of content.
    const RESPONSE_BYTES: usize = 64 << 20;
    const UPLOAD_BYTES: usize = 8 << 20;
    let (received_all, upload) = std::sync::mpsc::channel();
    let upstream = TestUpstream::new(move |mut received| {
        received.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {RESPONSE_BYTES}\r\n\r\n"));
        let response = vec![b'y'; RESPONSE_BYTES];
        let mut sent = 0;
        // It writes until it is held up, since the client does not read.
        received.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while let Ok(count) = received.stream.write(&response[sent..]) {
            sent += count;
        }
        received.stream.set_write_timeout(None).unwrap();
        let (mut count, mut last) = (0, Vec::new());
        while !last.ends_with(b"0\r\n\r\n") {
            let mut buffer = vec![0; 64 << 10];
            let Ok(read @ 1..) = received.stream.read(&mut buffer) else { return Then::Close };
            count += buffer[..read].iter().filter(|byte| **byte == b'x').count();
            last.extend_from_slice(&buffer[..read]);
            last.drain(..last.len().saturating_sub(5));
        }
        received_all.send(count).unwrap();
        received.send(&response[sent..]);
        Then::Close
    });
    let server = proxy_to(&upstream);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let mut client = connect(&server, &format!("{head}{UPLOAD_BYTES:x}\r\n"));
    client.write_all(&vec![b'x'; UPLOAD_BYTES]).unwrap();
    client.write_all(b"\r\n0\r\n\r\n").unwrap();
    assert_eq!(upload.recv_timeout(Duration::from_secs(25)), Ok(UPLOAD_BYTES));
    let mut response = Vec::new();
    client.read_to_end(&mut response).unwrap();
    assert_eq!(response.iter().filter(|byte| **byte == b'y').count(), RESPONSE_BYTES);
}
