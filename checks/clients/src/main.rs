//! hyper's and reqwest's clients against the examples: `CLIENT ECHO EVENTS UPLOAD`, the last three
//! being where each listens. Ends with an error where an answer is not what it should be.

use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::convert::Infallible;
use std::error::Error;

const UPLOAD_BYTES: usize = 3_000_000;
const PIECE: &[u8] = &[b'x'; 50_000];

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [client, echo, events, upload] = &words[..] else { return Err("CLIENT ECHO EVENTS UPLOAD".into()) };
    match client.as_str() {
        "hyper" => with_hyper(echo, events, upload).await,
        "reqwest" => with_reqwest(echo, events, upload).await,
        other => Err(format!("{other} is not among the clients").into()),
    }
}

fn pieces() -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send {
    futures_util::stream::iter((0..UPLOAD_BYTES / PIECE.len()).map(|_| Ok(Bytes::from_static(PIECE))))
}

fn expect(what: &str, got: &str, expected: &str) -> Outcome {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} in the place of {expected:?}").into()) }
}

async fn with_hyper(echo: &str, events: &str, upload: &str) -> Outcome {
    let client = Client::builder(TokioExecutor::new()).build_http();
    for _ in 0..3 {
        let request = Request::post(format!("http://{echo}/echo")).body(Full::new(Bytes::from_static(PIECE)))?;
        let content = client.request(request).await?.into_body().collect().await?.to_bytes();
        if content != PIECE {
            return Err("hyper: the echo is another".into());
        }
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let body = StreamBody::new(pieces().map(|piece| piece.map(Frame::data)));
    let request = Request::builder().method(Method::PUT).uri(format!("http://{upload}/upload/hyper")).body(body)?;
    let said = client.request(request).await?.into_body().collect().await?.to_bytes();
    expect("hyper, upload", std::str::from_utf8(&said)?, &format!("{UPLOAD_BYTES} bytes\n"))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("http://{events}/events")).body(Full::<Bytes>::default())?;
    let mut stream = client.request(request).await?.into_body();
    let first = stream.frame().await.ok_or("hyper: no event")??.into_data().unwrap_or_default();
    expect("hyper, events", std::str::from_utf8(&first)?, "data: 1\n\n")
}

async fn with_reqwest(echo: &str, events: &str, upload: &str) -> Outcome {
    let client = reqwest::Client::new();
    for _ in 0..3 {
        let answer = client.post(format!("http://{echo}/echo")).body(PIECE).send().await?.error_for_status()?;
        if answer.bytes().await? != PIECE {
            return Err("reqwest: the echo is another".into());
        }
    }
    let body = reqwest::Body::wrap_stream(pieces());
    let said = client.put(format!("http://{upload}/upload/reqwest")).body(body).send().await?.text().await?;
    expect("reqwest, upload", &said, &format!("{UPLOAD_BYTES} bytes\n"))?;
    let mut stream = client.get(format!("http://{events}/events")).send().await?.bytes_stream();
    let first = stream.next().await.ok_or("reqwest: no event")??;
    expect("reqwest, events", std::str::from_utf8(&first)?, "data: 1\n\n")
}
