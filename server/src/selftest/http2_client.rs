//! The client of attacks over HTTP/2: writes frames that may be invalid, and records what the server sends.

use super::attack_connection::{AttackConnection, ReceiveOutcome, SendOutcome};
use super::target::{AttackTarget, UrlScheme};
use selvedge::proto::field_section::SectionLimits;
use selvedge::proto::http2::ErrorCode;
use selvedge::proto::http2::hpack::Decoder;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// Size of the table of received fields, in bytes: that of RFC 9113 section 6.5.2, which the client does not change.
const TABLE_BYTES: usize = 4096;

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PUSH_PROMISE: u8 = 0x5;
pub(super) const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;

/// Of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// Of SETTINGS and PING.
const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 0x4;

/// Whether the client acknowledges the settings of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingsReply {
    Acknowledged,
    Missing,
}

/// What a server has done with a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamState {
    pub(super) status: Option<u16>,
    pub(super) reset: Option<ErrorCode>,
    pub(super) has_ended: bool,
    /// The status arrived before the client sent content: the server responds without it.
    pub(super) has_early_status: bool,
}

/// A connection.
pub(super) struct Http2Client {
    pub(super) connection: AttackConnection,
    decoder: Decoder,
    settings_reply: SettingsReply,
    /// Frames to send.
    out: Vec<u8>,
    /// The block of a head that continues in another frame, with its stream and flags.
    block: Option<(u32, u8, Vec<u8>)>,
    pub(super) streams: BTreeMap<u32, StreamState>,
    /// The last error code by which the server ends the connection.
    pub(super) goaway: Option<ErrorCode>,
    pub(super) has_ended: bool,
    /// The limit of open streams that the server has stated.
    pub(super) streams_max: Option<u32>,
    has_settings: bool,
    authority: String,
    path: String,
    scheme: &'static str,
}

impl Http2Client {
    /// Opens a connection, and waits for the settings of the server. Returns `None` if it does not accept HTTP/2.
    pub(super) fn open(
        target: &AttackTarget,
        settings: &[(u16, u32)],
        settings_reply: SettingsReply,
    ) -> io::Result<Option<Self>> {
        const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
        let connection = target.connect_for(b"h2")?;
        if target.url.scheme == UrlScheme::Https && connection.protocol() != Some(&b"h2"[..]) {
            return Ok(None);
        }
        let mut client = Self {
            connection,
            decoder: Decoder::new(TABLE_BYTES),
            settings_reply,
            out: PREFACE.to_vec(),
            block: None,
            streams: BTreeMap::new(),
            goaway: None,
            has_ended: false,
            streams_max: None,
            has_settings: false,
            authority: target.url.authority.clone(),
            path: target.url.path.clone(),
            scheme: target.url.scheme.name(),
        };
        let payload = settings.iter().flat_map(|(name, value)| {
            let [n0, n1] = name.to_be_bytes();
            let [v0, v1, v2, v3] = value.to_be_bytes();
            [n0, n1, v0, v1, v2, v3]
        });
        client.frame(SETTINGS, 0, 0, &payload.collect::<Vec<_>>());
        client.flush();
        client.receive_until(Instant::now() + OPEN_TIMEOUT, |client| client.has_settings);
        Ok(client.has_settings.then_some(client))
    }

    /// Appends a frame, which [`Self::flush`] sends.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        if kind == DATA
            && let Some(state) = self.streams.get_mut(&stream)
        {
            state.has_early_status = state.status.is_some();
        }
        let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
        self.out.extend_from_slice(&[l0, l1, l2, kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Appends bytes.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends a head with a usual target, and more fields.
    pub(super) fn head(&mut self, method: &str, flags: u8, stream: u32, fields: &[(&[u8], &[u8])]) {
        let block = self.block(method, fields);
        self.frame(HEADERS, flags | END_HEADERS, stream, &block);
    }

    /// Returns the block of a head with a usual target, and more fields.
    pub(super) fn block(&self, method: &str, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
        let usual: [(&[u8], &[u8]); 4] = [
            (b":method", method.as_bytes()),
            (b":scheme", self.scheme.as_bytes()),
            (b":authority", self.authority.as_bytes()),
            (b":path", self.path.as_bytes()),
        ];
        literal_block(usual.iter().chain(fields))
    }

    /// Sends the appended frames.
    pub(super) fn flush(&mut self) -> SendOutcome {
        let sent = self.connection.send(&self.out);
        self.out.clear();
        sent
    }

    /// Sends the appended frames, and gives the server a moment to respond to stream 1.
    pub(super) fn await_early_response(&mut self) {
        const EARLY_RESPONSE_TIME: Duration = Duration::from_secs(1);
        self.flush();
        self.receive_until(Instant::now() + EARLY_RESPONSE_TIME, |client| {
            let is_decided = |stream: &StreamState| stream.status.is_some() || stream.has_ended;
            client.is_over() || client.streams.get(&1).is_some_and(is_decided)
        });
    }

    /// Whether the server has ended the connection, or announced its end by an error.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended || self.goaway.is_some_and(|code| code != ErrorCode::NO_ERROR)
    }

    /// Receives until a condition holds, the connection ends, or a deadline passes.
    pub(super) fn receive_until(&mut self, deadline: Instant, condition: impl Fn(&Self) -> bool) {
        loop {
            self.read_frames();
            if condition(self) || self.has_ended {
                return;
            }
            match self.connection.receive(deadline) {
                ReceiveOutcome::Bytes => {}
                ReceiveOutcome::Ended => self.has_ended = true,
                ReceiveOutcome::TimedOut => return,
            }
        }
    }

    /// Receives what has arrived.
    pub(super) fn receive_available(&mut self) {
        self.receive_until(Instant::now(), |_| false);
    }

    fn read_frames(&mut self) {
        let received = std::mem::take(&mut self.connection.received);
        if !self.has_settings && received.starts_with(b"HTTP/") {
            // The server has read the preface as a request of HTTP/1.
            self.has_ended = true;
        }
        let mut rest = &*received;
        while let Some((header, after)) = rest.split_at_checked(FRAME_HEADER_BYTES) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) & 0x7fff_ffff;
            self.read_frame(header[3], header[4], stream, payload);
            rest = after;
        }
        self.connection.received = rest.to_vec();
        if !self.out.is_empty() {
            self.flush();
        }
    }

    fn read_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let code = |at: usize| {
            payload.get(at..at + 4).map(|code| ErrorCode(u32::from_be_bytes([code[0], code[1], code[2], code[3]])))
        };
        match kind {
            DATA if flags & END_STREAM != 0 => self.streams.entry(stream).or_default().has_ended = true,
            HEADERS => {
                let block = without_padding(flags, payload);
                self.block = Some((stream, flags, block.to_vec()));
                self.end_head_if(flags);
            }
            CONTINUATION => {
                if let Some((_, _, block)) = &mut self.block {
                    block.extend_from_slice(payload);
                }
                self.end_head_if(flags);
            }
            RST_STREAM => {
                let state = self.streams.entry(stream).or_default();
                (state.reset, state.has_ended) = (code(0), true);
            }
            SETTINGS if flags & ACK == 0 => {
                self.has_settings = true;
                for setting in payload.chunks_exact(6) {
                    if u16::from_be_bytes([setting[0], setting[1]]) == SETTINGS_MAX_CONCURRENT_STREAMS {
                        let value = [setting[2], setting[3], setting[4], setting[5]];
                        self.streams_max = Some(u32::from_be_bytes(value));
                    }
                }
                if self.settings_reply == SettingsReply::Acknowledged {
                    self.frame(SETTINGS, ACK, 0, &[]);
                }
            }
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, payload),
            GOAWAY => self.goaway = code(4),
            _ => {}
        }
    }

    /// Decodes a head if its block is complete.
    fn end_head_if(&mut self, flags: u8) {
        if flags & END_HEADERS == 0 {
            return;
        }
        let Some((stream, flags, block)) = self.block.take() else { return };
        let limits = SectionLimits { fields_max: 500, section_bytes_max: 1 << 20 };
        // A block that cannot be decoded has no status, which the attack reports.
        let status = self.decoder.decode_block(&block, &limits).ok().and_then(|_| {
            let status = self.decoder.fields().iter().find(|field| field.name == b":status")?;
            str::from_utf8(status.value).ok()?.parse::<u16>().ok()
        });
        let state = self.streams.entry(stream).or_default();
        if status.is_none_or(|status| status >= 200) {
            state.status = state.status.or(status);
        }
        state.has_ended |= flags & END_STREAM != 0;
    }
}

/// Removes padding and priority of a HEADERS frame.
fn without_padding(flags: u8, payload: &[u8]) -> &[u8] {
    let padding = if flags & PADDED == 0 { 0 } else { payload.first().map_or(0, |length| usize::from(*length)) };
    let begin = usize::from(flags & PADDED != 0) + if flags & WITH_PRIORITY == 0 { 0 } else { 5 };
    payload.get(begin..payload.len().saturating_sub(padding)).unwrap_or_default()
}

/// Encodes fields without the tables and without Huffman code, whatever bytes they have.
pub(super) fn literal_block<'a>(fields: impl IntoIterator<Item = &'a (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            literal_length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// Encodes a length with a prefix of seven bits (RFC 7541 section 5.1).
fn literal_length(length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_blocks_are_decoded_to_their_fields() {
        let long = vec![b'a'; 5000];
        let fields: [(&[u8], &[u8]); 3] = [(b":path", b"/"), (b"x", b""), (b"long", &long)];
        let mut decoder = Decoder::new(TABLE_BYTES);
        let limits = SectionLimits { fields_max: 10, section_bytes_max: 1 << 20 };
        decoder.decode_block(&literal_block(&fields), &limits).expect("the block is valid");
        let decoded: Vec<_> = decoder.fields().iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(decoded, fields);
    }

    #[test]
    fn padding_and_priority_are_removed() {
        assert_eq!(without_padding(PADDED | WITH_PRIORITY, &[2, 0, 0, 0, 0, 9, 1, 2, 0, 0]), [1, 2]);
        assert_eq!(without_padding(0, &[1, 2]), [1, 2]);
        assert_eq!(without_padding(PADDED, &[200, 1]), [0; 0]);
    }
}
