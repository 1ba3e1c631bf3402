//! Decoded paths as text, in which private characters hold the bytes that are not UTF-8, and encoded slashes.

use std::borrow::Cow;

/// The slash that holds the place of one that was percent-encoded, until the path becomes text. No decoded path has
/// this control character.
pub(super) const HELD_SLASH: u8 = 0;

/// The first character of those that hold a byte: U+10FF00 holds byte 0.
const HELD_FIRST: u32 = 0x10_ff00;

/// Returns the private character that holds a byte.
const fn held(byte: u8) -> char {
    match char::from_u32(HELD_FIRST + byte as u32) {
        Some(held) => held,
        None => char::REPLACEMENT_CHARACTER,
    }
}

/// Returns the byte that a character holds.
fn held_byte(character: char) -> Option<u8> {
    u32::from(character).checked_sub(HELD_FIRST).and_then(|byte| u8::try_from(byte).ok())
}

/// Returns decoded bytes as text.
pub(super) fn text_of(bytes: Vec<u8>) -> String {
    // The characters that hold bytes begin with this byte in UTF-8.
    const HELD_START: u8 = 0xf4;
    if bytes.iter().any(|&b| matches!(b, HELD_SLASH | HELD_START)) {
        return text_with_held_bytes(&bytes);
    }
    String::from_utf8(bytes).unwrap_or_else(|error| text_with_held_bytes(error.as_bytes()))
}

fn text_with_held_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match (character, held_byte(character)) {
                ('\0', _) => text.push(held(b'/')),
                (_, Some(_)) => {
                    text.extend(character.encode_utf8(&mut [0; 4]).bytes().map(held));
                }
                _ => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(held));
    }
    text
}

/// Returns the name of a file as the text of a segment.
pub fn text_of_name(name: &[u8]) -> String {
    text_of(name.to_vec())
}

/// Returns the bytes of a decoded text, with those that private characters hold.
pub fn path_bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.chars().any(|character| held_byte(character).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match held_byte(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Returns a decoded text as the bytes of a file's path. `None` if a segment has a slash, which no file name has.
pub fn file_path(text: &str) -> Option<Cow<'_, [u8]>> {
    (!text.contains(held(b'/'))).then(|| path_bytes(text))
}

/// Appends a decoded text, and each byte that is neither alphanumeric nor in `plain` percent-encoded. Bytes that private
/// characters hold are encoded, too.
pub fn encode_text(text: &str, plain: &[u8], out: &mut String) {
    for character in text.chars() {
        let mut buffer = [0; 4];
        match held_byte(character) {
            Some(byte) => push_encoded(byte, out),
            None => {
                for &byte in character.encode_utf8(&mut buffer).as_bytes() {
                    match byte.is_ascii_alphanumeric() || plain.contains(&byte) {
                        true => out.push(char::from(byte)),
                        false => push_encoded(byte, out),
                    }
                }
            }
        }
    }
}

fn push_encoded(byte: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend(['%', char::from(HEX[usize::from(byte >> 4)]), char::from(HEX[usize::from(byte & 15)])]);
}

/// Percent-encodes one segment of a path (RFC 3986 §3.3), with the bytes that private characters hold. A colon is encoded
/// too, so that the start of a relative reference cannot be parsed as a scheme.
pub fn encode_segment(segment: &str, out: &mut String) {
    encode_text(segment, b"-._~!$&'()*+,;=@", out);
}
