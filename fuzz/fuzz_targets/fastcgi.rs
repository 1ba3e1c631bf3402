//! Fuzzes the reader of FastCGI records and the parser of a script's head: neither panics, and the result does not depend
//! on how the bytes are split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::MessageLimits;
use selvedge_proto::cgi::parse_script_head;
use selvedge_proto::fastcgi::{EndStatus, MalformedRecord, RecordEvent, RecordReader};

/// The output, the error messages, and the end.
type Response = (Vec<u8>, Vec<u8>, Option<EndStatus>);

/// Reads the bytes in pieces of `piece_bytes`.
fn read(bytes: &[u8], piece_bytes: usize) -> Result<Response, MalformedRecord> {
    let (mut reader, mut response) = (RecordReader::new(), Response::default());
    let (mut at, mut received) = (0, piece_bytes.min(bytes.len()));
    loop {
        match reader.next_event(&bytes[at..received])? {
            RecordEvent::NeedMore { consumed } if received < bytes.len() => {
                at += consumed;
                received = (received + piece_bytes).min(bytes.len());
            }
            RecordEvent::NeedMore { .. } => return Ok(response),
            RecordEvent::Output { start, end } => {
                assert!(start < end);
                response.0.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            RecordEvent::Error { start, end } => {
                assert!(start < end);
                response.1.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            RecordEvent::End { status, end } => {
                response.2 = Some(status);
                at += end;
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, 1));
    assert_eq!(whole, read(bytes, 7));
    let limits = MessageLimits::default();
    let head = parse_script_head(bytes, &limits);
    if let Ok(Some(head)) = &head {
        assert_eq!(parse_script_head(&bytes[..head.len], &limits).as_ref(), Ok(&Some(head.clone())));
        assert_eq!(parse_script_head(&bytes[..head.len - 1], &limits), Ok(None));
    }
});
