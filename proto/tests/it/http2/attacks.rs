//! Floods and other abuse: each ends the connection within its bound. Usual clients never reach a bound.

use super::random::Random;
use super::script::{GET, POST, PREFACE, Script, Split, frame, hex};
use selvedge_proto::http2::{
    ConnectionError, Content, End, ErrorCode, Event, Http2Limits, Millis, Role, Section, StreamId, Waste,
};
use selvedge_proto::status::StatusCode;

fn server() -> Script {
    Script::new(Role::Server, &Http2Limits::default(), Split::Whole)
}

fn headers(stream: u32, end: u8, block: &str) -> Vec<u8> {
    frame(1, 4 | end, stream, &hex(block))
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(8, 0, stream, &increment.to_be_bytes())
}

/// Repeats an attack, and returns the error and the number of rounds that were accepted. Checks that what the core
/// wrote is bounded.
fn flood(script: &mut Script, rounds_max: u32, mut attack: impl FnMut(u32) -> Vec<u8>) -> (ConnectionError, u32) {
    let mut written = 0;
    for round in 0..rounds_max {
        let bytes = attack(round);
        let mut input = &bytes[..];
        loop {
            match script.connection.receive(input, script.now, &mut script.out) {
                Ok(step) => {
                    input = &input[step.consumed..];
                    if step.event.is_none() {
                        break;
                    }
                }
                Err(error) => {
                    let last = &script.out[script.out.len() - 8 - error.message().len()..];
                    assert_eq!(last[4..8], error.code().0.to_be_bytes(), "GOAWAY is written");
                    return (error, round);
                }
            }
            written += std::mem::take(&mut script.out).len();
        }
        assert!(written < 200_000, "{written} bytes of replies");
    }
    panic!("the attack was accepted {rounds_max} times");
}

fn exhausted(waste: Waste, rounds: std::ops::RangeInclusive<u32>, (error, accepted): (ConnectionError, u32)) {
    assert_eq!(error, ConnectionError::BudgetExhausted(waste));
    assert_eq!(error.code(), ErrorCode::ENHANCE_YOUR_CALM);
    assert!(rounds.contains(&accepted), "{waste:?} after {accepted} rounds");
}

#[test]
fn rapid_reset() {
    let accepted = flood(&mut server(), 100_000, |round| {
        let stream = 2 * round + 1;
        [headers(stream, 1, GET), frame(3, 0, stream, &8u32.to_be_bytes())].concat()
    });
    exhausted(Waste::ResetByPeer, 600..=700, accepted);
}

#[test]
fn resets_that_the_server_is_made_to_send() {
    type Provocation = fn(u32) -> Vec<u8>;
    let provocations: [Provocation; 6] = [
        |stream| window_update(stream, 0),
        |stream| window_update(stream, 0x7fff_ffff),
        |stream| frame(0, 0, stream, b"after the end"),
        |stream| headers(stream, 1, GET),
        |stream| frame(2, 0, stream, &[0; 4]),
        |stream| frame(2, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat()),
    ];
    for provocation in provocations {
        let accepted = flood(&mut server(), 100_000, |round| {
            let stream = 2 * round + 1;
            [headers(stream, 1, GET), provocation(stream)].concat()
        });
        exhausted(Waste::ResetOfPeer, 500..=700, accepted);
    }
    let accepted = flood(&mut server(), 100_000, |round| {
        let stream = 2 * round + 1;
        frame(1, 0x25, stream, &[&stream.to_be_bytes()[..], &[0], &hex(GET)].concat())
    });
    exhausted(Waste::ResetOfPeer, 600..=700, accepted);
}

#[test]
fn resets_by_the_driver_that_blame_the_peer() {
    let mut script = server();
    for round in 0.. {
        let input = headers(2 * round + 1, 1, GET);
        match script.connection.receive(&input, script.now, &mut script.out) {
            Ok(step) => {
                let Some(Event::Headers { stream, .. }) = step.event else { panic!("{step:?}") };
                script.connection.reset(stream, ErrorCode::PROTOCOL_ERROR, &mut script.out);
            }
            Err(error) => return exhausted(Waste::ResetOfPeer, 600..=700, (error, round)),
        }
    }
}

#[test]
fn continuation_floods() {
    let mut script = server();
    script.run("headers 1 open");
    let (error, rounds) = flood(&mut script, 100, |_| frame(9, 0, 1, &[]));
    assert_eq!((error, rounds), (ConnectionError::ContinuationsTooMany, 8));
    let mut script = server();
    script.run("headers 1 open");
    // Fields without indexing, whose block never ends.
    let (error, rounds) = flood(&mut script, 100, |_| frame(9, 0, 1, &[0; 16_384]));
    assert_eq!((error, rounds), (ConnectionError::FieldBlockTooLong, 3));
    // Blocks that end.
    let accepted = flood(&mut server(), 100_000, |round| {
        let stream = 2 * round + 1;
        let parts = [frame(1, 1, stream, &hex(GET)), frame(9, 0, stream, &[]).repeat(7), frame(9, 4, stream, &[])];
        [parts.concat(), frame(3, 0, stream, &[0; 4])].concat()
    });
    exhausted(Waste::Continuation, 100..=200, accepted);
}

#[test]
fn bomb_of_indexed_fields() {
    let mut script = server();
    // An entry of the table, then references to it: first a long one, then one of a single byte.
    for (insert, references, fields_max) in
        [("40 01 61 7f b1 1e", 16_000, 4_000), ("40 06 636f6f6b6965 01 61", 16_000, 101)]
    {
        let mut entry = hex(&insert.replace(' ', ""));
        entry.resize(entry.len() + if insert.contains("7f") { 4_016 } else { 0 }, b'b');
        let block = [&hex(GET)[..], &entry, &vec![0xbe; references - entry.len().min(references)]].concat();
        let block = &block[..block.len().min(16_384)];
        let stream = if insert.contains("7f") { 1 } else { 3 };
        script.receive(&frame(1, 5, stream, block));
        assert_eq!(script.take_transcript(), format!("head {stream} end too-large"));
        let fields = script.connection.fields();
        assert!(fields.len() <= fields_max && fields.section_bytes() <= 16_384, "{}", fields.len());
    }
    let accepted = flood(&mut server(), 100_000, |round| {
        let stream = 2 * round + 1;
        let block = [&hex(GET)[..], &hex("40016101"), b"a", &[0xbe; 200]].concat();
        [frame(1, 5, stream, &block), frame(3, 0, stream, &[0; 4])].concat()
    });
    exhausted(Waste::SectionTooLarge, 300..=350, accepted);
}

#[test]
fn window_that_opens_byte_by_byte() {
    let mut script = server();
    script.run("settings 4=1");
    for stream in 0..100 {
        script.receive(&headers(2 * stream + 1, 1, GET));
    }
    script.take_transcript();
    let connection = &mut script.connection;
    let (mut out, mut rounds) = (Vec::new(), 0);
    let streams: Vec<StreamId> = first_streams(100);
    for &stream in &streams {
        connection
            .send_fields(stream, Section::Head(End::More), &mut out, |block| block.status(StatusCode::OK))
            .unwrap();
        connection.set_content(stream, Content::Ready);
    }
    let error = loop {
        let stream = streams[rounds % 100];
        while let Some(turn) = connection.next_to_send() {
            connection.begin_data(turn.stream, turn.bytes_max, End::More, &mut out).unwrap();
        }
        out.clear();
        match connection.receive(&window_update(stream.get(), 1), Millis(0), &mut out) {
            Ok(_) => rounds += 1,
            Err(error) => break error,
        }
    };
    exhausted(Waste::SmallWindowUpdate, 7_000..=9_000, (error, rounds as u32));
}

/// Returns the first streams of a client.
fn first_streams(count: u32) -> Vec<StreamId> {
    (0..count).map(|index| StreamId::new(2 * index + 1).unwrap()).collect()
}

#[test]
fn floods_of_control_frames() {
    let floods: [(Waste, u32, Vec<u8>); 7] = [
        (Waste::Ping, 3_200, frame(6, 0, 0, &[0; 8])),
        (Waste::Ping, 3_200, frame(6, 1, 0, &[0; 8])),
        (Waste::Settings, 640, frame(4, 0, 0, &[0, 4, 0, 0, 1, 0])),
        (Waste::Priority, 3_200, frame(2, 0, 5, &[0, 0, 0, 3, 7])),
        (Waste::Priority, 3_200, frame(0x10, 0, 0, b"\0\0\0\x05u=1")),
        (Waste::Ignored, 1_600, frame(0x77, 0, 0, &[0; 100])),
        (Waste::Ignored, 1_600, frame(7, 0, 0, &[0; 8])),
    ];
    for (waste, rounds, bytes) in floods {
        exhausted(waste, rounds..=rounds, flood(&mut server(), 100_000, |_| bytes.clone()));
    }
    exhausted(Waste::Ignored, 1_600..=1_600, flood(&mut server(), 100_000, |_| frame(4, 1, 0, &[])));
    exhausted(Waste::WindowUpdate, 32_000..=32_000, flood(&mut server(), 100_000, |_| window_update(0, 1_000)));
    exhausted(Waste::SmallWindowUpdate, 6_400..=6_400, flood(&mut server(), 100_000, |_| window_update(0, 1)));
}

#[test]
fn floods_of_data_without_content() {
    for (waste, rounds, bytes) in [
        (Waste::EmptyData, 1_600, frame(0, 0, 1, &[])),
        (Waste::EmptyData, 1_600, frame(0, 8, 1, &[[3].as_slice(), &[0; 3]].concat())),
        (Waste::TinyData, 5_333, frame(0, 0, 1, b"x")),
    ] {
        let mut script = server();
        script.run("headers 1");
        exhausted(waste, rounds..=rounds, flood(&mut script, 1_000_000, |_| bytes.clone()));
    }
}

#[test]
fn floods_on_streams_that_are_closed() {
    for (waste, rounds, bytes) in [
        (Waste::FrameOnClosedStream, 6_000..=6_400, window_update(1, 1_000)),
        (Waste::FrameOnClosedStream, 6_000..=6_400, frame(3, 0, 1, &[0; 4])),
    ] {
        let mut script = server();
        script.run("headers 1; rst 1 8");
        exhausted(waste, rounds, flood(&mut script, 100_000, |_| bytes.clone()));
    }
    let mut script = server();
    script.run("headers 1; > reset 1 8");
    exhausted(Waste::FrameAfterReset, 15_000..=16_000, flood(&mut script, 100_000, |_| headers(1, 0, POST)));
}

#[test]
fn streams_beyond_the_limit() {
    let accepted = flood(&mut server(), 100_000, |round| headers(2 * round + 1, 0, POST));
    exhausted(Waste::RefusedStream, 1_300..=1_500, accepted);
}

#[test]
fn streams_beyond_a_limit_that_the_client_cannot_know_cost_nothing() {
    let mut script = Script::before_preface(Role::Server, &Http2Limits::default(), Split::Whole);
    script.receive(&[PREFACE, &frame(4, 0, 0, &[])].concat());
    (0..2_000).for_each(|round| script.receive(&headers(2 * round + 1, 1, GET)));
    assert_eq!(script.error, None);
}

#[test]
fn streams_after_a_shutdown() {
    let mut script = server();
    script.run("> shutdown; ping-ack shutdown");
    script.take_transcript();
    let accepted = flood(&mut script, 100_000, |round| headers(2 * round + 1, 0, POST));
    exhausted(Waste::RefusedStream, 1_200..=1_300, accepted);
}

#[test]
fn content_for_streams_that_are_not_accepted() {
    let mut script = server();
    script.run("> shutdown; ping-ack shutdown; headers 1");
    let accepted = flood(&mut script, 100_000, |_| frame(0, 0, 1, &[b'x'; 16_384]));
    exhausted(Waste::FrameAfterReset, 15_900..=16_000, accepted);
    // More streams are reset than the server remembers.
    let mut script = server();
    for stream in (1..400).step_by(2) {
        script.receive(&headers(stream, 0, POST));
        script.run(&format!("> respond {stream} end; > reset {stream} 0"));
    }
    let accepted = flood(&mut script, 100_000, |_| frame(0, 0, 1, &[b'x'; 16_384]));
    exhausted(Waste::FrameAfterReset, 15_900..=16_000, accepted);
}

#[test]
fn interim_responses_without_end() {
    let mut script = Script::new(Role::Client, &Http2Limits::default(), Split::Whole);
    script.run("> open end");
    let accepted = flood(&mut script, 100_000, |_| headers(1, 0, "0803313030"));
    exhausted(Waste::Interim, 3_200..=3_200, accepted);
}

#[test]
fn table_size_that_changes_in_each_block() {
    let mut script = server();
    for round in 0..300 {
        script.receive(&headers(2 * round + 1, 1, &format!("203fe11f{GET}")));
        script.run(&format!("> respond {} end", 2 * round + 1));
    }
    assert_eq!(script.error, None);
    script.receive(&headers(601, 1, &format!("2020{GET}20")));
    assert_eq!(script.error.map(ConnectionError::name), Some("CompressionInvalid"));
}

#[test]
fn random_frames_never_panic_and_end() {
    let mut random = Random::new(7);
    for _ in 0..2_000 {
        let mut script = server();
        for _ in 0..50 {
            let payload: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
            script.receive(&frame(random.below(17) as u8, random.next() as u8, random.below(8) as u32, &payload));
        }
    }
}

// What usual clients do.

/// Serves requests of a peer with responses of one frame.
fn respond(script: &mut Script, stream: u32, end: End) {
    let end_word = if end == End::Last { "end" } else { "" };
    script.run(&format!("> respond {stream}; > data {stream} 151 {end_word}; window 0 151"));
}

#[test]
fn many_requests_at_once_never_exhaust_the_budget() {
    let mut script = server();
    let mut next = 1;
    for _ in 0..100 {
        let first = next;
        while next < first + 200 {
            script.receive(&headers(next, 1, GET));
            next += 2;
        }
        for stream in (first..next).step_by(2) {
            respond(&mut script, stream, End::Last);
        }
        assert_eq!(script.error, None);
    }
}

#[test]
fn browser_that_cancels_half_of_its_requests_never_exhausts_the_budget() {
    let mut script = server();
    for round in 0..5_000 {
        let stream = 4 * round + 1;
        script.receive(&headers(stream, 1, GET));
        script.receive(&headers(stream + 2, 1, GET));
        respond(&mut script, stream, End::Last);
        script.receive(&frame(3, 0, stream + 2, &8u32.to_be_bytes()));
        assert_eq!(script.error, None);
    }
    // All requests of a page at once, several times.
    for page in 0..6 {
        let first = 20_001 + 200 * page;
        for stream in (first..first + 200).step_by(2) {
            script.receive(&headers(stream, 1, GET));
        }
        for stream in (first..first + 200).step_by(2) {
            script.receive(&frame(3, 0, stream, &8u32.to_be_bytes()));
        }
        assert_eq!(script.error, None);
    }
}

#[test]
fn streaming_of_small_messages_never_exhausts_the_budget() {
    let mut script = server();
    script.run("headers 1; > respond 1");
    for _ in 0..50_000 {
        // Empty messages of gRPC up; messages of 25 bytes down, each with PING or the windows of both.
        script.receive(&frame(0, 0, 1, b"xxxxx"));
        script.run("> consume 1 5; > data 1 25");
        script.receive(&[window_update(0, 25), window_update(1, 25)].concat());
        script.run("> data 1 25");
        script.receive(&[frame(6, 0, 0, &[0; 8]), window_update(0, 1_000), window_update(1, 1_000)].concat());
        script.now = Millis(script.now.0 + 2);
        assert_eq!(script.error, None);
    }
}

#[test]
fn upload_that_is_refused_early_never_exhausts_the_budget() {
    let mut script = server();
    for round in 0..300 {
        let stream = 2 * round + 1;
        script.receive(&headers(stream, 0, POST));
        script.run(&format!("> respond {stream} end; > reset {stream} 0"));
        let frame_bytes = [512, 4_096, 16_384][round as usize % 3];
        for _ in 0..262_144 / frame_bytes {
            script.receive(&frame(0, 0, stream, &vec![b'x'; frame_bytes]));
        }
        assert_eq!(script.error, None);
    }
}

#[test]
fn large_response_does_not_delay_small_ones() {
    let mut script = server();
    script.run("settings 4=2147483647; window 0 2147418112");
    for stream in 0..100 {
        script.receive(&headers(2 * stream + 1, 1, GET));
    }
    let (connection, out) = (&mut script.connection, &mut script.out);
    let streams = first_streams(100);
    for &stream in &streams {
        connection.send_fields(stream, Section::Head(End::More), out, |block| block.status(StatusCode::OK)).unwrap();
        connection.set_content(stream, Content::Ready);
    }
    // The first response has 1 GiB, the others 20,000 bytes.
    let mut left = vec![20_000; 100];
    left[0] = 1 << 30;
    let mut sent_of_large = 0;
    while left[1..].iter().any(|&left| left > 0) {
        let turn = connection.next_to_send().unwrap();
        let index = (turn.stream.get() / 2) as usize;
        let bytes = turn.bytes_max.min(left[index]);
        left[index] -= bytes;
        let end = if left[index] == 0 { End::Last } else { End::More };
        connection.begin_data(turn.stream, bytes, end, out).unwrap();
        sent_of_large += if index == 0 { bytes } else { 0 };
    }
    assert_eq!(sent_of_large, 65_536, "one turn");
}
