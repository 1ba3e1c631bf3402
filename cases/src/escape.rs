//! Bytes as the text of a row, and back.

/// The bytes that a text with escapes stands for.
///
/// # Errors
/// A sentence that names the escape which cannot be read.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut repeated_from = None;
    let mut rest = text;
    while let Some(mark) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..mark]);
        let escape = &rest[mark + 1..];
        let code = escape.chars().next().ok_or("a backslash stands at the end")?;
        rest = &escape[code.len_utf8()..];
        match code {
            'r' => out.push(b'\r'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            '0' => out.push(0),
            '\\' | '"' => out.push(code as u8),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x needs two digits")?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("\\x{digits} is no octet"))?);
                rest = &rest[2..];
            }
            '{' if repeated_from.is_none() => repeated_from = Some(out.len()),
            '*' => {
                let from = repeated_from.take().ok_or("\\* stands outside of \\{ and \\}")?;
                let (count, tail) = rest.split_once("\\}").ok_or("\\} is missing")?;
                let count: usize = count.parse().map_err(|_| format!("`{count}` is no count"))?;
                let text = out.split_off(from);
                out.extend(text.repeat(count));
                rest = tail;
            }
            _ => return Err(format!("\\{code} is no escape here")),
        }
    }
    if repeated_from.is_some() {
        return Err("\\* is missing".to_owned());
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Printable ASCII for any bytes, without a space: one word.
pub fn word(bytes: &[u8]) -> String {
    escape(bytes, |b| b.is_ascii_graphic())
}

/// Printable ASCII for any bytes, between quotation marks.
pub fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", escape(bytes, |b| b.is_ascii_graphic() || b == b' '))
}

fn escape(bytes: &[u8], plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\\""),
            _ if plain(b) => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        assert_eq!(unescape(r"a\r\n\t\0\\\x7f\{xy\*3\}z\{\r\*2\}").unwrap(), b"a\r\n\t\0\\\x7fxyxyxyz\r\r");
        assert_eq!(unescape("é{*}").unwrap(), "é{*}".as_bytes());
        for wrong in [r"\", r"\q", r"\x1", r"\xzz", r"\{a", r"a\*3\}", r"\{a\*b\}", r"\{\{a\*2\}\*2\}", r"\{a\*2"] {
            assert!(unescape(wrong).is_err(), "{wrong}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&word(&all)).unwrap(), all);
        assert_eq!(unescape(quoted(&all).trim_matches('"')).unwrap(), all);
        assert!(word(&all).bytes().all(|b| b.is_ascii_graphic()));
    }
}
