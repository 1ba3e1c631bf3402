//! The identity of a request in a trace, and the field `traceparent` that carries it (W3C Trace Context,
//! <https://www.w3.org/TR/trace-context/#traceparent-header>).

use super::random;

/// Length of `traceparent` in version 00.
pub(crate) const TRACEPARENT_BYTES: usize = 55;
/// The flag of a sender that records the trace.
const SAMPLED: u8 = 1;
/// The version that is not valid.
const VERSION_INVALID: u128 = 0xff;

/// Where a request is in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: u128,
    /// The span of the sender; `None` if the trace begins with this request.
    pub(crate) parent: Option<u64>,
    /// The span of this request.
    pub(crate) span_id: u64,
    /// Whether its spans are exported, also without a failure or a long time.
    pub(crate) is_sampled: bool,
}

impl TraceContext {
    /// Begins a trace, whose flag is not set yet.
    pub(super) fn new_trace() -> Self {
        Self { trace_id: random::nonzero_long(), parent: None, span_id: random::nonzero(), is_sampled: false }
    }

    /// Continues the trace of a sender. Its flag is not taken over.
    pub(super) fn below(parent: TraceParent) -> Self {
        let span_id = random::nonzero();
        Self { trace_id: parent.trace_id, parent: Some(parent.span_id), span_id, is_sampled: false }
    }

    /// Returns the flags of Trace Context.
    pub(super) const fn flags(self) -> u8 {
        if self.is_sampled { SAMPLED } else { 0 }
    }

    /// Returns `traceparent` for the receiver of the request of a span.
    pub(super) fn traceparent(self, span_id: u64) -> [u8; TRACEPARENT_BYTES] {
        let mut out = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hexadecimal(self.trace_id, &mut out[3..35]);
        write_hexadecimal(span_id.into(), &mut out[36..52]);
        write_hexadecimal(self.flags().into(), &mut out[53..]);
        out
    }

    /// Returns the trace identifier as 32 hexadecimal digits.
    pub(crate) fn trace_id_text(self) -> [u8; 32] {
        let mut out = [0; 32];
        write_hexadecimal(self.trace_id, &mut out);
        out
    }
}

/// The sender of a request, by `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) is_sampled: bool,
}

impl TraceParent {
    /// Parses the value of the field. Of a later version than 00, the parts of version 00 are read, and others may follow.
    /// `None` if it is invalid.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (known, further) = value.split_at_checked(TRACEPARENT_BYTES)?;
        let version = hexadecimal(&known[..2])?;
        let is_separated = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let may_follow = match further.first() {
            None => true,
            Some(next) => version > 0 && *next == b'-',
        };
        if version == VERSION_INVALID || !is_separated || !may_follow {
            return None;
        }
        let trace_id = hexadecimal(&known[3..35])?;
        let span_id = u64::try_from(hexadecimal(&known[36..52])?).ok()?;
        let flags = u8::try_from(hexadecimal(&known[53..])?).ok()?;
        let is_valid = trace_id != 0 && span_id != 0;
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
    }

    /// Returns the sender of a request by its fields. Several fields, and an invalid one, count as none.
    pub(super) fn of_fields<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Self> {
        let mut named = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
        let (_, value) = named.next()?;
        if named.next().is_some() { None } else { Self::parse(value) }
    }
}

/// Reads a number of at most 32 hexadecimal digits in lower case.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Fills a place with the digits of a number.
fn write_hexadecimal(number: u128, place: &mut [u8]) {
    for (position, digit) in place.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * position)) as usize & 15];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE_ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN_ID: u64 = 0x00f0_67aa_0ba9_02b7;

    #[test]
    fn a_parent_is_read_strictly() {
        let rest = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for (value, is_sampled) in [
            (format!("00-{rest}-01"), Some(true)),
            (format!("00-{rest}-00"), Some(false)),
            // Other flags are not known, and are ignored.
            (format!("00-{rest}-03"), Some(true)),
            (format!("00-{rest}-fe"), Some(false)),
            // Later versions.
            (format!("01-{rest}-01"), Some(true)),
            (format!("fe-{rest}-00-what-will-be"), Some(false)),
            (format!("cc-{rest}-01-"), Some(true)),
            (format!("cc-{rest}-01.what"), None),
            (format!("cc-{rest}-01what"), None),
            (format!("ff-{rest}-01"), None),
            // Version 00 has no more parts.
            (format!("00-{rest}-01-"), None),
            (format!("00-{rest}-01-00"), None),
            (format!("00-{rest}-1"), None),
            (format!("00-{rest}"), None),
            (format!("0-{rest}-01"), None),
            (format!("0x-{rest}-01"), None),
            (format!("00_{rest}_01"), None),
            (format!("00-{}-01", rest.to_uppercase()), None),
            (format!("00-{}-01", rest.replace('-', "_")), None),
            (format!("00-{rest}-0g"), None),
            (format!("00-{}-01", rest.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))), None),
            (format!("00-{}-01", rest.replace("00f067aa0ba902b7", &"0".repeat(16))), None),
            (format!("00-{}-01", rest.replace("4bf92f", "4bf92+")), None),
            (format!(" 00-{rest}-01"), None),
            (String::new(), None),
        ] {
            let expected =
                is_sampled.map(|is_sampled| TraceParent { trace_id: TRACE_ID, span_id: SPAN_ID, is_sampled });
            assert_eq!(TraceParent::parse(value.as_bytes()), expected, "{value}");
            // No prefix of a valid value is valid, except where a later version ends.
            let mut prefixes = (0..value.len().min(TRACEPARENT_BYTES)).map(|end| &value.as_bytes()[..end]);
            assert!(prefixes.all(|prefix| TraceParent::parse(prefix).is_none()), "{value}");
        }
    }

    #[test]
    fn several_fields_are_none() {
        let value = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let lines: [(&[u8], &[u8]); 3] = [(b"Accept", b"*/*"), (b"TraceParent", value), (b"traceparent", value)];
        assert!(TraceParent::of_fields(lines[..1].iter().copied()).is_none());
        assert_eq!(TraceParent::of_fields(lines[..2].iter().copied()).unwrap().span_id, SPAN_ID);
        assert!(TraceParent::of_fields(lines.iter().copied()).is_none());
    }

    #[test]
    fn a_written_parent_is_read_again() {
        let context = TraceContext { trace_id: 0x0a, parent: Some(7), span_id: 8, is_sampled: true };
        let written = context.traceparent(0xb);
        assert_eq!(&written, b"00-0000000000000000000000000000000a-000000000000000b-01");
        let read = TraceParent::parse(&written).unwrap();
        assert_eq!(read, TraceParent { trace_id: 0x0a, span_id: 0xb, is_sampled: true });
        assert_eq!(&context.trace_id_text(), b"0000000000000000000000000000000a");
        let below = TraceContext::below(read);
        assert_eq!((below.trace_id, below.parent, below.is_sampled), (0x0a, Some(0xb), false));
        let first = TraceContext::new_trace();
        assert!(first.parent.is_none() && first.span_id != below.span_id && first.trace_id != 0);
        assert_eq!(first.traceparent(1)[53..], *b"00");
    }
}
