//! Classes of characters in KDL.

/// Whether a character is a line end.
pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// Whether a character is white space within a line.
pub(super) fn is_space(c: char) -> bool {
    !is_newline(c) && c.is_whitespace()
}

/// Whether a character may not be in a text: control characters, marks that change the direction of writing, and a byte
/// order mark.
pub(super) fn is_disallowed(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
}
