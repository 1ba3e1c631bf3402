//! HTTP/2 over sockets under load: what arrives is complete, whatever the client does meanwhile.

use crate::support::http2_client::{Http2Client, complete, receive, request};
use bytes::Bytes;
use h2::Reason;
use http_body_util::{BodyExt, Either, Full};
use selvedge::{Body, PlainHttp2, RunningServer, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes of large content: more than all windows and buffers.
const LARGE_BYTES: usize = 3_000_000;

/// Returns bytes that differ by position.
fn content(len: usize) -> Bytes {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Starts a server that returns the content of a request as it arrives, or when it is complete, or a number of bytes.
fn serve() -> RunningServer {
    let app = async |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        http::Response::new(match path.as_str() {
            "/echo" => Either::Left(request.into_body()),
            "/read" => {
                let read = request.into_body().collect().await.expect("the content is complete");
                Either::Right(Full::new(read.to_bytes()))
            }
            _ => Either::Right(Full::new(content(path[1..].parse().expect("a number")))),
        })
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always);
    server.serve(app).expect("threads start")
}

/// Sends one of several kinds of requests, and checks its response.
async fn exchange(client: Arc<Http2Client>, number: usize) {
    match number % 5 {
        0 => assert!(client.get(&format!("/{LARGE_BYTES}")).await.content == content(LARGE_BYTES)),
        1 => assert!(client.get("/1000").await.content == content(1000)),
        2 | 3 => {
            let path = if number % 5 == 2 { "/echo" } else { "/read" };
            let open = client.open(request("POST", path)).await;
            assert!(open.finish(content(300_000)).await.content == content(300_000), "{path}");
        }
        _ => {
            let mut open = client.open(request("POST", &format!("/{LARGE_BYTES}"))).await;
            let mut body = open.response.await.expect("the server responds").into_body();
            receive(&mut body).await.expect("content follows").expect("the stream is open");
            open.content.send_reset(Reason::CANCEL);
        }
    }
}

#[tokio::test]
async fn everything_arrives_beside_requests_that_are_cancelled() {
    let running = serve();
    let client = Arc::new(Http2Client::connect(&running).await);
    let mut exchanges: JoinSet<()> = (0..60).map(|number| exchange(client.clone(), number)).collect();
    while let Some(ended) = exchanges.join_next().await {
        ended.expect("the exchange is as expected");
    }
    let open = client.open(request("POST", "/10")).await;
    assert_eq!(complete(open.response.await.expect("the server responds")).await.content, content(10));
}

/// Returns a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn a_client_that_reads_only_after_it_has_sent_everything_gets_all() {
    const REQUESTS: u32 = 2_500;
    const BYTES: usize = 16_000;
    let running = serve();
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("the timeout is set");
    let window = (1_u32 << 31) - 1;
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat()));
    all.extend(frame(8, 0, 0, &(window - 65_535).to_be_bytes()));
    all.extend(frame(4, 1, 0, &[]));
    for number in 0..REQUESTS {
        // GET, http, and the path and authority as literals that are not indexed (RFC 7541 §6.2.2).
        all.extend(frame(1, 5, 2 * number + 1, b"\x82\x86\x04\x06/16000\x01\x04test"));
    }
    stream.write_all(&all).expect("the server reads, or the sockets have room");
    let (mut received, mut ended) = (0, 0);
    while ended < REQUESTS {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("the server sends");
        let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
        stream.read_exact(&mut payload).expect("the frame is complete");
        assert!(!matches!(header[3], 3 | 7), "no stream is reset, and the connection continues");
        if header[3] == 0 {
            received += payload.len();
            ended += u32::from(header[4] & 1);
        }
    }
    assert_eq!(received, REQUESTS as usize * BYTES);
}
