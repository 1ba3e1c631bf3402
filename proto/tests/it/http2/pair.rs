//! A client and a server of this crate, connected in memory, with random limits, contents, resets and splits.

use super::random::Random;
use selvedge_proto::field_section::DecodedFields;
use selvedge_proto::http2::{
    Connection, Content, Delivery, End, ErrorCode, Event, Http2Limits, Millis, Priority, ResetCause, Role, Section,
    StreamId,
};
use selvedge_proto::status::StatusCode;
use std::collections::HashMap;

/// Pairs that are tried, each with its own seed.
const PAIRS: u64 = 60;

/// Requests of each pair.
const REQUESTS: usize = 60;

/// Steps in which a pair must be finished.
const STEPS_MAX: usize = 500_000;

/// How far one stream is.
#[derive(Debug, Default)]
struct Transfer {
    to_send: usize,
    sent: usize,
    has_trailers: bool,
    is_head_sent: bool,
    received: usize,
    unconsumed: usize,
    is_complete: bool,
}

/// One end of a pair, with its driver.
struct Endpoint {
    role: Role,
    connection: Connection,
    /// Bytes on their way to the other end.
    out: Vec<u8>,
    transfers: HashMap<StreamId, Transfer>,
    opened: usize,
    complete: usize,
}

/// The byte of the content at an offset.
fn byte_at(stream: StreamId, role: Role, offset: usize) -> u8 {
    (offset * 7 + stream.get() as usize + usize::from(role == Role::Server)) as u8
}

fn random_limits(random: &mut Random) -> Http2Limits {
    let window = |random: &mut Random| [1_000, 5_000, 20_000, 65_535, 70_000, 300_000][random.below(6)];
    Http2Limits {
        streams_max: 1 + random.below(20) as u32,
        stream_window_bytes: window(random),
        connection_window_bytes: window(random).max(65_535),
        frame_bytes_max: 16_384 + random.below(3_000) as u32,
        sent_frame_bytes_max: 500 + random.below(20_000) as u32,
        decoder_table_bytes_max: [0, 60, 4_096, 5_000][random.below(4)],
        encoder_table_bytes_max: [0, 100, 4_096][random.below(3)],
        turn_bytes: 1 + random.below(70_000) as u32,
        // Small windows and frames are no usual load.
        budget_points: i32::MAX as u32,
        ..Http2Limits::default()
    }
}

impl Endpoint {
    fn new(role: Role, random: &mut Random) -> Self {
        let mut connection = Connection::new(role, &random_limits(random), Millis(0));
        let mut out = Vec::new();
        connection.start(&mut out);
        Self { role, connection, out, transfers: HashMap::new(), opened: 0, complete: 0 }
    }

    /// Opens a stream, if the server permits it.
    fn open(&mut self, random: &mut Random) {
        let to_send = if random.happens(30) { 0 } else { random.below(40_000) };
        let end = if to_send == 0 { End::Last } else { End::More };
        let opened = self.connection.open(end, &mut self.out, |block| {
            block.field(b":method", b"POST");
            block.field(b":path", format!("/{}", random.below(5)).as_bytes());
            block.field(b"x-long", &vec![b'v'; if random.happens(5) { 9_000 } else { 10 }]);
        });
        let Ok(stream) = opened else { return };
        self.opened += 1;
        let transfer =
            Transfer { to_send, is_head_sent: true, has_trailers: random.happens(20), ..Transfer::default() };
        self.transfers.insert(stream, transfer);
        if end == End::More {
            self.connection.set_content(stream, Content::Ready);
        }
    }

    /// Sends one piece of what is to be sent.
    fn send(&mut self, random: &mut Random) {
        if random.happens(30) {
            self.send_heads(random);
        }
        let Some(turn) = self.connection.next_to_send() else { return };
        assert_eq!(turn.bytes_max, self.connection.sendable(turn.stream));
        let transfer = self.transfers.get_mut(&turn.stream).unwrap();
        let bytes = (transfer.to_send - transfer.sent).min(turn.bytes_max).min(1 + random.below(20_000));
        let is_last = transfer.sent + bytes == transfer.to_send;
        let end = if is_last && !transfer.has_trailers { End::Last } else { End::More };
        self.connection.begin_data(turn.stream, bytes, end, &mut self.out).unwrap();
        self.out.extend((0..bytes).map(|at| byte_at(turn.stream, self.role, transfer.sent + at)));
        transfer.sent += bytes;
        if is_last && transfer.has_trailers {
            let write = |block: &mut selvedge_proto::http2::hpack::BlockEncoder<'_>| block.field(b"x-sum", b"1");
            self.connection.send_fields(turn.stream, Section::Trailers, &mut self.out, write).unwrap();
        } else if random.happens(20) {
            self.connection.set_content(turn.stream, Content::Waiting);
            self.connection.set_content(turn.stream, Content::Ready);
        }
    }

    /// Sends the heads of responses that have none (server).
    fn send_heads(&mut self, random: &mut Random) {
        let mut waiting: Vec<_> = self.transfers.iter_mut().filter(|(_, t)| !t.is_head_sent).collect();
        waiting.sort_by_key(|(stream, _)| **stream);
        let Some((&stream, transfer)) = waiting.into_iter().next() else { return };
        if random.happens(20) {
            let write = |block: &mut selvedge_proto::http2::hpack::BlockEncoder<'_>| block.field(b":status", b"103");
            self.connection.send_fields(stream, Section::Interim, &mut self.out, write).unwrap();
        }
        let end = if transfer.to_send == 0 { End::Last } else { End::More };
        let length = transfer.to_send.to_string();
        self.connection
            .send_fields(stream, Section::Head(end), &mut self.out, |block| {
                block.status(StatusCode::OK);
                block.field(b"content-length", length.as_bytes());
            })
            .unwrap();
        transfer.is_head_sent = true;
        self.connection.set_content(stream, Content::Ready);
        if random.happens(50) {
            let delivery = if random.happens(50) { Delivery::Incremental } else { Delivery::Whole };
            self.connection.set_priority(stream, Priority { urgency: random.below(8) as u8, delivery });
        }
    }

    /// Receives bytes of the other end.
    fn receive(&mut self, mut input: &[u8], random: &mut Random) {
        loop {
            let step = self.connection.receive(input, Millis(0), &mut self.out).unwrap();
            let Some(event) = step.event else {
                assert_eq!(step.consumed, input.len());
                return;
            };
            self.process(event, input, random);
            input = &input[step.consumed..];
        }
    }

    fn process(&mut self, event: Event, input: &[u8], random: &mut Random) {
        match event {
            Event::Headers { stream, end, .. } if self.role == Role::Server => {
                let to_send = if random.happens(20) { 0 } else { random.below(60_000) };
                let transfer = Transfer { to_send, has_trailers: random.happens(20), ..Transfer::default() };
                self.transfers.insert(stream, transfer);
                self.opened += 1;
                self.end_if(stream, end);
            }
            Event::Headers { stream, end, .. } => {
                let length_of = |fields: &DecodedFields| {
                    let field = fields.iter().find(|field| field.name == b"content-length")?;
                    Some(field.value.to_vec())
                };
                let length = length_of(self.connection.fields());
                if let Some(length) = length {
                    let length = String::from_utf8(length).unwrap().parse().unwrap();
                    self.connection.expect_content(stream, length, &mut self.out).unwrap();
                }
                self.end_if(stream, end);
            }
            Event::Data { stream, content, end } => {
                let other = if self.role == Role::Server { Role::Client } else { Role::Server };
                let transfer = self.transfers.get_mut(&stream).unwrap();
                for (at, &byte) in input[content.clone()].iter().enumerate() {
                    assert_eq!(byte, byte_at(stream, other, transfer.received + at));
                }
                transfer.received += content.len();
                transfer.unconsumed += content.len();
                self.end_if(stream, end);
            }
            Event::Trailers { stream, .. } => self.end_if(stream, End::Last),
            Event::Reset { stream, cause: ResetCause::Peer, .. } => {
                // A closed stream has no head to send.
                self.transfers.get_mut(&stream).unwrap().is_head_sent = true;
            }
            Event::Writable | Event::PingAcknowledged { .. } | Event::GoAway { .. } => {}
            Event::Reset { .. } => panic!("{event:?}"),
        }
    }

    fn end_if(&mut self, stream: StreamId, end: End) {
        if end == End::Last {
            self.transfers.get_mut(&stream).unwrap().is_complete = true;
            self.complete += 1;
        }
    }

    /// Consumes a part of what was received.
    fn consume(&mut self, random: &mut Random) {
        let mut streams: Vec<_> = self.transfers.iter_mut().filter(|(_, t)| t.unconsumed > 0).collect();
        streams.sort_by_key(|(stream, _)| **stream);
        if streams.is_empty() {
            return;
        }
        let index = random.below(streams.len());
        let (stream, transfer) = &mut streams[index];
        let bytes = 1 + random.below(transfer.unconsumed);
        transfer.unconsumed -= bytes;
        self.connection.consumed(**stream, bytes, &mut self.out);
    }

    fn reset_one(&mut self, random: &mut Random) {
        let mut streams: Vec<_> = self.transfers.keys().copied().collect();
        streams.sort();
        if !streams.is_empty() {
            let stream = streams[random.below(streams.len())];
            self.connection.reset(stream, ErrorCode::CANCEL, &mut self.out);
            // A closed stream has no head to send.
            self.transfers.get_mut(&stream).unwrap().is_head_sent = true;
        }
    }

    fn is_idle(&self) -> bool {
        self.connection.open_streams() == 0 && self.transfers.values().all(|transfer| transfer.unconsumed == 0)
    }
}

/// Moves bytes in a piece of random size.
fn deliver(from: &mut Endpoint, to: &mut Endpoint, random: &mut Random) {
    let bytes_max = if random.happens(20) { 20 } else { 30_000 };
    let bytes = from.out.len().min(1 + random.below(bytes_max));
    let piece: Vec<u8> = from.out.drain(..bytes).collect();
    to.receive(&piece, random);
}

fn run(seed: u64, resets_percent: usize) {
    let mut random = Random::new(seed);
    let (mut client, mut server) = (Endpoint::new(Role::Client, &mut random), Endpoint::new(Role::Server, &mut random));
    // The client knows the server's limit of streams.
    deliver(&mut server, &mut client, &mut random);
    while !server.out.is_empty() {
        deliver(&mut server, &mut client, &mut random);
    }
    for _ in 0..STEPS_MAX {
        match random.below(8) {
            0 if client.opened < REQUESTS => client.open(&mut random),
            0 | 1 => client.send(&mut random),
            2 => server.send(&mut random),
            3 => deliver(&mut client, &mut server, &mut random),
            4 => deliver(&mut server, &mut client, &mut random),
            5 => client.consume(&mut random),
            6 => server.consume(&mut random),
            _ if random.happens(resets_percent) && random.happens(50) => client.reset_one(&mut random),
            _ if random.happens(resets_percent) => server.reset_one(&mut random),
            _ => client.connection.ping([1; 8], &mut client.out),
        }
        let is_drained = client.out.is_empty() && server.out.is_empty();
        if client.opened == REQUESTS && is_drained && client.is_idle() && server.is_idle() {
            return finish(client, server, resets_percent);
        }
    }
    panic!(
        "seed {seed}: not finished: {} of client, {} of server",
        client.connection.open_streams(),
        server.connection.open_streams()
    );
}

/// Checks a pair whose streams are all closed.
fn finish(mut client: Endpoint, mut server: Endpoint, resets_percent: usize) {
    let mut random = Random::new(1);
    if resets_percent == 0 {
        assert_eq!((client.complete, server.complete), (REQUESTS, REQUESTS));
        for (stream, transfer) in &client.transfers {
            let other = &server.transfers[stream];
            assert_eq!((transfer.received, other.received), (other.to_send, transfer.to_send), "{stream:?}");
        }
    }
    server.connection.begin_shutdown(Millis(0), &mut server.out);
    for _ in 0..100 {
        deliver(&mut server, &mut client, &mut random);
        deliver(&mut client, &mut server, &mut random);
    }
    assert!(client.connection.is_finished() && server.connection.is_finished());
    assert_eq!(server.connection.deadline(), None);
}

#[test]
fn all_content_arrives() {
    (0..PAIRS).for_each(|seed| run(seed, 0));
}

#[test]
fn resets_never_break_the_connection() {
    (0..PAIRS).for_each(|seed| run(seed, 20));
}
