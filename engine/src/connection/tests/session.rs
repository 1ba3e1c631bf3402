//! Connections with a session that has a handshake, incomplete parts and a closing message.

use super::pipe::ClientEnd;
use super::responses;
use super::scenario::{Client, Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use crate::limits::{ENCODED_SLICE_BYTES, Limits};
use crate::net::connection_table::DrainScope;
use crate::net::link::{Session, SessionFailure};
use crate::net::stop_state::StopState;
use crate::service::{CloseReason, Phase};

const HELLO: &[u8] = b"hello";
const READY: &[u8] = b"ready";
const INVALID: &[u8] = b"error";

/// A session of records: a length of two bytes, and as many bytes that are changed. An empty record ends a direction.
/// Before its first record, the client sends `hello`, and the server `ready`.
#[derive(Default)]
struct RecordSession {
    received: Vec<u8>,
    decoded: Vec<u8>,
    messages: Vec<u8>,
    is_ready: bool,
    is_read_closed: bool,
}

/// Changes a byte, or changes it back.
fn change(byte: u8) -> u8 {
    byte ^ 0x5a
}

/// Encodes bytes as records.
fn records(bytes: &[u8], record_bytes_max: usize) -> Vec<u8> {
    let record = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).expect("a record is short").to_be_bytes();
        length.into_iter().chain(bytes.iter().copied().map(change)).collect::<Vec<u8>>()
    };
    bytes.chunks(record_bytes_max).flat_map(record).collect()
}

/// Removes the first record. Returns its content.
fn take_record(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes(*bytes.first_chunk()?));
    let record = bytes.get(2..2 + length)?.iter().copied().map(change).collect();
    bytes.drain(..2 + length);
    Some(record)
}

impl Session for RecordSession {
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure> {
        assert!(self.decoded.is_empty(), "decoded bytes are read before more arrive");
        self.received.extend_from_slice(encoded);
        if !self.is_ready {
            let begun = self.received.len().min(HELLO.len());
            if self.received[..begun] != HELLO[..begun] {
                self.messages.extend_from_slice(INVALID);
                return Err(SessionFailure::Invalid);
            }
            if begun < HELLO.len() {
                return Ok(());
            }
            self.received.drain(..begun);
            self.messages.extend_from_slice(READY);
            self.is_ready = true;
        }
        while let Some(record) = take_record(&mut self.received) {
            self.is_read_closed |= record.is_empty();
            self.decoded.extend(record);
        }
        Ok(())
    }

    fn decoded_len(&self) -> usize {
        self.decoded.len()
    }

    fn read(&mut self, count: usize, into: &mut Vec<u8>) {
        into.extend(self.decoded.drain(..count));
    }

    fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        assert!(self.is_ready && bytes.len() <= ENCODED_SLICE_BYTES);
        output.append(&mut self.messages);
        output.extend(records(bytes, ENCODED_SLICE_BYTES));
    }

    fn take_messages(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.messages);
    }

    fn is_handshaking(&self) -> bool {
        !self.is_ready
    }

    fn close_write(&mut self, output: &mut Vec<u8>) {
        output.extend([0, 0]);
    }
}

fn connect(server: &TestServer) -> Client<'_> {
    server.connect_with(None, Some(Box::new(RecordSession::default())))
}

/// Returns the decoded bytes that the client received, and whether they end with the closing message.
fn decoded(client: &Client<'_>) -> (Vec<u8>, bool) {
    let outgoing = client.pipe.outgoing();
    let mut encoded = outgoing.strip_prefix(READY).expect("the handshake is complete").to_vec();
    let (mut all, mut is_closed) = (Vec::new(), false);
    while let Some(record) = take_record(&mut encoded) {
        assert!(!is_closed, "nothing follows the closing message");
        is_closed = record.is_empty();
        all.extend(record);
    }
    (all, is_closed)
}

fn statuses(client: &Client<'_>) -> Vec<u16> {
    responses::read(&decoded(client).0).iter().map(|response| response.status).collect()
}

#[test]
fn requests_follow_a_handshake_however_the_bytes_are_split() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let requests = [Scenario::get("/ok").bytes(), Scenario::post("/read").content("content").bytes()].concat();
        for record_bytes_max in [1, 7, 1000] {
            let all = [HELLO, &records(&requests, record_bytes_max)].concat();
            for piece_len in [1, 3, all.len()] {
                let client = connect(&server);
                for piece in all.chunks(piece_len) {
                    client.send(piece).await;
                }
                assert_eq!(statuses(&client), [200, 200]);
                client.send([0, 0]).await;
                assert_eq!(client.closed(), Some(CloseReason::ClientClosed), "the closing message ends the connection");
            }
        }
    });
}

#[test]
fn a_failed_handshake_ends_the_connection_with_a_message() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let invalid = connect(&server);
        invalid.send("GET / HTTP/1.1\r\n").await;
        assert_eq!(invalid.pipe.outgoing(), INVALID);
        // A client that is still sending can read the message.
        assert!(invalid.pipe.is_write_shutdown());
        invalid.send("Host: a\r\n\r\n").await;
        assert_eq!(invalid.closed(), None);
        invalid.end(ClientEnd::Ended).await;
        assert_eq!(invalid.closed(), Some(CloseReason::HandshakeFailed));
        assert_eq!(invalid.pipe.outgoing(), INVALID);
        let endless = connect(&server);
        endless.send("GET / HTTP/1.1\r\n").await;
        let (reason, seconds) = endless.wait_closed().await;
        assert_eq!(reason, CloseReason::HandshakeFailed);
        assert!(is_about(seconds, 5), "{seconds}");
        let incomplete = connect(&server);
        incomplete.send("hel").await;
        incomplete.end(ClientEnd::Ended).await;
        assert_eq!(incomplete.closed(), Some(CloseReason::HandshakeIncomplete));
        let reset = connect(&server);
        reset.end(ClientEnd::Reset).await;
        assert_eq!(reset.closed(), Some(CloseReason::Reset));
        let (lingered, left) = (Phase::Lingering, Phase::ReadingHead);
        for (client, phase) in [(invalid, lingered), (endless, lingered), (incomplete, left), (reset, left)] {
            assert_eq!((client.finished().len(), client.phase_at_close()), (0, phase));
        }
    });
}

#[test]
fn handshake_and_first_head_have_one_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let silent = connect(&server);
        silent.send("hel").await;
        let (reason, seconds) = silent.wait_closed().await;
        assert_eq!(reason, CloseReason::HandshakeTooSlow);
        assert!(is_about(seconds, 10), "{seconds}");
        assert_eq!(silent.pipe.outgoing(), b"", "nothing is sent before the handshake is complete");
        let slow = connect(&server);
        settle().await;
        advance(7).await;
        slow.send(HELLO).await;
        slow.send(records(b"GET /", 100)).await;
        assert_eq!(statuses(&slow), [] as [u16; 0]);
        advance(4).await;
        assert_eq!(statuses(&slow), [408]);
    });
}

#[test]
fn a_handshake_ends_when_the_server_stops() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = connect(&server);
        client.send("hel").await;
        server.worker.stop_state.set(StopState::Drain);
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::ShutdownTimeout));
    });
}

#[test]
fn the_closing_message_precedes_the_fin() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = connect(&server);
        let request = Scenario::get("/ok").field("Connection", "close").bytes();
        client.send([HELLO, &records(&request, 1000)].concat()).await;
        assert_eq!((statuses(&client), decoded(&client).1), (vec![200], true));
        assert!(client.pipe.is_write_shutdown());
        assert_eq!(client.closed(), Some(CloseReason::CloseRequested));
    });
}

#[test]
fn a_client_that_reads_slowly_gets_every_byte() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let length = ENCODED_SLICE_BYTES * 5 + 1;
        let request = Scenario::get(&format!("/bytes/{length}")).bytes();
        let client = connect(&server);
        client.pipe.set_window(READY.len());
        client.send([HELLO, &records(&request, 1000)].concat()).await;
        assert_eq!(client.phase(), Phase::Sending);
        for _ in 0..length / 1000 + 1 {
            client.read(1003).await;
        }
        let content = responses::read(&decoded(&client).0).remove(0).content;
        assert_eq!(content.len(), length);
        assert_eq!(client.phase(), Phase::Idle);
        client.pipe.set_window(0);
        client.send(records(&request, 1000)).await;
        assert_eq!(client.wait_closed().await.0, CloseReason::SendTooSlow);
    });
}

#[test]
fn an_idle_connection_parks_with_an_incomplete_record() {
    with_virtual_time(async || {
        let server = TestServer::with(Limits::default());
        let request = Scenario::get("/ok").bytes();
        let client = connect(&server);
        client.send([HELLO, &records(&request, 1000)].concat()).await;
        let second = records(&request, 1000);
        let (first, rest) = second.split_at(second.len() - 1);
        client.send(first).await;
        advance(2).await;
        assert!(client.pipe.is_parked());
        client.send(rest).await;
        assert_eq!(statuses(&client), [200, 200]);
    });
}
