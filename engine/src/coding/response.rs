//! Encodes the engine's responses.

use crate::coding::BoxError;
use crate::coding::coder::{CodedContent, ContentCoder, ResponseFacts};
use crate::coding::encoded_files::{CacheLookup, EncodedFile, OnMiss};
use crate::coding::encoder::{CompressionLevel, Encoder};
use crate::coding::fields::FieldLookup;
use crate::coding::ongoing::{OngoingEncoding, Piece, PolledPiece};
use crate::coding::policy::{MethodClass, RequestFacts};
use crate::file::{FileRange, FileStamp};
use crate::service::{Body, Chunks, Request, Response, StreamError};
use bytes::Bytes;
use selvedge_proto::encoding::Coding;
use selvedge_proto::field::Fields;
use selvedge_proto::method::Method;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes that are read from a file at once.
const READ_BYTES: u64 = 64 * 1024;

impl ContentCoder {
    /// Returns whether the content of a response is shorter than [`ContentCoder::bytes_min`], so that
    /// [`ContentCoder::encode`] leaves it as it is. This saves the call.
    pub fn is_too_short(&self, response: &Response) -> bool {
        // The fields of 206 and 304 are those of a longer response.
        !matches!(response.status.code(), 206 | 304)
            && response.body.length().is_some_and(|length| length < self.encoded_bytes_min())
    }

    /// Encodes the content of the response to a request, if client and response allow it. Call it on a worker of the
    /// server, for the last version of the response.
    pub async fn encode(&self, request: &Request, mut response: Response) -> Response {
        let facts = RequestFacts::of(MethodClass::of(request.method()), request);
        let requested_etags: Vec<Vec<u8>> = request.values("if-none-match").map(<[u8]>::to_vec).collect();
        let file = match &response.body {
            Body::File(content) => Some(content.range()),
            _ => None,
        };
        let about = ResponseFacts { status: response.status, length: response.body.length(), file };
        let content = match self.start(&facts, &requested_etags, about, response.fields_mut()) {
            CodedContent::Pending(coding, encoding) => Self::finish_file(coding, encoding.await, response.fields_mut()),
            content => content,
        };
        match content {
            CodedContent::Unchanged | CodedContent::Pending(..) => {}
            CodedContent::Bytes(bytes) => response.body = Body::Bytes(bytes),
            CodedContent::HeadOnly => response.body = stream(Box::pin(NoChunks)),
            CodedContent::Encode(encoder) => {
                let input = Input::new(std::mem::take(&mut response.body));
                let job = OngoingEncoding::new(encoder);
                response.body = stream(Box::pin(EncodedChunks { input, job, trailers: Fields::new() }));
            }
        }
        response
    }

    /// Returns the content of a response with a whole file in a coding, or `None` if the encoded file is not smaller. The
    /// first request for the file waits until it is encoded at a low level; a low-priority thread then encodes it at the
    /// highest level. `content` is the file, from memory or open, in the state of `stamp`. Content for a HEAD request has
    /// no length unless the file is in the cache. Call it on a worker of the server.
    pub async fn encode_file(
        &self,
        method: Method,
        (stamp, content): (&FileStamp, Body),
        coding: Coding,
    ) -> Option<Body> {
        let is_head = method == Method::Head;
        let on_miss = if is_head { OnMiss::Skip } else { OnMiss::Encode };
        let found = match &content {
            Body::File(file) => self.files().find(&file.range(), coding, on_miss),
            Body::Bytes(bytes) => self.files().find_in_memory((stamp, bytes), coding, on_miss),
            _ => CacheLookup::Bypass,
        };
        let encoded = match found {
            CacheLookup::Hit(encoded) => Some(encoded),
            CacheLookup::Pending(pending) => pending.await,
            CacheLookup::Bypass => None,
        };
        match encoded {
            Some(EncodedFile::Smaller(bytes)) => Some(Body::Bytes(Bytes::clone(&bytes))),
            Some(EncodedFile::NotSmaller) => None,
            None if is_head => Some(stream(Box::pin(NoChunks))),
            None => {
                let encoder = Encoder::new(coding, CompressionLevel::WhileSending, content.length()).ok()?;
                let job = OngoingEncoding::new(Box::new(encoder));
                Some(stream(Box::pin(EncodedChunks { input: Input::new(content), job, trailers: Fields::new() })))
            }
        }
    }
}

fn stream(chunks: Pin<Box<dyn Chunks>>) -> Body {
    Body::Stream { length: None, chunks }
}

/// The content of a response to HEAD.
struct NoChunks;

impl Chunks for NoChunks {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(None)
    }
}

/// Content that is encoded while it is sent.
struct EncodedChunks {
    input: Input,
    job: OngoingEncoding<Fields>,
    trailers: Fields,
}

impl Chunks for EncodedChunks {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let Self { input, job, trailers } = self.get_mut();
        Poll::Ready(match ready!(job.poll_piece(cx, |cx| input.poll_piece(cx))) {
            None => None,
            Some(Ok(Piece::Data(data))) => Some(Ok(data)),
            Some(Ok(Piece::Trailers(fields))) => {
                *trailers = fields;
                None
            }
            Some(Err(error)) => Some(Err(StreamError(error.to_string()))),
        })
    }

    fn poll_progress(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        if let Input::Stream(Some(chunks)) = &mut self.get_mut().input {
            chunks.as_mut().poll_progress(cx);
        }
    }

    fn trailers(self: Pin<&mut Self>) -> Fields {
        std::mem::take(&mut self.get_mut().trailers)
    }
}

/// Content before it is encoded.
enum Input {
    Bytes(Bytes),
    File(FileInput),
    Stream(Option<Pin<Box<dyn Chunks>>>),
}

/// A file that is read on other threads.
struct FileInput {
    range: FileRange,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Input {
    fn new(body: Body) -> Self {
        match body {
            Body::Empty | Body::Upgrade(_) => Self::Bytes(Bytes::new()),
            Body::Bytes(bytes) => Self::Bytes(bytes),
            Body::File(content) => Self::File(FileInput { range: content.range(), reading: None }),
            Body::Stream { chunks, .. } => Self::Stream(Some(chunks)),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> PolledPiece<Fields> {
        match self {
            Self::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Piece::Data(bytes))))
            }
            Self::File(file) => file.poll_chunk(cx).map(|chunk| chunk.map(|chunk| chunk.map(Piece::Data))),
            Self::Stream(stream) => {
                let Some(chunks) = stream else { return Poll::Ready(None) };
                Poll::Ready(match ready!(chunks.as_mut().poll_chunk(cx)) {
                    Some(Ok(chunk)) => Some(Ok(Piece::Data(chunk))),
                    Some(Err(error)) => Some(Err(error.into())),
                    None => {
                        let trailers = chunks.as_mut().trailers();
                        *stream = None;
                        (!trailers.lines().is_empty()).then_some(Ok(Piece::Trailers(trailers)))
                    }
                })
            }
        }
    }
}

impl FileInput {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        if self.range.length == 0 {
            return Poll::Ready(None);
        }
        let range = &self.range;
        let reading = self.reading.get_or_insert_with(|| {
            let (range, count) = (range.clone(), range.length.min(READ_BYTES) as usize);
            spawn_blocking(move || range.read_start(count))
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let chunk = read.map_err(io::Error::other).flatten()?;
        self.range.offset += chunk.len() as u64;
        self.range.length -= chunk.len() as u64;
        Poll::Ready(Some(Ok(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::coding::encoder::tests::decode;
    use crate::service::{FileContent, OpenFile, RequestInner};
    use crate::tower::Compression;
    use http_body_util::BodyExt;
    use selvedge_proto::head::Version;
    use selvedge_proto::{HeadBuilder, MessageLimits, RequestLine, StatusCode};
    use std::convert::Infallible;
    use std::fs::File;
    use std::future::poll_fn;
    use std::rc::Rc;
    use tower_layer::Layer;
    use tower_service::Service;

    /// Longer than one chunk of a file.
    const TEXT_LEN: usize = 200_000;

    fn request(method: &str, fields: &[(&str, &str)]) -> Request {
        let mut inner = Box::<RequestInner>::default();
        inner.bytes = Buffer::take();
        let RequestInner { bytes, head, .. } = &mut *inner;
        let line = RequestLine { method: method.as_bytes(), target: b"/", version: Version::Http11 };
        let mut builder = HeadBuilder::new(bytes, head, &MessageLimits::default(), line).unwrap();
        for (name, value) in [("host", "a")].iter().chain(fields) {
            builder.field(name.as_bytes(), value.as_bytes()).unwrap();
        }
        builder.finish().unwrap();
        Request { inner }
    }

    fn text() -> Vec<u8> {
        (0_u32..).flat_map(|number| format!("line {}\n", number * 7 % 977).into_bytes()).take(TEXT_LEN).collect()
    }

    /// A stream of the text in pieces, followed by a trailer.
    struct Pieces(Vec<u8>);

    impl Chunks for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
            let count = self.0.len().min(10_000);
            let piece: Vec<u8> = self.0.drain(..count).collect();
            Poll::Ready((!piece.is_empty()).then(|| Ok(piece.into())))
        }

        fn trailers(self: Pin<&mut Self>) -> Fields {
            let mut trailers = Fields::new();
            trailers.append("x-sum", "7").unwrap();
            trailers
        }
    }

    /// A response with the text in each kind of body.
    fn responses() -> [Response; 3] {
        let path = std::env::temp_dir().join(format!("selvedge-coding-{}", std::process::id()));
        std::fs::write(&path, text()).unwrap();
        let file = Rc::new(OpenFile::new(File::open(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        // Only part of the file, which is not cached.
        let content = FileContent::new(file, 0, TEXT_LEN as u64 - 1).unwrap();
        let pieces = Body::Stream { length: Some(TEXT_LEN as u64), chunks: Box::pin(Pieces(text())) };
        [Body::Bytes(text().into()), Body::File(Box::new(content)), pieces].map(|body| {
            Response::new(StatusCode::OK)
                .field("content-type", "text/plain")
                .field("etag", "\"abc\"")
                .field("accept-ranges", "bytes")
                .body(body)
        })
    }

    /// Returns content and trailers.
    async fn read(body: Body) -> (Vec<u8>, Fields) {
        match body {
            Body::Bytes(bytes) => (bytes.to_vec(), Fields::new()),
            Body::Stream { mut chunks, .. } => {
                let mut all = Vec::new();
                while let Some(chunk) = poll_fn(|cx| chunks.as_mut().poll_chunk(cx)).await {
                    all.extend_from_slice(&chunk.unwrap());
                }
                (all, chunks.as_mut().trailers())
            }
            body => panic!("{body:?}"),
        }
    }

    /// Returns what the tower layer makes of bytes.
    async fn by_layer(accept: &str, content: Vec<u8>) -> Vec<u8> {
        let mut service = Compression::new().layer(tower::service_fn(async |_: http::Request<()>| {
            let body = http_body_util::Full::<Bytes>::from(content.clone());
            Ok::<_, Infallible>(http::Response::builder().header("content-type", "text/plain").body(body).unwrap())
        }));
        let request = http::Request::builder().header("accept-encoding", accept).body(()).unwrap();
        let response = service.call(request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn each_kind_of_body_is_encoded_like_by_the_layer() {
        let coder = ContentCoder::new();
        for coding in Coding::ALL {
            let request = request("GET", &[("accept-encoding", coding.name())]);
            for (index, response) in responses().into_iter().enumerate() {
                let response = coder.encode(&request, response).await;
                let fields = response.fields();
                assert_eq!(fields.get("content-encoding"), Some(coding.name().as_bytes()));
                assert_eq!(fields.get("etag"), Some(format!("\"abc-{}\"", coding.name()).as_bytes()));
                assert_eq!((fields.get("vary"), fields.get("accept-ranges")), (Some(&b"accept-encoding"[..]), None));
                assert_eq!(response.body.length(), None);
                let (encoded, trailers) = read(response.body).await;
                let mut expected = text();
                expected.truncate(if index == 1 { TEXT_LEN - 1 } else { TEXT_LEN });
                assert!(decode(coding, &encoded) == expected, "{coding:?} of body {index}");
                assert_eq!(trailers.get("x-sum"), (index == 2).then_some(&b"7"[..]));
                if index == 0 {
                    assert!(encoded == by_layer(coding.name(), expected).await, "{coding:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_response_that_is_not_encoded_keeps_its_body() {
        let coder = ContentCoder::new();
        for (method, fields, is_unchanged) in [
            ("GET", vec![], true),
            ("GET", vec![("accept-encoding", "gzip"), ("cookie", "a=b")], true),
            ("HEAD", vec![("accept-encoding", "gzip")], false),
        ] {
            for response in responses() {
                let length = response.body.length();
                let response = coder.encode(&request(method, &fields), response).await;
                assert_eq!(response.body.length() == length, is_unchanged, "{method} {fields:?}");
                assert_eq!(response.fields().get("content-encoding").is_none(), is_unchanged);
                assert_eq!(response.fields().get("vary"), Some(&b"accept-encoding"[..]));
            }
        }
    }

    #[tokio::test]
    async fn a_304_has_the_etag_that_the_client_sent() {
        let fields = [("accept-encoding", "gzip"), ("if-none-match", "\"abc-gzip\"")];
        let response = Response::new(StatusCode::NOT_MODIFIED).field("etag", "\"abc\"");
        let response = ContentCoder::new().encode(&request("GET", &fields), response).await;
        assert_eq!(response.fields().get("etag"), Some(&b"\"abc-gzip\""[..]));
    }
}
