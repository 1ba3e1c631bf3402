//! Fuzzes the parser of response heads: it never panics, its result does not depend on how the bytes are split, and
//! what it accepts is forwarded as valid fields with one framing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::MessageLimits;
use selvedge_proto::field::Fields;
use selvedge_proto::forward::forward_response;
use selvedge_proto::http1::MalformedResponse;
use selvedge_proto::http1::parse_response::{
    RequestContext, ResponseFraming, ResponseHead, UpgradeOffer, parse_response,
};
use selvedge_proto::method::Method;

type Outcome = Result<Option<(usize, ResponseFraming)>, MalformedResponse>;

/// Parses the bytes in pieces of `piece_bytes`. Returns length and framing of the head, or `None` if it is not complete.
fn parse(head: &mut ResponseHead, bytes: &[u8], context: RequestContext, piece_bytes: usize) -> Outcome {
    let (limits, mut received) = (MessageLimits::default(), 0);
    head.clear();
    loop {
        received = (received + piece_bytes).min(bytes.len());
        if parse_response(&bytes[..received], context, &limits, head)? {
            assert!(head.len <= received);
            return Ok(Some((head.len, head.framing)));
        }
        if received == bytes.len() {
            return Ok(None);
        }
    }
}

/// Checks what holds of every accepted head.
fn check(head: &ResponseHead, bytes: &[u8], context: RequestContext) {
    let has_content = matches!(head.framing, ResponseFraming::Length(_) | ResponseFraming::Chunked);
    assert!(!has_content || !(head.status.forbids_content() || context.method == Method::Head));
    let lengths = head.fields(bytes).filter(|(name, _)| name.eq_ignore_ascii_case(b"content-length")).count();
    let codings = head.fields(bytes).filter(|(name, _)| name.eq_ignore_ascii_case(b"transfer-encoding")).count();
    assert!(lengths + codings <= 1);
    let _ = head.keep_alive_timeout(bytes);
    assert_eq!(head.upgrade(bytes).is_some(), head.framing == ResponseFraming::Upgraded);
    let mut fields = Fields::new();
    forward_response(head.fields(bytes), &mut fields).expect("parsed fields are valid");
    assert!(fields.get("content-length").is_none() && fields.get("connection").is_none());
    assert!(fields.lines().split_inclusive(|&b| b == b'\n').all(|line| line.ends_with(b"\r\n")));
}

fuzz_target!(|bytes: &[u8]| {
    let mut head = ResponseHead::default();
    for (method, upgrade) in [
        (Method::Get, UpgradeOffer::None),
        (Method::Get, UpgradeOffer::Offered),
        (Method::Head, UpgradeOffer::None),
    ] {
        let context = RequestContext { method, upgrade };
        let whole = parse(&mut head, bytes, context, bytes.len().max(1));
        if let Ok(Some(_)) = whole {
            check(&head, bytes, context);
        }
        assert_eq!(whole, parse(&mut head, bytes, context, 1));
        assert_eq!(whole, parse(&mut ResponseHead::default(), bytes, context, 7));
    }
});
