//! Fuzzes the rules of messages: the text of a built head is a valid HTTP/1.1 request. A parser of that text reads the
//! fields of the head.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::MessageLimits;
use selvedge_proto::field::KnownField;
use selvedge_proto::field_section::{
    Protocols, RequestRules, SectionError, SectionLimits, StreamEnd, build_request, check_response, copy_request,
    read_trailers, repeat_request,
};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::http1::parse_request;
use selvedge_proto::http2::hpack::Decoder;
use selvedge_proto::target::{Target, TargetForm};

fn fields_of(head: &RequestHead, bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.fields(bytes).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Compares a head with the result of parsing its text.
fn check_head(head: &RequestHead, bytes: &[u8]) {
    assert_eq!(head.len, bytes.len());
    let mut text = bytes.to_vec();
    let version_at = usize::from(head.request_line.len) - "2.0".len();
    text[version_at..version_at + 3].copy_from_slice(b"1.1");
    let mut parsed = RequestHead::default();
    let limits = MessageLimits::default();
    assert_eq!(parse_request(&text, &limits, &mut parsed), Ok(true));
    assert_eq!(parsed.len, head.len);
    assert_eq!(fields_of(&parsed, &text), fields_of(head, bytes));
    // Without an authority form, the text has the authority in Host, and its target has none.
    let authority = head.target.authority.filter(|_| head.target.form == TargetForm::Authority);
    let target = Target { authority, ..head.target };
    assert_eq!((parsed.method, parsed.target, parsed.authority), (head.method, target, head.authority));
    assert!(head.value(bytes, KnownField::TransferEncoding).is_none() && head.authority.is_some());
}

/// Compares a copy of a head, behind other bytes, with the head and with what building it gave.
fn check_copy(earlier: (&[u8], &RequestHead), end: StreamEnd, built: Result<Option<u64>, SectionError>) {
    let (mut text, mut head) = (b"earlier".to_vec(), RequestHead::default());
    let copied = copy_request(earlier, end, &mut text, &mut head);
    assert_eq!(copied, built);
    if copied.is_ok() {
        let text = &text[b"earlier".len()..];
        assert_eq!(text, earlier.0);
        assert_eq!(fields_of(&head, text), fields_of(earlier.1, earlier.0));
        assert_eq!(
            (head.method, head.target, head.authority),
            (earlier.1.method, earlier.1.target, earlier.1.authority)
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    let limits = MessageLimits::default();
    let mut decoder = Decoder::new(4_096);
    if decoder.decode_block(bytes, &SectionLimits::default()).is_err() {
        return;
    }
    let fields = decoder.fields();
    let _ = check_response(fields, StreamEnd::Open);
    if let Ok(trailers) = read_trailers(fields, &limits) {
        assert_eq!(trailers.iter().count(), fields.len());
    }
    for protocols in [Protocols::None, Protocols::Any] {
        let rules = RequestRules { version: Version::Http2, limits: &limits, protocols };
        let (mut head, mut built) = (RequestHead::default(), Vec::new());
        let Ok(length) = build_request(fields, StreamEnd::Open, &rules, &mut built, &mut head) else { continue };
        // HTTP/1.1 has no text for an extended CONNECT.
        if head.value(&built, KnownField::Upgrade).is_none() {
            check_head(&head, &built);
        }
        for end in [StreamEnd::Open, StreamEnd::Ended] {
            check_copy(
                (&built, &head),
                end,
                build_request(fields, end, &rules, &mut Vec::new(), &mut RequestHead::default()),
            );
        }
        assert_eq!(repeat_request(&built, &mut head, StreamEnd::Open), Ok(length));
    }
});
