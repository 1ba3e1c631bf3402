//! A small origin, as a pure function: what a right server answers where preconditions,
//! ranges and content codings decide.
//!
//! It never reads a clock; its time is [`NOW`]. A server under test answers every request
//! with [`respond`]: a target of the model with the model's answer, any other with the line
//! that tells how the request was understood.

use crate::verdict;
use selvedge_proto::Status;
use selvedge_proto::condition::{Outcome, Validators, evaluate};
use selvedge_proto::date::HttpDate;
use selvedge_proto::encoding::{Accepted, Coding};
use selvedge_proto::field::{Fields, Known};
use selvedge_proto::head::RequestHead;
use selvedge_proto::http1::write::{ContentFraming, content_framing, has_content};
use selvedge_proto::method::Method;
use selvedge_proto::range::{ByteRange, Selection, select};
use std::str::from_utf8;

/// The time at which the model answers: in September 2026.
pub const NOW: HttpDate = HttpDate::from_unix(1_790_000_000);

/// Wed, 01 Jan 2020 00:00:00 GMT
const CHANGED: HttpDate = HttpDate::from_unix(1_577_836_800);

/// What stands between the parts of a multipart answer.
const BOUNDARY: &str = "selvedge-part";

/// An answer, before a server frames it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: Status,
    /// The fields that the application sets, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The content as the answer to GET has it. Who writes it leaves it out of an answer to
    /// HEAD, yet tells its length.
    pub body: Vec<u8>,
}

/// A thing that the model serves.
struct Resource {
    path: &'static str,
    content: &'static [u8],
    repeated: usize,
    etag: Option<&'static str>,
    changed: Option<HttpDate>,
    codings: &'static [Coding],
}

const DIGITS: Resource = Resource {
    path: "/digits",
    content: b"0123456789",
    repeated: 100,
    etag: Some("\"d\""),
    changed: Some(CHANGED),
    codings: &[],
};

/// All that there is, and `/missing`, which is not.
const RESOURCES: [Resource; 8] = [
    DIGITS,
    Resource { path: "/coded", codings: &Coding::ALL, ..DIGITS },
    Resource { path: "/gzipped", codings: &[Coding::Gzip], ..DIGITS },
    Resource { path: "/empty", repeated: 0, etag: Some("\"e\""), ..DIGITS },
    Resource { path: "/weak", etag: Some("W/\"d\""), ..DIGITS },
    Resource { path: "/just-changed", changed: Some(NOW), ..DIGITS },
    Resource { path: "/undated", changed: None, ..DIGITS },
    Resource { path: "/plain", etag: None, changed: None, ..DIGITS },
];

/// Whether the model answers this target, rather than telling how it was understood.
pub fn serves(head: &RequestHead, bytes: &[u8]) -> bool {
    let path = head.target.path.of(bytes);
    path == b"/missing" || RESOURCES.iter().any(|resource| resource.path.as_bytes() == path)
}

/// What a server under test answers, whatever the request. To HEAD, whose answer has no
/// content, the line goes into the field `x-verdict`.
pub fn respond(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> Answer {
    if serves(head, bytes) {
        return answer(head, bytes);
    }
    let line = verdict::accept(head, bytes, content, trailers);
    match head.method {
        Method::Head => Answer { status: Status::OK, fields: vec![("x-verdict".to_owned(), line)], body: Vec::new() },
        // A tunnel is what 2xx would begin.
        Method::Connect => Answer { status: Status::NOT_IMPLEMENTED, fields: Vec::new(), body: line.into_bytes() },
        _ => Answer { status: Status::OK, fields: Vec::new(), body: line.into_bytes() },
    }
}

/// The line for a request that is complete: how it was understood, or what the model answers.
pub fn verdict(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> String {
    if !serves(head, bytes) {
        return verdict::accept(head, bytes, content, trailers);
    }
    let mut answer = answer(head, bytes);
    let framing = content_framing(answer.status, head.version, Some(answer.body.len() as u64));
    if let ContentFraming::Length(length) = framing {
        answer.fields.push(("content-length".to_owned(), length.to_string()));
    }
    let sent: &[u8] = if has_content(framing, head.method) { &answer.body } else { b"" };
    verdict::answer(answer.status, &answer.fields, sent, head.persistence)
}

/// The model's answer to a request that it [`serves`].
pub fn answer(head: &RequestHead, bytes: &[u8]) -> Answer {
    let path = head.target.path.of(bytes);
    match RESOURCES.iter().find(|resource| resource.path.as_bytes() == path) {
        Some(resource) => resource.answer(head, bytes),
        //= RFC 9110 §13.2.1: preconditions do not count where the answer would be no 2xx
        None => Answer::new(Status::NOT_FOUND, Vec::new()),
    }
}

impl Resource {
    fn answer(&self, head: &RequestHead, bytes: &[u8]) -> Answer {
        let coding =
            Accepted::parse(head.values(bytes, Known::AcceptEncoding)).choose(|coding| self.codings.contains(&coding));
        let etag = self.etag_of(coding);
        let validators = Validators { etag: etag.as_deref().map(str::as_bytes), last_modified: self.changed };
        let outcome = evaluate(head, bytes, &validators, NOW);
        let answer = match (outcome, head.method) {
            //= RFC 9110 §13.2.1: preconditions do not count where the answer would be no 2xx
            (_, Method::Connect | Method::Trace | Method::Other) => {
                return Answer::new(Status::METHOD_NOT_ALLOWED, Vec::new()).with("allow", ALLOWED);
            }
            (Outcome::Failed, _) => return Answer::new(Status::PRECONDITION_FAILED, Vec::new()),
            (Outcome::NotModified, _) => Answer::new(Status::NOT_MODIFIED, Vec::new()),
            (_, Method::Options) => return Answer::new(Status::NO_CONTENT, Vec::new()).with("allow", ALLOWED),
            (_, Method::Get | Method::Head) => self.represent(head, bytes, coding, outcome),
            _ => return Answer::new(Status::NO_CONTENT, Vec::new()),
        };
        let answer = match etag {
            Some(etag) => answer.with("etag", &etag),
            None => answer,
        };
        if self.codings.is_empty() { answer } else { answer.with("vary", "accept-encoding") }
    }

    /// The tag of the representation in a coding: each has its own (RFC 9110 §8.8.3.3).
    fn etag_of(&self, coding: Option<Coding>) -> Option<String> {
        let own = self.etag?;
        Some(match coding {
            Some(coding) => format!("{}-{}\"", own.trim_end_matches('"'), coding.name()),
            None => own.to_owned(),
        })
    }

    /// The answer to GET or HEAD where no precondition speaks against it.
    fn represent(&self, head: &RequestHead, bytes: &[u8], coding: Option<Coding>, outcome: Outcome) -> Answer {
        let content = match coding {
            // Its first bytes name the coding, so that a row can tell which one came.
            Some(coding) => [coding.name().as_bytes(), &self.content.repeat(self.repeated)].concat(),
            None => self.content.repeat(self.repeated),
        };
        //= RFC 9110 §14.2: Range counts for GET only
        //= RFC 9110 §5.3: two lines of a field that is no list are no valid field
        let range = match head.value(bytes, Known::Range) {
            Some(value) if head.method == Method::Get && !head.is_repeated(Known::Range) => value,
            _ => b"",
        };
        let selection = match outcome {
            Outcome::ProceedWhole => Selection::Whole,
            _ => select(range, content.len() as u64),
        };
        let mut answer = part(&content, &selection).with("accept-ranges", "bytes");
        if let Some(coding) = coding {
            answer = answer.with("content-encoding", coding.name());
        }
        match self.changed.map(HttpDate::format).as_ref().map(|date| from_utf8(date)) {
            Some(Ok(date)) => answer.with("last-modified", date),
            _ => answer,
        }
    }
}

const ALLOWED: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// The selected part of some content (RFC 9110 §14, §15.3.7, §15.5.17).
fn part(content: &[u8], selection: &Selection) -> Answer {
    let slice = |range: &ByteRange| &content[range.first as usize..=range.last as usize];
    let place = |range: &ByteRange| format!("bytes {}-{}/{}", range.first, range.last, content.len());
    match selection {
        Selection::Whole => Answer::new(Status::OK, content.to_vec()),
        Selection::Unsatisfiable => Answer::new(Status::RANGE_NOT_SATISFIABLE, Vec::new())
            .with("content-range", &format!("bytes */{}", content.len())),
        Selection::One(range) => {
            Answer::new(Status::PARTIAL_CONTENT, slice(range).to_vec()).with("content-range", &place(range))
        }
        Selection::Many(ranges) => {
            let mut body = Vec::new();
            for range in ranges {
                body.extend(format!("--{BOUNDARY}\r\ncontent-range: {}\r\n\r\n", place(range)).bytes());
                body.extend_from_slice(slice(range));
                body.extend_from_slice(b"\r\n");
            }
            body.extend(format!("--{BOUNDARY}--\r\n").bytes());
            let media_type = format!("multipart/byteranges; boundary={BOUNDARY}");
            Answer::new(Status::PARTIAL_CONTENT, body).with("content-type", &media_type)
        }
    }
}

impl Answer {
    fn new(status: Status, body: Vec<u8>) -> Self {
        Self { status, fields: Vec::new(), body }
    }

    #[must_use]
    fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}
