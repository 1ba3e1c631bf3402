//! The head of a request, as positions in the bytes it came in.
//!
//! A head owns no bytes and allocates nothing; it is reused from request to request.
//! Only [`crate::http1::parse_request`] fills one, and what it lets through has a valid
//! target, valid fields, one host and one framing.

use crate::field::Known;
use crate::limits::FIELDS_CEILING;
use crate::method::Method;
use crate::reject::Afterwards;
use crate::target::{Span, Target};
use core::fmt;

/// The protocol version of a request, as far as it changes what is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and every later 1.x (RFC 9110 §2.5)
    #[default]
    Http11,
}

/// How the content of a request ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no content.
    #[default]
    None,
    /// So many bytes follow; never zero.
    Length(u64),
    /// Chunks follow.
    Chunked,
}

/// Whether the client waits for `100 Continue` (RFC 9110 §10.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// It sends its content unasked.
    #[default]
    None,
    /// It sends its content once it is told to.
    Continue,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldSpan {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// What the head of a request says.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method; [`RequestHead::method_span`] has the bytes of an unknown one.
    pub method: Method,
    /// Where the method stands.
    pub method_span: Span,
    /// The version.
    pub version: Version,
    /// The target, taken apart.
    pub target: Target,
    /// Host and port, from the target where it names them, else from Host (RFC 9112 §3.3).
    pub authority: Option<Span>,
    /// How the content ends.
    pub framing: Framing,
    /// Whether the client waits before it sends its content.
    pub expectation: Expectation,
    /// Whether the client lets the connection live on.
    pub persistence: Afterwards,
    /// The request line without its line end.
    pub line: Span,
    /// Length of the head, from the first byte to the end of the empty line.
    pub len: usize,
    /// Where the field section begins, from the first byte; 0 while the request line is not complete.
    pub(crate) section_at: u16,
    /// Where to go on in the field section when more bytes have come.
    pub(crate) resume_at: usize,
    /// Positions from the beginning of the field section on.
    fields: [FieldSpan; FIELDS_CEILING],
    pub(crate) field_count: u8,
    /// Where each known field stands first; only where its bit is in `present`.
    first_of: [u8; Known::COUNT],
    present: u32,
    repeated: u32,
    /// The last Host value that was found to be valid, while it is short: clients of one site
    /// send the same again and again.
    host_known: [u8; HOST_KNOWN_BYTES],
    host_known_len: u8,
    /// The field section that the fields, the framing, the expectation and the persistence are of.
    section_known: KnownSection,
    is_section_again: bool,
}

/// The field section that was last found to be valid, while it is short, and with which version: a
/// client says the same with most of its requests, and then what was made of it still holds.
#[derive(Clone)]
struct KnownSection {
    bytes: [u8; SECTION_KNOWN_BYTES],
    len: u16,
    version: Version,
}

impl fmt::Debug for KnownSection {
    /// Without the octets, which may be another client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownSection").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Room for a name of usual length with its port.
const HOST_KNOWN_BYTES: usize = 47;

/// Room for what a browser sends, without long cookies.
const SECTION_KNOWN_BYTES: usize = 1_000;

const _: () = assert!(Known::COUNT <= u32::BITS as usize, "one bit for each known field");

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            method: Method::Other,
            method_span: Span::default(),
            version: Version::Http11,
            target: Target::default(),
            authority: None,
            framing: Framing::None,
            expectation: Expectation::None,
            persistence: Afterwards::KeepOpen,
            line: Span::default(),
            len: 0,
            section_at: 0,
            resume_at: 0,
            fields: [FieldSpan::default(); FIELDS_CEILING],
            field_count: 0,
            first_of: [0; Known::COUNT],
            present: 0,
            repeated: 0,
            host_known: [0; HOST_KNOWN_BYTES],
            host_known_len: 0,
            section_known: KnownSection { bytes: [0; SECTION_KNOWN_BYTES], len: 0, version: Version::Http11 },
            is_section_again: false,
        }
    }
}

impl RequestHead {
    /// Forgets the last request, all but what was made of its fields.
    pub fn clear(&mut self) {
        self.section_at = 0;
        self.resume_at = 0;
        self.len = 0;
        self.line = Span::default();
    }

    /// Takes the fields, the framing, the expectation and the persistence that are known for this
    /// request's as well, if this begins with the section that they are of, to the end of it, and the
    /// version is the same; how long it is.
    pub(crate) fn take_known_section(&mut self, section: &[u8]) -> Option<usize> {
        let KnownSection { bytes, len, version } = &self.section_known;
        let known = &bytes[..usize::from(*len)];
        let len = (!known.is_empty() && self.version == *version && section.starts_with(known)).then_some(known.len());
        self.is_section_again = len.is_some();
        len
    }

    /// Notes that what is known of the fields is of this section, and that nothing in it is refused.
    pub(crate) fn know_section(&mut self, section: &[u8]) {
        let known = &mut self.section_known;
        if let Some(room) = known.bytes.get_mut(..section.len()) {
            room.copy_from_slice(section);
            known.len = section.len() as u16;
            known.version = self.version;
        }
    }

    /// Forgets the fields.
    pub(crate) fn forget_section(&mut self) {
        self.is_section_again = false;
        self.section_known.len = 0;
        self.field_count = 0;
        self.present = 0;
        self.repeated = 0;
    }

    /// The field section and what follows it.
    fn section<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.section_at)..).unwrap_or_default()
    }

    /// Which known fields are present; none while the head is not complete.
    fn present(&self) -> u32 {
        if self.len > 0 { self.present } else { 0 }
    }

    pub(crate) fn push(&mut self, name: &[u8], span: FieldSpan) {
        if let Some(known) = Known::from_name(name) {
            if self.present & known.bit() == 0 {
                self.present |= known.bit();
                self.first_of[known as usize] = self.field_count;
            } else {
                self.repeated |= known.bit();
            }
        }
        self.fields[usize::from(self.field_count)] = span;
        self.field_count += 1;
    }

    /// Whether this Host value was the last one that was found to be valid. An empty one never is.
    pub(crate) fn is_known_host(&self, value: &[u8]) -> bool {
        !value.is_empty() && self.host_known[..usize::from(self.host_known_len)] == *value
    }

    /// Notes that a Host value is valid.
    pub(crate) fn know_host(&mut self, value: &[u8]) {
        if let Some(room) = self.host_known.get_mut(..value.len()) {
            room.copy_from_slice(value);
            self.host_known_len = value.len() as u8;
        }
    }

    /// The field section of a complete head, to the end of its empty line.
    pub fn field_section<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.section_at)..self.len).unwrap_or_default()
    }

    /// Whether the request that this head was read for before had the same field section, and it is
    /// worth while to keep what is made of it.
    pub fn is_section_again(&self) -> bool {
        self.is_section_again
    }

    /// The value of the first line of a known field.
    pub fn value<'a>(&self, bytes: &'a [u8], known: Known) -> Option<&'a [u8]> {
        self.value_span(known).map(|span| span.of(bytes))
    }

    /// Where the value of the first line of a known field stands.
    pub fn value_span(&self, known: Known) -> Option<Span> {
        let present = self.present() & known.bit() != 0;
        present.then(|| {
            let value = self.fields[usize::from(self.first_of[known as usize])].value;
            Span { start: self.section_at + value.start, ..value }
        })
    }

    /// Whether any of these known fields is present; the set is a sum of [`Known::bit`]s.
    pub(crate) fn has_any(&self, set: u32) -> bool {
        self.present() & set != 0
    }

    /// Whether a known field has more than one line.
    pub fn is_repeated(&self, known: Known) -> bool {
        self.present() & self.repeated & known.bit() != 0
    }

    /// The values of all lines of a known field, in order.
    pub fn values<'a>(&self, bytes: &'a [u8], known: Known) -> impl Iterator<Item = &'a [u8]> + Clone {
        let first = usize::from(self.first_of[known as usize]);
        let range = match (self.present() & known.bit() != 0, self.is_repeated(known)) {
            (false, _) => 0..0,
            (true, false) => first..first + 1,
            (true, true) => first..usize::from(self.field_count),
        };
        let section = self.section(bytes);
        self.fields[range]
            .iter()
            .filter(move |f| f.name.of(section).eq_ignore_ascii_case(known.name().as_bytes()))
            .map(move |f| f.value.of(section))
    }

    /// All names, as they came, and values, in order.
    pub fn fields<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let section = self.section(bytes);
        let count = if self.len > 0 { usize::from(self.field_count) } else { 0 };
        self.fields[..count].iter().map(move |f| (f.name.of(section), f.value.of(section)))
    }

    /// The value of the first field of that name, in any case.
    pub fn get<'a>(&self, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.fields(bytes).find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}
