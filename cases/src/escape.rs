//! Escapes bytes for the text of a row, and reverses it.

/// Replaces the escapes of a text by the bytes that they represent.
///
/// # Errors
/// One sentence that names the invalid escape.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut repeated_from = None;
    let mut rest = text;
    while let Some(mark) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..mark]);
        let escape = &rest[mark + 1..];
        let code = escape.chars().next().ok_or("a backslash at the end is not an escape")?;
        rest = &escape[code.len_utf8()..];
        match code {
            'r' => out.push(b'\r'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            '0' => out.push(0),
            '\\' | '"' => out.push(code as u8),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x needs two digits")?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("\\x{digits} is not a hexadecimal byte"))?);
                rest = &rest[2..];
            }
            '{' if repeated_from.is_none() => repeated_from = Some(out.len()),
            '*' => {
                let from = repeated_from.take().ok_or("\\* is outside of \\{ and \\}")?;
                let (count, tail) = rest.split_once("\\}").ok_or("\\} is missing")?;
                let count: usize = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
                let text = out.split_off(from);
                out.extend(text.repeat(count));
                rest = tail;
            }
            _ => return Err(format!("\\{code} is not a valid escape here")),
        }
    }
    if repeated_from.is_some() {
        return Err("\\* is missing".to_owned());
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Escapes bytes to printable ASCII without a space: one word.
pub fn word(bytes: &[u8]) -> String {
    escape(bytes, |b| b.is_ascii_graphic())
}

/// Escapes bytes to printable ASCII in quotation marks.
pub fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", escape(bytes, |b| b.is_ascii_graphic() || b == b' '))
}

fn escape(bytes: &[u8], is_literal: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\\""),
            _ if is_literal(b) => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_reversible_and_invalid_escapes_refused() {
        assert_eq!(unescape(r"a\r\n\t\0\\\x7f\{xy\*3\}z\{\r\*2\}").unwrap(), b"a\r\n\t\0\\\x7fxyxyxyz\r\r");
        assert_eq!(unescape("é{*}").unwrap(), "é{*}".as_bytes());
        for invalid in [r"\", r"\q", r"\x1", r"\xzz", r"\{a", r"a\*3\}", r"\{a\*b\}", r"\{\{a\*2\}\*2\}", r"\{a\*2"] {
            assert!(unescape(invalid).is_err(), "{invalid}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&word(&all)).unwrap(), all);
        assert_eq!(unescape(quoted(&all).trim_matches('"')).unwrap(), all);
        assert!(word(&all).bytes().all(|b| b.is_ascii_graphic()));
    }
}
