//! Converts engine requests to `http::Request`, and `http::Response` to engine responses.

use crate::service::{self, IncomingBody, InterimSender, Request, Response};
use crate::tower::body::TrailersAfterLength;
use crate::tower::log_info::SharedLogInfo;
use crate::tower::remote_body::RemoteBody;
use crate::tower::request_target::{self, PseudoFields};
use crate::tower::response_content::{ResponseContent, Trailers};
use crate::tower::slab::SlabKey;
use crate::tower::{BoxError, LogReason, early_hints, header_map, send_file, upgrade};
use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body;
use selvedge_proto::StatusCode;
use selvedge_proto::field::{KnownField, list_members};
use selvedge_proto::head::{RequestFraming, RequestHead, Version};
use selvedge_proto::method::Method;
use std::cell::{Cell, RefCell};

/// Facts about a request that are needed to convert its response, and handles given to the application.
pub(super) struct ConversionContext {
    method: Method,
    version: Version,
    /// The client accepts trailers (RFC 9110 §10.1.4).
    accepts_trailers: bool,
    content: Option<(SlabKey, IncomingBody)>,
    upgrade: Option<upgrade::UpgradeOffer>,
    log_info: Option<SharedLogInfo>,
    _hints_guard: Option<early_hints::HintsGuard>,
}

thread_local! {
    /// The header map of the last response, reused for the next request.
    static SPARE_HEADERS: Cell<Option<HeaderMap>> = const { Cell::new(None) };
    /// The last field section that was received more than once, converted.
    static CACHED_SECTION: RefCell<Option<CachedSection>> = const { RefCell::new(None) };
    /// Buffer for copies of heads. Each request holds a slice of it; the memory is reused after all
    /// slices are dropped.
    static HEAD_BUFFER: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Size of a new buffer for heads.
const HEAD_BUFFER_BYTES: usize = 8 * 1024;

/// Converts a request.
///
/// # Errors
/// Returns the error response if the target is not a URI or the content is too large.
pub(super) fn to_http_request(
    request: &mut Request,
) -> Result<(http::Request<super::Body>, ConversionContext), Response> {
    // Taken in any case, since the request struct is reused.
    let interim_sender = take_interim_sender(request);
    if request.inner.content.length().is_some_and(|length| length > request.inner.content.bytes_max()) {
        return Err(Response::from(service::ContentError::TooLarge));
    }
    let bytes = request.head_bytes();
    let head = request.head();
    let target = head.target.raw.of(bytes);
    let (target, FieldMap { map, authority, accepts_trailers }) = match cached_fields(head, bytes) {
        Some(fields) => (copy_head(target), fields),
        None => {
            // One copy of the head, shared by the target and all values.
            let shared = copy_head(&bytes[..head.len]);
            (
                header_map::shared_slice(&shared, bytes, target),
                FieldMap::of(head, bytes, bytes, &shared, SPARE_HEADERS.take().unwrap_or_default()),
            )
        }
    };
    let Some(uri) = request_target::uri(request, target, authority) else {
        return Err(Response::engine_error(StatusCode::BAD_REQUEST, "the request target is not a URI"));
    };
    let mut converted = http::Request::new(super::Body::empty());
    *converted.uri_mut() = uri;
    *converted.headers_mut() = map;
    *converted.method_mut() = method(request);
    *converted.version_mut() = match request.version() {
        Version::Http10 => http::Version::HTTP_10,
        Version::Http11 => http::Version::HTTP_11,
        Version::Http2 => http::Version::HTTP_2,
        Version::Http3 => http::Version::HTTP_3,
    };
    let mut context = ConversionContext {
        method: request.method(),
        version: request.version(),
        accepts_trailers,
        content: None,
        upgrade: None,
        log_info: None,
        _hints_guard: None,
    };
    if requests_upgrade(request) {
        context.upgrade = Some(upgrade::offer(request, converted.extensions_mut()));
    } else if has_content(request) {
        let content = request.take_body();
        let content_handle = content.clone_handle();
        let is_http1 = request.version().is_http1();
        let trailers = if is_http1 { TrailersAfterLength::Never } else { TrailersAfterLength::Possible };
        let (body, key) = super::Body::from_content(content, trailers);
        *converted.body_mut() = body;
        context.content = Some((key, content_handle));
    }
    if let Some(tls) = request.tls() {
        converted.extensions_mut().insert(tls.clone());
    }
    if let Some(interim_sender) = interim_sender {
        let (handle, guard) = early_hints::open(interim_sender);
        converted.extensions_mut().insert(handle);
        context._hints_guard = Some(guard);
    }
    Ok((converted, context))
}

/// Fields as a header map.
#[derive(Clone)]
struct FieldMap {
    map: HeaderMap,
    /// The authority for the URI, if only the fields have it.
    authority: Option<Authority>,
    accepts_trailers: bool,
}

impl FieldMap {
    /// Converts the fields of a head. The fields are in `original`, and `shared` is a copy of it.
    fn of(head: &RequestHead, bytes: &[u8], original: &[u8], shared: &Bytes, mut map: HeaderMap) -> Self {
        let mut accepts_trailers = false;
        let pseudo = PseudoFields::of(head);
        for (name, value) in head.fields(bytes) {
            if pseudo.contain(name) {
                continue;
            }
            // The parser has validated both.
            let Ok(name) = HeaderName::from_bytes(name) else { continue };
            let Ok(shared) = HeaderValue::from_maybe_shared(header_map::shared_slice(shared, original, value)) else {
                continue;
            };
            accepts_trailers |=
                name == header::TE && list_members(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            map.append(name, shared);
        }
        let authority = request_target::authority(head, bytes, original, shared);
        Self { map, authority, accepts_trailers }
    }
}

/// A field section and its header map.
struct CachedSection {
    section: Bytes,
    pseudo: PseudoFields,
    fields: FieldMap,
}

/// Returns the fields of a head with a repeated section: cloning a map is cheaper than parsing.
fn cached_fields(head: &RequestHead, bytes: &[u8]) -> Option<FieldMap> {
    if !head.is_cached_section() {
        return None;
    }
    let (section, pseudo) = (head.field_section(bytes), PseudoFields::of(head));
    CACHED_SECTION.with_borrow_mut(|cached| {
        if let Some(cached) = cached.as_ref().filter(|cached| cached.section == section && cached.pseudo == pseudo) {
            return Some(cached.fields.clone());
        }
        // Not a slice of the head buffer, which would then stay allocated.
        let shared = Bytes::copy_from_slice(section);
        let fields = FieldMap::of(head, bytes, section, &shared, HeaderMap::new());
        Some(cached.insert(CachedSection { section: shared, pseudo, fields }).fields.clone())
    })
}

/// Copies a head into the shared head buffer.
fn copy_head(head: &[u8]) -> Bytes {
    let mut buffer = HEAD_BUFFER.take();
    if buffer.capacity() < head.len() {
        buffer.reserve(head.len().max(HEAD_BUFFER_BYTES));
    }
    buffer.extend_from_slice(head);
    let copy = buffer.split().freeze();
    HEAD_BUFFER.set(buffer);
    copy
}

fn has_content(request: &Request) -> bool {
    request.head().framing != RequestFraming::None
}

/// Returns whether the client offers another protocol. An offer with content, in HTTP/1.0, or without
/// `Connection: upgrade`, is ignored (RFC 9110 §7.8). In HTTP/2, an extended CONNECT is the offer (RFC 8441).
fn requests_upgrade(request: &Request) -> bool {
    if request.head().is_extended_connect() {
        return true;
    }
    let mut options = request.known_field_values(KnownField::Connection).flat_map(list_members);
    request.known_field(KnownField::Upgrade).is_some()
        && request.version() == Version::Http11
        && !has_content(request)
        && options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

/// Takes the handle for interim responses, if the client supports them (RFC 9110 §15.2).
fn take_interim_sender(request: &mut Request) -> Option<InterimSender> {
    request.inner.interim_sender.take().filter(|_| request.version() != Version::Http10)
}

fn method(request: &Request) -> http::Method {
    match request.method() {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Connect => http::Method::CONNECT,
        Method::Options => http::Method::OPTIONS,
        Method::Trace => http::Method::TRACE,
        Method::Patch => http::Method::PATCH,
        // The parser has validated that it is a token.
        Method::Other => http::Method::from_bytes(request.method_text().as_bytes()).unwrap_or_default(),
    }
}

/// Converts a response. Also returns its content, unless it is complete already.
pub(super) fn from_http_response<B>(
    http_response: http::Response<B>,
    context: &mut ConversionContext,
) -> (Response, Option<ResponseContent<B>>)
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = http_response.into_parts();
    context.log_info = parts.extensions.remove();
    let Some(status) = StatusCode::new(parts.status.as_u16()) else {
        return (application_error("the application's status code is invalid"), None);
    };
    let status = context.client_fault_status(status);
    let mut response = Response::new(status);
    let mut headers = parts.headers;
    let mut announced_length = None;
    let (mut announces_trailers, mut closes_connection) = (false, false);
    let fields = response.fields_mut();
    for (name, value) in &headers {
        if name == header::CONTENT_LENGTH {
            announced_length = value.to_str().ok().and_then(|digits| digits.parse().ok());
        } else if name == header::CONNECTION {
            closes_connection |= list_members(value.as_bytes()).any(|option| option.eq_ignore_ascii_case(b"close"));
        } else {
            announces_trailers |= name == header::TRAILER;
            // Both are valid. `append` refuses the fields that only the engine writes.
            let _ = fields.append(name.as_str(), value.as_bytes());
        }
    }
    if closes_connection {
        response = response.close_connection();
    }
    if let Some(LogReason(reason)) = parts.extensions.get() {
        response = response.log_reason(reason);
    }
    if context.accepts_upgrade(status, &body) {
        let Some(offer) = context.upgrade.take() else {
            return (application_error("the application accepted an upgrade that the client did not offer"), None);
        };
        let protocol = headers.get(header::UPGRADE).map(|value| Bytes::copy_from_slice(value.as_bytes()));
        response.body = offer.into_engine_body(protocol.unwrap_or_default());
        return (response, None);
    }
    headers.clear();
    SPARE_HEADERS.set(Some(headers));
    let trailers = match context.version {
        Version::Http2 | Version::Http3 => Trailers::Always,
        Version::Http11 if context.accepts_trailers && announces_trailers => Trailers::AfterChunks,
        Version::Http10 | Version::Http11 => Trailers::Never,
    };
    match send_file::into_engine_body(body) {
        Ok(file) => (response.body(file), None),
        Err((body, hint)) => {
            let exact_length = hint.exact();
            let forbids_content = status.forbids_content();
            let content = ResponseContent {
                body,
                exact_length,
                announced_length,
                trailers,
                method: context.method,
                forbids_content,
            };
            (response, Some(content))
        }
    }
}

/// Returns the response for an error of the application, with a reason for the log.
pub(super) fn application_error(reason: &'static str) -> Response {
    Response::engine_error(StatusCode::INTERNAL_SERVER_ERROR, "").log_reason(reason)
}

impl ConversionContext {
    /// Returns the status code for content that could not be read. An application that only sees a read
    /// failure responds with 400, although the client may deserve 413 or 408.
    fn client_fault_status(&self, status: StatusCode) -> StatusCode {
        if status != StatusCode::BAD_REQUEST {
            return status;
        }
        match self.failure() {
            Some(service::ContentError::TooLarge) => StatusCode::CONTENT_TOO_LARGE,
            Some(service::ContentError::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            _ => status,
        }
    }

    /// Whether a response switches to another protocol. A successful response to an extended CONNECT does (RFC 8441
    /// §4), unless it has content.
    fn accepts_upgrade(&self, status: StatusCode, body: &impl Body) -> bool {
        let is_extended_connect = self.method == Method::Connect && self.upgrade.is_some();
        match status.code() {
            200..=299 => is_extended_connect && body.is_end_stream(),
            _ => status == StatusCode::SWITCHING_PROTOCOLS,
        }
    }

    /// Returns why the request's content could not be read to its end, if reading failed.
    fn failure(&self) -> Option<service::ContentError> {
        self.content.as_ref()?.1.failure()
    }

    /// Returns the response if reading the response's content failed. If the request's content has
    /// failed, it is assumed to be the cause, as in an echo.
    pub(super) fn error_response(&self, text: &'static str) -> Response {
        self.failure().map_or_else(|| application_error(text), Response::from)
    }

    /// Applies the log information to the request. If the application has dropped the content, gives it
    /// back to the request.
    pub(super) fn finish(self, request: &mut Request) {
        if let Some(log_info) = self.log_info {
            log_info.apply_to(request);
        }
        if let Some((key, content)) = self.content
            && !RemoteBody::is_on_thread(key)
        {
            request.inner.content = content;
        }
    }
}
