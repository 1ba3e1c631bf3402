//! All limits on the input of a peer.

/// Limits of one message. Each loop over a peer's bytes is bounded by one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Longest request line, in bytes, without its CRLF. Default 8,192: RFC 9112 §3
    /// recommends at least 8,000. Exceeded: 414.
    pub request_line_bytes_max: usize,
    /// Longest head, in bytes, from the request line to the empty line. Default
    /// 16,384, at most [`HEAD_BYTES_CEILING`]. Exceeded: 431.
    pub head_bytes_max: usize,
    /// Most field lines in a head. Default 100, at most [`FIELDS_CEILING`] in a request and [`RESPONSE_FIELDS_CEILING`] in
    /// a response. Exceeded: 431.
    pub fields_max: usize,
    /// Most bytes of chunk extensions on one chunk. Default 256. Exceeded: 400.
    pub chunk_extension_bytes_max: usize,
    /// Framing bytes that chunked content may have in excess of its content bytes. Default
    /// 16,384; see [`CHUNK_OVERHEAD_RATIO`]. Exceeded: 400.
    pub chunk_overhead_allowance: u64,
    /// Longest trailer section, in bytes. Default 8,192, at most [`HEAD_BYTES_CEILING`].
    /// Exceeded: 431.
    pub trailer_bytes_max: usize,
}

/// Upper bound of the head and trailer limits, in bytes: positions in a head have 16 bits.
pub const HEAD_BYTES_CEILING: usize = 65_535;

/// Upper bound of the limit of field lines of a request: a head stores their positions in an array.
pub const FIELDS_CEILING: usize = 100;

/// Upper bound of the limit of field lines of a response. Applications send a field for each cookie, so they need more
/// than clients do.
pub const RESPONSE_FIELDS_CEILING: usize = 500;

/// Framing bytes that each byte of content permits, in addition to the allowance.
///
/// A chunk of one byte has five bytes of framing, so content in such chunks exhausts the
/// allowance. Chunks of ten bytes never exhaust it.
pub const CHUNK_OVERHEAD_RATIO: u64 = 1;

/// Longest method token that is parsed, in bytes. The longest registered method has 17 bytes.
pub const METHOD_BYTES_MAX: usize = 32;

/// Most ranges in one request. RFC 9110 §14.2 lets a server ignore a request for more.
pub const RANGES_MAX: usize = 16;

/// Most members of Accept-Encoding that are parsed.
pub const CODINGS_MAX: usize = 64;

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: 8_192,
            head_bytes_max: 16_384,
            fields_max: 100,
            chunk_extension_bytes_max: 256,
            chunk_overhead_allowance: 16_384,
            trailer_bytes_max: 8_192,
        }
    }
}

const _: () = assert!(FIELDS_CEILING < u8::MAX as usize, "the index of a field fits into a byte");
const _: () = assert!(METHOD_BYTES_MAX < 8_192, "a method fits into a request line");
