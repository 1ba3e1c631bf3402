//! A tower layer that compresses responses.
//!
//! A response passes through the modules in this order: [`policy`] decides whether it is compressed,
//! and [`etags`] gives it its own ETag. [`cache`] stores compressed files, and [`body`] encodes other
//! content while it is sent, with an [`encoder`].

mod body;
mod cache;
mod encoder;
mod etags;
mod policy;

use crate::tower::BoxError;
use crate::tower::send_file::{self, FilePart};
pub use body::CompressedBody;
use cache::{CacheBounds, CacheLookup, EncodedFile, EncodedFiles, OnMiss, PendingEncoding};
use encoder::{CompressionLevel, Encoder};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, response};
use http_body::Body;
use pin_project_lite::pin_project;
pub use policy::Authenticated;
use policy::{CompressionDecision, MethodClass, PolicySettings, RequestFacts};
use selvedge_proto::encoding::Coding;
use selvedge_proto::field::list_members;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
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
    // One Arc, since each request clones the layer.
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    settings: PolicySettings,
    cache: EncodedFiles,
}

impl Compression {
    /// Creates a layer with default settings.
    pub fn new() -> Self {
        let settings = PolicySettings {
            bytes_min: 1024,
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            authenticated: Authenticated::Skip,
        };
        Self { shared: Arc::new(Shared { settings, cache: EncodedFiles::new(CacheBounds::default()) }) }
    }

    /// Sets the minimum length in bytes of compressed responses; default 1,024. A shorter response
    /// fits into one packet anyway. Content of unknown length is always compressed.
    #[must_use]
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.settings_mut().bytes_min = bytes;
        self
    }

    /// Sets the offered [codings](Coding) in order of preference, which decides between codings that
    /// the client weighs equally; default zstd, Brotli, gzip. At equal size, zstd costs the least CPU
    /// time for both server and client.
    #[must_use]
    pub fn codings(mut self, codings: impl IntoIterator<Item = Coding>) -> Self {
        self.settings_mut().codings = codings.into_iter().collect();
        self
    }

    /// Sets whether to compress responses that may contain secrets; default [`Authenticated::Skip`].
    #[must_use]
    pub fn authenticated(mut self, authenticated: Authenticated) -> Self {
        self.settings_mut().authenticated = authenticated;
        self
    }

    /// Sets the maximum size in bytes of the cache of compressed files, shared by all clones of this
    /// layer; default 32 MiB. The least recently used file is evicted first. With 0, each file is
    /// compressed for each response.
    #[must_use]
    pub fn cache_bytes_max(self, bytes: usize) -> Self {
        self.with_cache_bounds(|bounds| bounds.bytes_max = bytes)
    }

    /// Sets the maximum size in bytes of a file that is cached in compressed form; default 4 MiB.
    ///
    /// The first request for such a file waits until it is compressed. Recompressing it at the highest
    /// level takes up to 70 MiB of memory and a few seconds of an idle core, for one file at a time. A
    /// larger file is compressed for each response while it is sent.
    #[must_use]
    pub fn cache_file_bytes_max(self, bytes: u64) -> Self {
        self.with_cache_bounds(|bounds| bounds.file_bytes_max = bytes)
    }

    fn with_cache_bounds(mut self, set: impl FnOnce(&mut CacheBounds)) -> Self {
        let mut bounds = self.shared.cache.bounds();
        set(&mut bounds);
        Arc::make_mut(&mut self.shared).cache = EncodedFiles::new(bounds);
        self
    }

    fn settings_mut(&mut self) -> &mut PolicySettings {
        &mut Arc::make_mut(&mut self.shared).settings
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
        let facts = RequestFacts::of(request.method(), request.headers());
        let requested_etags = self.compression.translate_etags(&facts, request.headers_mut());
        let pending =
            PendingResponse { facts, requested_etags, compression: self.compression.clone(), awaiting_file: None };
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
    requested_etags: Vec<HeaderValue>,
    compression: Compression,
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

impl Compression {
    /// Adds the original ETags to `If-None-Match` and `If-Match`, where the client sent ETags of encoded
    /// content. Returns the client's `If-None-Match` lines if they contained such ETags.
    fn translate_etags(&self, facts: &RequestFacts, fields: &mut HeaderMap) -> Vec<HeaderValue> {
        let is_offered = |coding: &Coding| self.shared.settings.codings.contains(coding);
        let mut requested = Vec::new();
        for name in [header::IF_NONE_MATCH, header::IF_MATCH] {
            // `If-None-Match` may only match what the client can decode: a cache may send it on behalf of
            // another client. `If-Match` refers to the resource, which has one state in all codings.
            let for_content = facts.method_class != MethodClass::Unsafe && name == header::IF_NONE_MATCH;
            let accepts = |coding| is_offered(&coding) && (!for_content || facts.accepted.accepts(coding));
            let lines: Vec<_> = fields.get_all(&name).iter().cloned().collect();
            let translated: Vec<_> = lines.iter().map(|line| etags::with_original_etags(line, accepts)).collect();
            if translated.iter().all(Option::is_none) {
                continue;
            }
            fields.remove(&name);
            for (line, translated) in lines.iter().zip(translated) {
                fields.append(&name, translated.unwrap_or_else(|| line.clone()));
            }
            if for_content {
                requested = lines;
            }
        }
        requested
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
        let settings = &self.compression.shared.settings;
        match policy::decide(&self.facts, settings, parts.status, &parts.headers, length) {
            CompressionDecision::Skip => {}
            CompressionDecision::SkipWithVary => add_vary(&mut parts.headers),
            CompressionDecision::NotModified => {
                add_vary(&mut parts.headers);
                self.set_not_modified_etag(&mut parts.headers);
            }
            CompressionDecision::Encode(coding) => return self.start_encoded(parts, body, coding, (length, file)),
        }
        Some(Response::from_parts(parts, CompressedBody::unchanged(body)))
    }

    fn start_encoded(
        &mut self,
        parts: response::Parts,
        body: B,
        coding: Coding,
        (length, file): (Option<u64>, Option<FilePart>),
    ) -> Option<Response<CompressedBody<B>>> {
        let is_head = self.facts.method_class == MethodClass::Head;
        let on_miss = if is_head { OnMiss::Skip } else { OnMiss::Encode };
        match file.map_or(CacheLookup::Bypass, |file| self.compression.shared.cache.find(&file, coding, on_miss)) {
            CacheLookup::Hit(encoded) => Some(self.respond_with_file(parts, body, coding, encoded)),
            CacheLookup::Pending(encoding) => {
                self.awaiting_file = Some(AwaitingFile { parts, body, coding, encoding });
                None
            }
            CacheLookup::Bypass if is_head => Some(encoded_response(parts, coding, CompressedBody::head_only(None))),
            CacheLookup::Bypass => Some(encode_while_sending(parts, body, coding, length)),
        }
    }

    /// Waits until the file is compressed, then builds the response.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Response<CompressedBody<B>>> {
        let Some(awaiting) = &mut self.awaiting_file else { return Poll::Pending };
        let encoded = ready!(awaiting.encoding.as_mut().poll(cx));
        let Some(AwaitingFile { parts, body, coding, .. }) = self.awaiting_file.take() else { return Poll::Pending };
        Poll::Ready(match encoded {
            Some(encoded) => self.respond_with_file(parts, body, coding, encoded),
            None => encode_while_sending(parts, body, coding, None),
        })
    }

    fn respond_with_file(
        &self,
        mut parts: response::Parts,
        body: B,
        coding: Coding,
        encoded: EncodedFile,
    ) -> Response<CompressedBody<B>> {
        let EncodedFile::Smaller(bytes) = encoded else {
            add_vary(&mut parts.headers);
            return Response::from_parts(parts, CompressedBody::unchanged(body));
        };
        let length = bytes.len();
        let content = match self.facts.method_class {
            MethodClass::Head => CompressedBody::head_only(Some(length as u64)),
            MethodClass::Safe | MethodClass::Unsafe | MethodClass::Connect => CompressedBody::cached(bytes),
        };
        let mut response = encoded_response(parts, coding, content);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        response
    }

    /// Sets the ETag of a 304 response to the one that the client has sent.
    fn set_not_modified_etag(&self, fields: &mut HeaderMap) {
        let Some(original) = fields.get(header::ETAG) else { return };
        let codings = &self.compression.shared.settings.codings;
        let coding = self.requested_etags.iter().find_map(|list| etags::find_coding(list, original, codings));
        if let Some(encoded) = coding.and_then(|coding| etags::encoded_etag(original, coding)) {
            fields.insert(header::ETAG, encoded);
        }
    }
}

/// Builds a response that is compressed while it is sent.
fn encode_while_sending<B>(
    mut parts: response::Parts,
    body: B,
    coding: Coding,
    length: Option<u64>,
) -> Response<CompressedBody<B>> {
    let is_events = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let name = value.as_bytes().split(|&b| b == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    });
    let level = if is_events { CompressionLevel::EventStream } else { CompressionLevel::WhileSending };
    match Encoder::new(coding, level, length) {
        Ok(encoder) => encoded_response(parts, coding, CompressedBody::encoded(body, encoder)),
        // Fall back to uncompressed content.
        Err(_) => {
            add_vary(&mut parts.headers);
            Response::from_parts(parts, CompressedBody::unchanged(body))
        }
    }
}

/// Builds a response with the fields for encoded content.
fn encoded_response<B>(
    mut parts: response::Parts,
    coding: Coding,
    content: CompressedBody<B>,
) -> Response<CompressedBody<B>> {
    let fields = &mut parts.headers;
    fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    fields.remove(header::CONTENT_LENGTH);
    // Ranges would refer to the unencoded content (RFC 9110 §14.3).
    fields.remove(header::ACCEPT_RANGES);
    if let Some(etag) = fields.get(header::ETAG).and_then(|original| etags::encoded_etag(original, coding)) {
        fields.insert(header::ETAG, etag);
    }
    add_vary(fields);
    Response::from_parts(parts, content)
}

/// Adds `accept-encoding` to `Vary`, after its current members.
fn add_vary(fields: &mut HeaderMap) {
    const NAME: &[u8] = b"accept-encoding";
    let mut merged = Vec::new();
    for value in fields.get_all(header::VARY).iter().flat_map(|value| list_members(value.as_bytes())) {
        if value == b"*" || value.eq_ignore_ascii_case(NAME) {
            return;
        }
        merged.extend_from_slice(value);
        merged.extend_from_slice(b", ");
    }
    merged.extend_from_slice(NAME);
    if let Ok(merged) = HeaderValue::from_bytes(&merged) {
        fields.insert(header::VARY, merged);
    }
}
