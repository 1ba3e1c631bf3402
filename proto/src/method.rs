//! Request methods (RFC 9110 §9). Names are case-sensitive.

/// A method that this crate knows, or the fact that it is another one.
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
    /// Any other token; the head keeps its bytes.
    Other,
}

impl Method {
    /// The method of a token.
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

    /// Safe methods ask for nothing to change (RFC 9110 §9.2.1).
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }
}
