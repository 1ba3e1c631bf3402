//! What a route does with a request, as values that were judged when they were made.

use super::files::root::Root;
use super::template::Template;
use bytes::Bytes;
use selvedge::proto::field::Fields;
use selvedge::proto::path::SafePath;
use selvedge::{Response, Status};
use std::fmt;
use std::sync::Arc;

/// What a route does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Answers with a file.
    Files(FilesRules),
    /// Sends the client elsewhere.
    Redirect(Redirect),
    /// Takes the request for one of another path, once, and looks for its route anew.
    Rewrite(Template),
    /// Answers with what is written here.
    Respond(Reply),
    /// Refuses.
    Deny(Denial),
}

/// Where files are, and how they are found.
///
/// Routes are about the path that is asked for. What stands for it, an index or a file with a
/// suffix, is not looked up among them again.
#[derive(Clone, Debug)]
pub(crate) struct FilesRules {
    /// The directory. The whole path of a request is looked for beneath it.
    pub(crate) root: Arc<Root>,
    /// The names that stand for a directory, in order.
    pub(crate) index: IndexNames,
    /// What is tried, in order; what comes first that is there is the answer.
    pub(crate) attempts: Vec<Attempt>,
    /// The page that an application shows for every path of its own: the answer to
    /// navigations that lead to no file, and to nothing else.
    pub(crate) fallback: Option<SafePath>,
    /// What a directory without an index is.
    pub(crate) listing: Listing,
    /// Whether compressed files beside a file are sent for it.
    pub(crate) sidecars: Sidecars,
}

/// One way to find what a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// A file of just this path.
    File,
    /// A file whose name has this behind the path, as in `.html`. Without a slash in it.
    Suffix(Suffix),
    /// A directory: its index, its list, or the way to its slash.
    Directory,
    /// A file of this path, in which a star is the path of the request.
    Path(Template),
}

/// What a directory without an index is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// 404.
    Off,
    /// A list of what is in it.
    On,
}

/// What becomes of `style.css.br` and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sidecars {
    /// They are files like any other.
    Off,
    /// They are sent for the file that they stand beside, to who accepts them.
    On,
}

/// Names that stand for a directory.
#[derive(Clone, Debug)]
pub(crate) struct IndexNames(pub(super) Arc<[Box<str>]>);

/// What a name may have behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suffix(pub(super) Box<str>);

/// A text is no name of a file, or no end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFileName;

impl fmt::Display for NoFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file name has no slash, backslash or control octet, and does not begin with a dot")
    }
}

impl std::error::Error for NoFileName {}

fn may_be_in_name(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|b| b.is_ascii_control() || matches!(b, b'/' | b'\\'))
}

impl IndexNames {
    /// These names, in order.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, NoFileName> {
        let names: Arc<[Box<str>]> = names.into_iter().map(Box::from).collect();
        let are_names = names.iter().all(|name| may_be_in_name(name) && !name.starts_with('.'));
        if are_names { Ok(Self(names)) } else { Err(NoFileName) }
    }
}

impl Suffix {
    /// This end of a name.
    pub(crate) fn new(text: &str) -> Result<Self, NoFileName> {
        if may_be_in_name(text) { Ok(Self(text.into())) } else { Err(NoFileName) }
    }
}

/// Where a client is sent, and how.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub(super) status: Status,
    pub(super) target: Template,
}

/// The status is none that sends a client elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRedirectStatus;

impl fmt::Display for NoRedirectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a redirect has the status 301, 302, 303, 307 or 308")
    }
}

impl std::error::Error for NoRedirectStatus {}

impl Redirect {
    /// Sends clients there. The query of the request goes with them.
    pub(crate) fn new(status: u16, target: Template) -> Result<Self, NoRedirectStatus> {
        let status = Status::new(status).filter(|status| matches!(status.code(), 301 | 302 | 303 | 307 | 308));
        status.map(|status| Self { status, target }).ok_or(NoRedirectStatus)
    }
}

/// An answer that is written in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: Status,
    fields: Fields,
    content: Bytes,
}

/// Why a reply cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyError {
    /// It is no status of a final answer.
    Status,
    /// Answers with this status have no content.
    ContentForbidden,
    /// The media type cannot stand in a head.
    ContentType,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "a reply has a status from 200 to 599, and not 206 or 304, which are about files",
            Self::ContentForbidden => "a reply with this status has no content",
            Self::ContentType => "a media type is like text/plain; charset=utf-8",
        })
    }
}

impl std::error::Error for ReplyError {}

impl Reply {
    /// An answer with this content; without any, it has no type either.
    pub(crate) fn new(status: u16, content_type: &str, content: impl Into<Bytes>) -> Result<Self, ReplyError> {
        let status = Status::new(status).filter(|status| !status.is_interim()).ok_or(ReplyError::Status)?;
        if [Status::PARTIAL_CONTENT, Status::NOT_MODIFIED].contains(&status) {
            return Err(ReplyError::Status);
        }
        let (mut fields, content) = (Fields::new(), content.into());
        if !content.is_empty() {
            if status.forbids_content() {
                return Err(ReplyError::ContentForbidden);
            }
            let is_type = content_type.split_once('/').is_some();
            let added = fields.append("content-type", content_type);
            added.ok().filter(|()| is_type).ok_or(ReplyError::ContentType)?;
        }
        Ok(Self { status, fields, content })
    }

    pub(super) fn response(&self) -> Response {
        let mut response = Response::new(self.status);
        *response.edit_fields() = self.fields.clone();
        response.body(self.content.clone())
    }
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial(Status);

/// The status is none of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoErrorStatus;

impl fmt::Display for NoErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a refusal has a status from 400 to 599")
    }
}

impl std::error::Error for NoErrorStatus {}

impl Denial {
    /// With this status: 403 says that it is there, and not for this client; 404 does not say
    /// whether it is there.
    pub(crate) fn new(status: u16) -> Result<Self, NoErrorStatus> {
        Status::new(status).filter(|status| status.is_error()).map(Self).ok_or(NoErrorStatus)
    }

    pub(super) fn response(self) -> Response {
        Response::error(self.0).because("a route denies it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_refused() {
        let redirect = |status| Redirect::new(status, Template::parse("/x").unwrap()).is_ok();
        assert!([301, 302, 303, 307, 308].into_iter().all(redirect));
        assert!(![200, 300, 304, 305, 306, 309, 400, 999].into_iter().any(redirect));
        let reply = |status, kind, content: &'static str| Reply::new(status, kind, content).err();
        assert_eq!(reply(200, "text/plain", "x"), None);
        assert_eq!(reply(204, "", ""), None);
        assert_eq!(reply(204, "text/plain", "x"), Some(ReplyError::ContentForbidden));
        for status in [99, 101, 206, 304, 600] {
            assert_eq!(reply(status, "", ""), Some(ReplyError::Status), "{status}");
        }
        assert_eq!(reply(200, "text/plain\r\nx: y", "x"), Some(ReplyError::ContentType));
        assert_eq!(reply(200, "plain", "x"), Some(ReplyError::ContentType));
        assert!(Denial::new(400).is_ok() && Denial::new(599).is_ok() && Denial::new(302) == Err(NoErrorStatus));
        for name in ["", "a/b", ".index", "..", "a\\b", "a\n"] {
            assert!(IndexNames::new([name]).is_err(), "{name}");
        }
        assert!(Suffix::new("/x").is_err() && Suffix::new("").is_err() && Suffix::new(".html").is_ok());
    }
}
