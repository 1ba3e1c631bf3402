//! A session for tests: each byte is changed by a key that depends on its position. So a byte that is lost, repeated,
//! or sent without the session is noticed.

use super::{MakeSession, Session, SessionFailure};
use crate::net::listen::Endpoint;

/// The bytes of one direction.
#[derive(Clone, Copy)]
pub(crate) struct Keystream {
    position: usize,
    seed: usize,
}

impl Keystream {
    pub(crate) const CLIENT: Self = Self { position: 0, seed: 0x55 };
    pub(crate) const SERVER: Self = Self { position: 0, seed: 0xa3 };

    /// Encodes or decodes the next bytes.
    pub(crate) fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte ^= (self.seed + self.position * 31) as u8;
            self.position += 1;
        }
    }
}

/// The server's end of the session.
pub(crate) struct XorSession {
    received: Keystream,
    sent: Keystream,
    decoded: Vec<u8>,
}

impl XorSession {
    pub(crate) fn make() -> Box<dyn Session> {
        Box::new(Self { received: Keystream::CLIENT, sent: Keystream::SERVER, decoded: Vec::new() })
    }
}

impl Session for XorSession {
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure> {
        assert!(self.decoded.is_empty(), "decoded bytes are read before more arrive");
        self.decoded.extend_from_slice(encoded);
        self.received.apply(&mut self.decoded);
        Ok(())
    }

    fn decoded_len(&self) -> usize {
        self.decoded.len()
    }

    fn read(&mut self, count: usize, into: &mut Vec<u8>) {
        into.extend(self.decoded.drain(..count));
    }

    fn is_read_closed(&self) -> bool {
        false
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        let start = output.len();
        output.extend_from_slice(bytes);
        self.sent.apply(&mut output[start..]);
    }

    fn take_messages(&mut self, _output: &mut Vec<u8>) {}

    fn is_handshaking(&self) -> bool {
        false
    }

    fn close_write(&mut self, _output: &mut Vec<u8>) {}
}

/// Gives each connection such a session.
#[derive(Debug)]
pub(crate) struct XorSessions;

impl MakeSession for XorSessions {
    fn make(&self, _endpoint: &Endpoint, _plain_text_response: &'static [u8]) -> Option<Box<dyn Session>> {
        Some(XorSession::make())
    }
}
