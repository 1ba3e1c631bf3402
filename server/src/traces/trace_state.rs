//! The field `tracestate`, in which tracing systems note what they need of each other (W3C Trace Context,
//! <https://www.w3.org/TR/trace-context/#tracestate-header>). It is passed on, and never changed.

/// Most bytes that are passed on. Each system has to pass on at least as many.
const STATE_BYTES_MAX: usize = 512;
/// Most members. A longer list is invalid.
const MEMBERS_MAX: usize = 32;
/// Members with more bytes are the first to be removed from a list that is too long.
const LONG_MEMBER_BYTES: usize = 128;
/// Most characters of a key and of a value.
const PART_BYTES_MAX: usize = 256;

/// Returns the members of all lines of the field as one list; `None` for none, and for an invalid list.
pub(super) fn combined<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Box<str>> {
    let lines = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"tracestate"));
    let members = lines.flat_map(|(_, line)| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut kept = Vec::new();
    for member in members.filter(|member| !member.is_empty()) {
        if kept.len() == MEMBERS_MAX || !is_member(member) {
            return None;
        }
        kept.push(std::str::from_utf8(member).ok()?);
    }
    if length(&kept) > STATE_BYTES_MAX {
        kept.retain(|member| member.len() <= LONG_MEMBER_BYTES);
    }
    while length(&kept) > STATE_BYTES_MAX {
        kept.pop();
    }
    (!kept.is_empty()).then(|| kept.join(",").into())
}

/// Returns the length of a list.
fn length(members: &[&str]) -> usize {
    members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
}

/// Whether a member is a key and a value.
fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..at], &member[at + 1..]);
    let is_key = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let is_value = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    (1..=PART_BYTES_MAX).contains(&key.len())
        && (1..=PART_BYTES_MAX).contains(&value.len())
        && key.iter().all(is_key)
        && value.iter().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Option<String> {
        let fields = lines.iter().map(|line| (&b"TraceState"[..], line.as_bytes()));
        combined(fields.chain([(&b"tracestates"[..], &b"x=1"[..])])).map(String::from)
    }

    #[test]
    fn lines_are_one_list() {
        for (lines, expected) in [
            (&["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"][..], Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")),
            (&["a=1", "b=2, c=3"], Some("a=1,b=2,c=3")),
            (&["a=1 ,\t b= 2", "", ","], Some("a=1,b= 2")),
            (&["fw529a3039@dt=FfffffeA;x:1"], Some("fw529a3039@dt=FfffffeA;x:1")),
            (&["0/_-*@=~"], Some("0/_-*@=~")),
            (&[], None),
            (&[""], None),
            (&["a"], None),
            (&["=1"], None),
            (&["a="], None),
            (&["a=1", "b"], None),
            (&["A=1"], None),
            (&["a=1=2"], None),
            (&["a b=1"], None),
            (&["a=é"], None),
        ] {
            assert_eq!(of(lines).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let member = |number: usize, length: usize| format!("k{number:02}={}", "v".repeat(length - 4));
        let list = |lengths: &[usize]| {
            let members: Vec<_> = lengths.iter().enumerate().map(|(number, length)| member(number, *length)).collect();
            members.join(",")
        };
        let whole = list(&[129, 128, 128, 124]);
        assert_eq!((whole.len(), of(&[&whole])), (512, Some(whole.clone())));
        // The long member is removed first, then those at the end.
        let longer = list(&[129, 128, 128, 125]);
        assert_eq!(of(&[&longer]).as_deref(), longer.split_once(',').map(|(_, rest)| rest));
        let short = list(&[100; 6]);
        assert_eq!(of(&[&short]), Some(list(&[100; 5])));
        assert_eq!(of(&[&list(&[200, 200, 200])]), None);
        assert_eq!(of(&[&list(&[8; 32])]), Some(list(&[8; 32])));
        assert_eq!(of(&[&list(&[8; 33])]), None);
        assert_eq!(of(&[&format!("{}=1", "k".repeat(257))]), None);
        assert_eq!(of(&[&format!("k={}", "v".repeat(257))]), None);
    }
}
