//! Via: the gateways that a request has passed (RFC 9110 §7.6.3). By it a gateway finds that a request returns to it.

use crate::field::{is_token, list_members};
use crate::head::Version;
use core::fmt;

/// Whether a gateway adds itself to Via, and refuses requests that name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ViaField {
    /// It does neither. Default.
    #[default]
    Omit,
    /// It appends a member with this name to Via of each request.
    Append(ViaPseudonym),
}

/// The name of one gateway in Via. Two gateways in a chain need different ones: a request that carries the name of a
/// gateway has passed it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViaPseudonym(Box<str>);

/// The name is not a token (RFC 9110 §5.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPseudonym;

impl fmt::Display for InvalidPseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name in Via is a token")
    }
}

impl core::error::Error for InvalidPseudonym {}

impl ViaPseudonym {
    /// Creates a name.
    ///
    /// # Errors
    /// If it is not a token.
    pub fn new(name: &str) -> Result<Self, InvalidPseudonym> {
        is_token(name.as_bytes()).then(|| Self(name.into())).ok_or(InvalidPseudonym)
    }

    /// Whether a value of Via has this name. Names are compared without case, as hosts are.
    pub(super) fn is_in(&self, value: &[u8]) -> bool {
        list_members(value).any(|member| {
            // A protocol precedes the name, and a comment may follow it.
            let mut words = member.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(self.0.as_bytes()))
        })
    }

    /// Appends a line of Via for a message that was received in this version.
    pub(super) fn write(&self, version: Version, out: &mut Vec<u8>) {
        let version = match version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2.0",
            Version::Http3 => "3.0",
        };
        for part in ["via: ", version, " ", &self.0, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}
