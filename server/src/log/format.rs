//! Octets and times as log lines have them.

use selvedge::proto::date::HttpDate;

/// Appends octets so that a line stays a line and is ASCII: quotes and backslashes are
/// escaped, and what is no visible ASCII or space becomes `\xHH`.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| !(0x20..0x7f).contains(&b) || b == b'"' || b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', b]),
            b => out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// `10/Oct/2000:13:55:36 +0000`, made from an IMF-fixdate, which has the same parts.
pub(super) fn access_time(unix_time: i64) -> [u8; 26] {
    let date = HttpDate::from_unix(unix_time).format();
    let mut out = *b"00/Jan/0000:00:00:00 +0000";
    out[..2].copy_from_slice(&date[5..7]);
    out[3..6].copy_from_slice(&date[8..11]);
    out[7..11].copy_from_slice(&date[12..16]);
    out[12..20].copy_from_slice(&date[17..25]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        let mut out = Vec::new();
        escape(b"GET /\"a\\b\r\n\x1b[0m\xc3\xa9 HTTP", &mut out);
        assert_eq!(out, br#"GET /\"a\\b\x0d\x0a\x1b[0m\xc3\xa9 HTTP"#);
    }

    #[test]
    fn times() {
        assert_eq!(&access_time(971_186_136), b"10/Oct/2000:13:55:36 +0000");
    }
}
