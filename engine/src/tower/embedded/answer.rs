//! From an answer of the engine's to one of the ecosystem's.

use super::asked;
use crate::service::{self, Chunks, Response, StreamError};
use crate::tower::{BoxError, Reason, SendFile, trailers};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use selvedge_proto::Afterwards;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// The content of an answer of an [`super::Embedded`] application. A file in it is sent as a
/// [`SendFile`] is: by the kernel where this library serves it as it is.
#[derive(Debug)]
pub struct EmbeddedBody {
    content: Content,
}

enum Content {
    Bytes(Bytes),
    File(SendFile),
    /// Content that its own thread reads.
    Piped {
        length: Option<u64>,
        pieces: mpsc::Receiver<Result<Frame<Bytes>, StreamError>>,
    },
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::File(file) => write!(f, "File({})", file.length()),
            Self::Piped { length, .. } => write!(f, "Piped({length:?})"),
        }
    }
}

/// An answer; `asked` is held for as long as it is made of it. One to HEAD has the content that GET
/// would get, so that layers do with it what they would; no server sends it.
pub(super) fn of(response: Response, asked: asked::Content) -> http::Response<EmbeddedBody> {
    let status = response.status;
    let mut answer = http::Response::new(EmbeddedBody { content: Content::Bytes(Bytes::new()) });
    // Every status of the engine's has three digits.
    *answer.status_mut() = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *answer.headers_mut() = trailers::to_map(response.fields());
    if let Some(reason) = response.reason() {
        answer.extensions_mut().insert(Reason(reason));
    }
    if response.afterwards() == Afterwards::Close {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    match response.body {
        service::Body::Empty => {}
        service::Body::Bytes(bytes) => answer.body_mut().content = Content::Bytes(bytes),
        service::Body::File(file) => answer.body_mut().content = Content::File(SendFile::of_content(&file)),
        service::Body::Stream { length, chunks } => {
            let (to, pieces) = mpsc::channel(1);
            tokio::task::spawn_local(pass_on(chunks, to, asked));
            answer.body_mut().content = Content::Piped { length, pieces };
        }
        service::Body::Upgrade(_) => {
            let refused = Response::error(selvedge_proto::Status::INTERNAL_SERVER_ERROR);
            return of(refused.because("an embedded application cannot change the protocol"), None);
        }
    }
    answer
}

/// Reads content on its own thread, no faster than it is taken, and no longer than somebody may take it.
async fn pass_on(
    mut chunks: Pin<Box<dyn Chunks>>,
    to: mpsc::Sender<Result<Frame<Bytes>, StreamError>>,
    _asked: asked::Content,
) {
    let mut gone = pin!(to.closed());
    loop {
        let next = poll_fn(|cx| match chunks.as_mut().poll_chunk(cx) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            Poll::Pending => gone.as_mut().poll(cx).map(|()| None),
        });
        let Some(next) = next.await else { return };
        let Some(piece) = next else { break };
        let failed = piece.is_err();
        if to.send(piece.map(Frame::data)).await.is_err() || failed {
            return;
        }
    }
    let fields = trailers::to_map(&chunks.as_mut().trailers());
    if !fields.is_empty() {
        // Whoever read may have gone.
        let _ = to.send(Ok(Frame::trailers(fields))).await;
    }
}

impl Body for EmbeddedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.content {
            Content::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::File(file) => Pin::new(file).poll_frame(cx).map_err(Into::into),
            Content::Piped { length, pieces } => {
                let piece = ready!(pieces.poll_recv(cx));
                if let (Some(length), Some(Ok(frame))) = (length, &piece) {
                    *length = length.saturating_sub(frame.data_ref().map_or(0, |bytes| bytes.len() as u64));
                }
                Poll::Ready(piece.map(|piece| piece.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::File(file) => file.is_end_stream(),
            Content::Piped { length, .. } => *length == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::File(file) => file.size_hint(),
            Content::Piped { length, .. } => length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{FileContent, OpenFile};
    use crate::tower::send_file;
    use selvedge_proto::Status;
    use std::rc::Rc;

    #[test]
    fn a_file_is_still_one_for_the_engine_and_the_same() {
        let path = std::env::temp_dir().join(format!("selvedge-embedded-answer-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let file = Rc::new(OpenFile::new(std::fs::File::open(&path).unwrap()));
        let content = FileContent::new(file.clone(), 2, 5).unwrap();
        let mut response = Response::new(Status::OK);
        response.body = service::Body::File(content);
        let answer = of(response, None);
        // As any layer that does not change content passes it on.
        let body = axum::body::Body::new(answer.into_body());
        assert_eq!(body.size_hint().exact(), Some(5));
        let Ok(service::Body::File(found)) = send_file::take(body) else { panic!("it is no file any more") };
        assert_eq!((found.offset, found.length), (2, 5));
        assert!(std::sync::Arc::ptr_eq(found.file.shared(), file.shared()));
        std::fs::remove_file(path).unwrap();
    }
}
