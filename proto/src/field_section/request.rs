//! The rules of requests (RFC 9113 §8.3.1, §8.5; RFC 8441), and the head that a request becomes.

use super::check_value;
use super::class::FieldClass;
use super::decoded::{DecodedFields, SectionLimit};
use super::error::{MalformedMessage, SectionError};
use crate::field::{KnownField, is_token};
use crate::head::{RequestFraming, RequestHead, Scheme, Version};
use crate::head_builder::{HeadBuilder, RequestLine};
use crate::http1::{expectation, request_framing};
use crate::limits::MessageLimits;
use crate::reject::Reject;

/// Whether the stream ends with the field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Content or trailers may follow.
    Open,
    /// Nothing follows: END_STREAM in HTTP/2, FIN in HTTP/3.
    Ended,
}

/// The protocols that a client may select by an extended CONNECT (RFC 8441, RFC 9220).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// None: SETTINGS_ENABLE_CONNECT_PROTOCOL was not sent, so `:protocol` is not permitted.
    #[default]
    None,
    /// Any. The application decides.
    Any,
}

/// The rules that depend on the connection.
#[derive(Clone, Copy, Debug)]
pub struct RequestRules<'a> {
    /// [`Version::Http2`] or [`Version::Http3`].
    pub version: Version,
    /// The limits of the head, which is counted as the text of an HTTP/1.1 head.
    pub limits: &'a MessageLimits,
    /// The protocols of extended CONNECT.
    pub protocols: Protocols,
}

/// The pseudo-fields of a request.
#[derive(Clone, Copy, Default)]
struct PseudoFields<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    /// The number of pseudo-fields.
    count: usize,
}

/// Builds the head of a request at the end of `bytes`. The positions in `head` count from there.
///
/// The head is the text of a request of HTTP/1.1 with another version, so all code that reads a head works.
/// `:authority` becomes its Host. Crumbs of a cookie are joined (RFC 9113 §8.2.3). `:protocol` of an extended CONNECT
/// becomes Upgrade, which no client can send otherwise.
///
/// Returns the number of bytes that the content must have in total, if Content-Length states it.
///
/// # Errors
/// After an error, `head` and the appended bytes have no meaning.
pub fn build_request(
    fields: &DecodedFields,
    end: StreamEnd,
    rules: &RequestRules<'_>,
    bytes: &mut Vec<u8>,
    head: &mut RequestHead,
) -> Result<Option<u64>, SectionError> {
    if let Some(limit) = fields.exceeded() {
        return Err(refusal(fields, limit, rules));
    }
    let pseudo = PseudoFields::read(fields, rules)?;
    let start = bytes.len();
    let line = pseudo.request_line(rules)?;
    let mut builder = HeadBuilder::new(bytes, head, rules.limits, line)?;
    if let Some(authority) = pseudo.authority {
        builder.checked_field(b"host", authority)?;
    }
    if let Some(protocol) = pseudo.protocol {
        builder.checked_field(b"upgrade", protocol)?;
    }
    append_fields(fields, &pseudo, &mut builder)?;
    builder.finish_unframed(unframed(end))?;
    head.scheme = pseudo.scheme();
    if pseudo.authority.is_some() {
        head.target.authority = head.authority;
    }
    check_content(&bytes[start..], head, end)
}

/// Keeps a head for a request whose field section is repeated, bytes included. `bytes` begins with the first byte of
/// the head. Only `end` may differ from the previous request.
///
/// [`RequestHead::is_cached_section`] is then true. Returns the number of bytes that the content must have, as
/// [`build_request`] does.
///
/// # Errors
/// [`MalformedMessage::ContentMissing`]. `head` then has no meaning.
pub fn repeat_request(bytes: &[u8], head: &mut RequestHead, end: StreamEnd) -> Result<Option<u64>, SectionError> {
    head.keep_repeated();
    head.framing = request_framing(bytes, head, unframed(end))?;
    head.expectation = expectation(bytes, head)?;
    check_content(bytes, head, end)
}

/// Copies a head for a request whose field section is repeated. `earlier` is the head, with its bytes, that
/// [`build_request`] has built from an equal section; the copy is appended to `bytes`.
///
/// Returns the number of bytes that the content must have, as [`repeat_request`] does.
///
/// # Errors
/// [`MalformedMessage::ContentMissing`]. `head` then has no meaning.
pub fn copy_request(
    (earlier_bytes, earlier): (&[u8], &RequestHead),
    end: StreamEnd,
    bytes: &mut Vec<u8>,
    head: &mut RequestHead,
) -> Result<Option<u64>, SectionError> {
    let start = bytes.len();
    bytes.extend_from_slice(earlier_bytes);
    head.copy_from(earlier);
    repeat_request(&bytes[start..], head, end)
}

/// Returns why a section that exceeds a limit is refused: a path that is too long by itself counts first, as the request
/// line of HTTP/1.1 does.
#[cold]
fn refusal(fields: &DecodedFields, limit: SectionLimit, rules: &RequestRules<'_>) -> SectionError {
    let path = fields.iter().find(|field| field.class == FieldClass::Path);
    match path {
        Some(path) if path.value.len() > rules.limits.request_line_bytes_max => Reject::RequestLineTooLong.into(),
        _ => limit.into(),
    }
}

/// Returns the framing of a request without Content-Length.
const fn unframed(end: StreamEnd) -> RequestFraming {
    match end {
        StreamEnd::Open => RequestFraming::UntilStreamEnd,
        StreamEnd::Ended => RequestFraming::None,
    }
}

/// Returns the announced length of the content. Checks that the stream has not ended before it.
fn check_content(bytes: &[u8], head: &RequestHead, end: StreamEnd) -> Result<Option<u64>, SectionError> {
    match head.framing {
        RequestFraming::Length(_) if end == StreamEnd::Ended => Err(MalformedMessage::ContentMissing.into()),
        RequestFraming::Length(length) => Ok(Some(length)),
        RequestFraming::UntilStreamEnd | RequestFraming::Chunked => Ok(None),
        // Content-Length is 0, or the stream has ended.
        RequestFraming::None => Ok(head.value(bytes, KnownField::ContentLength).map(|_| 0)),
    }
}

impl<'a> PseudoFields<'a> {
    /// Reads the fields before the first regular field.
    fn read(fields: &'a DecodedFields, rules: &RequestRules<'_>) -> Result<Self, MalformedMessage> {
        let mut pseudo = Self::default();
        for field in fields.iter().take_while(|field| field.class.is_pseudo()) {
            let place = match field.class {
                FieldClass::Method => &mut pseudo.method,
                FieldClass::Scheme => &mut pseudo.scheme,
                FieldClass::Authority => &mut pseudo.authority,
                FieldClass::Path => &mut pseudo.path,
                FieldClass::Protocol if rules.protocols == Protocols::Any => &mut pseudo.protocol,
                _ => return Err(MalformedMessage::PseudoFieldNotPermitted),
            };
            check_value(&field)?;
            if place.replace(field.value).is_some() {
                return Err(MalformedMessage::PseudoFieldRepeated);
            }
            pseudo.count += 1;
        }
        Ok(pseudo)
    }

    /// Returns the scheme, which is known to be one of the two.
    fn scheme(&self) -> Option<Scheme> {
        let is_https = self.scheme?.eq_ignore_ascii_case(b"https");
        Some(if is_https { Scheme::Https } else { Scheme::Http })
    }

    /// Checks the combination of pseudo-fields. Returns the request line.
    fn request_line(&self, rules: &RequestRules<'_>) -> Result<RequestLine<'a>, SectionError> {
        let method = self.method.ok_or(MalformedMessage::PseudoFieldMissing)?;
        let target = match self.protocol {
            None if method == b"CONNECT" => {
                //= RFC 9113 §8.5: :scheme and :path MUST be omitted; :authority has the host and port
                if self.scheme.is_some() || self.path.is_some() {
                    return Err(MalformedMessage::ConnectHasPath.into());
                }
                self.authority.filter(|authority| !authority.is_empty()).ok_or(MalformedMessage::PseudoFieldMissing)?
            }
            Some(protocol) if method != b"CONNECT" || !is_token(protocol) => {
                return Err(MalformedMessage::ProtocolInvalid.into());
            }
            _ => self.path_of(method)?,
        };
        Ok(RequestLine { method, target, version: rules.version })
    }

    /// Returns the path of a request that is no CONNECT, or an extended one.
    fn path_of(&self, method: &[u8]) -> Result<&'a [u8], SectionError> {
        let (Some(scheme), Some(path)) = (self.scheme, self.path) else {
            return Err(MalformedMessage::PseudoFieldMissing.into());
        };
        if !scheme.eq_ignore_ascii_case(b"https") && !scheme.eq_ignore_ascii_case(b"http") {
            return Err(Reject::TargetInvalid.into());
        }
        match path {
            [b'/', ..] => Ok(path),
            b"*" if method == b"OPTIONS" => Ok(path),
            _ => Err(MalformedMessage::PathInvalid.into()),
        }
    }
}

/// Checks and appends the fields after the pseudo-fields.
fn append_fields(
    fields: &DecodedFields,
    pseudo: &PseudoFields<'_>,
    builder: &mut HeadBuilder<'_>,
) -> Result<(), SectionError> {
    let regular = fields.iter().skip(pseudo.count);
    let (mut host, mut has_cookie) = (None, false);
    for field in regular.clone() {
        match field.class {
            FieldClass::Invalid => return Err(MalformedMessage::FieldNameInvalid.into()),
            FieldClass::ConnectionSpecific => return Err(MalformedMessage::ConnectionSpecificField.into()),
            //= RFC 9113 §8.2.2: te MUST NOT contain any value other than "trailers"
            FieldClass::Te if !field.value.eq_ignore_ascii_case(b"trailers") => {
                return Err(MalformedMessage::ConnectionSpecificField.into());
            }
            class if class.is_pseudo() => return Err(MalformedMessage::PseudoFieldMisplaced.into()),
            _ => check_value(&field)?,
        }
        match field.class {
            FieldClass::Host if host.replace(field.value).is_some() => return Err(Reject::HostRepeated.into()),
            FieldClass::Host if pseudo.authority.is_some() => {}
            //= RFC 9113 §8.2.3: the crumbs MUST be joined by "; " before they leave HTTP/2
            FieldClass::Cookie if has_cookie => {}
            FieldClass::Cookie => {
                has_cookie = true;
                let crumbs = regular.clone().filter(|other| other.class == FieldClass::Cookie);
                builder.joined_field(field.name, crumbs.map(|crumb| crumb.value).filter(|value| !value.is_empty()))?;
            }
            _ => builder.checked_field(field.name, field.value)?,
        }
    }
    match (pseudo.authority, host) {
        //= RFC 9113 §8.3.1: a Host that differs from :authority SHOULD be treated as malformed
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(MalformedMessage::HostDiffers.into())
        }
        _ => Ok(()),
    }
}
