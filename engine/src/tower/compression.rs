//! Compresses answers on their way to clients that take it: a layer of tower's.
//!
//! The order in which an answer meets what is here: [`judge`] says whether it is compressed,
//! [`tags`] gives it a tag of its own, [`kept`] has the files that were asked for before, and
//! [`content`] codes the rest while it is sent, with an [`encoder`].

mod content;
mod encoder;
mod judge;
mod kept;
mod tags;

use crate::tower::BoxError;
use crate::tower::send_file::{self, FileFacts};
pub use content::CompressedBody;
use encoder::{Effort, Encoder};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, response};
use http_body::Body;
use judge::{Asked, Kind, Settings, Verdict};
use kept::{Bounds, Found, Kept, Made, Making, Otherwise};
use pin_project_lite::pin_project;
use selvedge_proto::encoding::Coding;
use selvedge_proto::field::members;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// What becomes of answers that may have secrets in them: to requests with `Authorization` or
/// `Cookie`, and with `Set-Cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authenticated {
    /// They are not compressed.
    #[default]
    LeftAlone,
    /// They are compressed like any other. Who can make a client ask, have text of his in the
    /// answer, and see how long it is, can then guess secrets that stand in it, letter by letter
    /// (BREACH). Right for answers that no request has a say in, or without secrets.
    Compressed,
}

/// A layer that compresses answers with gzip, Brotli or zstd, as clients ask for it.
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
/// Content that streams is compressed as it comes, and whatever has come goes out before the next
/// is waited for, so server-sent events arrive at once. A [`SendFile`](crate::SendFile) is
/// compressed once and kept, soon as small as it gets.
///
/// Left alone are answers
/// - shorter than [`Self::bytes_min`], where the length is known;
/// - without a Content-Type, or with one whose content is compressed already: images but SVG,
///   audio, video, archives, `woff` and `woff2` fonts, PDF, office documents; and
///   `application/octet-stream` and gRPC;
/// - with `Content-Encoding`, `Cache-Control: no-transform`, `Content-Range` or a digest;
/// - without content: 1xx, 204, 205, 304; and 206;
/// - that may have secrets in them: see [`Self::authenticated`].
///
/// A client that takes no coding that is offered gets the content as it is, also when it says
/// `identity;q=0`: content that it did not ask for serves it better than 406.
///
/// An answer that another client could have got otherwise has `Vary: accept-encoding`. A
/// compressed one has no `Accept-Ranges` and, unless it is kept, no `Content-Length`; a strong
/// ETag `"abc"` becomes `"abc-gzip"`, and when a client names that one in `If-None-Match` or
/// `If-Match`, the application sees `"abc"` as well. What has the same tag decodes to the same
/// bytes; how they are coded may differ from one answer to the next. An answer to HEAD has the fields of the one to GET,
/// without the length of what was not made yet.
#[derive(Clone, Debug)]
pub struct Compression {
    // One, since each request has a clone of it.
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    settings: Settings,
    kept: Kept,
}

impl Compression {
    /// With every default.
    pub fn new() -> Self {
        let settings = Settings {
            bytes_min: 1024,
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            authenticated: Authenticated::LeftAlone,
        };
        Self { shared: Arc::new(Shared { settings, kept: Kept::new(Bounds::default()) }) }
    }

    /// The length in bytes from which an answer is compressed: 1,024, unless said otherwise. A
    /// shorter one fits into one packet either way. Content whose length is not known is always
    /// compressed.
    #[must_use]
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.settings().bytes_min = bytes;
        self
    }

    /// The [codings](Coding) to offer, and which is preferred where a client likes several
    /// equally: zstd, Brotli, gzip, unless said otherwise. With equal results, zstd costs least on both sides.
    #[must_use]
    pub fn codings(mut self, codings: impl IntoIterator<Item = Coding>) -> Self {
        self.settings().codings = codings.into_iter().collect();
        self
    }

    /// What becomes of answers that may have secrets in them: they are left alone, unless said
    /// otherwise.
    #[must_use]
    pub fn authenticated(mut self, authenticated: Authenticated) -> Self {
        self.settings().authenticated = authenticated;
        self
    }

    /// How many bytes of compressed files are kept at most, by all clones of this layer
    /// together: 32 MiB, unless said otherwise. What was not asked for longest goes first. With 0,
    /// each file is compressed each time.
    #[must_use]
    pub fn kept_bytes_max(self, bytes: usize) -> Self {
        self.keep_within(|bounds| bounds.bytes_max = bytes)
    }

    /// The largest file in bytes that is kept compressed: 4 MiB, unless said otherwise. Until such a
    /// file was compressed for the first time, who asks for it waits. To make it as small as it
    /// gets takes up to 70 MiB of memory and some seconds of an otherwise idle core, for one file at a
    /// time. A larger file is compressed each time as it is sent.
    #[must_use]
    pub fn kept_file_bytes_max(self, bytes: u64) -> Self {
        self.keep_within(|bounds| bounds.file_bytes_max = bytes)
    }

    fn keep_within(mut self, set: impl FnOnce(&mut Bounds)) -> Self {
        let mut bounds = self.shared.kept.bounds();
        set(&mut bounds);
        Arc::make_mut(&mut self.shared).kept = Kept::new(bounds);
        self
    }

    fn settings(&mut self) -> &mut Settings {
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
        Compress { inner, with: self.clone() }
    }
}

/// A service whose answers are compressed: what [`Compression`] makes of one.
#[derive(Clone, Debug)]
pub struct Compress<S> {
    inner: S,
    with: Compression,
}

impl<S, R, B> Service<Request<R>> for Compress<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Response = Response<CompressedBody<B>>;
    type Error = S::Error;
    type Future = Compressing<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<R>) -> Self::Future {
        let asked = Asked::of(request.method(), request.headers());
        let named = self.with.translate(&asked, request.headers_mut());
        let work = Answering { asked, named, with: self.with.clone(), waiting: None };
        Compressing { calling: self.inner.call(request), work }
    }
}

pin_project! {
    /// The answer of a service, compressed where it is to be.
    pub struct Compressing<F, B> {
        #[pin]
        calling: F,
        work: Answering<B>,
    }
}

impl<F, B> fmt::Debug for Compressing<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressing")
    }
}

/// What an answer is made with.
struct Answering<B> {
    asked: Asked,
    /// Tags that the client names, some of them of coded content.
    named: Vec<HeaderValue>,
    with: Compression,
    /// An answer whose file is being compressed.
    waiting: Option<Waiting<B>>,
}

struct Waiting<B> {
    parts: response::Parts,
    body: B,
    coding: Coding,
    making: Making,
}

impl<F, B, E> Future for Compressing<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<CompressedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.work.waiting.is_none() {
            let (parts, body) = match ready!(this.calling.poll(cx)) {
                Ok(answer) => answer.into_parts(),
                Err(error) => return Poll::Ready(Err(error)),
            };
            if let Some(answer) = this.work.begin(parts, body) {
                return Poll::Ready(Ok(answer));
            }
        }
        this.work.poll_made(cx).map(Ok)
    }
}

impl Compression {
    /// Says to the application which content a client has, where it names it by the tag of coded
    /// content. What the client said of content that may not have changed.
    fn translate(&self, asked: &Asked, fields: &mut HeaderMap) -> Vec<HeaderValue> {
        let is_ours = |coding: &Coding| self.shared.settings.codings.contains(coding);
        let mut named = Vec::new();
        for name in [header::IF_NONE_MATCH, header::IF_MATCH] {
            // Only what the client can decode answers it: a cache may ask for another client than the
            // one whose content it has. What is to be changed has one state in all codings.
            let for_content = asked.kind != Kind::Deed && name == header::IF_NONE_MATCH;
            let takes = |coding| is_ours(&coding) && (!for_content || asked.accepted.takes(coding));
            let lines: Vec<_> = fields.get_all(&name).iter().cloned().collect();
            let translated: Vec<_> = lines.iter().map(|line| tags::with_plain(line, takes)).collect();
            if translated.iter().all(Option::is_none) {
                continue;
            }
            fields.remove(&name);
            for (line, translated) in lines.iter().zip(translated) {
                fields.append(&name, translated.unwrap_or_else(|| line.clone()));
            }
            if for_content {
                named = lines;
            }
        }
        named
    }
}

impl<B> Answering<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Judges an answer and makes it; `None` when there is a file to wait for.
    fn begin(&mut self, mut parts: response::Parts, body: B) -> Option<Response<CompressedBody<B>>> {
        let (hint, file) = send_file::find(&body);
        let said = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = match self.asked.kind {
            // The content may have been left out already.
            Kind::Head => said.or(hint.exact().filter(|&length| length > 0)),
            Kind::Content | Kind::Deed | Kind::Connect => hint.exact().or(said),
        };
        let settings = &self.with.shared.settings;
        match judge::judge(&self.asked, settings, parts.status, &parts.headers, length) {
            Verdict::Alone => {}
            Verdict::Varies => vary(&mut parts.headers),
            Verdict::Unchanged => {
                vary(&mut parts.headers);
                self.name_unchanged(&mut parts.headers);
            }
            Verdict::Coded(coding) => return self.begin_coded(parts, body, coding, (length, file)),
        }
        Some(Response::from_parts(parts, CompressedBody::alone(body)))
    }

    fn begin_coded(
        &mut self,
        parts: response::Parts,
        body: B,
        coding: Coding,
        (length, file): (Option<u64>, Option<FileFacts>),
    ) -> Option<Response<CompressedBody<B>>> {
        let is_head = self.asked.kind == Kind::Head;
        let otherwise = if is_head { Otherwise::Leave } else { Otherwise::Make };
        match file.map_or(Found::Nothing, |file| self.with.shared.kept.find(&file, coding, otherwise)) {
            Found::Made(made) => Some(self.finish(parts, body, coding, made)),
            Found::Making(making) => {
                self.waiting = Some(Waiting { parts, body, coding, making });
                None
            }
            Found::Nothing if is_head => Some(coded(parts, coding, CompressedBody::unsent(None))),
            Found::Nothing => Some(stream(parts, body, coding, length)),
        }
    }

    /// Waits for a file that is being compressed.
    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Response<CompressedBody<B>>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Pending };
        let made = ready!(waiting.making.as_mut().poll(cx));
        let Some(Waiting { parts, body, coding, .. }) = self.waiting.take() else { return Poll::Pending };
        Poll::Ready(match made {
            Some(made) => self.finish(parts, body, coding, made),
            None => stream(parts, body, coding, None),
        })
    }

    fn finish(&self, mut parts: response::Parts, body: B, coding: Coding, made: Made) -> Response<CompressedBody<B>> {
        let Made::Smaller(bytes) = made else {
            vary(&mut parts.headers);
            return Response::from_parts(parts, CompressedBody::alone(body));
        };
        let length = bytes.len();
        let content = match self.asked.kind {
            Kind::Head => CompressedBody::unsent(Some(length as u64)),
            Kind::Content | Kind::Deed | Kind::Connect => CompressedBody::kept(bytes),
        };
        let mut answer = coded(parts, coding, content);
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        answer
    }

    /// Gives an answer that says that nothing has changed the tag by which the client knows it.
    fn name_unchanged(&self, fields: &mut HeaderMap) {
        let Some(plain) = fields.get(header::ETAG) else { return };
        let codings = &self.with.shared.settings.codings;
        let coding = self.named.iter().find_map(|list| tags::coding_named(list, plain, codings));
        if let Some(own) = coding.and_then(|coding| tags::coded(plain, coding)) {
            fields.insert(header::ETAG, own);
        }
    }
}

/// An answer that is compressed while it is sent.
fn stream<B>(mut parts: response::Parts, body: B, coding: Coding, length: Option<u64>) -> Response<CompressedBody<B>> {
    let is_events = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let name = value.as_bytes().split(|&b| b == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    });
    let effort = if is_events { Effort::Stream } else { Effort::Content };
    match Encoder::new(coding, effort, length) {
        Ok(encoder) => coded(parts, coding, CompressedBody::coded(body, encoder)),
        // It works without.
        Err(_) => {
            vary(&mut parts.headers);
            Response::from_parts(parts, CompressedBody::alone(body))
        }
    }
}

/// An answer with the fields of coded content.
fn coded<B>(mut parts: response::Parts, coding: Coding, content: CompressedBody<B>) -> Response<CompressedBody<B>> {
    let fields = &mut parts.headers;
    fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    fields.remove(header::CONTENT_LENGTH);
    // Ranges are of the content as it was, which this is not (RFC 9110 §14.3).
    fields.remove(header::ACCEPT_RANGES);
    if let Some(own) = fields.get(header::ETAG).and_then(|plain| tags::coded(plain, coding)) {
        fields.insert(header::ETAG, own);
    }
    vary(fields);
    Response::from_parts(parts, content)
}

/// Says that the answer depends on what codings the client takes, beside what it says already.
fn vary(fields: &mut HeaderMap) {
    const NAME: &[u8] = b"accept-encoding";
    let mut merged = Vec::new();
    for value in fields.get_all(header::VARY).iter().flat_map(|value| members(value.as_bytes())) {
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
