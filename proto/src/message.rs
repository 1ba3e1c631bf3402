//! Rules of messages that all versions share.

use crate::method::Method;
use crate::status::StatusCode;

/// What the head of a response announces about the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncedLength {
    /// The status code forbids content, and no length is announced.
    Absent,
    /// Content of this many bytes.
    Known(u64),
    /// Content whose length is known at its end.
    Unknown,
}

impl AnnouncedLength {
    /// Decides it for a status code. `length` is the length of the content in bytes, if known.
    ///
    /// A response to HEAD announces the length of the response to GET, but no content follows.
    pub fn of_response(status: StatusCode, length: Option<u64>) -> Self {
        match length {
            _ if status.forbids_content() => Self::Absent,
            Some(length) => Self::Known(length),
            None => Self::Unknown,
        }
    }

    /// Whether content follows the head.
    pub fn has_content(self, method: Method) -> bool {
        method != Method::Head && !matches!(self, Self::Absent | Self::Known(0))
    }
}

/// Fields that are refused in a trailer section, since they are for framing, routing, authorization,
/// or describe the content (RFC 9110 §6.5.1).
const FORBIDDEN_IN_TRAILERS: [&str; 20] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "range",
    "te",
    "server",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a field of this name is refused in a trailer section. The name is compared without case.
pub(crate) fn is_forbidden_in_trailers(name: &[u8]) -> bool {
    FORBIDDEN_IN_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_method_decide_whether_content_follows() {
        let length = |status, length| AnnouncedLength::of_response(status, length);
        assert_eq!(length(StatusCode::NO_CONTENT, Some(0)), AnnouncedLength::Absent);
        assert_eq!(length(StatusCode::NOT_MODIFIED, None), AnnouncedLength::Absent);
        assert_eq!(length(StatusCode::OK, Some(5)), AnnouncedLength::Known(5));
        assert_eq!(length(StatusCode::OK, None), AnnouncedLength::Unknown);
        for (length, method, expected) in [
            (AnnouncedLength::Known(5), Method::Get, true),
            (AnnouncedLength::Unknown, Method::Get, true),
            (AnnouncedLength::Known(5), Method::Head, false),
            (AnnouncedLength::Unknown, Method::Head, false),
            (AnnouncedLength::Known(0), Method::Get, false),
            (AnnouncedLength::Absent, Method::Get, false),
        ] {
            assert_eq!(length.has_content(method), expected, "{length:?} {method:?}");
        }
    }
}
