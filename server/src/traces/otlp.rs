//! The messages of the OpenTelemetry protocol in the encoding of Protocol Buffers, as far as spans need them.
//!
//! The numbers of fields are those of
//! <https://github.com/open-telemetry/opentelemetry-proto/blob/v1.7.0/opentelemetry/proto/trace/v1/trace.proto> and its
//! neighbours `common.proto`, `resource.proto` and `trace_service.proto`. A reader passes over fields that it does not know,
//! so later versions read these messages, too.

/// `ExportTraceServiceRequest.resource_spans`
const RESOURCE_SPANS: u32 = 1;
/// `ResourceSpans.resource` and `.scope_spans`
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
/// `Resource.attributes`
const RESOURCE_ATTRIBUTES: u32 = 1;
/// `ScopeSpans.scope` and `.spans`
const SCOPE: u32 = 1;
const SPANS: u32 = 2;
/// `InstrumentationScope.name` and `.version`
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
/// `KeyValue.key` and `.value`
const KEY: u32 = 1;
const VALUE: u32 = 2;
/// `AnyValue.string_value`, `.int_value` and `.double_value`
const STRING_VALUE: u32 = 1;
const INT_VALUE: u32 = 3;
const DOUBLE_VALUE: u32 = 4;
/// The fields of `Span`.
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const ATTRIBUTES: u32 = 9;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;
/// `Status.code`, and its value for an error.
const STATUS_CODE: u32 = 3;
const STATUS_ERROR: u64 = 2;
/// `ExportTraceServiceResponse.partial_success`; `ExportTracePartialSuccess.rejected_spans` and `.error_message`
const PARTIAL_SUCCESS: u32 = 1;
const REJECTED_SPANS: u32 = 1;
const ERROR_MESSAGE: u32 = 2;

/// The types of fields on the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// The flags of a span: the parent is known to be of another process, or of this one.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Bytes of a text that are sent. Longer texts are cut.
pub(super) const TEXT_BYTES_MAX: usize = 256;

/// What a span is for: `Span.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// A request that this server responds to.
    Server = 2,
    /// A request that this server sends.
    Client = 3,
}

/// The status of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanStatus {
    Unset,
    Error,
}

/// Where the parent of a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    None,
    /// In another process.
    Remote(u64),
    /// In this process.
    Local(u64),
}

/// A span without its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanFacts<'a> {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent: Parent,
    /// The flags of `traceparent`.
    pub(super) trace_flags: u8,
    pub(super) trace_state: &'a str,
    pub(super) name: &'a str,
    pub(super) kind: SpanKind,
    /// Nanoseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) status: SpanStatus,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AttributeValue<'a> {
    Text(&'a str),
    Number(i64),
    Seconds(f64),
}

/// Writes the attributes of a message.
pub(super) struct AttributeWriter<'o> {
    out: &'o mut Vec<u8>,
    field: u32,
}

impl AttributeWriter<'_> {
    pub(super) fn add(&mut self, key: &str, value: AttributeValue<'_>) {
        message(self.field, self.out, |out| {
            bytes(KEY, key.as_bytes(), out);
            message(VALUE, out, |out| match value {
                AttributeValue::Text(text) => bytes(STRING_VALUE, cut(text).as_bytes(), out),
                AttributeValue::Number(number) => {
                    tag(INT_VALUE, VARINT, out);
                    varint(number.cast_unsigned(), out);
                }
                AttributeValue::Seconds(seconds) => fixed64(DOUBLE_VALUE, seconds.to_bits(), out),
            });
        });
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.add(key, AttributeValue::Text(text));
    }

    pub(super) fn number(&mut self, key: &str, number: impl Into<i64>) {
        self.add(key, AttributeValue::Number(number.into()));
    }
}

/// Appends a span, as a field of the message that contains the spans of a batch.
pub(super) fn write_span(facts: SpanFacts<'_>, out: &mut Vec<u8>, attributes: impl FnOnce(&mut AttributeWriter<'_>)) {
    message(SPANS, out, |out| {
        bytes(TRACE_ID, &facts.trace_id.to_be_bytes(), out);
        bytes(SPAN_ID, &facts.span_id.to_be_bytes(), out);
        if !facts.trace_state.is_empty() {
            bytes(TRACE_STATE, facts.trace_state.as_bytes(), out);
        }
        let (parent, remote) = match facts.parent {
            Parent::None => (None, HAS_IS_REMOTE),
            Parent::Local(parent) => (Some(parent), HAS_IS_REMOTE),
            Parent::Remote(parent) => (Some(parent), HAS_IS_REMOTE | IS_REMOTE),
        };
        if let Some(parent) = parent {
            bytes(PARENT_SPAN_ID, &parent.to_be_bytes(), out);
        }
        bytes(NAME, cut(facts.name).as_bytes(), out);
        tag(KIND, VARINT, out);
        varint(facts.kind as u64, out);
        fixed64(START, facts.start, out);
        fixed64(END, facts.end, out);
        attributes(&mut AttributeWriter { out, field: ATTRIBUTES });
        if facts.status == SpanStatus::Error {
            message(STATUS, out, |out| {
                tag(STATUS_CODE, VARINT, out);
                varint(STATUS_ERROR, out);
            });
        }
        tag(FLAGS, FIXED32, out);
        out.extend_from_slice(&(u32::from(facts.trace_flags) | remote).to_le_bytes());
    });
}

/// Returns the request for spans of [`write_span`]: `ExportTraceServiceRequest`.
pub(super) fn export_request<'s>(service: &str, spans: impl Iterator<Item = &'s [u8]> + Clone) -> Vec<u8> {
    let (name, version) = ("selvedge", env!("CARGO_PKG_VERSION"));
    let mut resource = Vec::new();
    message(RESOURCE, &mut resource, |out| {
        let mut attributes = AttributeWriter { out, field: RESOURCE_ATTRIBUTES };
        for (key, value) in [
            ("service.name", service),
            ("telemetry.sdk.name", name),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", version),
        ] {
            attributes.text(key, value);
        }
    });
    let mut scope = Vec::new();
    message(SCOPE, &mut scope, |out| {
        bytes(SCOPE_NAME, name.as_bytes(), out);
        bytes(SCOPE_VERSION, version.as_bytes(), out);
    });
    let spans_length: usize = spans.clone().map(<[u8]>::len).sum();
    let mut of_scope = Vec::new();
    tag(SCOPE_SPANS, LENGTH_DELIMITED, &mut of_scope);
    varint((scope.len() + spans_length) as u64, &mut of_scope);
    let mut request = Vec::with_capacity(resource.len() + of_scope.len() + scope.len() + spans_length + 16);
    tag(RESOURCE_SPANS, LENGTH_DELIMITED, &mut request);
    varint((resource.len() + of_scope.len() + scope.len() + spans_length) as u64, &mut request);
    for part in [&resource, &of_scope, &scope] {
        request.extend_from_slice(part);
    }
    spans.for_each(|span| request.extend_from_slice(span));
    request
}

/// What a collector has not accepted of a request that it has otherwise accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartialSuccess {
    pub(super) rejected_spans: u64,
    pub(super) message: String,
}

/// Reads a response: `ExportTraceServiceResponse`. An unreadable one counts as a complete success, because its
/// status is one.
pub(super) fn read_response(response: &[u8]) -> PartialSuccess {
    let mut success = PartialSuccess::default();
    for (_, partial) in Fields(response).filter(|(field, _)| *field == PARTIAL_SUCCESS) {
        let FieldValue::Bytes(partial) = partial else { continue };
        for field in Fields(partial) {
            match field {
                (REJECTED_SPANS, FieldValue::Number(number)) => success.rejected_spans = number,
                (ERROR_MESSAGE, FieldValue::Bytes(text)) => {
                    cut(&String::from_utf8_lossy(text)).clone_into(&mut success.message);
                }
                _ => {}
            }
        }
    }
    success
}

/// The fields of a received message, up to the first that is malformed.
struct Fields<'m>(&'m [u8]);

/// The value of a received field.
enum FieldValue<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

impl<'m> Fields<'m> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = (u32, FieldValue<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = u32::try_from(self.varint()?).ok()?;
        let value = match tag & 7 {
            VARINT => FieldValue::Number(self.varint()?),
            FIXED64 => FieldValue::Bytes(self.take(8)?),
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                FieldValue::Bytes(self.take(length)?)
            }
            FIXED32 => FieldValue::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

/// Returns the beginning of a text that is sent.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn tag(field: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint((field << 3 | wire_type).into(), out);
}

fn varint(number: u64, out: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn fixed64(field: u32, number: u64, out: &mut Vec<u8>) {
    tag(field, FIXED64, out);
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    tag(field, LENGTH_DELIMITED, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a message within a message. Its length, which precedes it, is known afterwards.
fn message(field: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    tag(field, LENGTH_DELIMITED, out);
    let start = out.len();
    write(out);
    let mut length = Vec::new();
    varint((out.len() - start) as u64, &mut length);
    out.splice(start..start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_bytes_as_they_need() {
        for (number, expected) in [
            (0, &[0][..]),
            (1, &[1]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (16_384, &[0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            varint(number, &mut out);
            assert_eq!(out, expected, "{number}");
            let mut fields = Fields(&out);
            assert_eq!((fields.varint(), fields.0), (Some(number), &[][..]));
        }
    }

    fn attribute(key: &str, value: AttributeValue<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        AttributeWriter { out: &mut out, field: ATTRIBUTES }.add(key, value);
        out
    }

    #[test]
    fn attributes_have_a_type() {
        assert_eq!(attribute("a", AttributeValue::Text("bc")), b"\x4a\x09\x0a\x01a\x12\x04\x0a\x02bc");
        assert_eq!(attribute("a", AttributeValue::Number(404)), b"\x4a\x08\x0a\x01a\x12\x03\x18\x94\x03");
        let negative = attribute("a", AttributeValue::Number(-1));
        assert_eq!(negative[6..], *b"\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        let seconds = attribute("a", AttributeValue::Seconds(0.5));
        assert_eq!(seconds, b"\x4a\x0e\x0a\x01a\x12\x09\x21\0\0\0\0\0\0\xe0\x3f");
        let long = attribute("a", AttributeValue::Text(&"ü".repeat(200)));
        let text = "ü".repeat(128);
        assert_eq!((long.len(), long.ends_with(text.as_bytes())), (9 + 3 + 256, true));
    }

    #[test]
    fn a_span_has_its_fields_in_order() {
        let facts = SpanFacts {
            trace_id: 0x0102,
            span_id: 0x0304,
            parent: Parent::Remote(0x0506),
            trace_flags: 1,
            trace_state: "k=v",
            name: "GET /",
            kind: SpanKind::Server,
            start: 7,
            end: 0x0100_0000_0000_0000,
            status: SpanStatus::Error,
        };
        let mut out = Vec::new();
        write_span(facts, &mut out, |attributes| attributes.number("n", 5));
        let mut expected = b"\x12\x5d\x0a\x10".to_vec();
        expected.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\x12\x08\0\0\0\0\0\0\x03\x04\x1a\x03k=v");
        expected.extend_from_slice(b"\x22\x08\0\0\0\0\0\0\x05\x06\x2a\x05GET /\x30\x02");
        expected.extend_from_slice(b"\x39\x07\0\0\0\0\0\0\0\x41\0\0\0\0\0\0\0\x01\x4a\x07\x0a\x01n\x12\x02\x18\x05");
        expected.extend_from_slice(b"\x7a\x02\x18\x02\x85\x01\x01\x03\0\0");
        expected[1] = u8::try_from(expected.len() - 2).unwrap();
        assert_eq!(out, expected);
        let facts = SpanFacts { parent: Parent::None, trace_state: "", status: SpanStatus::Unset, ..facts };
        let mut plain = Vec::new();
        write_span(facts, &mut plain, |_| {});
        assert_eq!(plain.len(), expected.len() - 5 - 10 - 9 - 4);
        assert!(plain.ends_with(b"\x85\x01\x01\x01\0\0"), "{plain:x?}");
        let local = SpanFacts { parent: Parent::Local(1), ..facts };
        write_span(local, &mut plain, |_| {});
        assert!(plain.ends_with(b"\x85\x01\x01\x01\0\0"), "{plain:x?}");
    }

    #[test]
    fn a_request_contains_resource_scope_and_spans() {
        let spans = [&b"\x12\x01a"[..], b"\x12\x01b"];
        let request = export_request("edge", spans.into_iter());
        let fields: Vec<_> = Fields(&request).collect();
        let [(RESOURCE_SPANS, FieldValue::Bytes(of_resource))] = fields[..] else { panic!("{request:x?}") };
        let fields: Vec<_> = Fields(of_resource).collect();
        let [(RESOURCE, FieldValue::Bytes(resource)), (SCOPE_SPANS, FieldValue::Bytes(of_scope))] = fields[..] else {
            panic!("{request:x?}")
        };
        assert!(resource.starts_with(b"\x0a\x16\x0a\x0cservice.name\x12\x06\x0a\x04edge\x0a"), "{resource:x?}");
        let scope = format!("\x0a\x08selvedge\x12{}{}", char::from(version_length()), env!("CARGO_PKG_VERSION"));
        let length = u8::try_from(scope.len()).unwrap();
        let expected = [&[0x0a, length][..], scope.as_bytes(), b"\x12\x01a\x12\x01b"].concat();
        assert_eq!(of_scope, expected);
    }

    fn version_length() -> u8 {
        u8::try_from(env!("CARGO_PKG_VERSION").len()).unwrap()
    }

    #[test]
    fn a_partial_success_is_read_and_malformed_bytes_are_none() {
        let response = b"\x0a\x09\x08\x85\x01\x12\x04why?";
        let expected = PartialSuccess { rejected_spans: 133, message: "why?".to_owned() };
        assert_eq!(read_response(response), expected);
        let with_others = [&b"\x11\0\0\0\0\0\0\0\0\x1d\0\0\0\0\x20\x05"[..], response, b"\x12\x00"].concat();
        assert_eq!(read_response(&with_others), expected);
        for none in [&b""[..], b"\x0a", b"\x0a\x00", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"{}"] {
            assert_eq!(read_response(none), PartialSuccess::default(), "{none:x?}");
        }
        let unending = [0x80; 20];
        assert_eq!(read_response(&unending), PartialSuccess::default());
    }
}
