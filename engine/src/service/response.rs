//! A response, and the small pages that stand for errors.

use crate::service::body::{Body, ContentError};
use selvedge_proto::field::{Fields, InvalidField};
use selvedge_proto::{Afterwards, Status};
use std::cell::Cell;
use std::rc::Rc;

/// Fields with more room than this are not kept for the next answer.
const FIELDS_BYTES_KEPT_MAX: usize = 4096;

/// A response. The engine adds what frames and dates it.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: Status,
    /// The content.
    pub body: Body,
    fields: FieldList,
    reason: Option<&'static str>,
    afterwards: Afterwards,
}

/// A response's own fields, or ones that many responses share.
#[derive(Debug)]
pub(crate) enum FieldList {
    Own(Fields),
    Shared(Rc<Fields>),
}

thread_local! {
    /// Fields of an answer that has left, whose room serves the next one.
    static SPARE: Cell<Fields> = const { Cell::new(Fields::new()) };
}

impl Drop for FieldList {
    fn drop(&mut self) {
        if let Self::Own(fields) = self
            && (1..=FIELDS_BYTES_KEPT_MAX).contains(&fields.capacity())
        {
            let mut fields = std::mem::take(fields);
            fields.clear();
            // A thread that ends keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(fields));
        }
    }
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
    /// A response without fields and content.
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            body: Body::Empty,
            fields: FieldList::Own(Fields::new()),
            reason: None,
            afterwards: Afterwards::KeepOpen,
        }
    }

    /// A response whose fields were made before, as a cache does.
    pub const fn with_fields(status: Status, fields: Rc<Fields>) -> Self {
        Self {
            status,
            body: Body::Empty,
            fields: FieldList::Shared(fields),
            reason: None,
            afterwards: Afterwards::KeepOpen,
        }
    }

    /// A small page that names the error.
    pub fn error(status: Status) -> Self {
        Self::error_with_text(status, "")
    }

    /// A small page that names the error and says one sentence more. The sentence is the
    /// program's own, never the client's words.
    pub fn error_with_text(status: Status, text: &'static str) -> Self {
        let mut response = Self::new(status);
        let (code, name) = (status.code(), status.reason());
        let sentence = if text.is_empty() { String::new() } else { format!("<p>{}.</p>", capitalized(text)) };
        let page = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{code} {name}</title>\n\
             <style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto;\
             padding:0 1.5rem}}h1{{font-weight:600}}b{{color:#8a6d3b;margin-right:.5rem}}</style>\n\
             <h1><b>{code}</b>{name}</h1>{sentence}\n</html>\n"
        );
        response.body = page.into();
        response.reason = (!text.is_empty()).then_some(text);
        // These names and values are constants without control octets.
        let _ = response.append("content-type", "text/html; charset=utf-8");
        response
    }

    /// Adds a field after the others.
    ///
    /// # Errors
    /// When a name or value could not stand in a head, or is the engine's to write.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        self.edit_fields().append(name, value)
    }

    /// The same, for values that a program makes of constants and numbers.
    ///
    /// # Panics
    /// When a name or value could not stand in a head; the client then gets a 500.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.append(name, value).expect("a program's own field is valid");
        self
    }

    /// With content.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// The fields.
    pub fn fields(&self) -> &Fields {
        self.fields.get()
    }

    /// The fields, for whoever needs them after the rest.
    pub(crate) fn into_fields(self) -> FieldList {
        self.fields
    }

    /// The fields, to change them; shared ones become this response's own.
    pub fn edit_fields(&mut self) -> &mut Fields {
        if let FieldList::Shared(shared) = &self.fields {
            self.fields = FieldList::Own((**shared).clone());
        }
        match &mut self.fields {
            FieldList::Own(fields) => {
                if fields.capacity() == 0 {
                    *fields = SPARE.take();
                }
                fields
            }
            FieldList::Shared(_) => unreachable!("shared fields were made this response's own"),
        }
    }

    /// Says that the connection ends with this answer.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.afterwards = Afterwards::Close;
        self
    }

    /// What the application wants to become of the connection.
    pub fn afterwards(&self) -> Afterwards {
        self.afterwards
    }

    /// Why this is an error, for the log.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Without a reason for the log, where the log has it from elsewhere.
    #[must_use]
    pub fn without_reason(mut self) -> Self {
        self.reason = None;
        self
    }

    /// Says why this is an error, for the log alone.
    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

impl From<ContentError> for Response {
    fn from(error: ContentError) -> Self {
        // The connection's end has the reason and its bound.
        let response = match error {
            ContentError::Rejected(reject) => Self::error_with_text(reject.status(), reject.text()),
            ContentError::TooLarge => {
                Self::error_with_text(Status::CONTENT_TOO_LARGE, selvedge_proto::Reject::ContentTooLarge.text())
            }
            ContentError::TooSlow => {
                Self::error_with_text(Status::REQUEST_TIMEOUT, "the request content came too slowly")
            }
            ContentError::Disconnected | ContentError::Ended => Self::error(Status::BAD_REQUEST),
        };
        match error {
            // The connection may go on after this one.
            ContentError::TooLarge => response,
            _ => response.without_reason(),
        }
    }
}
