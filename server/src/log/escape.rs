//! Escaping for log lines: a line stays one line of ASCII, whatever a client sends.

/// Length of a byte that is escaped by number, as in `\x1b`.
pub(super) const TEXT_NUMBER_BYTES: usize = 4;
/// Length of a byte that is escaped by number in JSON, as in `\u001b`.
pub(super) const JSON_NUMBER_BYTES: usize = 6;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Whether a byte is written literally: visible ASCII or a space, but no quote or backslash.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..0x7f) & (byte != b'"') & (byte != b'\\')
}

/// Returns the number of leading bytes that are written literally.
fn plain_length(bytes: &[u8]) -> usize {
    // Without a branch within a chunk, the compiler vectorises the test.
    let (chunks, _) = bytes.as_chunks::<16>();
    let plain = chunks.iter().take_while(|chunk| chunk.iter().fold(true, |all, &byte| all & is_plain(byte))).count();
    let at = plain * 16;
    bytes[at..].iter().position(|&byte| !is_plain(byte)).map_or(bytes.len(), |odd| at + odd)
}

/// Returns the longest prefix whose escaped form has at most `most` bytes. A byte escaped by number takes
/// `number_bytes`.
pub(super) fn fitting(bytes: &[u8], most: usize, number_bytes: usize) -> &[u8] {
    if bytes.len() <= most / number_bytes {
        return bytes;
    }
    let mut taken = 0;
    let over = bytes.iter().position(|&byte| {
        taken += match byte {
            b'"' | b'\\' => 2,
            byte if is_plain(byte) => 1,
            _ => number_bytes,
        };
        taken > most
    });
    &bytes[..over.unwrap_or(bytes.len())]
}

/// Appends bytes to a line of text: quotes and backslashes are escaped by a backslash, other bytes that are not
/// visible ASCII or a space by `\xHH`.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    escape_with(bytes, b"\\x", out);
}

/// Appends bytes outside of quotes, where a space would end the value.
pub(super) fn escape_word(bytes: &[u8], out: &mut Vec<u8>) {
    for (number, word) in bytes.split(|&b| b == b' ').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\\x20");
        }
        escape(word, out);
    }
}

/// Appends bytes to a JSON string. Each byte becomes the character with its number, so encoding the string as Latin-1
/// restores the bytes.
pub(super) fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    escape_with(bytes, b"\\u00", out);
}

/// Appends the output of [`escape`] to a JSON string.
pub(super) fn escape_for_json(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' => out.extend_from_slice(br#"\\\""#),
            b'\\' => out.extend_from_slice(br"\\\\"),
            byte if is_plain(byte) => out.push(byte),
            byte => {
                out.extend_from_slice(br"\\x");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
}

/// Appends our own text to a JSON string.
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
    loop {
        let (plain, odd) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = odd.split_first() else { return };
        if let b'"' | b'\\' = byte {
            out.extend_from_slice(&[b'\\', byte]);
        } else {
            out.extend_from_slice(number);
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        rest = after;
    }
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
        let escaped = serde_json::to_string(&done(escape, odd)).unwrap();
        assert_eq!(format!("\"{}\"", done(escape_for_json, odd)), escaped);
        assert_eq!(done(escape_json, odd), r#"GET /\"a\\b\u000d\u000a\u001b[0m\u00c3\u00a9 HTTP"#);
    }

    #[test]
    fn json_restores_bytes_and_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let read: String = serde_json::from_str(&format!("\"{}\"", done(escape_json, &bytes))).unwrap();
        assert_eq!(read.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<_>>(), bytes);
        for text in ["", "plain", "é", "a\u{85}b\u{2028}", "𝄞 and \"quotes\"\n", "ends in ü"] {
            let mut out = Vec::new();
            escape_json_text(text, &mut out);
            assert!(out.is_ascii() && !out.iter().any(u8::is_ascii_control));
            let read: String = serde_json::from_slice(&[b"\"", &out[..], b"\""].concat()).unwrap();
            assert_eq!(read, text);
        }
    }
}
