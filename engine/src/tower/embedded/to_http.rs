//! Converts engine responses to `http::Response`.

use super::from_http;
use crate::service::{self, Chunks, Response, StreamError};
use crate::tower::{BoxError, LogReason, SendFile, header_map};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use selvedge_proto::Persistence;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// The content of a response of an [`super::Embedded`] application. This library sends a file in it
/// like a [`SendFile`], by `sendfile`, unless a layer changes it.
#[derive(Debug)]
pub struct EmbeddedBody {
    content: EmbeddedContent,
}

enum EmbeddedContent {
    Bytes(Bytes),
    File(SendFile),
    /// Content that a task on its own thread reads.
    Channel {
        length: Option<u64>,
        frames: mpsc::Receiver<Result<Frame<Bytes>, StreamError>>,
    },
}

impl fmt::Debug for EmbeddedContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::File(file) => write!(f, "File({})", file.length()),
            Self::Channel { length, .. } => write!(f, "Piped({length:?})"),
        }
    }
}

/// Converts a response. `request_content` stays alive while the response's stream uses it.
///
/// A response to HEAD has the content of the response to GET, so that layers treat both alike; no
/// server sends it.
pub(super) fn build_response(
    response: Response,
    request_content: from_http::SharedContent,
) -> http::Response<EmbeddedBody> {
    let status = response.status;
    let mut http_response = http::Response::new(EmbeddedBody { content: EmbeddedContent::Bytes(Bytes::new()) });
    // Every engine status code has three digits.
    *http_response.status_mut() = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *http_response.headers_mut() = header_map::from_fields(response.fields());
    if let Some(reason) = response.reason() {
        http_response.extensions_mut().insert(LogReason(reason));
    }
    if response.persistence() == Persistence::Close {
        http_response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    match response.body {
        service::Body::Empty => {}
        service::Body::Bytes(bytes) => http_response.body_mut().content = EmbeddedContent::Bytes(bytes),
        service::Body::File(file) => {
            http_response.body_mut().content = EmbeddedContent::File(SendFile::from_content(&file))
        }
        service::Body::Stream { length, chunks } => {
            let (sender, frames) = mpsc::channel(1);
            tokio::task::spawn_local(forward_chunks(chunks, sender, request_content));
            http_response.body_mut().content = EmbeddedContent::Channel { length, frames };
        }
        service::Body::Upgrade(_) => {
            let refused = Response::error(selvedge_proto::StatusCode::INTERNAL_SERVER_ERROR);
            return build_response(refused.log_reason("an embedded application cannot upgrade the connection"), None);
        }
    }
    // For HEAD, an empty body alone tells no length: a layer may have removed the content.
    if http_response.body().size_hint().exact() == Some(0) && !status.forbids_content() {
        http_response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    http_response
}

/// Reads chunks on their own thread and sends them through a channel, until the receiver is dropped.
async fn forward_chunks(
    mut chunks: Pin<Box<dyn Chunks>>,
    sender: mpsc::Sender<Result<Frame<Bytes>, StreamError>>,
    _request_content: from_http::SharedContent,
) {
    let mut receiver_closed = pin!(sender.closed());
    loop {
        let next = poll_fn(|cx| match chunks.as_mut().poll_chunk(cx) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            Poll::Pending => receiver_closed.as_mut().poll(cx).map(|()| None),
        });
        let Some(next) = next.await else { return };
        let Some(chunk) = next else { break };
        let failed = chunk.is_err();
        if sender.send(chunk.map(Frame::data)).await.is_err() || failed {
            return;
        }
    }
    let fields = header_map::from_fields(&chunks.as_mut().trailers());
    if !fields.is_empty() {
        // The receiver may be dropped already.
        let _ = sender.send(Ok(Frame::trailers(fields))).await;
    }
}

impl Body for EmbeddedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.content {
            EmbeddedContent::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            EmbeddedContent::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            EmbeddedContent::File(file) => Pin::new(file).poll_frame(cx).map_err(Into::into),
            EmbeddedContent::Channel { length, frames } => {
                let chunk = ready!(frames.poll_recv(cx));
                if let (Some(length), Some(Ok(frame))) = (length, &chunk) {
                    *length = length.saturating_sub(frame.data_ref().map_or(0, |bytes| bytes.len() as u64));
                }
                Poll::Ready(chunk.map(|chunk| chunk.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            EmbeddedContent::Bytes(bytes) => bytes.is_empty(),
            EmbeddedContent::File(file) => file.is_end_stream(),
            EmbeddedContent::Channel { length, .. } => *length == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            EmbeddedContent::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            EmbeddedContent::File(file) => file.size_hint(),
            EmbeddedContent::Channel { length, .. } => length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileContent, OpenFile};
    use crate::tower::send_file;
    use selvedge_proto::StatusCode;
    use std::rc::Rc;

    #[test]
    fn file_content_is_still_sent_by_the_engine() {
        let path = std::env::temp_dir().join(format!("selvedge-embedded-response-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let file = Rc::new(OpenFile::new(std::fs::File::open(&path).unwrap()));
        let content = FileContent::new(file.clone(), 2, 5).unwrap();
        let mut response = Response::new(StatusCode::OK);
        response.body = service::Body::File(Box::new(content));
        let http_response = build_response(response, None);
        // Wraps the body like a layer that does not change content.
        let body = axum::body::Body::new(http_response.into_body());
        assert_eq!(body.size_hint().exact(), Some(5));
        let Ok(service::Body::File(found)) = send_file::into_engine_body(body) else {
            panic!("the body is no longer a file")
        };
        assert_eq!((found.offset, found.length), (2, 5));
        assert!(std::sync::Arc::ptr_eq(found.file.shared(), file.shared()));
        std::fs::remove_file(path).unwrap();
    }
}
