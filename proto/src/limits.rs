//! Every bound on what a peer may make this crate read, in one place.

/// Bounds on a message. Each loop over a peer's bytes names one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request line, in bytes, without its CRLF. Default 8,192: RFC 9112 §3
    /// recommends at least 8,000. Beyond it the answer is 414.
    pub request_line_bytes_max: usize,
    /// Longest head, in bytes, from the request line to the empty line. Default
    /// 16,384, at most [`HEAD_BYTES_CEILING`]. Beyond it the answer is 431.
    pub head_bytes_max: usize,
    /// Most field lines in a head. Default and ceiling 100. Beyond it the answer is 431.
    pub fields_max: usize,
    /// Most bytes of chunk extension on one chunk. Default 256. Beyond it the answer is 400.
    pub chunk_extension_bytes_max: usize,
    /// Framing bytes that a chunked body may spend before its content has to pay for
    /// them. Default 16,384; see [`CHUNK_OVERHEAD_RATIO`].
    pub chunk_overhead_bytes_free: u64,
    /// Longest trailer section, in bytes. Default 8,192, at most [`HEAD_BYTES_CEILING`].
    /// Beyond it the answer is 431.
    pub trailer_bytes_max: usize,
}

/// No head and no trailer section may be longer than this: positions in them are 16 bits wide.
pub const HEAD_BYTES_CEILING: usize = 65_535;

/// No head may have more field lines than this: a head keeps them in an array.
pub const FIELDS_CEILING: usize = 100;

/// Framing bytes that each byte of content pays for, beyond the free allowance.
///
/// A chunk of one byte costs five bytes of framing, so a body of nothing but such
/// chunks ends once the allowance is used up, while chunks of ten bytes go on for ever.
pub const CHUNK_OVERHEAD_RATIO: u64 = 1;

/// Longest method token that is looked at. The longest registered one has 17 bytes.
pub const METHOD_BYTES_MAX: usize = 32;

/// Most ranges that one request may ask for. RFC 9110 §14.2 lets a server ignore more.
pub const RANGES_MAX: usize = 16;

/// Most members of Accept-Encoding that are looked at.
pub const CODINGS_MAX: usize = 64;

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: 8_192,
            head_bytes_max: 16_384,
            fields_max: 100,
            chunk_extension_bytes_max: 256,
            chunk_overhead_bytes_free: 16_384,
            trailer_bytes_max: 8_192,
        }
    }
}

const _: () = assert!(FIELDS_CEILING < u8::MAX as usize, "a field's place is kept in a byte");
const _: () = assert!(METHOD_BYTES_MAX < 8_192, "a method fits a request line");
