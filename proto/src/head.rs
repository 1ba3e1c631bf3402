//! The head of a request, as positions in the received bytes.
//!
//! A head owns no bytes and allocates nothing. A connection reuses it from request to request.
//!
//! Invariant: only [`crate::http1::parse_request`] and [`crate::HeadBuilder`] fill a head. A complete head
//! has a valid target, valid fields, at most one host and one framing.

use crate::field::KnownField;
use crate::limits::FIELDS_CEILING;
use crate::method::Method;
use crate::reject::Persistence;
use crate::target::{Span, Target, TargetForm};
use core::fmt;

/// The protocol version of a request, as far as it changes the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and every later 1.x (RFC 9110 §2.5)
    #[default]
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// All versions, in order.
    pub const ALL: [Self; 4] = [Self::Http10, Self::Http11, Self::Http2, Self::Http3];

    /// Returns the version as in a request line, such as `HTTP/1.1` or `HTTP/2.0`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }

    /// Whether requests are text on a connection of their own: HTTP/1.0 and HTTP/1.1.
    pub const fn is_http1(self) -> bool {
        matches!(self, Self::Http10 | Self::Http11)
    }
}

/// The scheme that a client names for its target (RFC 9110 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

/// How the content of a request ends (RFC 9112 §6.3, RFC 9113 §8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFraming {
    /// The request has no content.
    #[default]
    None,
    /// Content of this many bytes follows. Never zero.
    Length(u64),
    /// Chunked content follows.
    Chunked,
    /// Content of unknown length follows. The stream of HTTP/2 or HTTP/3 ends it.
    UntilStreamEnd,
}

/// Whether the client waits for `100 Continue` (RFC 9110 §10.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// The client sends its content without waiting.
    #[default]
    None,
    /// The client sends its content after it has received `100 Continue`.
    Continue,
}

/// The positions of one field line, counted from the start of the field section.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldLineSpan {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// The parsed head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method. For [`Method::Other`], [`RequestHead::method_span`] has its token.
    pub method: Method,
    /// The position of the method token.
    pub method_span: Span,
    /// The protocol version.
    pub version: Version,
    /// The parsed request target.
    pub target: Target,
    /// The pseudo-field `:scheme` (RFC 9113 §8.3.1). `None` for CONNECT without a path, and in HTTP/1, whose scheme is
    /// a part of some targets.
    pub scheme: Option<Scheme>,
    /// Host and port: from the target if it names them, else from Host (RFC 9112 §3.3).
    pub authority: Option<Span>,
    /// How the content ends.
    pub framing: RequestFraming,
    /// Whether the client waits for `100 Continue` before it sends its content.
    pub expectation: Expectation,
    /// Whether the request allows the connection to persist.
    pub persistence: Persistence,
    /// The request line without its line end.
    pub request_line: Span,
    /// The length of the head in bytes, including the empty line; 0 until the head is complete.
    pub len: usize,
    /// Offset of the field section from the first byte; 0 until the request line is complete.
    pub(crate) section_start: u16,
    /// Offset in the field section of the first line that has not been parsed.
    pub(crate) resume_offset: usize,
    /// The positions of the field lines, counted from the start of the field section.
    field_spans: [FieldLineSpan; FIELDS_CEILING],
    pub(crate) field_count: u8,
    /// Index of the first line of each known field; valid if the field's bit is set in `present`.
    first_index: [u8; KnownField::COUNT],
    /// One bit for each known field that the section has.
    present: u32,
    /// One bit for each known field that has more than one line.
    repeated: u32,
    /// The last Host value that passed validation, if it fits: clients of one site repeat it.
    cached_host: [u8; CACHED_HOST_BYTES_MAX],
    cached_host_len: u8,
    /// The field section that `field_spans`, `framing`, `expectation` and `persistence` describe.
    cached_section: CachedSection,
    /// Whether the current request has the cached field section.
    is_cached_section: bool,
}

/// The last valid field section and its version, if the section fits.
///
/// A client repeats its field section in most requests. The results of parsing it are then reused.
#[derive(Clone)]
struct CachedSection {
    bytes: [u8; CACHED_SECTION_BYTES_MAX],
    len: u16,
    version: Version,
}

impl fmt::Debug for CachedSection {
    /// Omits the bytes, which may belong to another client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedSection").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Longest Host value that is cached, in bytes. Holds a name of usual length with a port.
const CACHED_HOST_BYTES_MAX: usize = 47;

/// Longest field section that is cached, in bytes. Holds a browser's section without long cookies.
const CACHED_SECTION_BYTES_MAX: usize = 1_000;

const _: () = assert!(KnownField::COUNT <= u32::BITS as usize, "one bit for each known field");

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            method: Method::Other,
            method_span: Span::default(),
            version: Version::Http11,
            target: Target::default(),
            scheme: None,
            authority: None,
            framing: RequestFraming::None,
            expectation: Expectation::None,
            persistence: Persistence::KeepAlive,
            request_line: Span::default(),
            len: 0,
            section_start: 0,
            resume_offset: 0,
            field_spans: [FieldLineSpan::default(); FIELDS_CEILING],
            field_count: 0,
            first_index: [0; KnownField::COUNT],
            present: 0,
            repeated: 0,
            cached_host: [0; CACHED_HOST_BYTES_MAX],
            cached_host_len: 0,
            cached_section: CachedSection { bytes: [0; CACHED_SECTION_BYTES_MAX], len: 0, version: Version::Http11 },
            is_cached_section: false,
        }
    }
}

impl RequestHead {
    /// Prepares for the next request. Keeps the cached field section and its parse results.
    pub fn clear(&mut self) {
        self.section_start = 0;
        self.resume_offset = 0;
        self.len = 0;
        self.scheme = None;
        self.request_line = Span::default();
    }

    /// Reuses the cached parse results if `section` begins with the cached field section.
    ///
    /// The results are the fields, framing, expectation and persistence. They depend on the version,
    /// so the version must match too. Returns the length of the section, or `None` if it differs.
    pub(crate) fn reuse_cached_section(&mut self, section: &[u8]) -> Option<usize> {
        let CachedSection { bytes, len, version } = &self.cached_section;
        let cached = &bytes[..usize::from(*len)];
        let len =
            (!cached.is_empty() && self.version == *version && section.starts_with(cached)).then_some(cached.len());
        self.is_cached_section = len.is_some();
        len
    }

    /// Caches a valid field section, to which the current parse results belong. Skips a section that
    /// is too long.
    pub(crate) fn cache_section(&mut self, section: &[u8]) {
        let cached = &mut self.cached_section;
        if let Some(buffer) = cached.bytes.get_mut(..section.len()) {
            buffer.copy_from_slice(section);
            cached.len = section.len() as u16;
            cached.version = self.version;
        }
    }

    /// Removes the fields and the cached section.
    pub(crate) fn clear_section(&mut self) {
        self.is_cached_section = false;
        self.cached_section.len = 0;
        self.field_count = 0;
        self.present = 0;
        self.repeated = 0;
    }

    /// Copies a head, without the caches of `other`. The positions count from the start of the copied bytes.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.clear_section();
        let count = usize::from(other.field_count);
        self.field_spans[..count].copy_from_slice(&other.field_spans[..count]);
        (self.method, self.method_span, self.version) = (other.method, other.method_span, other.version);
        (self.target, self.scheme, self.authority) = (other.target, other.scheme, other.authority);
        (self.framing, self.expectation) = (other.framing, other.expectation);
        (self.persistence, self.request_line) = (other.persistence, other.request_line);
        (self.len, self.section_start, self.resume_offset) = (other.len, other.section_start, other.resume_offset);
        (self.field_count, self.first_index) = (other.field_count, other.first_index);
        (self.present, self.repeated) = (other.present, other.repeated);
    }

    /// Keeps the whole head for a request whose head is equal to the last one, bytes included.
    pub(crate) fn keep_repeated(&mut self) {
        self.is_cached_section = true;
    }

    /// Returns the received bytes from the start of the field section.
    fn section<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.section_start)..).unwrap_or_default()
    }

    /// Returns the bits of the known fields; 0 until the head is complete.
    fn present(&self) -> u32 {
        if self.len > 0 { self.present } else { 0 }
    }

    /// Records a field line. The caller makes sure that fewer than [`FIELDS_CEILING`] are recorded.
    pub(crate) fn add_field(&mut self, name: &[u8], span: FieldLineSpan) {
        if let Some(field) = KnownField::from_name(name) {
            if self.present & field.bit() == 0 {
                self.present |= field.bit();
                self.first_index[field as usize] = self.field_count;
            } else {
                self.repeated |= field.bit();
            }
        }
        self.field_spans[usize::from(self.field_count)] = span;
        self.field_count += 1;
    }

    /// Whether this is the last Host value that passed validation. False for an empty value.
    pub(crate) fn is_cached_host(&self, value: &[u8]) -> bool {
        !value.is_empty() && self.cached_host[..usize::from(self.cached_host_len)] == *value
    }

    /// Caches a valid Host value. Skips a value that is too long.
    pub(crate) fn cache_host(&mut self, value: &[u8]) {
        if let Some(buffer) = self.cached_host.get_mut(..value.len()) {
            buffer.copy_from_slice(value);
            self.cached_host_len = value.len() as u8;
        }
    }

    /// Whether this is an extended CONNECT (RFC 8441), which opens a stream of another protocol. Its name is the value
    /// of Upgrade, which no client can send otherwise in HTTP/2 and HTTP/3.
    pub fn is_extended_connect(&self) -> bool {
        self.method == Method::Connect && !self.version.is_http1() && self.target.form != TargetForm::Authority
    }

    /// Returns the field section of a complete head, including the empty line.
    pub fn field_section<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.section_start)..self.len).unwrap_or_default()
    }

    /// Whether the current request repeats the field section of the previous one.
    ///
    /// If true, a value that was derived from the previous field section is still valid. Only short
    /// sections are compared; a long one is never reported as repeated.
    pub fn is_cached_section(&self) -> bool {
        self.is_cached_section
    }

    /// Returns the value of the first line of a known field.
    pub fn value<'a>(&self, bytes: &'a [u8], field: KnownField) -> Option<&'a [u8]> {
        self.value_span(field).map(|span| span.of(bytes))
    }

    /// Returns the position of the value of the first line of a known field.
    pub fn value_span(&self, field: KnownField) -> Option<Span> {
        let present = self.present() & field.bit() != 0;
        present.then(|| {
            let value = self.field_spans[usize::from(self.first_index[field as usize])].value;
            Span { start: self.section_start + value.start, ..value }
        })
    }

    /// Whether any of these known fields is present. `set` is a union of [`KnownField::bit`]s.
    pub(crate) fn has_any(&self, set: u32) -> bool {
        self.present() & set != 0
    }

    /// Whether a known field has more than one line.
    pub fn is_repeated(&self, field: KnownField) -> bool {
        self.present() & self.repeated & field.bit() != 0
    }

    /// Returns the values of all lines of a known field, in order.
    pub fn values<'a>(&self, bytes: &'a [u8], field: KnownField) -> impl Iterator<Item = &'a [u8]> + Clone {
        let first = usize::from(self.first_index[field as usize]);
        let range = match (self.present() & field.bit() != 0, self.is_repeated(field)) {
            (false, _) => 0..0,
            (true, false) => first..first + 1,
            (true, true) => first..usize::from(self.field_count),
        };
        let section = self.section(bytes);
        self.field_spans[range]
            .iter()
            .filter(move |f| f.name.of(section).eq_ignore_ascii_case(field.name().as_bytes()))
            .map(move |f| f.value.of(section))
    }

    /// Returns all names, in the client's spelling, and values, in order.
    pub fn fields<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let section = self.section(bytes);
        let count = if self.len > 0 { usize::from(self.field_count) } else { 0 };
        self.field_spans[..count].iter().map(move |f| (f.name.of(section), f.value.of(section)))
    }

    /// Returns the value of the first field of a name, which is compared without case.
    pub fn get<'a>(&self, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.fields(bytes).find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}
