//! Request methods (RFC 9110 §9). Names are case-sensitive.

/// A registered method, or [`Method::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// RFC 9110 §9.3.1
    Get,
    /// RFC 9110 §9.3.2
    Head,
    /// RFC 9110 §9.3.3
    Post,
    /// RFC 9110 §9.3.4
    Put,
    /// RFC 9110 §9.3.5
    Delete,
    /// RFC 9110 §9.3.6
    Connect,
    /// RFC 9110 §9.3.7
    Options,
    /// RFC 9110 §9.3.8
    Trace,
    /// RFC 5789
    Patch,
    /// Any other token. [`crate::head::RequestHead::method_span`] has its position.
    Other,
}

impl Method {
    /// Returns the method of a token, which is compared with case.
    pub const fn from_token(token: &[u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Whether the method is safe: it requests no change of state (RFC 9110 §9.2.1).
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }
}
