//! Runs the clients of hyper and reqwest against the examples: `CLIENT ECHO EVENTS UPLOAD`, where the last three are
//! addresses of the examples. `tonic PORT` calls the example `grpc` behind a port of localhost. Exits with an error if a
//! response is unexpected.

mod station;

use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::convert::Infallible;
use std::error::Error;

const UPLOAD_BYTES: usize = 3_000_000;
const CHUNK: &[u8] = &[b'x'; 50_000];

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [client, port] = &arguments[..]
        && client == "tonic"
    {
        return station::run(port).await;
    }
    let [client, echo, events, upload] = &arguments[..] else { return Err("CLIENT ECHO EVENTS UPLOAD".into()) };
    match client.as_str() {
        "hyper" => with_hyper(echo, events, upload).await,
        "reqwest" => with_reqwest(echo, events, upload).await,
        other => Err(format!("unknown client {other}").into()),
    }
}

fn chunks() -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send {
    futures_util::stream::iter((0..UPLOAD_BYTES / CHUNK.len()).map(|_| Ok(Bytes::from_static(CHUNK))))
}

fn expect(name: &str, got: &str, expected: &str) -> Outcome {
    if got == expected { Ok(()) } else { Err(format!("{name}: got {got:?}, expected {expected:?}").into()) }
}

async fn with_hyper(echo: &str, events: &str, upload: &str) -> Outcome {
    let client = Client::builder(TokioExecutor::new()).build_http();
    for _ in 0..3 {
        let request = Request::post(format!("http://{echo}/echo")).body(Full::new(Bytes::from_static(CHUNK)))?;
        let content = client.request(request).await?.into_body().collect().await?.to_bytes();
        if content != CHUNK {
            return Err("hyper: the echo differs from the request".into());
        }
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let body = StreamBody::new(chunks().map(|chunk| chunk.map(Frame::data)));
    let request = Request::builder().method(Method::PUT).uri(format!("http://{upload}/upload/hyper")).body(body)?;
    let received = client.request(request).await?.into_body().collect().await?.to_bytes();
    expect("hyper, upload", std::str::from_utf8(&received)?, &format!("{UPLOAD_BYTES} bytes\n"))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("http://{events}/events")).body(Full::<Bytes>::default())?;
    let mut stream = client.request(request).await?.into_body();
    let first = stream.frame().await.ok_or("hyper: no event")??.into_data().unwrap_or_default();
    expect("hyper, events", std::str::from_utf8(&first)?, "data: 1\n\n")
}

async fn with_reqwest(echo: &str, events: &str, upload: &str) -> Outcome {
    let client = reqwest::Client::new();
    for _ in 0..3 {
        let response = client.post(format!("http://{echo}/echo")).body(CHUNK).send().await?.error_for_status()?;
        if response.bytes().await? != CHUNK {
            return Err("reqwest: the echo differs from the request".into());
        }
    }
    let body = reqwest::Body::wrap_stream(chunks());
    let received = client.put(format!("http://{upload}/upload/reqwest")).body(body).send().await?.text().await?;
    expect("reqwest, upload", &received, &format!("{UPLOAD_BYTES} bytes\n"))?;
    let mut stream = client.get(format!("http://{events}/events")).send().await?.bytes_stream();
    let first = stream.next().await.ok_or("reqwest: no event")??;
    expect("reqwest, events", std::str::from_utf8(&first)?, "data: 1\n\n")
}
