//! Frames on the wire (RFC 9113 §4.1): header, types, flags.

/// Bytes of a frame header.
pub(crate) const FRAME_HEADER_BYTES: usize = 9;

/// END_STREAM of DATA and HEADERS.
pub(crate) const END_STREAM: u8 = 0x1;
/// ACK of SETTINGS and PING.
pub(crate) const ACK: u8 = 0x1;
/// END_HEADERS of HEADERS and CONTINUATION.
pub(crate) const END_HEADERS: u8 = 0x4;
/// PADDED of DATA and HEADERS.
pub(crate) const PADDED: u8 = 0x8;
/// PRIORITY of HEADERS.
pub(crate) const PRIORITY: u8 = 0x20;

/// The client's connection preface (RFC 9113 §3.4).
pub(crate) const CLIENT_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The type of a frame (RFC 9113 §6, RFC 9218 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    PriorityUpdate,
    /// A type that is ignored (RFC 9113 §4.1).
    Unknown,
}

impl FrameType {
    #[inline]
    const fn from_byte(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            _ => Self::Unknown,
        }
    }

    /// Returns the type's number. 0xff for an unknown type, which is never sent.
    const fn byte(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::RstStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown => 0xff,
        }
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Length of the payload, in bytes.
    pub(crate) length: u32,
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    /// The stream, without the reserved bit. 0 for the connection.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Parses a header. The reserved bit is ignored (RFC 9113 §4.1).
    #[inline]
    pub(crate) fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        let [l0, l1, l2, kind, flags, stream @ ..] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind: FrameType::from_byte(kind),
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    #[inline]
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the header's bytes.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind.byte(), self.flags, s0, s1, s2, s3]
    }
}

/// Appends a frame.
pub(crate) fn write_frame(out: &mut Vec<u8>, kind: FrameType, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHeader { length: payload.len() as u32, kind, flags, stream }.to_bytes());
    out.extend_from_slice(payload);
}

/// Appends RST_STREAM.
pub(crate) fn write_rst_stream(out: &mut Vec<u8>, stream: u32, code: u32) {
    write_frame(out, FrameType::RstStream, 0, stream, &code.to_be_bytes());
}

/// Appends WINDOW_UPDATE.
pub(crate) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_frame(out, FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes());
}

/// Appends GOAWAY with a text for the peer's log.
pub(crate) fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: u32, text: &str) {
    let length = 8 + text.len() as u32;
    out.extend_from_slice(&FrameHeader { length, kind: FrameType::GoAway, flags: 0, stream: 0 }.to_bytes());
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Completes a HEADERS frame whose header was reserved at `start` of `out` and whose field block follows until the
/// end. A block that exceeds `frame_bytes_max` is split into CONTINUATION frames.
pub(crate) fn complete_headers(out: &mut Vec<u8>, start: usize, frame_bytes_max: usize, end_stream: u8, stream: u32) {
    let block_bytes = out.len() - start - FRAME_HEADER_BYTES;
    let first = block_bytes.min(frame_bytes_max);
    let end_headers = if first == block_bytes { END_HEADERS } else { 0 };
    let flags = end_stream | end_headers;
    let header = FrameHeader { length: first as u32, kind: FrameType::Headers, flags, stream };
    out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    if first == block_bytes {
        return;
    }
    let rest = out.split_off(start + FRAME_HEADER_BYTES + first);
    let last = (rest.len() - 1) / frame_bytes_max;
    for (index, piece) in rest.chunks(frame_bytes_max).enumerate() {
        let flags = if index == last { END_HEADERS } else { 0 };
        write_frame(out, FrameType::Continuation, flags, stream, piece);
    }
}

/// Returns the first four bytes as a number. The payload has at least four.
pub(crate) fn read_u32(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip_ignores_the_reserved_bit() {
        let header = FrameHeader { length: 0x01_02_03, kind: FrameType::Headers, flags: 0x25, stream: 0x7fff_ffff };
        let mut bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 1, 0x25, 0x7f, 0xff, 0xff, 0xff]);
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&bytes), header);
    }

    #[test]
    fn every_type_has_its_number() {
        for byte in 0..=255 {
            let kind = FrameType::from_byte(byte);
            assert!(kind == FrameType::Unknown || kind.byte() == byte, "{byte}");
        }
    }

    #[test]
    fn long_block_is_split_into_continuations() {
        for block_bytes in [0, 1, 9, 10, 11, 20, 25] {
            let mut out = b"before".to_vec();
            out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
            let block: Vec<u8> = (0..block_bytes).collect();
            out.extend_from_slice(&block);
            complete_headers(&mut out, 6, 10, END_STREAM, 5);
            let (mut at, mut joined, mut frames) = (6, Vec::new(), Vec::new());
            while at < out.len() {
                let header = FrameHeader::parse(out[at..].first_chunk().unwrap());
                joined.extend_from_slice(&out[at + 9..][..header.length as usize]);
                at += 9 + header.length as usize;
                frames.push(header);
            }
            assert_eq!(joined, block);
            assert!(frames[0].kind == FrameType::Headers && frames[0].has(END_STREAM));
            assert!(frames[1..].iter().all(|f| f.kind == FrameType::Continuation && f.stream == 5));
            let ends: Vec<_> = frames.iter().map(|f| f.has(END_HEADERS)).collect();
            assert_eq!(ends.iter().filter(|&&ends| ends).count(), 1);
            assert_eq!(ends.last(), Some(&true));
            assert_eq!(frames.len(), usize::from(block_bytes).div_ceil(10).max(1));
        }
    }
}
