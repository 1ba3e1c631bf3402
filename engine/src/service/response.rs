//! A response, and small error pages.

use crate::response_lease::ResponseLease;
use crate::service::body::{Body, ContentError};
use selvedge_proto::accept::{PROBLEM_TYPE, prefers_json};
use selvedge_proto::field::{Fields, InvalidField};
use selvedge_proto::{Persistence, StatusCode};
use std::cell::Cell;
use std::rc::Rc;

/// Larger field buffers are not reused for the next response.
const SPARE_FIELDS_BYTES_MAX: usize = 4096;

/// A response. The engine adds the framing fields, `Date` and `Server`.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The content.
    pub body: Body,
    fields: FieldList,
    reason: Option<&'static str>,
    persistence: Persistence,
    lease: Option<ResponseLease>,
    /// The sentence for the client, if it is an error of the engine.
    engine_text: Option<&'static str>,
}

/// Fields owned by one response, or shared by many responses.
#[derive(Debug)]
pub(crate) enum FieldList {
    Own(Fields),
    Shared(Rc<Fields>),
}

thread_local! {
    /// Field buffer of a completed response, reused for the next one.
    static SPARE_FIELDS: Cell<Fields> = const { Cell::new(Fields::new()) };
}

impl Drop for FieldList {
    fn drop(&mut self) {
        if let Self::Own(fields) = self
            && (1..=SPARE_FIELDS_BYTES_MAX).contains(&fields.capacity())
        {
            let mut fields = std::mem::take(fields);
            fields.clear();
            // Not reused while the thread ends.
            let _ = SPARE_FIELDS.try_with(|spare| spare.set(fields));
        }
    }
}

/// Takes an empty list of fields with the buffer of a completed response, if one is at hand.
pub(crate) fn spare_fields() -> Fields {
    SPARE_FIELDS.take()
}

impl FieldList {
    pub(crate) fn get(&self) -> &Fields {
        match self {
            Self::Own(fields) => fields,
            Self::Shared(fields) => fields,
        }
    }
}

impl Response {
    /// Creates a response without fields and content.
    pub const fn new(status: StatusCode) -> Self {
        Self {
            status,
            body: Body::Empty,
            fields: FieldList::Own(Fields::new()),
            reason: None,
            persistence: Persistence::KeepAlive,
            lease: None,
            engine_text: None,
        }
    }

    /// Creates a response with shared, prepared fields, as a cache does.
    pub const fn with_fields(status: StatusCode, fields: Rc<Fields>) -> Self {
        Self {
            status,
            body: Body::Empty,
            fields: FieldList::Shared(fields),
            reason: None,
            persistence: Persistence::KeepAlive,
            lease: None,
            engine_text: None,
        }
    }

    /// Creates an error of the engine itself, to which the application may give another form.
    pub(crate) fn engine_error(status: StatusCode, text: &'static str) -> Self {
        Self { engine_text: Some(text), ..Self::error_with_text(status, text) }
    }

    /// Creates the response to a refused head, in the form that the values of its Accept prefer. The log gets the reason
    /// from the refusal.
    pub(crate) fn to_refused_head<'a>(
        status: StatusCode,
        text: &'static str,
        accept: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let page = Self::engine_error(status, text).no_log_reason().field("vary", "accept");
        if prefers_json(accept) { page.into_problem() } else { page }
    }

    /// Returns the sentence for the client, if it is an error of the engine.
    pub(crate) fn engine_text(&self) -> Option<&'static str> {
        self.engine_text
    }

    /// Returns the response with the status, the reason and the persistence of an error that it replaces.
    pub(crate) fn in_place_of(mut self, error: &Self) -> Self {
        self.status = error.status;
        self.reason = error.reason.or(self.reason);
        if error.persistence == Persistence::Close {
            self.persistence = Persistence::Close;
        }
        self
    }

    /// Creates a small error page with the status code and its name.
    pub fn error(status: StatusCode) -> Self {
        Self::error_with_text(status, "")
    }

    /// Creates a small error page with the status code, its name and one more sentence. The
    /// sentence is a constant, so it cannot contain input of the client.
    pub fn error_with_text(status: StatusCode, text: &'static str) -> Self {
        let mut response = Self::new(status);
        let (code, name) = (status.code(), status.reason_phrase());
        let sentence = if text.is_empty() { String::new() } else { format!("<p>{}.</p>", capitalized(text)) };
        let page = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{code} {name}</title>\n<style>{PAGE_STYLE}main{{margin-top:14vh}}</style>\n\
             <main><h1><b>{code}</b> {name}</h1>{sentence}<p><a href=\"/\">Start page</a></p></main>\n</html>\n"
        );
        response.body = page.into();
        response.reason = (!text.is_empty()).then_some(text);
        // These names and values are valid constants.
        let _ = response.append("content-type", "text/html; charset=utf-8");
        response
    }

    /// Replaces the content by a description of the status in JSON (RFC 9457), for clients that prefer it to a page.
    #[must_use]
    pub fn into_problem(mut self) -> Self {
        // Without a type of its own, the title is the name of the status (RFC 9457 §4.2.1).
        let (code, title) = (self.status.code(), self.status.reason_phrase());
        self.body = format!("{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{code}}}\n").into();
        self.fields_mut().set("content-type", PROBLEM_TYPE).expect("a media type is a valid value");
        self
    }

    /// Appends a field.
    ///
    /// # Errors
    /// If the name or value is invalid, or only the engine may write this field.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        self.fields_mut().append(name, value)
    }

    /// Appends a field with a value made of constants and numbers.
    ///
    /// # Panics
    /// If the name or value is invalid, or only the engine may write this field. The client then
    /// gets a 500.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.append(name, value).expect("the application's constant field is valid");
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns the fields.
    pub fn fields(&self) -> &Fields {
        self.fields.get()
    }

    /// Returns the fields and drops the rest.
    pub(crate) fn into_fields(self) -> FieldList {
        self.fields
    }

    /// Returns the fields for modification; shared fields are cloned first.
    pub fn fields_mut(&mut self) -> &mut Fields {
        if let FieldList::Shared(shared) = &self.fields {
            self.fields = FieldList::Own((**shared).clone());
        }
        match &mut self.fields {
            FieldList::Own(fields) => {
                if fields.capacity() == 0 {
                    *fields = SPARE_FIELDS.take();
                }
                fields
            }
            FieldList::Shared(_) => unreachable!("shared fields were cloned above"),
        }
    }

    /// Lets streamed content, or the connection after an upgrade, outlive a replacement of the application or the server while
    /// the lease is in force. Other content has no use for it.
    #[must_use]
    pub fn lease(mut self, lease: ResponseLease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Takes the lease of content that may take long.
    pub(crate) fn take_lease(&mut self) -> Option<ResponseLease> {
        match self.body {
            Body::Stream { .. } | Body::Upgrade(_) => self.lease.take(),
            Body::Empty | Body::Bytes(_) | Body::File(_) => None,
        }
    }

    /// Closes the connection after this response.
    #[must_use]
    pub fn close_connection(mut self) -> Self {
        self.persistence = Persistence::Close;
        self
    }

    /// Returns whether the application wants the connection to stay open.
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Returns why this is an error, for the log.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Removes the reason, if the log gets it from another source.
    #[must_use]
    pub fn no_log_reason(mut self) -> Self {
        self.reason = None;
        self
    }

    /// Sets why this is an error, for the log only.
    #[must_use]
    pub fn log_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}

/// The style of error pages and listings: colours for light and dark, text and links.
#[doc(hidden)]
pub const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--text:light-dark(#26231d,#ece6d9);--line:light-dark(#ddd6c8,#3a362e);\
--soft:light-dark(#5d5648,#b3aa98);--link:light-dark(#1d4f73,#8fc1e3)}\
*{box-sizing:border-box}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:0 auto;padding:2rem 1.25rem;\
background:light-dark(#fbf9f4,#1b1a17);color:var(--text)}\
h1{font-size:1.5rem;font-weight:600;margin:0 0 1.25rem;overflow-wrap:anywhere}\
h1 b{color:light-dark(#7a5c26,#d8b678);margin-right:.25rem}\
a{color:var(--link)}\
p{color:var(--soft);font-size:.9375rem}\
p a{display:inline-block;min-height:1.5rem}\
";

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

impl From<ContentError> for Response {
    fn from(error: ContentError) -> Self {
        // The close reason of the connection contains the reason and its limit.
        let response = match error {
            ContentError::Rejected(reject) => Self::engine_error(reject.status(), reject.message()),
            ContentError::TooLarge => {
                Self::engine_error(StatusCode::CONTENT_TOO_LARGE, selvedge_proto::Reject::ContentTooLarge.message())
            }
            ContentError::TooSlow => {
                Self::engine_error(StatusCode::REQUEST_TIMEOUT, "the request content arrived too slowly")
            }
            ContentError::Disconnected | ContentError::Ended => Self::engine_error(StatusCode::BAD_REQUEST, ""),
        };
        match error {
            // The connection can continue after this error.
            ContentError::TooLarge => response,
            _ => response.no_log_reason(),
        }
    }
}
