//! What the upstream receives, and responses that arrive before the request is complete.

use super::*;

/// Sends a request with content in a task of its own.
fn spawn_send(
    client: &Client,
    to: &Destination,
    mut content: OutgoingContent,
) -> tokio::task::JoinHandle<(Result<IncomingResponse, ClientError>, OutgoingContent)> {
    let (client, to) = (client.clone(), to.clone());
    spawn_local(async move {
        let head = request("POST");
        let sent = client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await;
        (sent, content)
    })
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn head_and_small_content_leave_in_one_send() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let sending = spawn_send(&client, &upstream.destination(), OutgoingContent::bytes("content".into()));
        let mut peer = upstream.accept().await;
        assert!(peer.receive().await);
        assert_eq!(
            peer.received.escape_ascii().to_string(),
            b"POST /path?query HTTP/1.1\r\nhost: example.com\r\naccept: */*\r\ncontent-length: 7\r\n\r\ncontent"
                .escape_ascii()
                .to_string()
        );
        peer.send(OK).await;
        let response = sending.await.unwrap().0.unwrap();
        assert!(response.content.is_complete());
        assert_eq!(client.idle_connections(), 1);
    });
}

#[test]
fn content_of_unknown_length_is_chunked_and_has_trailers() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        source.push("abc");
        let sending = spawn_send(&client, &upstream.destination(), source.incoming(None));
        let mut peer = upstream.accept().await;
        let head = peer.take_head().await;
        assert!(head.ends_with("\r\ntransfer-encoding: chunked\r\n\r\n"), "{head}");
        assert_eq!(peer.take_until("abc").await, "3\r\nabc");
        let long = "d".repeat(40_000);
        source.push(long.clone());
        source.push("e");
        let received = peer.take_until("\r\n1\r\ne").await;
        assert_eq!(received, format!("\r\n9c40\r\n{long}\r\n1\r\ne"));
        let mut trailers = Fields::new();
        trailers.append("checksum", "x").unwrap();
        source.trailers.replace(Some(trailers));
        source.end();
        assert_eq!(peer.take_until("\r\n\r\n").await, "\r\n0\r\nchecksum: x\r\n\r\n");
        peer.send(OK).await;
        assert!(sending.await.unwrap().0.is_ok());
        assert_eq!(client.idle_connections(), 1);
    });
}

#[test]
fn content_follows_while_the_response_streams() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        let sending = spawn_send(&client, &upstream.destination(), source.incoming(Some(6)));
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let mut response = sending.await.unwrap().0.unwrap();
        let reading = spawn_local(async move { read_all(&mut response.content).await });
        for piece in ["ab", "cd", "ef"] {
            source.push(piece);
            assert_eq!(peer.take_until(piece).await, piece);
            peer.send(format!("2\r\n{piece}\r\n").as_bytes()).await;
        }
        peer.send(b"0\r\n\r\n").await;
        assert_eq!(reading.await.unwrap().unwrap(), b"abcdef");
        assert_eq!(client.idle_connections(), 1);
    });
}

#[test]
fn an_early_response_ends_the_upload_and_the_connection() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        source.push("begun");
        let sending = spawn_send(&client, &upstream.destination(), source.incoming(Some(1000)));
        let mut peer = upstream.accept().await;
        peer.take_until("begun").await;
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        let (response, content) = sending.await.unwrap();
        let mut response = response.unwrap();
        assert_eq!(read_all(&mut response.content).await.unwrap(), b"big");
        assert!(content.is_empty(), "the response owned the rest");
        assert!(peer.is_closed().await);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn a_response_before_the_upstream_closed_is_received() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        let sending = spawn_send(&client, &upstream.destination(), source.incoming(Some(10_000_000)));
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        drop(peer);
        source.push(vec![b'x'; 500_000]);
        let response = sending.await.unwrap().0.unwrap();
        assert_eq!(response.status.code(), 403);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn failed_content_ends_the_exchange() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        for (error, kind) in [
            (Some(ContentError::Disconnected), ClientErrorKind::RequestContent(ContentError::Disconnected)),
            (None, ClientErrorKind::RequestLength),
        ] {
            let source = TestContent::new();
            let sending = spawn_send(&client, &upstream.destination(), source.incoming(Some(10)));
            let mut peer = upstream.accept().await;
            peer.take_head().await;
            match error {
                Some(error) => source.fail(error),
                None => source.end(),
            }
            let error = sending.await.unwrap().0.unwrap_err();
            assert_eq!((error.phase, error.kind, error.retry), (ClientPhase::SendRequest, kind, RetrySafety::Never));
            assert!(peer.is_closed().await);
        }
    });
}

#[test]
fn kept_content_is_sent_again_after_an_error() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        source.push("abc");
        let sending = spawn_send(&client, &upstream.destination(), source.incoming(Some(6)));
        let mut peer = upstream.accept().await;
        peer.take_until("abc").await;
        drop(peer);
        let (error, mut content) = sending.await.unwrap();
        let error = error.unwrap_err();
        assert_eq!((error.retry, error.connection), (RetrySafety::NoResponse, ConnectionUse::First));
        assert!(content.rewind());
        let sending = spawn_send(&client, &upstream.destination(), content);
        let mut peer = upstream.accept().await;
        source.push("def");
        assert!(peer.take_until("abcdef").await.contains("content-length: 6\r\n"));
        peer.send(OK).await;
        assert!(sending.await.unwrap().0.is_ok());
    });
}

#[test]
fn long_content_is_not_kept() {
    run(async {
        let source = TestContent::new();
        let mut content = source.incoming(None).keep(8);
        for (piece, can_rewind) in [("12345", true), ("678", true), ("9", false)] {
            source.push(piece);
            let next = poll_fn(|cx| content.poll_chunk(cx)).await;
            assert_eq!(next.unwrap().unwrap(), piece);
            assert_eq!(content.can_rewind(), can_rewind, "{piece}");
        }
        assert!(!content.rewind());
    });
}

#[test]
fn an_invalid_request_is_not_sent() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let to = Destination { protocol, ..upstream.destination() };
            let head = OutgoingHead { target: b"/a b".to_vec(), ..request("GET") };
            let mut content = OutgoingContent::empty();
            let sent = client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await;
            let error = sent.unwrap_err();
            assert_eq!((error.phase, error.retry), (ClientPhase::SendRequest, RetrySafety::Never));
            assert!(matches!(error.kind, ClientErrorKind::InvalidRequest(_)), "{error}");
        }
    });
}

#[test]
fn a_dropped_exchange_closes_the_connection() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        fetch.abort();
        assert!(peer.is_closed().await);
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun").await;
        drop(fetch.await.unwrap().unwrap());
        assert!(peer.is_closed().await);
        assert_eq!(client.connections(), 0);
    });
}
