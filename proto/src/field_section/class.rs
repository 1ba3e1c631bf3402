//! What the rules of messages need to know of a name and of a value.

use crate::field::{is_field_value, is_lower_case_token};

/// The class of a field name, as far as a rule of messages depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldClass {
    /// A valid name without a rule of its own.
    #[default]
    Regular,
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol` (RFC 8441 §4)
    Protocol,
    /// `:status`
    Status,
    /// Any other name that begins with a colon.
    UnknownPseudo,
    /// A name that is empty, not a token, or has an upper-case letter.
    Invalid,
    /// `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding` or `upgrade` (RFC 9113 §8.2.2).
    ConnectionSpecific,
    /// `te`, whose only permitted value is `trailers`.
    Te,
    /// `host`
    Host,
    /// `cookie`, which may be split into crumbs (RFC 9113 §8.2.3).
    Cookie,
    /// `content-length`
    ContentLength,
}

impl FieldClass {
    /// Classifies a name.
    pub fn of_name(name: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return Self::of_pseudo_name(name);
        }
        if !is_lower_case_token(name) {
            return Self::Invalid;
        }
        match (name.len(), name) {
            (2, b"te") => Self::Te,
            (4, b"host") => Self::Host,
            (6, b"cookie") => Self::Cookie,
            (7, b"upgrade")
            | (10, b"connection" | b"keep-alive")
            | (16, b"proxy-connection")
            | (17, b"transfer-encoding") => Self::ConnectionSpecific,
            (14, b"content-length") => Self::ContentLength,
            _ => Self::Regular,
        }
    }

    fn of_pseudo_name(name: &[u8]) -> Self {
        match name {
            b":path" => Self::Path,
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            b":protocol" => Self::Protocol,
            b":authority" => Self::Authority,
            _ => Self::UnknownPseudo,
        }
    }

    /// Whether the name begins with a colon.
    pub const fn is_pseudo(self) -> bool {
        matches!(
            self,
            Self::Method
                | Self::Scheme
                | Self::Authority
                | Self::Path
                | Self::Protocol
                | Self::Status
                | Self::UnknownPseudo
        )
    }
}

/// What the codec found out about a field when it was decoded first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldFacts {
    pub(crate) class: FieldClass,
    pub(crate) value: ValueGrammar,
}

impl FieldFacts {
    /// Checks a value whose name is of this class.
    pub(crate) fn new(class: FieldClass, value: &[u8]) -> Self {
        Self { class, value: ValueGrammar::of(value) }
    }
}

/// Whether a value is valid in HTTP/2 and HTTP/3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueGrammar {
    /// It has no control character but a tab, and no white space at its ends.
    #[default]
    Valid,
    /// The message is malformed.
    Invalid,
}

impl ValueGrammar {
    /// Checks a value.
    //= RFC 9113 §8.2.1: a value with NUL, LF or CR, or that starts or ends with SP or HTAB, is malformed
    pub fn of(value: &[u8]) -> Self {
        let is_trimmed = !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
        if is_trimmed && is_field_value(value) { Self::Valid } else { Self::Invalid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified() {
        for (name, class) in [
            ("", FieldClass::Invalid),
            ("a b", FieldClass::Invalid),
            ("a\t", FieldClass::Invalid),
            ("Host", FieldClass::Invalid),
            ("x\u{e9}", FieldClass::Invalid),
            (":", FieldClass::UnknownPseudo),
            (":Path", FieldClass::UnknownPseudo),
            (":path", FieldClass::Path),
            (":protocol", FieldClass::Protocol),
            ("te", FieldClass::Te),
            ("host", FieldClass::Host),
            ("cookie", FieldClass::Cookie),
            ("keep-alive", FieldClass::ConnectionSpecific),
            ("connection", FieldClass::ConnectionSpecific),
            ("content-length", FieldClass::ContentLength),
            ("user-agent", FieldClass::Regular),
            ("x_y.z", FieldClass::Regular),
        ] {
            assert_eq!(FieldClass::of_name(name.as_bytes()), class, "{name:?}");
        }
    }

    #[test]
    fn values_are_checked() {
        for valid in ["", "a", "a b", "a\tb", "\u{e9}"] {
            assert_eq!(ValueGrammar::of(valid.as_bytes()), ValueGrammar::Valid, "{valid:?}");
        }
        for invalid in [" a", "a ", "\ta", "a\t", " ", "a\r", "a\nb", "a\0b", "a\u{7f}", "\u{1}"] {
            assert_eq!(ValueGrammar::of(invalid.as_bytes()), ValueGrammar::Invalid, "{invalid:?}");
        }
    }
}
