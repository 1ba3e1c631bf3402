//! Words and names that HTTP and the system have rules for.

use super::{Value, Wrong};
use crate::config::nearest::suggestion;
use selvedge::proto::field::{Fields, InvalidField, is_token};

pub(super) fn read_choice(text: &str, words: &[&'static str]) -> Result<Value, Wrong> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_owned()));
    }
    Err(Wrong::new(format!("`{text}` is not known here"), suggestion(text, words.iter().copied())))
}

/// The name or the number of a user or group.
pub(super) fn read_account(text: &str) -> Result<Value, Wrong> {
    let is_name = (1..=32).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if is_name {
        Ok(Value::Text(text.to_owned()))
    } else {
        Err(Wrong::new(format!("`{text}` is no account"), "as in \"www-data\""))
    }
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];

pub(super) fn read_method(text: &str) -> Result<Value, Wrong> {
    let upper = text.to_ascii_uppercase();
    if upper != text && METHODS.contains(&upper.as_str()) {
        return Err(Wrong::new(
            format!("methods are in capitals: `{text}` is another one"),
            format!("write \"{upper}\""),
        ));
    }
    if is_token(text.as_bytes()) {
        Ok(Value::Text(text.to_owned()))
    } else {
        Err(Wrong::new(format!("`{text}` is no method"), "as in \"GET\""))
    }
}

/// The name of a response field that is not the engine's own.
pub(super) fn read_field_name(text: &str) -> Result<Value, Wrong> {
    match Fields::new().append(text, "") {
        Ok(()) => Ok(Value::Text(text.to_owned())),
        Err(InvalidField::EngineOnly) => Err(Wrong::new(
            format!("`{text}` is written by the server itself"),
            "it is part of the framing or the fate of the connection",
        )),
        Err(InvalidField::Name | InvalidField::Value) => Err(explain_field_name(text)),
    }
}

/// The name of any field.
pub(super) fn read_request_field_name(text: &str) -> Result<Value, Wrong> {
    if is_token(text.as_bytes()) { Ok(Value::Text(text.to_owned())) } else { Err(explain_field_name(text)) }
}

fn explain_field_name(text: &str) -> Wrong {
    let instead = match text.split_once(':') {
        Some((name, value)) if is_token(name.as_bytes()) => format!("write \"{name}\" \"{}\"", value.trim()),
        _ => "letters, digits and hyphens, as in \"X-Frame-Options\"".to_owned(),
    };
    Wrong::new(format!("`{}` is no field name", text.escape_debug()), instead)
}

pub(super) fn read_field_value(text: &str) -> Result<Value, Wrong> {
    match Fields::new().append("x", text) {
        Ok(()) => Ok(Value::Text(text.trim_matches([' ', '\t']).to_owned())),
        Err(_) => Err(Wrong::new("a field value with a line end or another control character", "put it on one line")),
    }
}

/// A user name of Basic authentication, which ends at a colon (RFC 7617 §2). In a file of users a
/// line that begins with `#` is a comment, and blanks around a line are none of it.
pub(super) fn read_user_name(text: &str) -> Result<Value, Wrong> {
    if text.is_empty() || text.contains(':') || text.contains(char::is_control) {
        return Err(Wrong::new("this is no user name", "it is not empty and has no colon and no control character"));
    }
    if text.starts_with(|c: char| c == '#' || c.is_whitespace()) {
        return Err(Wrong::new("this is no user name", "begin it with another character than `#` or a blank"));
    }
    Ok(Value::Text(text.to_owned()))
}

/// What hashes begin with.
const HASHES: [&str; 6] = ["$argon2id$", "$argon2i$", "$argon2d$", "$2y$", "$2b$", "$2a$"];

/// Whether a text has the form of a hash that passwords are held to.
pub(crate) fn is_password_hash(text: &str) -> bool {
    HASHES.iter().any(|start| text.starts_with(start)) && text.bytes().all(|b| matches!(b, b'!'..=b'~'))
}

pub(super) fn read_password_hash(text: &str) -> Result<Value, Wrong> {
    if is_password_hash(text) {
        return Ok(Value::Text(text.to_owned()));
    }
    // What was written may be a password, so it is not repeated.
    Err(Wrong::new(
        "this is no argon2 or bcrypt hash",
        "a password is never written in clear; `htpasswd -nB NAME` makes a hash of it",
    ))
}
