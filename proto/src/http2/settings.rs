//! The settings of both peers (RFC 9113 §6.5).

use super::connection::Role;
use super::error::ConnectionError;
use super::frame::{FrameHeader, FrameType};
use super::hpack::INITIAL_TABLE_BYTES;
use super::limits::{
    ExtendedConnect, FRAME_BYTES_CEILING, FRAME_BYTES_FLOOR, Http2Limits, WINDOW_CEILING, WINDOW_INITIAL,
};

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// RFC 8441 §3
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
/// RFC 9218 §2.1
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// Bytes of one setting: identifier and value.
const SETTING_BYTES: usize = 6;

/// Streams that a client may open before the SETTINGS of the server arrive.
const STREAMS_BEFORE_SETTINGS: u32 = 100;

/// The settings that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// `SETTINGS_HEADER_TABLE_SIZE`: the size of its decoder's table, in bytes. Default 4,096.
    pub header_table_bytes: u32,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`: how many streams this endpoint may open. 100 until SETTINGS
    /// arrive, which RFC 9113 §6.5.2 recommends as the least; then no limit, if they have none.
    pub streams_max: u32,
    /// `SETTINGS_INITIAL_WINDOW_SIZE`: the window of a new stream, in bytes. Default 65,535.
    pub initial_window_bytes: u32,
    /// `SETTINGS_MAX_FRAME_SIZE`, in bytes. Default 16,384.
    pub frame_bytes_max: u32,
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`: the largest field section that it accepts, in bytes. Default: no limit.
    pub field_section_bytes_max: u32,
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441 §3).
    pub extended_connect: ExtendedConnect,
    /// Whether the first SETTINGS have arrived. Until then, all values are defaults.
    pub is_received: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_bytes: 4_096,
            streams_max: STREAMS_BEFORE_SETTINGS,
            initial_window_bytes: WINDOW_INITIAL,
            frame_bytes_max: FRAME_BYTES_FLOOR,
            field_section_bytes_max: u32::MAX,
            extended_connect: ExtendedConnect::Disabled,
            is_received: false,
        }
    }
}

impl PeerSettings {
    /// Replaces what was assumed before the first SETTINGS.
    pub(crate) fn begin(&mut self) {
        self.streams_max = u32::MAX;
        self.is_received = true;
    }

    /// Applies the payload of SETTINGS in its order (RFC 9113 §6.5.3). `peer` is the role of its sender.
    pub(crate) fn apply(&mut self, payload: &[u8], peer: Role) -> Result<(), ConnectionError> {
        let (settings, []) = payload.as_chunks::<SETTING_BYTES>() else {
            return Err(ConnectionError::FrameLengthInvalid);
        };
        for &[i0, i1, value @ ..] in settings {
            self.apply_one(u16::from_be_bytes([i0, i1]), u32::from_be_bytes(value), peer)?;
        }
        Ok(())
    }

    fn apply_one(&mut self, identifier: u16, value: u32, peer: Role) -> Result<(), ConnectionError> {
        match (identifier, value) {
            (HEADER_TABLE_SIZE, _) => self.header_table_bytes = value,
            //= RFC 9113 §6.5.2: a client MUST treat receipt of ENABLE_PUSH set to 1 as a connection error
            (ENABLE_PUSH, 0) => {}
            (ENABLE_PUSH, 1) if peer == Role::Client => {}
            (MAX_CONCURRENT_STREAMS, _) => self.streams_max = value,
            (INITIAL_WINDOW_SIZE, 0..=WINDOW_CEILING) => self.initial_window_bytes = value,
            (INITIAL_WINDOW_SIZE, _) => return Err(ConnectionError::InitialWindowInvalid),
            (MAX_FRAME_SIZE, FRAME_BYTES_FLOOR..=FRAME_BYTES_CEILING) => self.frame_bytes_max = value,
            (MAX_HEADER_LIST_SIZE, _) => self.field_section_bytes_max = value,
            (ENABLE_CONNECT_PROTOCOL, 1) => self.extended_connect = ExtendedConnect::Enabled,
            //= RFC 8441 §3: a sender MUST NOT send the value 0 after it has sent 1
            (ENABLE_CONNECT_PROTOCOL, 0) if self.extended_connect == ExtendedConnect::Disabled => {}
            // The priorities of RFC 7540 are never used, so either value has no effect.
            (NO_RFC7540_PRIORITIES, 0 | 1) => {}
            (ENABLE_PUSH | MAX_FRAME_SIZE | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES, _) => {
                return Err(ConnectionError::SettingInvalid);
            }
            //= RFC 9113 §6.5.2: an unknown setting MUST be ignored
            _ => {}
        }
        Ok(())
    }
}

/// Appends the SETTINGS frame of this endpoint. A setting that has its initial value is not sent.
pub(crate) fn write_settings(role: Role, limits: &Http2Limits, out: &mut Vec<u8>) {
    let section_bytes_max = u32::try_from(limits.section.section_bytes_max).unwrap_or(u32::MAX);
    let mut settings = vec![(NO_RFC7540_PRIORITIES, 1), (MAX_HEADER_LIST_SIZE, section_bytes_max)];
    match role {
        Role::Server => settings.push((MAX_CONCURRENT_STREAMS, limits.streams_max)),
        Role::Client => settings.push((ENABLE_PUSH, 0)),
    }
    if role == Role::Server && limits.extended_connect == ExtendedConnect::Enabled {
        settings.push((ENABLE_CONNECT_PROTOCOL, 1));
    }
    for (identifier, value, initial) in [
        (HEADER_TABLE_SIZE, limits.decoder_table_bytes_max, INITIAL_TABLE_BYTES as u32),
        (INITIAL_WINDOW_SIZE, limits.stream_window_bytes, WINDOW_INITIAL),
        (MAX_FRAME_SIZE, limits.frame_bytes_max, FRAME_BYTES_FLOOR),
    ] {
        if value != initial {
            settings.push((identifier, value));
        }
    }
    let length = (settings.len() * SETTING_BYTES) as u32;
    out.extend_from_slice(&FrameHeader { length, kind: FrameType::Settings, flags: 0, stream: 0 }.to_bytes());
    for (identifier, value) in settings {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(peer: Role, settings: &[(u16, u32)]) -> Result<PeerSettings, ConnectionError> {
        let mut payload = Vec::new();
        for (identifier, value) in settings {
            payload.extend_from_slice(&identifier.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut applied = PeerSettings::default();
        applied.apply(&payload, peer).map(|()| applied)
    }

    #[test]
    fn every_value_is_judged() {
        use ConnectionError::{InitialWindowInvalid, SettingInvalid};
        let client = |identifier, value| apply(Role::Client, &[(identifier, value)]).map(|_| ());
        for (identifier, value, expected) in [
            (HEADER_TABLE_SIZE, u32::MAX, Ok(())),
            (ENABLE_PUSH, 0, Ok(())),
            (ENABLE_PUSH, 1, Ok(())),
            (ENABLE_PUSH, 2, Err(SettingInvalid)),
            (MAX_CONCURRENT_STREAMS, 0, Ok(())),
            (INITIAL_WINDOW_SIZE, WINDOW_CEILING, Ok(())),
            (INITIAL_WINDOW_SIZE, WINDOW_CEILING + 1, Err(InitialWindowInvalid)),
            (MAX_FRAME_SIZE, 16_383, Err(SettingInvalid)),
            (MAX_FRAME_SIZE, 16_384, Ok(())),
            (MAX_FRAME_SIZE, 16_777_215, Ok(())),
            (MAX_FRAME_SIZE, 16_777_216, Err(SettingInvalid)),
            (MAX_HEADER_LIST_SIZE, 0, Ok(())),
            (ENABLE_CONNECT_PROTOCOL, 1, Ok(())),
            (ENABLE_CONNECT_PROTOCOL, 2, Err(SettingInvalid)),
            (NO_RFC7540_PRIORITIES, 1, Ok(())),
            (NO_RFC7540_PRIORITIES, 2, Err(SettingInvalid)),
            (0x7, 7, Ok(())),
            (0xffff, u32::MAX, Ok(())),
        ] {
            assert_eq!(client(identifier, value), expected, "{identifier} {value}");
        }
        assert_eq!(apply(Role::Server, &[(ENABLE_PUSH, 1)]), Err(SettingInvalid));
        assert_eq!(
            apply(Role::Server, &[(ENABLE_CONNECT_PROTOCOL, 1), (ENABLE_CONNECT_PROTOCOL, 0)]),
            Err(SettingInvalid)
        );
    }

    #[test]
    fn last_value_counts() {
        let applied = apply(Role::Client, &[(INITIAL_WINDOW_SIZE, 1), (INITIAL_WINDOW_SIZE, 2), (0x1, 0)]);
        let expected = PeerSettings { initial_window_bytes: 2, header_table_bytes: 0, ..PeerSettings::default() };
        assert_eq!(applied, Ok(expected));
        assert_eq!(PeerSettings::default().apply(&[0; 5], Role::Client), Err(ConnectionError::FrameLengthInvalid));
    }
}
