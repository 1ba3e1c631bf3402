//! Tests the client behind a service: requests pass through a gateway to another server, in both versions of HTTP.

use crate::support::client::Client as RawClient;
use crate::support::http2_client::{Http2Client, complete, receive, request};
use bytes::Bytes;
use http::HeaderMap;
use selvedge::client::{
    Address, Client, ClientLimits, ClientTimeouts, Destination, OutgoingContent, OutgoingHead, Protocol,
};
use selvedge::proto::forward::TeTrailers;
use selvedge::service::{Body, Duplex, UpgradeResponse};
use selvedge::{PlainHttp2, Request, Response, RunningServer, Server, StatusCode};
use std::cell::OnceCell;
use std::future::poll_fn;
use std::io::IoSlice;

thread_local! {
    /// The client of a worker.
    static CLIENT: OnceCell<Client> = const { OnceCell::new() };
}

fn bind() -> Server {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always)
}

/// Starts a server that responds with what it receives, early, or with another protocol.
fn upstream() -> RunningServer {
    let app = async |request: &mut Request| match request.path() {
        "/echo" => {
            request.body().set_bytes_max(u64::MAX);
            let content = request.take_body();
            Response::new(StatusCode::OK).body(Body::Stream { length: content.length(), chunks: Box::pin(content) })
        }
        "/early" => Response::error_with_text(StatusCode::CONTENT_TOO_LARGE, "early"),
        "/upgrade" => {
            let handler = Box::new(|duplex| drop(tokio::task::spawn_local(echo(duplex))));
            let upgrade = UpgradeResponse { protocol: Bytes::from_static(b"echo"), handler };
            Response::new(StatusCode::SWITCHING_PROTOCOLS).body(Body::Upgrade(Box::new(upgrade)))
        }
        _ => match request.body().read_all().await {
            Ok(content) => {
                let count = content.len();
                let head = format!("{} {} {count}", request.method_text(), request.target());
                Response::new(StatusCode::OK).field("x-method", request.method_text()).body(head)
            }
            Err(error) => error.into(),
        },
    };
    bind().serve(app).expect("threads start")
}

/// Sends back what it receives.
async fn echo(mut duplex: Box<dyn Duplex>) {
    let mut buffer = vec![0; 5000];
    while let Ok(count @ 1..) = poll_fn(|cx| duplex.poll_receive(cx, &mut buffer)).await {
        let mut rest = &buffer[..count];
        while let Ok(sent) = poll_fn(|cx| duplex.poll_send(cx, &[IoSlice::new(rest)])).await {
            rest = &rest[sent..];
            if rest.is_empty() {
                break;
            }
        }
    }
    let _ = duplex.shutdown_write();
}

/// Starts a gateway to an upstream.
fn gateway(upstream: &RunningServer, protocol: Protocol) -> RunningServer {
    let to = Destination { protocol, ..Destination::plain(Address::Tcp(upstream.addresses()[0])) };
    let app = async move |request: &mut Request| {
        let client = CLIENT.with(|client| client.get_or_init(|| Client::new(ClientLimits::default())).clone());
        request.body().set_bytes_max(u64::MAX);
        let head = OutgoingHead {
            method: request.method_text().into(),
            target: request.target().into(),
            authority: b"upstream".to_vec(),
            te: TeTrailers::Accepted,
            upgrade: request.field("upgrade").map(Bytes::copy_from_slice),
            ..OutgoingHead::default()
        };
        let mut content = OutgoingContent::request(request.take_body());
        let sent = client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await;
        let incoming = match sent {
            Ok(incoming) => incoming,
            Err(error) => return Response::new(StatusCode::BAD_GATEWAY).body(error.to_string()),
        };
        let mut response = Response::new(incoming.status);
        *response.fields_mut() = incoming.fields;
        match incoming.upgrade {
            None => response.body(incoming.content.into_body()),
            Some(tunnel) => {
                let protocol = tunnel.protocol().clone();
                let upgrade = UpgradeResponse { protocol, handler: tunnel.into_handler() };
                response.body(Body::Upgrade(Box::new(upgrade)))
            }
        }
    };
    bind().serve(app).expect("threads start")
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (at * 7 + at / 251) as u8 % 26).collect()
}

#[test]
fn small_requests_of_http1_pass() {
    let upstream = upstream();
    for protocol in PROTOCOLS {
        let gateway = gateway(&upstream, protocol);
        let mut client = RawClient::connect(gateway.addresses()[0]);
        for _ in 0..3 {
            client.send("GET /a?b HTTP/1.1\r\nhost: a\r\n\r\n");
            let (head, content) = client.read_response();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nx-method: GET\r\n"), "{head}");
            assert_eq!(content, "GET /a?b 0");
        }
        client.send("HEAD /a HTTP/1.1\r\nhost: a\r\n\r\n");
        let head = client.read_head();
        assert!(head.contains("\r\ncontent-length: 9\r\n"), "{head}");
        client.send("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
        assert_eq!(client.read_response().1, "POST /a 5");
        client.send("POST /a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
        assert!(client.read_head().starts_with("HTTP/1.1 100 Continue\r\n"));
        client.send("hello");
        assert_eq!(client.read_response().1, "POST /a 5");
        client.send("POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(client.read_response().1, "POST /a 3");
    }
}

#[test]
fn content_of_http1_streams_in_both_directions() {
    let upstream = upstream();
    let content = pattern(5_000_000);
    for protocol in PROTOCOLS {
        let gateway = gateway(&upstream, protocol);
        let mut client = RawClient::connect(gateway.addresses()[0]);
        client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\none");
        let head = client.read_head();
        assert!(head.contains("\r\ncontent-length: 6\r\n"), "the response begins before the request ends: {head}");
        client.send("two");
        drop(client);
        let address = gateway.addresses()[0];
        let mut client = RawClient::connect(address);
        let head =
            format!("POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", content.len());
        let upload = [head.as_bytes(), &content].concat();
        let mut sender = client.try_clone();
        let sending = std::thread::spawn(move || sender.send(upload));
        let head = client.read_head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let received = client.read_until_close();
        sending.join().expect("all is sent");
        assert!(received == content, "{} bytes", received.len());
    }
}

#[test]
fn an_early_response_ends_a_request_of_http1() {
    let upstream = upstream();
    for protocol in PROTOCOLS {
        let gateway = gateway(&upstream, protocol);
        for length in ["1000", "100000000"] {
            let mut client = RawClient::connect(gateway.addresses()[0]);
            client.send(format!("POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\nbegun"));
            let (head, content) = client.read_response();
            assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
            assert!(content.contains("Early"), "{content}");
        }
        // The connection continues if little was left of the request.
        let mut client = RawClient::connect(gateway.addresses()[0]);
        client.send("POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nbegun");
        assert!(client.read_response().0.starts_with("HTTP/1.1 413 "));
        client.send([b'x'; 995]);
        client.send("GET /next HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.read_response().1, "GET /next 0");
    }
}

#[test]
fn another_protocol_passes() {
    let upstream = upstream();
    let gateway = gateway(&upstream, Protocol::Http1);
    let mut client = RawClient::connect(gateway.addresses()[0]);
    client.send("GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nupgrade: echo\r\n"), "{head}");
    client.send("some bytes");
    client.shutdown_write();
    assert_eq!(client.read_until_close(), b"some bytes");
}

#[test]
fn an_upstream_that_is_not_there_is_a_bad_gateway() {
    let upstream = upstream();
    for protocol in PROTOCOLS {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = Destination {
            protocol,
            ..Destination::plain(Address::Tcp(closed.local_addr().expect("the listener is bound")))
        };
        drop(closed);
        let app = async move |_: &mut Request| {
            let client = Client::new(ClientLimits::default());
            let head = OutgoingHead { method: b"GET".to_vec(), target: b"/".to_vec(), ..OutgoingHead::default() };
            let mut content = OutgoingContent::empty();
            let sent = client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await;
            Response::new(StatusCode::BAD_GATEWAY).body(sent.map_or_else(|error| error.to_string(), |_| String::new()))
        };
        let gateway = bind().serve(app).expect("threads start");
        let mut client = RawClient::connect(gateway.addresses()[0]);
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.read_response().1, "connect: connection refused");
    }
    drop(upstream);
}

#[tokio::test]
async fn requests_of_http2_pass_with_trailers_and_both_directions_open() {
    let upstream = upstream();
    for protocol in PROTOCOLS {
        let gateway = gateway(&upstream, protocol);
        let client = Http2Client::connect(&gateway).await;
        assert_eq!(client.get("/a?b").await.text(), "GET /a?b 0");
        let posted = client.open(request("POST", "/a")).await.finish("hello").await;
        assert_eq!(posted.text(), "POST /a 5");
        // A conversation.
        let mut open = client.open(request("POST", "/echo")).await;
        open.content.send_data("zero".into(), false).expect("the stream is open");
        let mut body = open.response.await.expect("the response begins before the request ends").into_body();
        assert_eq!(receive(&mut body).await.expect("content").expect("content"), "zero");
        for piece in ["one", "two", "three"] {
            open.content.send_data(piece.into(), false).expect("the stream is open");
            assert_eq!(receive(&mut body).await.expect("content").expect("content"), piece);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().expect("a valid value"));
        open.content.send_trailers(trailers).expect("the stream is open");
        assert!(receive(&mut body).await.is_none());
        let early = client.open(request("POST", "/early")).await;
        let early = complete(early.response.await.expect("the response is early")).await;
        assert_eq!(early.head.status, 413);
    }
    drop(upstream);
}

#[tokio::test]
async fn long_content_of_http2_passes() {
    let upstream = upstream();
    let content = pattern(1_000_000);
    for protocol in PROTOCOLS {
        let gateway = gateway(&upstream, protocol);
        let client = Http2Client::connect(&gateway).await;
        let echoed = client.open(request("POST", "/echo")).await.finish(content.clone()).await;
        assert!(echoed.content == content, "{} bytes", echoed.content.len());
    }
    drop(upstream);
}
