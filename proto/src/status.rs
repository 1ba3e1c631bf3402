//! Status codes (RFC 9110 §15) and their status lines.

use core::fmt;

/// A status code from 100 to 599.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusCode(u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal;)+) => {
        impl StatusCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// Returns the registered reason phrase; empty for an unregistered code.
            pub const fn reason_phrase(self) -> &'static str {
                match self.0 { $($code => $reason,)+ _ => "" }
            }

            /// Returns the status line, such as `HTTP/1.1 200 OK`, and its CRLF; `None` for a code
            /// without a constant.
            pub(crate) const fn status_line(self) -> Option<&'static [u8]> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n").as_bytes()),)+
                    _ => None,
                }
            }
        }
    };
}

// The codes of the registry of IANA, without those that are obsolete or not in use.
statuses! {
    /// 100
    CONTINUE = 100 "Continue";
    /// 101
    SWITCHING_PROTOCOLS = 101 "Switching Protocols";
    /// 102 (RFC 2518)
    PROCESSING = 102 "Processing";
    /// 103 (RFC 8297)
    EARLY_HINTS = 103 "Early Hints";
    /// 200
    OK = 200 "OK";
    /// 201
    CREATED = 201 "Created";
    /// 202
    ACCEPTED = 202 "Accepted";
    /// 203
    NON_AUTHORITATIVE_INFORMATION = 203 "Non-Authoritative Information";
    /// 204
    NO_CONTENT = 204 "No Content";
    /// 205
    RESET_CONTENT = 205 "Reset Content";
    /// 206
    PARTIAL_CONTENT = 206 "Partial Content";
    /// 207 (RFC 4918)
    MULTI_STATUS = 207 "Multi-Status";
    /// 208 (RFC 5842)
    ALREADY_REPORTED = 208 "Already Reported";
    /// 226 (RFC 3229)
    IM_USED = 226 "IM Used";
    /// 300
    MULTIPLE_CHOICES = 300 "Multiple Choices";
    /// 301
    MOVED_PERMANENTLY = 301 "Moved Permanently";
    /// 302
    FOUND = 302 "Found";
    /// 303
    SEE_OTHER = 303 "See Other";
    /// 304
    NOT_MODIFIED = 304 "Not Modified";
    /// 305
    USE_PROXY = 305 "Use Proxy";
    /// 307
    TEMPORARY_REDIRECT = 307 "Temporary Redirect";
    /// 308
    PERMANENT_REDIRECT = 308 "Permanent Redirect";
    /// 400
    BAD_REQUEST = 400 "Bad Request";
    /// 401
    UNAUTHORIZED = 401 "Unauthorized";
    /// 402
    PAYMENT_REQUIRED = 402 "Payment Required";
    /// 403
    FORBIDDEN = 403 "Forbidden";
    /// 404
    NOT_FOUND = 404 "Not Found";
    /// 405
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    /// 406
    NOT_ACCEPTABLE = 406 "Not Acceptable";
    /// 407
    PROXY_AUTHENTICATION_REQUIRED = 407 "Proxy Authentication Required";
    /// 408
    REQUEST_TIMEOUT = 408 "Request Timeout";
    /// 409
    CONFLICT = 409 "Conflict";
    /// 410
    GONE = 410 "Gone";
    /// 411
    LENGTH_REQUIRED = 411 "Length Required";
    /// 412
    PRECONDITION_FAILED = 412 "Precondition Failed";
    /// 413
    CONTENT_TOO_LARGE = 413 "Content Too Large";
    /// 414
    URI_TOO_LONG = 414 "URI Too Long";
    /// 415
    UNSUPPORTED_MEDIA_TYPE = 415 "Unsupported Media Type";
    /// 416
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    /// 417
    EXPECTATION_FAILED = 417 "Expectation Failed";
    /// 421
    MISDIRECTED_REQUEST = 421 "Misdirected Request";
    /// 422
    UNPROCESSABLE_CONTENT = 422 "Unprocessable Content";
    /// 423 (RFC 4918)
    LOCKED = 423 "Locked";
    /// 424 (RFC 4918)
    FAILED_DEPENDENCY = 424 "Failed Dependency";
    /// 425 (RFC 8470)
    TOO_EARLY = 425 "Too Early";
    /// 426
    UPGRADE_REQUIRED = 426 "Upgrade Required";
    /// 428 (RFC 6585)
    PRECONDITION_REQUIRED = 428 "Precondition Required";
    /// 429 (RFC 6585)
    TOO_MANY_REQUESTS = 429 "Too Many Requests";
    /// 431 (RFC 6585)
    REQUEST_HEADER_FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large";
    /// 451 (RFC 7725)
    UNAVAILABLE_FOR_LEGAL_REASONS = 451 "Unavailable For Legal Reasons";
    /// 500
    INTERNAL_SERVER_ERROR = 500 "Internal Server Error";
    /// 501
    NOT_IMPLEMENTED = 501 "Not Implemented";
    /// 502
    BAD_GATEWAY = 502 "Bad Gateway";
    /// 503
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    /// 504
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    /// 505
    HTTP_VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported";
    /// 506 (RFC 2295)
    VARIANT_ALSO_NEGOTIATES = 506 "Variant Also Negotiates";
    /// 507 (RFC 4918)
    INSUFFICIENT_STORAGE = 507 "Insufficient Storage";
    /// 508 (RFC 5842)
    LOOP_DETECTED = 508 "Loop Detected";
    /// 511 (RFC 6585)
    NETWORK_AUTHENTICATION_REQUIRED = 511 "Network Authentication Required";
}

impl StatusCode {
    /// Returns the status code of a number; `None` outside of 100 to 599, where codes are invalid
    /// (RFC 9110 §15).
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 599 { Some(Self(code)) } else { None }
    }

    /// Returns the code as a number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether the code is 1xx: another response follows (RFC 9110 §15.2).
    pub const fn is_interim(self) -> bool {
        self.0 < 200
    }

    /// Whether the code is 4xx or 5xx.
    pub const fn is_error(self) -> bool {
        self.0 >= 400
    }

    /// Whether responses with this code never have content, for all methods (RFC 9110 §6.4.1).
    pub const fn forbids_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }

    /// Whether responses with this code must not have Content-Length (RFC 9110 §8.6).
    pub const fn forbids_content_length(self) -> bool {
        self.0 < 200 || self.0 == 204
    }
}

impl fmt::Debug for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason_phrase() {
            "" => write!(f, "{}", self.0),
            reason => write!(f, "{} {reason}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StatusCode;

    #[test]
    fn status_lines_and_valid_codes() {
        assert_eq!(StatusCode::OK.status_line(), Some(&b"HTTP/1.1 200 OK\r\n"[..]));
        for (code, phrase) in
            [(205, "Reset Content"), (407, "Proxy Authentication Required"), (451, "Unavailable For Legal Reasons")]
        {
            assert_eq!(StatusCode::new(code).map(StatusCode::reason_phrase), Some(phrase));
        }
        assert_eq!(StatusCode::new(299).and_then(StatusCode::status_line), None);
        assert_eq!(StatusCode::new(99), None);
        assert_eq!(StatusCode::new(600), None);
        assert!(StatusCode::NOT_MODIFIED.forbids_content() && !StatusCode::NOT_MODIFIED.forbids_content_length());
    }
}
