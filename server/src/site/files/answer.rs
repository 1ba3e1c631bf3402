//! Decides what of a file is sent, and sends nothing: preconditions, ranges, lengths.

use super::multipart;
use super::resource::{Kept, Representation, Resource};
use selvedge::proto::condition::{Outcome, Validators, asks_for_the_whole, evaluate};
use selvedge::proto::date::HttpDate;
use selvedge::proto::field::Known;
use selvedge::proto::range::{ByteRange, Selection, select};
use selvedge::service::{Body, FileContent};
use selvedge::{Method, Request, Response, Status};

/// The answer from what is known, or `None` when a file that is kept open has changed.
pub(super) fn respond_at_once(request: &Request, resource: &Resource) -> Option<Response> {
    let representation = resource.choose(request);
    representation.is_as_known().then(|| answer(request, representation))
}

/// The answer for a resource that was made just now.
pub(super) async fn respond(request: &Request, resource: &Resource) -> Response {
    answer(request, resource.choose(request))
}

/// The whole file under a status of its own, without preconditions and ranges: they are about
/// what was asked for, and this is what stands in its place.
pub(super) fn page(request: &Request, resource: &Resource, status: Status) -> Response {
    let representation = resource.choose(request);
    let mut response = Response::with_fields(status, representation.fields.clone());
    for name in ["etag", "last-modified", "accept-ranges"] {
        response.edit_fields().remove(name);
    }
    response.body = content(representation, 0, representation.length);
    response
}

fn answer(request: &Request, representation: &Representation) -> Response {
    if asks_for_the_whole(request.head()) {
        return whole(representation);
    }
    let now = HttpDate::from_unix(request.moment().unix_time);
    let validators =
        Validators { etag: Some(representation.etag.as_bytes()), last_modified: Some(representation.modified) };
    match evaluate(request.head(), request.head_bytes(), &validators, now) {
        Outcome::NotModified => Response::with_fields(Status::NOT_MODIFIED, representation.fields_not_modified.clone()),
        Outcome::Failed => Response::error(Status::PRECONDITION_FAILED),
        Outcome::ProceedWhole => whole(representation),
        Outcome::Proceed => match selection(request, representation.length) {
            Selection::Whole => whole(representation),
            Selection::One(range) => part(representation, range),
            Selection::Many(ranges) => multipart::respond(representation, &ranges),
            Selection::Unsatisfiable => unsatisfiable(representation.length),
        },
    }
}

//= RFC 9110 §14.2: a Range counts for GET alone
fn selection(request: &Request, length: u64) -> Selection {
    match request.known(Known::Range) {
        Some(_) if request.head().is_repeated(Known::Range) => Selection::Whole,
        Some(value) if request.method() == Method::Get => select(value, length),
        _ => Selection::Whole,
    }
}

fn whole(representation: &Representation) -> Response {
    let mut response = Response::with_fields(Status::OK, representation.fields.clone());
    response.body = content(representation, 0, representation.length);
    response
}

fn part(representation: &Representation, range: ByteRange) -> Response {
    let mut response = Response::with_fields(Status::PARTIAL_CONTENT, representation.fields.clone());
    let value = format!("bytes {}-{}/{}", range.first, range.last, representation.length);
    response.append("content-range", value).expect("numbers have no control octets");
    response.body = content(representation, range.first, range.len());
    response
}

fn unsatisfiable(length: u64) -> Response {
    Response::error(Status::RANGE_NOT_SATISFIABLE).field("content-range", format!("bytes */{length}"))
}

fn content(representation: &Representation, offset: u64, length: u64) -> Body {
    match &representation.content {
        Kept::Memory(bytes) => {
            // A file in memory is small, so both fit.
            let (start, length) = (offset as usize, length as usize);
            Body::Bytes(bytes.slice(start..start + length))
        }
        Kept::Open(file) => {
            Body::File(FileContent { file: file.clone(), offset, length, state: representation.state.content() })
        }
    }
}
