//! WebSockets and other protocols through streams of HTTP/2 (RFC 8441).

use super::http2::*;
use super::tunnels::TestDuplex;
use super::*;
use h2::ext::Protocol as ConnectProtocol;
use http::Response;

/// The key and the reply to it in RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn websocket(key: &str) -> OutgoingHead {
    let fields = format!("sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n");
    OutgoingHead { upgrade: Some("websocket".into()), fields: fields.into(), ..request("GET") }
}

/// Sends a request without content in a task of its own.
fn spawn_send(
    client: &Client,
    to: &Destination,
    head: OutgoingHead,
) -> tokio::task::JoinHandle<Result<IncomingResponse, ClientError>> {
    let (client, to) = (client.clone(), to.clone());
    spawn_local(async move {
        let mut content = OutgoingContent::empty();
        client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
    })
}

/// Accepts a connection whose upstream accepts extended CONNECT.
async fn accept_with_connect(upstream: &Upstream) -> h2::server::Connection<UnixStream, Bytes> {
    let (socket, _) = upstream.listener.accept().await.unwrap();
    h2::server::Builder::new().enable_connect_protocol().handshake(socket).await.unwrap()
}

#[test]
fn a_websocket_is_a_stream_of_the_connection() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let sending = spawn_send(&client, &destination(&upstream), websocket(KEY));
        let mut connection = accept_with_connect(&upstream).await;
        let (request, mut response) = connection.accept().await.unwrap().unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("CONNECT", "/path"));
        assert_eq!(request.extensions().get::<ConnectProtocol>().unwrap().as_str(), "websocket");
        assert_eq!(request.headers().get("sec-websocket-version").unwrap(), "13");
        assert!(!request.headers().contains_key("sec-websocket-key"));
        let head = Response::builder().header("sec-websocket-protocol", "chat").header("content-length", "3");
        let mut to_client = response.send_response(head.body(()).unwrap(), false).unwrap();
        to_client.send_data("first".into(), false).unwrap();
        let driving = spawn_local(async move { while connection.accept().await.is_some() {} });
        let switched = sending.await.unwrap().unwrap();
        assert_eq!(switched.status, StatusCode::SWITCHING_PROTOCOLS);
        let lines = format!("sec-websocket-protocol: chat\r\nsec-websocket-accept: {ACCEPT}\r\n");
        assert_eq!(switched.fields.lines(), lines.as_bytes());
        let tunnel = switched.upgrade.unwrap();
        assert_eq!(tunnel.protocol(), "websocket");

        let duplex = TestDuplex::default();
        duplex.change(|state| state.room = usize::MAX);
        let copying = spawn_local(tunnel.run(Box::new(duplex.clone())));
        duplex.change(|state| state.sent.extend(b"hello"));
        let mut from_client = request.into_body();
        assert_eq!(from_client.data().await.unwrap().unwrap(), "hello");
        to_client.send_data(" second".into(), false).unwrap();
        settle().await;
        assert_eq!(duplex.received(), "first second");
        // The end of one direction leaves the other one open.
        duplex.change(|state| state.has_ended = true);
        while let Some(piece) = from_client.data().await {
            assert!(piece.unwrap().is_empty());
        }
        to_client.send_data(" third".into(), true).unwrap();
        copying.await.unwrap().unwrap();
        assert_eq!(duplex.received(), "first second third");
        assert!(duplex.0.lock().unwrap().is_shut_down);
        assert_eq!(client.connections(), 1, "the connection serves other requests");
        drop(client);
        driving.await.unwrap();
    });
}

#[test]
fn much_passes_in_order_and_a_slow_client_closes_its_window_only() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = destination(&upstream);
        let sending = spawn_send(&client, &to, websocket(KEY));
        let mut connection = accept_with_connect(&upstream).await;
        let (request, mut response) = connection.accept().await.unwrap().unwrap();
        let mut to_client = response.send_response(Response::new(()), false).unwrap();
        let (others, other) = tokio::sync::oneshot::channel();
        spawn_local(async move {
            let (_, mut response) = connection.accept().await.unwrap().unwrap();
            response.send_response(Response::new(()), true).unwrap();
            others.send(()).unwrap();
            while connection.accept().await.is_some() {}
        });
        let tunnel = sending.await.unwrap().unwrap().upgrade.unwrap();
        let duplex = TestDuplex::default();
        let copying = spawn_local(tunnel.run(Box::new(duplex.clone())));
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        to_client.send_data(content.clone().into(), false).unwrap();
        settle().await;
        // Another stream is not held up.
        assert!(fetch(&client, &to, "GET").await.is_ok());
        other.await.unwrap();
        duplex.change(|state| state.sent.extend(&content));
        let mut from_client = request.into_body();
        let mut received = Vec::new();
        while received.len() < content.len() {
            let piece = from_client.data().await.unwrap().unwrap();
            from_client.flow_control().release_capacity(piece.len()).unwrap();
            received.extend_from_slice(&piece);
        }
        assert!(received == content);
        assert_eq!(duplex.received(), "");
        duplex.change(|state| state.room = usize::MAX);
        while duplex.received().len() < content.len() {
            settle().await;
        }
        assert!(duplex.received().as_bytes() == content);
        // The upstream ends the stream, so the tunnel is over.
        to_client.send_data(Bytes::new(), true).unwrap();
        drop((to_client, from_client, response));
        copying.await.unwrap().unwrap();
    });
}

#[test]
fn a_refused_websocket_is_a_usual_response() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let sending = spawn_send(&client, &destination(&upstream), websocket(KEY));
        let mut connection = accept_with_connect(&upstream).await;
        let (request, mut response) = connection.accept().await.unwrap().unwrap();
        spawn_local(async move { while connection.accept().await.is_some() {} });
        let head = Response::builder().status(403).body(()).unwrap();
        response.send_response(head, false).unwrap().send_data("no".into(), true).unwrap();
        let mut refused = sending.await.unwrap().unwrap();
        assert_eq!((refused.status.code(), refused.upgrade.is_none()), (403, true));
        assert_eq!(read_all(&mut refused.content).await.unwrap(), b"no");
        // The client's direction ends, too, and not by a reset.
        let mut from_client = request.into_body();
        while let Some(piece) = from_client.data().await {
            assert!(piece.unwrap().is_empty());
        }
    });
}

#[test]
fn without_extended_connect_a_websocket_fails_and_other_offers_are_ignored() {
    run(async {
        let (to, client) = (serve(Upstream::new(), echo), client());
        let error = spawn_send(&client, &to, websocket(KEY)).await.unwrap().unwrap_err();
        assert_eq!((error.kind, error.retry), (ClientErrorKind::UpgradeUnsupported, RetrySafety::NotSent));
        for (method, protocol) in [("GET", "other/1"), ("POST", "other/1")] {
            let head = OutgoingHead { upgrade: Some(protocol.into()), ..request(method) };
            let mut response = spawn_send(&client, &to, head).await.unwrap().unwrap();
            let text = String::from_utf8(read_all(&mut response.content).await.unwrap()).unwrap();
            assert_eq!(text, format!("{method} http://example.com/path?query accept=\"*/*\" "));
        }
        let group = client.0.0.group(&to);
        assert_eq!(group.shared_connections.borrow().len(), 1);
    });
}

#[test]
fn a_websocket_without_a_valid_key_is_not_sent() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        for key in ["", "short", "dGhlIHNhbXBsZSBub25jZSE=!", "dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-key: x"] {
            let error = spawn_send(&client, &destination(&upstream), websocket(key)).await.unwrap().unwrap_err();
            assert!(matches!(error.kind, ClientErrorKind::InvalidRequest(_)), "{key}: {error}");
        }
        assert!(!upstream.has_connection().await);
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_tunnel() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let sending = spawn_send(&client, &destination(&upstream), websocket(KEY));
        let mut connection = accept_with_connect(&upstream).await;
        let (_request, mut response) = connection.accept().await.unwrap().unwrap();
        let mut to_client = response.send_response(Response::new(()), false).unwrap();
        spawn_local(async move { while connection.accept().await.is_some() {} });
        let tunnel = sending.await.unwrap().unwrap().upgrade.unwrap();
        let copying = spawn_local(tunnel.run(Box::new(TestDuplex::default())));
        settle().await;
        to_client.send_reset(h2::Reason::INTERNAL_ERROR);
        assert!(copying.await.unwrap().is_err());
        assert_eq!(client.connections(), 1);
    });
}
