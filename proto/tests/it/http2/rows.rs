//! Tables of frames and what must happen. Each row runs whole, byte by byte and in pieces of several sizes.

use super::random::Random;
use super::script::{PREFACE, Script, Split, frame};
use selvedge_proto::http2::{Http2Limits, Role};

const SPLITS: [Split; 8] = [
    Split::Whole,
    Split::Pieces(&[1]),
    Split::Pieces(&[9, 1, 3]),
    Split::Pieces(&[10]),
    Split::Pieces(&[2, 13, 1, 1, 40, 7]),
    Split::Random(Random::new(1)),
    Split::Random(Random::new(2)),
    Split::Random(Random::new(3)),
];

/// A row: what it shows, the steps, and the transcript.
type Row = (&'static str, &'static str, &'static str);

fn check_with(role: Role, limits: &Http2Limits, rows: &[Row]) {
    for (name, steps, expected) in rows {
        for split in SPLITS {
            let mut script = Script::new(role, limits, split);
            script.run(steps);
            assert_eq!(script.take_transcript(), *expected, "{name}, {split:?}");
        }
    }
}

fn check(rows: &[Row]) {
    check_with(Role::Server, &Http2Limits::default(), rows);
}

#[test]
fn requests_and_responses() {
    check(&[
        (
            "GET",
            "headers 1 end; > respond 1; > data 1 5 end; headers 3 end; > respond 3 end",
            "head 1 end; HEADERS 1; DATA 1 5 END; head 3 end repeated; HEADERS 3 END",
        ),
        ("content", "headers 1; data 1 5; data 1 7 end", "head 1; data 1 12 end"),
        ("end without content", "headers 1; data 1 0 end", "head 1; data 1 0 end"),
        ("trailers", "headers 1; data 1 5; trailers 1 end", "head 1; data 1 5; trailers 1"),
        ("trailers without content", "headers 1; trailers 1 end", "head 1; trailers 1"),
        (
            "content in both directions",
            "headers 1; > respond 1; > data 1 3; data 1 4; > data 1 5; data 1 6 end; > trailers 1",
            "head 1; HEADERS 1; DATA 1 3; data 1 4; DATA 1 5; data 1 6 end; HEADERS 1 END",
        ),
        (
            "response before the content is complete",
            "headers 1; > respond 1 end; data 1 4 end; data 1 1",
            "head 1; HEADERS 1 END; data 1 4 end; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "interim responses precede the head",
            "headers 1 end; > interim 1; > interim 1; > respond 1; > interim 1",
            "head 1 end; HEADERS 1; HEADERS 1; HEADERS 1; not sent OutOfOrder",
        ),
        (
            "sections are sent in order",
            "headers 1 end; > trailers 1; > data 1 1; > respond 1; > respond 1; > trailers 1; > data 1 0 end",
            "head 1 end; not sent OutOfOrder; not sent OutOfOrder; HEADERS 1; not sent OutOfOrder; HEADERS 1 END; \
             not sent StreamClosed",
        ),
        ("padding", "headers 1 pad=3; data 1 5 pad=200; data 1 2 pad=0 end", "head 1; data 1 7 end"),
        ("padding only", "headers 1; data 1 0 pad=200; data 1 0 pad=1 end", "head 1; data 1 0 end"),
        (
            "block in parts",
            "headers 1 open block=8286; continuation 1 open block=84; continuation 1 block=010161",
            "head 1",
        ),
        (
            "end in HEADERS of a block in parts",
            "headers 1 end open block=8286; continuation 1 block=84010161",
            "head 1 end",
        ),
        (
            "unknown frames and flags are ignored",
            "frame 20 ff 0 00; headers 1; frame 20 ff 1 0011; frame fa 00 77; data 1 1; frame 6 fe 0 3031323334353637",
            "head 1; data 1 1; PING ACK 01234567",
        ),
        (
            "interleaved streams",
            "headers 1; headers 3; data 3 1; data 1 2; data 3 3 end; data 1 4 end",
            "head 1; head 3 repeated; data 3 1; data 1 2; data 3 3 end; data 1 4 end",
        ),
        ("PING", "ping; ping", "PING ACK 01234567; PING ACK 01234567"),
        ("PING of the driver", "> ping; ping-ack 76543210", "PING 76543210; pong 76543210"),
        ("acknowledgement without PING", "ping-ack 76543210", ""),
    ]);
}

#[test]
fn only_reported_sections_are_repeated() {
    check(&[
        (
            "section of a refused frame is between",
            "headers 1 end; > respond 1; headers 1 block=post; headers 3 end; headers 5; headers 7",
            "head 1 end; HEADERS 1; RST_STREAM 1 STREAM_CLOSED; reset 1 HalfClosed; head 3 end; head 5; \
             head 7 repeated",
        ),
        (
            "refused section is repeated",
            "headers 1; trailers 1 block=get; headers 3 block=get end",
            "head 1; RST_STREAM 1 PROTOCOL_ERROR; reset 1 TrailersWithoutEnd; head 3 end",
        ),
        (
            "trailers are repeated as a head",
            "headers 1; trailers 1 block=get end; headers 3 end",
            "head 1; trailers 1; head 3 end",
        ),
        ("memory is released between", "headers 1 end; > compact; headers 3 end", "head 1 end; head 3 end"),
    ]);
}

#[test]
fn frames_in_the_wrong_state() {
    check(&[
        ("DATA on an idle stream", "data 1 1", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdle"),
        ("RST_STREAM on an idle stream", "rst 1 8", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdle"),
        ("WINDOW_UPDATE on an idle stream", "window 1 8", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdle"),
        (
            "CONTINUATION on an idle stream",
            "continuation 1 block=82",
            "GOAWAY 0 PROTOCOL_ERROR; error ContinuationUnexpected",
        ),
        ("PRIORITY on an idle stream", "priority 1 3; headers 1 end", "head 1 end"),
        (
            "DATA on a stream that is half-closed",
            "headers 1 end; data 1 1",
            "head 1 end; RST_STREAM 1 STREAM_CLOSED; reset 1 HalfClosed",
        ),
        (
            "HEADERS on a stream that is half-closed",
            "headers 1 end; headers 1 end",
            "head 1 end; RST_STREAM 1 STREAM_CLOSED; reset 1 HalfClosed",
        ),
        (
            "other frames on a stream that is half-closed",
            "headers 1 end; > respond 1; window 1 5; priority 1 0; rst 1 8",
            "head 1 end; HEADERS 1; reset 1 CANCEL by peer",
        ),
    ]);
}

#[test]
fn frames_on_closed_streams() {
    check(&[
        (
            "DATA on a stream that the peer has reset",
            "headers 1; rst 1 8; data 1 1",
            "head 1; reset 1 CANCEL by peer; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "HEADERS on a stream that the peer has reset",
            "headers 1; rst 1 8; headers 1 end",
            "head 1; reset 1 CANCEL by peer; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "HEADERS on a stream that is complete",
            "headers 1 end; > respond 1 end; headers 1 end",
            "head 1 end; HEADERS 1 END; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "other frames on a stream that is complete",
            "headers 1 end; > respond 1 end; window 1 5; rst 1 8; priority 1 0; headers 3 end",
            "head 1 end; HEADERS 1 END; head 3 end repeated",
        ),
        (
            "frames that were in flight at a reset",
            "headers 1; > reset 1 8; data 1 10; headers 1 end; headers 3 end",
            "head 1; RST_STREAM 1 CANCEL; head 3 end",
        ),
        (
            "frames after the end of a stream that was reset",
            "headers 1; > reset 1 8; data 1 10 end; data 1 1",
            "head 1; RST_STREAM 1 CANCEL; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "frames after the peer has reset the stream, too",
            "headers 1; > reset 1 8; rst 1 8; data 1 1",
            "head 1; RST_STREAM 1 CANCEL; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "frames after the end and a reset",
            "headers 1 end; > reset 1 8; data 1 1",
            "head 1 end; RST_STREAM 1 CANCEL; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            "reset within a frame",
            "headers 1; raw 00000a000000000001; text xxx; > reset 1 8; text xxxxxxx; headers 3 end",
            "head 1; data 1 3; RST_STREAM 1 CANCEL; head 3 end",
        ),
        (
            "second HEADERS without end",
            "headers 1; headers 1",
            "head 1; RST_STREAM 1 PROTOCOL_ERROR; reset 1 TrailersWithoutEnd",
        ),
        ("PUSH_PROMISE", "headers 1; frame 5 4 1 0000000282", "head 1; GOAWAY 1 PROTOCOL_ERROR; error PushUnexpected"),
        (
            "calls on a closed stream",
            "headers 1 end; > respond 1 end; > reset 1 8; > consume 1 5; > sendable 1",
            "head 1 end; HEADERS 1 END; sendable 0",
        ),
    ]);
}

#[test]
fn stream_identifiers() {
    check(&[
        ("even", "headers 2 end", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdInvalid"),
        ("skipped", "headers 5 end; headers 3 end", "head 5 end; GOAWAY 5 PROTOCOL_ERROR; error StreamIdInvalid"),
        ("highest", "headers 2147483647 end", "head 2147483647 end"),
        ("reserved bit", "raw 000006010580000001828684010161", "head 1 end"),
        ("HEADERS on 0", "headers 0 end", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdMissing"),
        ("DATA on 0", "data 0 1", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdMissing"),
        ("PRIORITY on 0", "priority 0 1", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdMissing"),
        ("RST_STREAM on 0", "rst 0 1", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdMissing"),
        ("PUSH_PROMISE on 0", "frame 5 4 0 00", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdMissing"),
        ("SETTINGS on 1", "frame 4 0 1", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdUnexpected"),
        ("PING on 1", "frame 6 0 1 0011223344556677", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdUnexpected"),
        ("GOAWAY on 1", "frame 7 0 1 0000000000000000", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdUnexpected"),
        ("PRIORITY_UPDATE on 1", "frame 10 0 1 00000001", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdUnexpected"),
        ("PRIORITY_UPDATE of 0", "priority-update 0 u", "GOAWAY 0 PROTOCOL_ERROR; error PriorityUpdateInvalid"),
        ("PRIORITY_UPDATE of a push", "priority-update 2 u", "GOAWAY 0 PROTOCOL_ERROR; error PriorityUpdateInvalid"),
        (
            "dependency on itself in HEADERS",
            "headers 1 end dep=1; headers 3 end dep=1",
            "RST_STREAM 1 PROTOCOL_ERROR; reset 1 SelfDependency; head 3 end",
        ),
        (
            "dependency on itself in PRIORITY",
            "headers 1 end; priority 1 1; priority 3 3",
            "head 1 end; RST_STREAM 1 PROTOCOL_ERROR; reset 1 SelfDependency; GOAWAY 1 PROTOCOL_ERROR; \
             error StreamIdInvalid",
        ),
    ]);
}

#[test]
fn frame_sizes_and_padding() {
    check(&[
        ("largest", "headers 1; data 1 16384 end", "head 1; data 1 16384 end"),
        ("DATA too large", "headers 1; data 1 16385", "head 1; GOAWAY 1 FRAME_SIZE_ERROR; error FrameTooLarge"),
        ("HEADERS too large", "raw 004001010500000001", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameTooLarge"),
        ("unknown too large", "raw ffffff7f0000000001", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameTooLarge"),
        ("RST_STREAM", "headers 1; frame 3 0 1 000000", "head 1; GOAWAY 1 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("PING", "frame 6 0 0 00112233445566", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("GOAWAY", "frame 7 0 0 00112233445566", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("SETTINGS", "frame 4 0 0 0011223344", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("SETTINGS ACK", "frame 4 1 0 001122334455", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("WINDOW_UPDATE", "frame 8 0 0 001122", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("PRIORITY_UPDATE", "frame 10 0 0 001122", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        (
            "PRIORITY",
            "headers 1; frame 2 0 1 00112233",
            "head 1; RST_STREAM 1 FRAME_SIZE_ERROR; reset 1 PriorityLengthInvalid",
        ),
        ("PRIORITY, idle", "frame 2 0 1 00112233", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("HEADERS without its priority", "frame 1 24 1 00", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("HEADERS without its padding", "frame 1 c 1", "GOAWAY 0 FRAME_SIZE_ERROR; error FrameLengthInvalid"),
        ("padding of HEADERS", "headers 1 pad=7 present=0", "GOAWAY 0 PROTOCOL_ERROR; error PaddingInvalid"),
        ("padding fills HEADERS", "frame 1 c 1 020000", "head 1"),
        (
            "DATA without its padding",
            "headers 1; frame 0 8 1",
            "head 1; GOAWAY 1 FRAME_SIZE_ERROR; error FrameLengthInvalid",
        ),
        (
            "padding of DATA",
            "headers 1; data 1 2 pad=3 present=0",
            "head 1; GOAWAY 1 PROTOCOL_ERROR; error PaddingInvalid",
        ),
        ("padding fills DATA", "headers 1; data 1 0 pad=3 present=3", "head 1"),
    ]);
}

#[test]
fn field_blocks() {
    check(&[
        ("interrupted by DATA", "headers 1 open; data 1 1", "GOAWAY 0 PROTOCOL_ERROR; error ContinuationMissing"),
        ("interrupted by PING", "headers 1 open; ping", "GOAWAY 0 PROTOCOL_ERROR; error ContinuationMissing"),
        (
            "interrupted by an unknown frame",
            "headers 1 open; frame 99 0 1",
            "GOAWAY 0 PROTOCOL_ERROR; error ContinuationMissing",
        ),
        (
            "interrupted by another stream",
            "headers 1 open; continuation 3",
            "GOAWAY 0 PROTOCOL_ERROR; error ContinuationMissing",
        ),
        ("interrupted by HEADERS", "headers 1 open; headers 1", "GOAWAY 0 PROTOCOL_ERROR; error ContinuationMissing"),
        (
            "CONTINUATION after the end",
            "headers 1; continuation 1",
            "head 1; GOAWAY 1 PROTOCOL_ERROR; error ContinuationUnexpected",
        ),
        (
            "CONTINUATION after DATA",
            "headers 1; data 1 1; continuation 1",
            "head 1; data 1 1; GOAWAY 1 PROTOCOL_ERROR; error ContinuationUnexpected",
        ),
        ("invalid index", "headers 1 block=80", "GOAWAY 0 COMPRESSION_ERROR; error CompressionInvalid"),
        (
            "invalid block of a closed stream",
            "headers 1; > reset 1 8; headers 1 end block=ff",
            "head 1; RST_STREAM 1 CANCEL; GOAWAY 1 COMPRESSION_ERROR; error CompressionInvalid",
        ),
        (
            "block of a closed stream changes the table",
            "headers 1; > reset 1 8; headers 1 end block=4001790178; headers 3 end block=be",
            "head 1; RST_STREAM 1 CANCEL; head 3 end",
        ),
    ]);
}

#[test]
fn limits_of_field_blocks() {
    let limits = Http2Limits { field_block_bytes_max: 8, continuation_frames_max: 2, ..Http2Limits::default() };
    check_with(
        Role::Server,
        &limits,
        &[
            (
                "longest",
                "headers 1 open block=8286; continuation 1 block=84018161",
                "GOAWAY 0 COMPRESSION_ERROR; error CompressionInvalid",
            ),
            (
                "block too long",
                "headers 1 open block=8286; continuation 1 open block=84010161848484",
                "GOAWAY 0 ENHANCE_YOUR_CALM; error FieldBlockTooLong",
            ),
            (
                "too many frames",
                "headers 1 open; continuation 1 open; continuation 1 open; continuation 1 open",
                "GOAWAY 0 ENHANCE_YOUR_CALM; error ContinuationsTooMany",
            ),
            ("as many frames as permitted", "headers 1 open; continuation 1 open; continuation 1", "head 1"),
        ],
    );
    let mut limits = Http2Limits::default();
    limits.section.fields_max = 4;
    check_with(
        Role::Server,
        &limits,
        &[
            ("as many fields as permitted", "headers 1 end", "head 1 end"),
            (
                "too many fields",
                "headers 1 end block=828684010161848484; headers 3 end",
                "head 1 end too-large; head 3 end",
            ),
        ],
    );
}

#[test]
fn flow_control_of_received_content() {
    let limits = Http2Limits { stream_window_bytes: 20, connection_window_bytes: 65_535, ..Http2Limits::default() };
    check_with(
        Role::Server,
        &limits,
        &[
            (
                "stream's window reopens at half",
                "headers 1; data 1 20; > consume 1 9; > consume 1 1; > consume 1 10; data 1 20 end; > consume 1 20",
                "head 1; data 1 20; WINDOW_UPDATE 1 10; WINDOW_UPDATE 1 10; data 1 20 end",
            ),
            (
                "stream's window is exceeded",
                "headers 1; data 1 20; data 1 1; headers 3",
                "head 1; data 1 20; RST_STREAM 1 FLOW_CONTROL_ERROR; reset 1 StreamWindowExceeded; head 3 repeated",
            ),
            (
                "padding counts and is reopened",
                "headers 1; data 1 9 pad=10; data 1 10",
                "head 1; WINDOW_UPDATE 1 11; data 1 19",
            ),
            (
                "padding exceeds the window",
                "headers 1; data 1 10 pad=10",
                "head 1; RST_STREAM 1 FLOW_CONTROL_ERROR; reset 1 StreamWindowExceeded",
            ),
            (
                "in flight after a reset, within the window",
                "headers 1; data 1 5; > reset 1 8; data 1 15; headers 3",
                "head 1; data 1 5; RST_STREAM 1 CANCEL; head 3 repeated",
            ),
            (
                "in flight after a reset, beyond the window",
                "headers 1; data 1 5; > reset 1 8; data 1 16",
                "head 1; data 1 5; RST_STREAM 1 CANCEL; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
            ),
        ],
    );
    let limits =
        Http2Limits { stream_window_bytes: 100_000, connection_window_bytes: 65_535, ..Http2Limits::default() };
    check_with(
        Role::Server,
        &limits,
        &[
            (
                "connection's window is exceeded",
                "headers 1; headers 3; data 1 16384; data 3 16384; data 1 16384; data 3 16383; data 1 1",
                "head 1; head 3 repeated; data 1 16384; data 3 16384; data 1 16384; data 3 16383; \
             GOAWAY 3 FLOW_CONTROL_ERROR; error WindowExceeded",
            ),
            (
                "connection's window is reopened for content that is dropped",
                "headers 1; > reset 1 8; data 1 16384; data 1 16384; data 1 16384; data 1 16384; data 1 16384",
                "head 1; RST_STREAM 1 CANCEL; WINDOW_UPDATE 0 32768; WINDOW_UPDATE 0 32768",
            ),
            (
                "connection's window is reopened for the rest of a frame whose stream is reset",
                "headers 1; headers 3; raw 004000000000000001; content 5; > reset 1 8; content 16379; \
             raw 004000000000000003; > reset 3 8; content 16384; > consume 1 5",
                "head 1; head 3 repeated; data 1 5; RST_STREAM 1 CANCEL; RST_STREAM 3 CANCEL; WINDOW_UPDATE 0 32768",
            ),
            (
                "connection's window is reopened for a closed stream",
                "headers 1; data 1 16384; data 1 16384 end; > respond 1 end; > consume 1 32768",
                "head 1; data 1 32768 end; HEADERS 1 END; WINDOW_UPDATE 0 32768",
            ),
        ],
    );
}

#[test]
fn flow_control_of_sent_content() {
    check(&[
        (
            "initial window of 1",
            "settings 4=1; headers 1 end; > respond 1; > ready 1; > next; > data 1 2; > data 1 1; > next; window 1 5; > next",
            "SETTINGS ACK; head 1 end; HEADERS 1; next 1 1; not sent WindowExceeded; DATA 1 1; next none; writable; next 1 5",
        ),
        (
            "negative window",
            "headers 1 end; > respond 1; > ready 1; > data 1 10; settings 4=3; > sendable 1; window 1 7; > sendable 1; window 1 1; > sendable 1",
            "head 1 end; HEADERS 1; DATA 1 10; SETTINGS ACK; sendable 0; sendable 0; writable; sendable 1",
        ),
        (
            "larger initial window",
            "settings 4=0; headers 1 end; > respond 1; > ready 1; > next; settings 4=16; > next",
            "SETTINGS ACK; head 1 end; HEADERS 1; next none; SETTINGS ACK; writable; next 1 16",
        ),
        (
            "connection's window",
            "settings 4=100000; headers 1 end; > respond 1; > ready 1; > data 1 16384; > data 1 16384; > data 1 16384; > data 1 16383; > next; window 0 7; > next; > data 1 0 end",
            "SETTINGS ACK; head 1 end; HEADERS 1; DATA 1 16384; DATA 1 16384; DATA 1 16384; DATA 1 16383; next none; writable; next 1 7; DATA 1 0 END",
        ),
        ("increment of 0, connection", "window 0 0", "GOAWAY 0 PROTOCOL_ERROR; error WindowIncrementZero"),
        (
            "increment of 0, stream",
            "headers 1; window 1 0",
            "head 1; RST_STREAM 1 PROTOCOL_ERROR; reset 1 StreamWindowIncrementZero",
        ),
        (
            "overflow, connection",
            "window 0 2147418112; window 0 1",
            "GOAWAY 0 FLOW_CONTROL_ERROR; error WindowOverflow",
        ),
        (
            "overflow, stream",
            "headers 1; window 1 2147418112; window 1 1",
            "head 1; RST_STREAM 1 FLOW_CONTROL_ERROR; reset 1 StreamWindowOverflow",
        ),
        (
            "overflow by SETTINGS",
            "headers 1; window 1 2147418112; settings 4=65536",
            "head 1; GOAWAY 1 FLOW_CONTROL_ERROR; error InitialWindowInvalid",
        ),
        (
            "initial window too large",
            "settings 4=2147483648",
            "GOAWAY 0 FLOW_CONTROL_ERROR; error InitialWindowInvalid",
        ),
        (
            "frame size of the peer",
            "settings 5=20000 4=100000; headers 1 end; > respond 1; > sendable 1",
            "SETTINGS ACK; head 1 end; HEADERS 1; sendable 16384",
        ),
        ("invalid frame size", "settings 5=16383", "GOAWAY 0 PROTOCOL_ERROR; error SettingInvalid"),
    ]);
}

#[test]
fn content_length() {
    check(&[
        ("equal", "headers 1; > expect 1 5; data 1 2; data 1 3 end", "head 1; data 1 5 end"),
        ("equal, with trailers", "headers 1; > expect 1 5; data 1 5; trailers 1 end", "head 1; data 1 5; trailers 1"),
        ("equal, none", "headers 1 end; > expect 1 0", "head 1 end"),
        (
            "without content",
            "headers 1 end; > expect 1 5",
            "head 1 end; refused ContentLengthMismatch; RST_STREAM 1 PROTOCOL_ERROR",
        ),
        (
            "more",
            "headers 1; > expect 1 5; data 1 2; data 1 4",
            "head 1; data 1 2; RST_STREAM 1 PROTOCOL_ERROR; reset 1 ContentLengthMismatch",
        ),
        (
            "less",
            "headers 1; > expect 1 5; data 1 4 end",
            "head 1; RST_STREAM 1 PROTOCOL_ERROR; reset 1 ContentLengthMismatch",
        ),
        (
            "less, with trailers",
            "headers 1; > expect 1 5; data 1 4; trailers 1 end",
            "head 1; data 1 4; RST_STREAM 1 PROTOCOL_ERROR; reset 1 ContentLengthMismatch",
        ),
    ]);
}

#[test]
fn limit_of_streams() {
    let limits = Http2Limits { streams_max: 2, ..Http2Limits::default() };
    check_with(
        Role::Server,
        &limits,
        &[
            (
                "stream beyond the limit is refused, and its block changes the table",
                "headers 1; headers 3; headers 5 block=8286844001790178; data 5 10; data 5 1 end; rst 1 8; headers 7 end block=be",
                "head 1; head 3 repeated; RST_STREAM 5 REFUSED_STREAM; reset 5 StreamsTooMany; reset 1 CANCEL by peer; head 7 end",
            ),
            (
                "closed stream makes room",
                "headers 1 end; headers 3 end; > respond 1 end; headers 5 end",
                "head 1 end; head 3 end repeated; HEADERS 1 END; head 5 end repeated",
            ),
        ],
    );
}

#[test]
fn graceful_shutdown() {
    check(&[
        (
            "after the acknowledgement later streams are ignored",
            "headers 1 end; > shutdown; headers 3; ping-ack shutdown; headers 5; data 5 5; data 3 1 end; > respond 1 end; > finished; > respond 3 end; > finished",
            "head 1 end; GOAWAY 2147483647 NO_ERROR; PING shutdown; head 3; GOAWAY 3 NO_ERROR; data 3 1 end; HEADERS 1 END; finished false; HEADERS 3 END; finished true",
        ),
        (
            "after the notice the acknowledgement is not awaited",
            "> shutdown; > time 999; > finished; > time 1000; > finished; ping-ack shutdown",
            "GOAWAY 2147483647 NO_ERROR; PING shutdown; finished false; GOAWAY 0 NO_ERROR; finished true",
        ),
        (
            "the last stream of GOAWAY never increases",
            "headers 1 end; > shutdown; ping-ack shutdown; headers 3 end; window 0 0",
            "head 1 end; GOAWAY 2147483647 NO_ERROR; PING shutdown; GOAWAY 1 NO_ERROR; GOAWAY 1 PROTOCOL_ERROR; \
             error WindowIncrementZero",
        ),
        ("shutdown begins once", "> shutdown; > shutdown", "GOAWAY 2147483647 NO_ERROR; PING shutdown"),
        (
            "GOAWAY of the client",
            "headers 1 end; goaway 0 0; > finished; > respond 1 end; > finished",
            "head 1 end; goaway 0 NO_ERROR; finished false; HEADERS 1 END; finished true",
        ),
        ("GOAWAY with an unknown code", "goaway 0 255; ping", "goaway 0 error code 0xff; PING ACK 01234567"),
        (
            "RST_STREAM with an unknown code",
            "headers 1; rst 1 255; ping",
            "head 1; reset 1 error code 0xff by peer; PING ACK 01234567",
        ),
    ]);
}

#[test]
fn turns_follow_urgency_and_do_not_starve() {
    let limits = Http2Limits { turn_bytes: 20_000, ..Http2Limits::default() };
    check_with(
        Role::Server,
        &limits,
        &[
            (
                "most urgent stream is first",
                "headers 1 end; headers 3 end; priority-update 3 u=1; > respond 1; > respond 3; > ready 1; > ready 3; > next; > wait 3; > next; > ready 3; > next; > data 3 5 end; > next",
                "head 1 end; head 3 end repeated; HEADERS 1; HEADERS 3; next 3 16384; next 1 16384; next 3 16384; DATA 3 5 END; next 1 16384",
            ),
            (
                "PRIORITY_UPDATE before the stream",
                "priority-update 3 u=0; headers 1 end; headers 3 end; > respond 1; > respond 3; > ready 1; > ready 3; > next",
                "head 1 end; head 3 end repeated; HEADERS 1; HEADERS 3; next 3 16384",
            ),
            (
                "a turn is bounded",
                "settings 4=100000; headers 1 end; headers 3 end; > respond 1; > respond 3; > ready 1; > ready 3; > next; > data 1 16384; > next; > data 1 3616; > next; > data 3 9; > next; > data 3 9 end; > next",
                "SETTINGS ACK; head 1 end; head 3 end repeated; HEADERS 1; HEADERS 3; next 1 16384; DATA 1 16384; next 1 16384; DATA 1 3616; next 3 16384; DATA 3 9; next 3 16384; DATA 3 9 END; next 1 16384",
            ),
            (
                "incremental streams alternate",
                "settings 4=100000; priority-update 1 i; priority-update 3 i; headers 1 end; headers 3 end; > respond 1; > respond 3; > ready 1; > ready 3; > next; > data 1 16384; > next; > data 3 16384; > next",
                "SETTINGS ACK; head 1 end; head 3 end repeated; HEADERS 1; HEADERS 3; next 1 16384; DATA 1 16384; next 3 16384; DATA 3 16384; next 1 16384",
            ),
            (
                "a stream that is reset leaves the schedule",
                "headers 1 end; headers 3 end; > respond 1; > respond 3; > ready 1; > ready 3; rst 1 8; > next; > reset 3 8; > next",
                "head 1 end; head 3 end repeated; HEADERS 1; HEADERS 3; reset 1 CANCEL by peer; next 3 16384; RST_STREAM 3 CANCEL; next none",
            ),
            (
                "content before the head waits",
                "headers 1 end; > ready 1; > next; > respond 1; > next",
                "head 1 end; next none; HEADERS 1; next 1 16384",
            ),
        ],
    );
}

#[test]
fn clients() {
    check_with(
        Role::Client,
        &Http2Limits::default(),
        &[
            (
                "response with trailers",
                "> open; > data 1 5 end; headers 1 block=ok; data 1 3; trailers 1 end",
                "HEADERS 1; DATA 1 5 END; head 1; data 1 3; trailers 1",
            ),
            (
                "interim responses",
                "> open end; headers 1 block=continue; headers 1 block=continue; headers 1 block=ok end",
                "HEADERS 1 END; head 1; head 1 repeated; head 1 end",
            ),
            (
                "interim response with end",
                "> open end; headers 1 block=continue end",
                "HEADERS 1 END; RST_STREAM 1 PROTOCOL_ERROR; reset 1 InterimWithEnd",
            ),
            (
                "content before the head",
                "> open end; data 1 1",
                "HEADERS 1 END; RST_STREAM 1 PROTOCOL_ERROR; reset 1 ContentBeforeHead",
            ),
            (
                "trailers without end",
                "> open end; headers 1 block=ok; headers 1 block=trailers",
                "HEADERS 1 END; head 1; RST_STREAM 1 PROTOCOL_ERROR; reset 1 TrailersWithoutEnd",
            ),
            (
                "response after it is complete",
                "> open end; headers 1 block=ok end; data 1 1",
                "HEADERS 1 END; head 1 end; GOAWAY 0 STREAM_CLOSED; error StreamClosed",
            ),
            ("response to no request", "headers 1 block=ok", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdle"),
            ("stream of the server", "headers 2 block=ok", "GOAWAY 0 PROTOCOL_ERROR; error StreamIdInvalid"),
            (
                "PUSH_PROMISE",
                "> open end; frame 5 4 1 0000000288",
                "HEADERS 1 END; GOAWAY 0 PROTOCOL_ERROR; error PushUnexpected",
            ),
            ("ENABLE_PUSH of 1", "settings 2=1", "GOAWAY 0 PROTOCOL_ERROR; error SettingInvalid"),
            (
                "PRIORITY_UPDATE",
                "> open end; priority-update 1 u=1",
                "HEADERS 1 END; GOAWAY 0 PROTOCOL_ERROR; error PriorityUpdateInvalid",
            ),
            (
                "limit of the server",
                "settings 3=1; > open end; > open end; headers 1 block=ok end; > open end",
                "SETTINGS ACK; HEADERS 1 END; not opened StreamsTooMany; head 1 end; HEADERS 3 END",
            ),
            (
                "GOAWAY excludes streams",
                "> open end; > open end; > open end; goaway 1 0; > open end; headers 1 block=ok; data 3 5; > finished; data 1 0 end; > finished",
                "HEADERS 1 END; HEADERS 3 END; HEADERS 5 END; goaway 1 NO_ERROR; not processed 3; not processed 5; not opened ConnectionEnding; head 1; finished false; data 1 0 end; finished true",
            ),
            ("reset by the server", "> open; rst 1 7", "HEADERS 1; reset 1 REFUSED_STREAM by peer"),
            (
                "shutdown",
                "> open end; > shutdown; > open end; headers 1 block=ok end; > finished",
                "HEADERS 1 END; GOAWAY 0 NO_ERROR; not opened ConnectionEnding; head 1 end; finished true",
            ),
        ],
    );
}

#[test]
fn prefaces() {
    let settings = frame(4, 0, 0, &[]);
    let headers = frame(1, 5, 1, &[0x82]);
    for (name, role, bytes, expected) in [
        ("complete", Role::Server, [PREFACE, &settings].concat(), "SETTINGS ACK"),
        ("incomplete", Role::Server, PREFACE[..20].to_vec(), ""),
        ("HTTP/1.1", Role::Server, b"GET / HTTP/1.1\r\n".to_vec(), "GOAWAY 0 PROTOCOL_ERROR; error PrefaceInvalid"),
        (
            "wrong at its end",
            Role::Server,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r".to_vec(),
            "GOAWAY 0 PROTOCOL_ERROR; error PrefaceInvalid",
        ),
        (
            "without SETTINGS",
            Role::Server,
            [PREFACE, &headers].concat(),
            "GOAWAY 0 PROTOCOL_ERROR; error SettingsMissing",
        ),
        (
            "with an acknowledgement for SETTINGS",
            Role::Server,
            [PREFACE, &frame(4, 1, 0, &[])].concat(),
            "GOAWAY 0 PROTOCOL_ERROR; error SettingsMissing",
        ),
        ("server's", Role::Client, settings.clone(), "SETTINGS ACK"),
        ("server's without SETTINGS", Role::Client, headers, "GOAWAY 0 PROTOCOL_ERROR; error SettingsMissing"),
    ] {
        for split in SPLITS {
            let mut script = Script::before_preface(role, &Http2Limits::default(), split);
            script.receive(&bytes);
            assert_eq!(script.take_transcript(), expected, "{name}, {split:?}");
        }
    }
}

#[test]
fn settings_must_be_acknowledged_in_time() {
    let mut script = Script::before_preface(Role::Server, &Http2Limits::default(), Split::Whole);
    script.receive(&[PREFACE, &frame(4, 0, 0, &[])].concat());
    script.run("> time 9999; headers 1 end; > time 10000");
    assert_eq!(script.take_transcript(), "SETTINGS ACK; head 1 end; error SettingsTimeout; GOAWAY 1 SETTINGS_TIMEOUT");
    let mut script = Script::new(Role::Server, &Http2Limits::default(), Split::Whole);
    assert_eq!(script.connection.deadline(), None);
    script.run("> time 10000; settings-ack");
    assert_eq!(script.take_transcript(), "");
}

#[test]
fn small_windows_and_tables_hold_after_the_acknowledgement() {
    let limits = Http2Limits { stream_window_bytes: 10, decoder_table_bytes_max: 0, ..Http2Limits::default() };
    let before = "headers 1 block=8286844001790178; data 1 100";
    for (acknowledgement, expected) in [
        ("", "SETTINGS ACK; head 1; data 1 101"),
        (
            "> reset 1 8; settings-ack;",
            "SETTINGS ACK; head 1; data 1 100; RST_STREAM 1 CANCEL; GOAWAY 1 STREAM_CLOSED; error StreamClosed",
        ),
        (
            // The table must shrink in the next block; the window became negative.
            "settings-ack; headers 3 end block=20828684010161;",
            "SETTINGS ACK; head 1; data 1 100; head 3 end; RST_STREAM 1 FLOW_CONTROL_ERROR; reset 1 StreamWindowExceeded",
        ),
    ] {
        let mut script = Script::before_preface(Role::Server, &limits, Split::Whole);
        script.receive(&[PREFACE, &frame(4, 0, 0, &[])].concat());
        script.run(&format!("{before}; {acknowledgement} data 1 1"));
        assert_eq!(script.take_transcript(), expected);
    }
}
