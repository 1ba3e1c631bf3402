//! A small origin server as a pure function: the correct responses if preconditions, ranges and
//! content codings apply.
//!
//! The model never reads a clock; its time is [`NOW`]. A server under test processes each request
//! with [`respond`]. The response for a target of the model is the model's response. The response
//! for any other target is a verdict line that describes the request.

use crate::verdict;
use selvedge_proto::StatusCode;
use selvedge_proto::condition::{PreconditionResult, Validators, evaluate};
use selvedge_proto::date::HttpDate;
use selvedge_proto::encoding::{AcceptedCodings, Coding};
use selvedge_proto::field::{Fields, KnownField};
use selvedge_proto::head::RequestHead;
use selvedge_proto::message::AnnouncedLength;
use selvedge_proto::method::Method;
use selvedge_proto::range::{ByteRange, RangeSelection, select};
use std::str::from_utf8;

/// The current time of the model: in September 2026.
pub const NOW: HttpDate = HttpDate::from_unix(1_790_000_000);

/// Wed, 01 Jan 2020 00:00:00 GMT
const LAST_MODIFIED: HttpDate = HttpDate::from_unix(1_577_836_800);

/// The boundary of the parts of a multipart response.
const BOUNDARY: &str = "selvedge-part";

/// A response without framing fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelResponse {
    /// The status code.
    pub status: StatusCode,
    /// The fields that the application sets, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The content of the response to GET. The server omits it from a response to HEAD, but sends
    /// its length.
    pub body: Vec<u8>,
}

/// A resource of the model.
struct Resource {
    path: &'static str,
    content: &'static [u8],
    repeat_count: usize,
    etag: Option<&'static str>,
    last_modified: Option<HttpDate>,
    codings: &'static [Coding],
}

const DIGITS: Resource = Resource {
    path: "/digits",
    content: b"0123456789",
    repeat_count: 100,
    etag: Some("\"d\""),
    last_modified: Some(LAST_MODIFIED),
    codings: &[],
};

/// All existing resources. `/missing` is a target of the model too, but has no resource.
const RESOURCES: [Resource; 8] = [
    DIGITS,
    Resource { path: "/coded", codings: &Coding::ALL, ..DIGITS },
    Resource { path: "/gzipped", codings: &[Coding::Gzip], ..DIGITS },
    Resource { path: "/empty", repeat_count: 0, etag: Some("\"e\""), ..DIGITS },
    Resource { path: "/weak", etag: Some("W/\"d\""), ..DIGITS },
    Resource { path: "/just-changed", last_modified: Some(NOW), ..DIGITS },
    Resource { path: "/undated", last_modified: None, ..DIGITS },
    Resource { path: "/plain", etag: None, last_modified: None, ..DIGITS },
];

/// Whether the target belongs to the model.
pub fn serves(head: &RequestHead, bytes: &[u8]) -> bool {
    let path = head.target.path.of(bytes);
    path == b"/missing" || RESOURCES.iter().any(|resource| resource.path.as_bytes() == path)
}

/// Returns the response that a server under test must send.
///
/// A response to HEAD has no content, so its verdict line is in the field `x-verdict`.
pub fn respond(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> ModelResponse {
    if serves(head, bytes) {
        return model_response(head, bytes);
    }
    let line = verdict::accept_line(head, bytes, content, trailers);
    match head.method {
        Method::Head => {
            ModelResponse { status: StatusCode::OK, fields: vec![("x-verdict".to_owned(), line)], body: Vec::new() }
        }
        // 2xx would turn the connection into a tunnel.
        Method::Connect => {
            ModelResponse { status: StatusCode::NOT_IMPLEMENTED, fields: Vec::new(), body: line.into_bytes() }
        }
        _ => ModelResponse { status: StatusCode::OK, fields: Vec::new(), body: line.into_bytes() },
    }
}

/// Returns the verdict line of a complete request: it describes the request, or the response of the
/// model.
pub fn expected_line(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> String {
    if !serves(head, bytes) {
        return verdict::accept_line(head, bytes, content, trailers);
    }
    let mut response = model_response(head, bytes);
    let length = AnnouncedLength::of_response(response.status, Some(response.body.len() as u64));
    let sent: &[u8] = if length.has_content(head.method) { &response.body } else { b"" };
    if let AnnouncedLength::Known(length) = length {
        response.fields.push(("content-length".to_owned(), length.to_string()));
    }
    verdict::response_line(response.status, &response.fields, sent, head.persistence)
}

/// Returns the model's response to a request for one of its targets; see [`serves`].
pub fn model_response(head: &RequestHead, bytes: &[u8]) -> ModelResponse {
    let path = head.target.path.of(bytes);
    match RESOURCES.iter().find(|resource| resource.path.as_bytes() == path) {
        Some(resource) => resource.respond_to(head, bytes),
        //= RFC 9110 §13.2.1: preconditions are ignored if the response without them is not 2xx
        None => ModelResponse::new(StatusCode::NOT_FOUND, Vec::new()),
    }
}

impl Resource {
    fn respond_to(&self, head: &RequestHead, bytes: &[u8]) -> ModelResponse {
        let coding = AcceptedCodings::parse(head.values(bytes, KnownField::AcceptEncoding))
            .choose(|coding| self.codings.contains(&coding));
        let etag = self.etag_of(coding);
        let validators = Validators { etag: etag.as_deref().map(str::as_bytes), last_modified: self.last_modified };
        let result = evaluate(head, bytes, &validators, NOW);
        let response = match (result, head.method) {
            //= RFC 9110 §13.2.1: preconditions are ignored if the response without them is not 2xx
            (_, Method::Connect | Method::Trace | Method::Other) => {
                return ModelResponse::new(StatusCode::METHOD_NOT_ALLOWED, Vec::new()).with("allow", ALLOWED_METHODS);
            }
            (PreconditionResult::Failed, _) => return ModelResponse::new(StatusCode::PRECONDITION_FAILED, Vec::new()),
            (PreconditionResult::NotModified, _) => ModelResponse::new(StatusCode::NOT_MODIFIED, Vec::new()),
            (_, Method::Options) => {
                return ModelResponse::new(StatusCode::NO_CONTENT, Vec::new()).with("allow", ALLOWED_METHODS);
            }
            (_, Method::Get | Method::Head) => self.get_response(head, bytes, coding, result),
            _ => return ModelResponse::new(StatusCode::NO_CONTENT, Vec::new()),
        };
        let response = match etag {
            Some(etag) => response.with("etag", &etag),
            None => response,
        };
        if self.codings.is_empty() { response } else { response.with("vary", "accept-encoding") }
    }

    /// Returns the entity tag of the representation in a coding. Each coding has its own tag
    /// (RFC 9110 §8.8.3.3).
    fn etag_of(&self, coding: Option<Coding>) -> Option<String> {
        let own = self.etag?;
        Some(match coding {
            Some(coding) => format!("{}-{}\"", own.trim_end_matches('"'), coding.name()),
            None => own.to_owned(),
        })
    }

    /// Returns the response to GET or HEAD if no precondition prevents it.
    fn get_response(
        &self,
        head: &RequestHead,
        bytes: &[u8],
        coding: Option<Coding>,
        result: PreconditionResult,
    ) -> ModelResponse {
        let content = match coding {
            // The first bytes name the coding, so that a row can check which one was chosen.
            Some(coding) => [coding.name().as_bytes(), &self.content.repeat(self.repeat_count)].concat(),
            None => self.content.repeat(self.repeat_count),
        };
        //= RFC 9110 §14.2: Range applies to GET only
        //= RFC 9110 §5.3: a field that is not a list is invalid on two lines
        let range = match head.value(bytes, KnownField::Range) {
            Some(value) if head.method == Method::Get && !head.is_repeated(KnownField::Range) => value,
            _ => b"",
        };
        let selection = match result {
            PreconditionResult::ProceedIgnoringRange => RangeSelection::Whole,
            _ => select(range, content.len() as u64),
        };
        let mut response = select_part(&content, &selection).with("accept-ranges", "bytes");
        if let Some(coding) = coding {
            response = response.with("content-encoding", coding.name());
        }
        match self.last_modified.map(HttpDate::format).as_ref().map(|date| from_utf8(date)) {
            Some(Ok(date)) => response.with("last-modified", date),
            _ => response,
        }
    }
}

const ALLOWED_METHODS: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// Returns the response for the selected parts of the content (RFC 9110 §14, §15.3.7, §15.5.17).
fn select_part(content: &[u8], selection: &RangeSelection) -> ModelResponse {
    let slice = |range: &ByteRange| &content[range.first as usize..=range.last as usize];
    let content_range = |range: &ByteRange| format!("bytes {}-{}/{}", range.first, range.last, content.len());
    match selection {
        RangeSelection::Whole => ModelResponse::new(StatusCode::OK, content.to_vec()),
        RangeSelection::Unsatisfiable => ModelResponse::new(StatusCode::RANGE_NOT_SATISFIABLE, Vec::new())
            .with("content-range", &format!("bytes */{}", content.len())),
        RangeSelection::Single(range) => ModelResponse::new(StatusCode::PARTIAL_CONTENT, slice(range).to_vec())
            .with("content-range", &content_range(range)),
        RangeSelection::Multiple(ranges) => {
            let mut body = Vec::new();
            for range in ranges {
                body.extend(format!("--{BOUNDARY}\r\ncontent-range: {}\r\n\r\n", content_range(range)).bytes());
                body.extend_from_slice(slice(range));
                body.extend_from_slice(b"\r\n");
            }
            body.extend(format!("--{BOUNDARY}--\r\n").bytes());
            let media_type = format!("multipart/byteranges; boundary={BOUNDARY}");
            ModelResponse::new(StatusCode::PARTIAL_CONTENT, body).with("content-type", &media_type)
        }
    }
}

impl ModelResponse {
    fn new(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, fields: Vec::new(), body }
    }

    #[must_use]
    fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}
