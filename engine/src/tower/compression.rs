//! A tower layer that compresses responses, with a [`ContentCoder`].

mod body;

use crate::coding::Authenticated;
use crate::coding::encoded_files::PendingEncoding;
use crate::coding::policy::{MethodClass, RequestFacts};
use crate::coding::{CodedContent, ContentCoder, ResponseFacts};
use crate::tower::BoxError;
use crate::tower::send_file;
pub use body::CompressedBody;
use http::header;
use http::{Request, Response, response};
use http_body::Body;
use pin_project_lite::pin_project;
use selvedge_proto::StatusCode;
use selvedge_proto::encoding::Coding;
use selvedge_proto::method::Method;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// A layer that compresses responses with gzip, Brotli or zstd, depending on `Accept-Encoding`.
///
/// ```
/// # fn example() -> axum::Router {
/// use axum::{Router, routing::get};
/// use selvedge::Compression;
///
/// Router::new().route("/", get(async || "Hello!")).layer(Compression::new())
/// # }
/// ```
///
/// Streamed content is compressed as it arrives. All available output is sent before the layer waits
/// for more content, so server-sent events arrive immediately. A [`SendFile`](crate::SendFile) is
/// compressed once and cached; a background thread soon recompresses it at the highest level.
///
/// These responses are not compressed:
/// - those shorter than [`Self::bytes_min`], if the length is known;
/// - those without a Content-Type or with compressed content: images except SVG, audio, video,
///   archives, `woff` and `woff2` fonts, PDF, office documents; also `application/octet-stream` and
///   gRPC;
/// - those with `Content-Encoding`, `Cache-Control: no-transform`, `Content-Range` or a digest;
/// - those without content (1xx, 204, 205, 304), and 206;
/// - those that may contain secrets: see [`Self::authenticated`].
///
/// If the client accepts no offered coding, it gets the content uncompressed, even if it sent
/// `identity;q=0`: such content is more useful to it than a 406.
///
/// A response whose coding depends on the request has `Vary: accept-encoding`. A compressed response
/// has no `Accept-Ranges` and, unless it is cached, no `Content-Length`. A strong ETag `"abc"` becomes
/// `"abc-gzip"`. If a client sends that ETag in `If-None-Match` or `If-Match`, the application also
/// sees `"abc"`. Representations with equal ETags decode to equal bytes, but their encoded bytes may
/// differ between responses. A response to HEAD has the fields of the response to GET, except the
/// length of content that is not encoded yet.
#[derive(Clone, Debug)]
pub struct Compression {
    coder: ContentCoder,
}

impl Compression {
    /// Creates a layer with default settings.
    pub fn new() -> Self {
        Self { coder: ContentCoder::new() }
    }

    /// Sets the minimum length in bytes of compressed responses; default 1,024. A shorter response
    /// fits into one packet anyway. Content of unknown length is always compressed.
    #[must_use]
    pub fn bytes_min(self, bytes: u64) -> Self {
        Self { coder: self.coder.bytes_min(bytes) }
    }

    /// Sets the offered [codings](Coding) in order of preference, which decides between codings that
    /// the client weighs equally; default zstd, Brotli, gzip. At equal size, zstd costs the least CPU
    /// time for both server and client.
    #[must_use]
    pub fn codings(self, codings: impl IntoIterator<Item = Coding>) -> Self {
        Self { coder: self.coder.codings(codings) }
    }

    /// Sets whether to compress responses that may contain secrets; default [`Authenticated::Skip`].
    #[must_use]
    pub fn authenticated(self, authenticated: Authenticated) -> Self {
        Self { coder: self.coder.authenticated(authenticated) }
    }

    /// Sets the maximum size in bytes of the cache of compressed files, shared by all clones of this
    /// layer; default 32 MiB. The least recently used file is evicted first. With 0, each file is
    /// compressed for each response.
    #[must_use]
    pub fn cache_bytes_max(self, bytes: usize) -> Self {
        Self { coder: self.coder.cache_bytes_max(bytes) }
    }

    /// Sets the maximum size in bytes of a file that is cached in compressed form; default 4 MiB.
    ///
    /// The first request for such a file waits until it is compressed. Recompressing it at the highest
    /// level takes up to 70 MiB of memory and a few seconds of an idle core, for one file at a time. A
    /// larger file is compressed for each response while it is sent.
    #[must_use]
    pub fn cache_file_bytes_max(self, bytes: u64) -> Self {
        Self { coder: self.coder.cache_file_bytes_max(bytes) }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for Compression {
    type Service = Compress<S>;

    fn layer(&self, inner: S) -> Compress<S> {
        Compress { inner, compression: self.clone() }
    }
}

/// A service with compressed responses, made by [`Compression`].
#[derive(Clone, Debug)]
pub struct Compress<S> {
    inner: S,
    compression: Compression,
}

impl<S, R, B> Service<Request<R>> for Compress<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Response = Response<CompressedBody<B>>;
    type Error = S::Error;
    type Future = CompressFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<R>) -> Self::Future {
        let method = Method::from_token(request.method().as_str().as_bytes());
        let facts = RequestFacts::of(MethodClass::of(method), request.headers());
        let coder = self.compression.coder.clone();
        let requested_etags = coder.translate_etags(&facts, request.headers_mut());
        let pending = PendingResponse { facts, requested_etags, coder, awaiting_file: None };
        CompressFuture { inner: self.inner.call(request), pending }
    }
}

pin_project! {
    /// A future that resolves to the compressed response of a service.
    pub struct CompressFuture<F, B> {
        #[pin]
        inner: F,
        pending: PendingResponse<B>,
    }
}

impl<F, B> fmt::Debug for CompressFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompressFuture")
    }
}

/// The state of a response between request and compression.
struct PendingResponse<B> {
    facts: RequestFacts,
    /// The ETags that the client sent, some of which may belong to encoded content.
    requested_etags: Vec<Vec<u8>>,
    coder: ContentCoder,
    /// A response that waits until its file is compressed.
    awaiting_file: Option<AwaitingFile<B>>,
}

struct AwaitingFile<B> {
    parts: response::Parts,
    body: B,
    coding: Coding,
    encoding: PendingEncoding,
}

impl<F, B, E> Future for CompressFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<CompressedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.pending.awaiting_file.is_none() {
            let (parts, body) = match ready!(this.inner.poll(cx)) {
                Ok(response) => response.into_parts(),
                Err(error) => return Poll::Ready(Err(error)),
            };
            if let Some(response) = this.pending.start(parts, body) {
                return Poll::Ready(Ok(response));
            }
        }
        this.pending.poll_file(cx).map(Ok)
    }
}

impl<B> PendingResponse<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Decides on a response and builds it. Returns `None` if its file must be compressed first.
    fn start(&mut self, mut parts: response::Parts, body: B) -> Option<Response<CompressedBody<B>>> {
        let (hint, file) = send_file::probe(&body);
        let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = match self.facts.method_class {
            // The content of a response to HEAD may already be removed.
            MethodClass::Head => announced.or(hint.exact().filter(|&length| length > 0)),
            MethodClass::Safe | MethodClass::Unsafe | MethodClass::Connect => hint.exact().or(announced),
        };
        let content = match StatusCode::new(parts.status.as_u16()) {
            Some(status) => {
                let about = ResponseFacts { status, length, file };
                self.coder.start(&self.facts, &self.requested_etags, about, &mut parts.headers)
            }
            None => CodedContent::Unchanged,
        };
        match content {
            CodedContent::Pending(coding, encoding) => {
                self.awaiting_file = Some(AwaitingFile { parts, body, coding, encoding });
                None
            }
            content => Some(self.respond(parts, body, content)),
        }
    }

    /// Waits until the file is compressed, then builds the response.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Response<CompressedBody<B>>> {
        let Some(awaiting) = &mut self.awaiting_file else { return Poll::Pending };
        let encoded = ready!(awaiting.encoding.as_mut().poll(cx));
        let Some(AwaitingFile { mut parts, body, coding, .. }) = self.awaiting_file.take() else {
            return Poll::Pending;
        };
        let content = ContentCoder::finish_file(coding, encoded, &mut parts.headers);
        Poll::Ready(self.respond(parts, body, content))
    }

    fn respond(&self, mut parts: response::Parts, body: B, content: CodedContent) -> Response<CompressedBody<B>> {
        let body = match content {
            CodedContent::Unchanged | CodedContent::Pending(..) => CompressedBody::unchanged(body),
            CodedContent::Encode(encoder) => CompressedBody::encoded(body, encoder),
            CodedContent::HeadOnly => CompressedBody::head_only(None),
            CodedContent::Bytes(bytes) => {
                let length = bytes.len();
                parts.headers.insert(header::CONTENT_LENGTH, length.into());
                match self.facts.method_class {
                    MethodClass::Head => CompressedBody::head_only(Some(length as u64)),
                    MethodClass::Safe | MethodClass::Unsafe | MethodClass::Connect => CompressedBody::cached(bytes),
                }
            }
        };
        Response::from_parts(parts, body)
    }
}
