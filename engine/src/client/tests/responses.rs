//! Tables of raw responses, each received whole, byte by byte and at random splits.

use super::*;
use crate::net::client_session::MakeClientSession;
use crate::net::link::{Session, SessionFailure};
use selvedge_proto::http1::MalformedResponse;

/// How a response ends for the client.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Complete, with status and content. Whether the connection is used again.
    Complete(u16, &'static str, Pooled),
    /// The head is refused.
    Refused(ClientErrorKind),
    /// The content fails after the head.
    Broken(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooled {
    Yes,
    No,
}

use Outcome::{Broken, Complete, Refused};
use Pooled::{No, Yes};

/// Whether the upstream closes the connection after its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Open,
    Closed,
}

struct Row {
    name: &'static str,
    method: &'static str,
    sent: &'static str,
    after: After,
    outcome: Outcome,
}

const fn row(name: &'static str, method: &'static str, sent: &'static str, after: After, outcome: Outcome) -> Row {
    Row { name, method, sent, after, outcome }
}

const fn malformed(reason: MalformedResponse) -> Outcome {
    Refused(ClientErrorKind::Malformed(reason))
}

const CLOSED: &str = "read content: connection closed before the end of the response";

/// Responses that are complete.
fn complete_rows() -> Vec<Row> {
    use After::{Closed, Open};
    vec![
        row("length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Open, Complete(200, "hello", Yes)),
        row("no content", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Open, Complete(200, "", Yes)),
        row("204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", Open, Complete(204, "", Yes)),
        row("304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Open, Complete(304, "", Yes)),
        row("HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", Open, Complete(200, "", Yes)),
        row(
            "HEAD and chunked",
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Open,
            Complete(200, "", Yes),
        ),
        row(
            "chunks",
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;a=b\r\ndefg\r\n0\r\n\r\n",
            Open,
            Complete(200, "abcdefg", Yes),
        ),
        row("until close", "GET", "HTTP/1.1 200 OK\r\n\r\nuntil the end", Closed, Complete(200, "until the end", No)),
        row(
            "the upstream closes after the response",
            "GET",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            Closed,
            Complete(200, "ok", No),
        ),
        row("HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Closed, Complete(200, "ok", No)),
        row(
            "HTTP/1.0 that persists",
            "GET",
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
            Open,
            Complete(200, "ok", Yes),
        ),
        row(
            "bytes after the end close the connection",
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            Open,
            Complete(200, "ok", No),
        ),
        row(
            "bytes after the last chunk close the connection",
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nx",
            Open,
            Complete(200, "a", No),
        ),
    ]
}

/// Interim responses.
fn interim_rows() -> Vec<Row> {
    use After::Open;
    vec![
        row(
            "interim responses",
            "GET",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            Open,
            Complete(200, "ok", Yes),
        ),
        row(
            "nine interim responses",
            "GET",
            concat!(
                "HTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\n",
                "HTTP/1.1 100 A\r\n\r\nHTTP/1.1 102 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\n",
                "HTTP/1.1 103 A\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            ),
            Open,
            Refused(ClientErrorKind::InterimTooMany),
        ),
        row(
            "101 that was not offered",
            "GET",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            Open,
            malformed(MalformedResponse::UpgradeNotOffered),
        ),
    ]
}

/// Responses that are refused or end early.
fn refused_rows() -> Vec<Row> {
    use After::{Closed, Open};
    vec![
        row(
            "two lengths",
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            Open,
            malformed(MalformedResponse::ContentLengthRepeated),
        ),
        row(
            "both framings",
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Open,
            malformed(MalformedResponse::ContentLengthWithTransferEncoding),
        ),
        row(
            "204 with content",
            "GET",
            "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
            Open,
            malformed(MalformedResponse::ContentNotPermitted),
        ),
        row("no HTTP", "GET", "SSH-2.0-x\r\n", Open, malformed(MalformedResponse::StatusLineInvalid)),
        row("nothing", "GET", "", Closed, Refused(ClientErrorKind::Closed)),
        row("half a head", "GET", "HTTP/1.1 200 OK\r\nConte", Closed, Refused(ClientErrorKind::Closed)),
        row("half of a length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Closed, Broken(CLOSED)),
        row(
            "half of the chunks",
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            Closed,
            Broken(CLOSED),
        ),
        row(
            "an invalid chunk",
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            Open,
            Broken("read content: malformed response: a chunk size is invalid"),
        ),
    ]
}

/// Splits bytes at positions that depend on `seed`; 0 for single bytes.
fn split(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let (mut pieces, mut rest, mut state) = (Vec::new(), bytes, seed);
    while !rest.is_empty() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(seed > 0) * 1_442_695_040_888_963_407);
        let count = if seed == 0 { 1 } else { 1 + (state >> 33) as usize % 40 };
        let (piece, after) = rest.split_at(count.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

async fn check(row: &Row, pieces: Vec<&[u8]>) {
    let (upstream, client) = (Upstream::new(), client());
    let fetch = spawn_fetch(&client, &upstream.destination(), row.method);
    let mut peer = upstream.accept().await;
    peer.take_head().await;
    let reading = spawn_local(async move {
        let mut response = fetch.await.unwrap().map_err(|error| error.kind)?;
        let content = read_all(&mut response.content).await;
        Ok::<_, ClientErrorKind>((response.status.code(), content))
    });
    peer.send_pieces(pieces).await;
    if row.after == After::Closed {
        drop(peer);
    }
    let received = reading.await.unwrap();
    settle().await;
    let pooled = if client.idle_connections() == 1 { Yes } else { No };
    match (&row.outcome, received) {
        (Refused(expected), Err(kind)) => assert_eq!(kind, *expected, "{}", row.name),
        (Broken(expected), Ok((_, Err(text)))) => assert_eq!(text, *expected, "{}", row.name),
        // It was known with the head.
        (Broken(expected), Err(kind)) => assert_eq!(format!("read content: {kind}"), *expected, "{}", row.name),
        (Complete(status, content, expected), Ok((received_status, Ok(received)))) => {
            assert_eq!(received_status, *status, "{}", row.name);
            assert_eq!(received.escape_ascii().to_string(), content.escape_default().to_string(), "{}", row.name);
            assert_eq!(pooled, *expected, "{}", row.name);
        }
        (expected, received) => panic!("{}: {expected:?}, {received:?}", row.name),
    }
    if pooled == No {
        assert_eq!(client.connections(), 0, "{}", row.name);
    }
}

#[test]
fn responses_arrive_whole_or_byte_by_byte_or_at_random_splits() {
    run(async {
        for row in complete_rows().into_iter().chain(interim_rows()).chain(refused_rows()) {
            let bytes = row.sent.as_bytes();
            check(&row, vec![bytes]).await;
            for seed in 0..4 {
                check(&row, split(bytes, seed)).await;
            }
        }
    });
}

#[test]
fn content_that_is_malformed_at_its_start_is_an_error_in_place_of_a_response() {
    run(async {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let with_length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned();
        for (sent, kind) in [
            (format!("{chunked}fffffffffffffffff\r\n"), "malformed response: a chunk size is invalid"),
            (format!("{chunked}-5\r\n"), "malformed response: a chunk size is invalid"),
            (format!("{chunked}5\r\nhello\r\n-5\r\n"), "malformed response: a chunk size is invalid"),
            (with_length, "connection closed before the end of the response"),
        ] {
            let (upstream, client) = (Upstream::new(), client());
            let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
            let mut peer = upstream.accept().await;
            peer.take_head().await;
            peer.send(sent.as_bytes()).await;
            drop(peer);
            let error = fetch.await.unwrap().unwrap_err();
            let seen = (error.phase, error.kind.to_string(), error.retry);
            assert_eq!(seen, (ClientPhase::ReadContent, kind.to_owned(), RetrySafety::Never), "{sent}");
            assert_eq!(client.connections(), 0);
        }
    });
}

#[test]
fn fields_are_those_that_a_gateway_forwards() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(
            b"HTTP/1.1 404 X\r\nX-One: 1\r\nConnection: keep-alive, x-hop\r\nX-Hop: 2\r\nKeep-Alive: timeout=5\r\n\
              Set-Cookie: a=b\r\nContent-Length: 0\r\nSet-Cookie: c=d\r\n\r\n",
        )
        .await;
        let response = fetch.await.unwrap().unwrap();
        assert_eq!(response.fields.lines(), b"x-one: 1\r\nset-cookie: a=b\r\nset-cookie: c=d\r\n");
        assert_eq!(response.content.length(), Some(0));
    });
}

#[test]
fn lengths_of_head_and_trailers_are_kept() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_fetch(&client, &upstream.destination(), "HEAD");
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n").await;
        let response = fetch.await.unwrap().unwrap();
        assert_eq!((response.content.length(), response.content.is_complete()), (Some(77), true));
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nChecksum: x\r\n\r\n").await;
        let mut response = fetch.await.unwrap().unwrap();
        assert_eq!(response.content.length(), None);
        assert_eq!(read_all(&mut response.content).await.unwrap(), b"a");
        assert_eq!(Pin::new(&mut response.content).trailers().lines(), b"checksum: x\r\n");
        assert_eq!(client.idle_connections(), 1);
    });
}

#[test]
fn large_content_arrives_in_order() {
    run(async {
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        let chunked: Vec<u8> = content
            .chunks(9_973)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .collect();
        let bodies = [
            [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", &content[..]].concat(),
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunked[..], b"0\r\n\r\n"].concat(),
        ];
        let (upstream, client) = (Upstream::new(), client());
        let mut peer: Option<Peer> = None;
        for body in bodies {
            let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
            let mut used = match peer.take() {
                Some(peer) => peer,
                None => upstream.accept().await,
            };
            used.take_head().await;
            let sending = spawn_local(async move {
                used.send(&body).await;
                used
            });
            let mut response = fetch.await.unwrap().unwrap();
            assert!(read_all(&mut response.content).await.unwrap() == content);
            peer = Some(sending.await.unwrap());
            assert_eq!(client.idle_connections(), 1);
        }
    });
}

/// A session whose bytes are those of the connection, and whose closing message is a byte of zero.
#[derive(Default)]
struct MarkedSession {
    decoded: Vec<u8>,
    is_closed: bool,
}

impl Session for MarkedSession {
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure> {
        self.decoded.extend(encoded.iter().filter(|byte| **byte != 0));
        self.is_closed |= encoded.contains(&0);
        Ok(())
    }

    fn decoded_len(&self) -> usize {
        self.decoded.len()
    }

    fn read(&mut self, count: usize, into: &mut Vec<u8>) {
        into.extend(self.decoded.drain(..count));
    }

    fn is_read_closed(&self) -> bool {
        self.is_closed
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        output.extend_from_slice(bytes);
    }

    fn take_messages(&mut self, _output: &mut Vec<u8>) {}

    fn is_handshaking(&self) -> bool {
        false
    }

    fn close_write(&mut self, output: &mut Vec<u8>) {
        output.push(0);
    }
}

#[derive(Debug)]
struct MarkedSessions;

impl MakeClientSession for MarkedSessions {
    fn make(&self, _protocol: ApplicationProtocol) -> std::io::Result<Box<dyn Session>> {
        Ok(Box::<MarkedSession>::default())
    }
}

#[test]
fn content_until_the_end_needs_the_closing_message_of_the_session() {
    run(async {
        for (end, expected) in [(&b"\0"[..], Ok(b"all".to_vec())), (b"", Err(CLOSED.to_owned()))] {
            let (upstream, client) = (Upstream::new(), client());
            let tls = std::sync::Arc::new(ClientTls::new(Box::new(MarkedSessions)));
            let to = Destination { tls: Some(tls), ..upstream.destination() };
            let fetch = spawn_fetch(&client, &to, "GET");
            let mut peer = upstream.accept().await;
            peer.take_head().await;
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nall").await;
            peer.send(end).await;
            drop(peer);
            let mut response = fetch.await.unwrap().unwrap();
            assert_eq!(read_all(&mut response.content).await, expected);
            assert_eq!(client.connections(), 0);
        }
    });
}

#[test]
fn an_upload_moves_while_the_response_is_not_read() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        let (to, mut content) = (upstream.destination(), source.incoming(None));
        let sending = spawn_local(async move {
            client.send(&to, &request("POST"), &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
        });
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").await;
        let mut response = sending.await.unwrap().unwrap();
        let receiving = spawn_local(async move {
            while !peer.received.ends_with(b"0\r\n\r\n") {
                assert!(peer.receive().await);
            }
            peer.send(b"done").await;
            peer.received.iter().filter(|byte| **byte == b'x').count()
        });
        move_upload(&source, &mut response.content).await;
        assert_eq!(read_all(&mut response.content).await.unwrap(), b"done");
        assert_eq!(receiving.await.unwrap(), 3_000_000);
    });
}
