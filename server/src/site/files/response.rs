//! Decides what to send of a file: preconditions, ranges, lengths. Sends nothing.

use super::allowed_codings::AllowedCodings;
use super::multipart;
use super::resource::{BodyStorage, ChangedFields, Representation, RepresentationFields, Resource};
use selvedge::proto::condition::{
    PreconditionResult, Validators, evaluate, has_no_condition_or_range, has_range_without_tag,
};
use selvedge::proto::date::HttpDate;
use selvedge::proto::field::KnownField;
use selvedge::proto::range::{ByteRange, RangeSelection, select};
use selvedge::service::{Body, FileContent};
use selvedge::{Method, Request, Response, StatusCode};

/// Returns the response from the cache, or `None` if an open file has changed. The site's changed fields replace those
/// of the file.
pub(super) fn respond_if_unchanged(
    request: &Request,
    resource: &Resource,
    changed_fields: Option<&ChangedFields>,
) -> Option<Response> {
    let allowed = changed_fields.map_or(AllowedCodings::All, |changed| changed.allowed);
    let (number, representation) = resource.select(request, allowed);
    let fields = changed_fields.map_or(&representation.fields, |changed| &changed.of_representations[number]);
    if !representation.is_unchanged() {
        return None;
    }
    let encoded = match &representation.encoded {
        Some(encoded) => {
            let stored = encoded.stored(&representation.stamp, request.received_at().since_worker_start)?;
            Some(Body::Bytes(stored))
        }
        None => None,
    };
    Some(build_response(request, (representation, encoded), fields))
}

/// Returns the response for a resource that was just resolved.
pub(super) async fn respond(request: &Request, resource: &Resource, allowed: AllowedCodings) -> Response {
    loop {
        let (_, representation) = resource.select(request, allowed);
        let encoded = match &representation.encoded {
            Some(encoded) => {
                let source = (&representation.stamp, body(representation, 0, representation.length));
                // Boxed, so that the future of a request has no room for it.
                let content = Box::pin(encoded.encode(request.method(), source)).await;
                // Otherwise it is not selected again.
                let Some(content) = content else { continue };
                Some(content)
            }
            None => None,
        };
        let response = build_response(request, (representation, encoded), &representation.fields);
        return match resource.take_log_reason() {
            Some(reason) => response.log_reason(reason),
            None => response,
        };
    }
}

/// Returns the whole file under an error status. Preconditions and ranges of the request do not apply, because
/// they are about the requested resource.
pub(super) fn error_page(request: &Request, resource: &Resource, status: StatusCode) -> Response {
    let (_, representation) = resource.select(request, AllowedCodings::All);
    let representation = if representation.encoded.is_some() { resource.identity() } else { representation };
    let mut response = Response::with_fields(status, representation.fields.full.clone());
    for name in ["etag", "last-modified", "accept-ranges"] {
        response.fields_mut().remove(name);
    }
    response.body = body(representation, 0, representation.length);
    response
}

/// Decides on preconditions and ranges. An encoded representation has its content beside it, and no ranges.
fn build_response(
    request: &Request,
    (representation, encoded): (&Representation, Option<Body>),
    fields: &RepresentationFields,
) -> Response {
    if has_no_condition_or_range(request.head()) {
        return full_response((representation, encoded), fields);
    }
    let now = HttpDate::from_unix(request.received_at().unix_time);
    let validators =
        Validators { etag: representation.etag.as_deref().map(str::as_bytes), last_modified: representation.modified };
    match evaluate(request.head(), request.head_bytes(), &validators, now) {
        PreconditionResult::NotModified => Response::with_fields(StatusCode::NOT_MODIFIED, fields.not_modified.clone()),
        PreconditionResult::Failed => Response::error(StatusCode::PRECONDITION_FAILED),
        PreconditionResult::ProceedIgnoringRange => full_response((representation, encoded), fields),
        // The file may have had two contents in the second of the date, and no process that serves it knows of both.
        //= RFC 9110 §13.1.5: a date that is not a strong validator makes the condition false
        PreconditionResult::Proceed
            if encoded.is_some() || has_range_without_tag(request.head(), request.head_bytes()) =>
        {
            full_response((representation, encoded), fields)
        }
        PreconditionResult::Proceed => match select_ranges(request, representation.length) {
            RangeSelection::Whole => full_response((representation, None), fields),
            RangeSelection::Single(range) => partial_response(representation, fields, range),
            RangeSelection::Multiple(ranges) => multipart::respond(representation, fields, &ranges),
            RangeSelection::Unsatisfiable => range_not_satisfiable(representation.length),
        },
    }
}

//= RFC 9110 §14.2: a Range counts for GET alone
fn select_ranges(request: &Request, length: u64) -> RangeSelection {
    match request.known_field(KnownField::Range) {
        Some(_) if request.head().is_repeated(KnownField::Range) => RangeSelection::Whole,
        Some(value) if request.method() == Method::Get => select(value, length),
        _ => RangeSelection::Whole,
    }
}

fn full_response(
    (representation, encoded): (&Representation, Option<Body>),
    fields: &RepresentationFields,
) -> Response {
    let mut response = Response::with_fields(StatusCode::OK, fields.full.clone());
    response.body = encoded.unwrap_or_else(|| body(representation, 0, representation.length));
    response
}

fn partial_response(representation: &Representation, fields: &RepresentationFields, range: ByteRange) -> Response {
    let mut response = Response::with_fields(StatusCode::PARTIAL_CONTENT, fields.full.clone());
    let value = format!("bytes {}-{}/{}", range.first, range.last, representation.length);
    response.append("content-range", value).expect("numbers have no control characters");
    response.body = body(representation, range.first, range.len());
    response
}

fn range_not_satisfiable(length: u64) -> Response {
    Response::error(StatusCode::RANGE_NOT_SATISFIABLE).field("content-range", format!("bytes */{length}"))
}

fn body(representation: &Representation, offset: u64, length: u64) -> Body {
    match &representation.storage {
        BodyStorage::Memory(bytes) => {
            // A file in memory is small, so the casts are lossless.
            let (start, length) = (offset as usize, length as usize);
            Body::Bytes(bytes.slice(start..start + length))
        }
        BodyStorage::Open(file) => {
            Body::File(Box::new(FileContent { file: file.clone(), offset, length, stamp: representation.stamp }))
        }
    }
}
