//! The axum application. On hyper and on Selvedge it differs only in the file service.

use crate::download::Download;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::routing::{MethodRouter, get, post};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use std::convert::Infallible;

/// Returns the application; `file` serves [`crate::FILE`]. The caller adds a service for files by path.
pub fn application(file: MethodRouter) -> Router {
    Router::new()
        .route("/hello", get(async || "HELLO, WORLD"))
        .route("/upload", post(upload))
        .route("/download", get(async || Body::new(Download::default())))
        .route("/events", get(events))
        .route("/file", file)
}

/// Responds with the length of the received content, which it discards.
async fn upload(request: Request) -> Result<String, StatusCode> {
    let (mut content, mut bytes) = (request.into_body(), 0);
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        bytes += frame.data_ref().map_or(0, axum::body::Bytes::len);
    }
    Ok(bytes.to_string())
}

/// Sends one event at once, and no other.
async fn events() -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
    let first = stream::once(async { Ok(Event::default().data(crate::EVENT)) });
    Sse::new(first.chain(stream::pending()))
}
