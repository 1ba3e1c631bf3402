//! Octets as log lines have them: whatever a client sends, a line stays one line of ASCII.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// What an octet needs.
const PLAIN: u8 = 0;
const BACKSLASH: u8 = 1;
const BY_NUMBER: u8 = 2;

const NEEDS: [u8; 256] = {
    let mut table = [BY_NUMBER; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        table[byte] = PLAIN;
        byte += 1;
    }
    table[b'"' as usize] = BACKSLASH;
    table[b'\\' as usize] = BACKSLASH;
    table
};

/// Appends octets to a line of text: quotes and backslashes get a backslash, and what is
/// neither visible ASCII nor a space becomes `\xHH`.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    escape_with(bytes, b"\\x", out);
}

/// Appends octets that stand in no quotes, where a space would end them.
pub(super) fn escape_word(bytes: &[u8], out: &mut Vec<u8>) {
    for (number, word) in bytes.split(|&b| b == b' ').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\\x20");
        }
        escape(word, out);
    }
}

/// Appends octets to a JSON string. Each octet is the character of its number, so that
/// whoever encodes the string as Latin-1 has the octets again, whatever they were.
pub(super) fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    escape_with(bytes, b"\\u00", out);
}

/// Appends text of our own to a JSON string.
pub(super) fn escape_json_text(text: &str, out: &mut Vec<u8>) {
    for part in text.split_inclusive(|c: char| !c.is_ascii()) {
        let end = part.char_indices().next_back().filter(|(_, c)| !c.is_ascii());
        escape_json(&part.as_bytes()[..end.map_or(part.len(), |(at, _)| at)], out);
        let mut units = [0; 2];
        for unit in end.map(|(_, c)| &*c.encode_utf16(&mut units)).unwrap_or_default() {
            out.extend_from_slice(b"\\u");
            out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(unit >> shift & 15)]));
        }
    }
}

fn escape_with(bytes: &[u8], number: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| NEEDS[usize::from(b)] != PLAIN) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        if NEEDS[usize::from(byte)] == BACKSLASH {
            out.extend_from_slice(&[b'\\', byte]);
        } else {
            out.extend_from_slice(number);
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(how: fn(&[u8], &mut Vec<u8>), bytes: &[u8]) -> String {
        let mut out = Vec::new();
        how(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_stays_a_line() {
        let odd = b"GET /\"a\\b\r\n\x1b[0m\xc3\xa9 HTTP";
        assert_eq!(done(escape, odd), r#"GET /\"a\\b\x0d\x0a\x1b[0m\xc3\xa9 HTTP"#);
        assert_eq!(done(escape_word, b" a\x7f b"), r"\x20a\x7f\x20b");
        assert_eq!(done(escape_json, odd), r#"GET /\"a\\b\u000d\u000a\u001b[0m\u00c3\u00a9 HTTP"#);
    }

    #[test]
    fn json_gives_octets_and_text_back() {
        let octets: Vec<u8> = (0..=255).collect();
        let read: String = serde_json::from_str(&format!("\"{}\"", done(escape_json, &octets))).unwrap();
        assert_eq!(read.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<_>>(), octets);
        for text in ["", "plain", "é", "a\u{85}b\u{2028}", "𝄞 and \"quotes\"\n", "ends in ü"] {
            let mut out = Vec::new();
            escape_json_text(text, &mut out);
            assert!(out.is_ascii() && !out.iter().any(u8::is_ascii_control));
            let read: String = serde_json::from_slice(&[b"\"", &out[..], b"\""].concat()).unwrap();
            assert_eq!(read, text);
        }
    }
}
