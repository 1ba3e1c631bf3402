//! Names with rules of HTTP or the system.

use super::{Value, ValueError};
use crate::config::suggest::suggestion;
use selvedge::proto::field::{Fields, InvalidField, is_token};

pub(super) fn read_choice(text: &str, words: &[&'static str]) -> Result<Value, ValueError> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_owned()));
    }
    Err(ValueError::new(format!("unknown value `{text}`"), suggestion(text, words.iter().copied())))
}

/// Reads the name or number of a user or group.
pub(super) fn read_account(text: &str) -> Result<Value, ValueError> {
    let is_name = (1..=32).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if is_name {
        Ok(Value::Text(text.to_owned()))
    } else {
        Err(ValueError::new(format!("`{text}` is not a user or group name"), "write, for example, \"www-data\""))
    }
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];

pub(super) fn read_method(text: &str) -> Result<Value, ValueError> {
    let upper = text.to_ascii_uppercase();
    if upper != text && METHODS.contains(&upper.as_str()) {
        return Err(ValueError::new(
            format!("methods are case-sensitive: `{text}` is not {upper}"),
            format!("write \"{upper}\""),
        ));
    }
    if is_token(text.as_bytes()) {
        Ok(Value::Text(text.to_owned()))
    } else {
        Err(ValueError::new(format!("`{text}` is not a method"), "write, for example, \"GET\""))
    }
}

/// Reads the name of a response field that the engine does not set.
pub(super) fn read_field_name(text: &str) -> Result<Value, ValueError> {
    match Fields::new().append(text, "") {
        Ok(()) => Ok(Value::Text(text.to_owned())),
        Err(InvalidField::Reserved) => Err(ValueError::new(
            format!("`{text}` is set by the server and cannot be changed"),
            "it controls the message framing or the connection",
        )),
        Err(InvalidField::Name | InvalidField::Value) => Err(explain_field_name(text)),
    }
}

/// Reads the name of any field.
pub(super) fn read_request_field_name(text: &str) -> Result<Value, ValueError> {
    if is_token(text.as_bytes()) { Ok(Value::Text(text.to_owned())) } else { Err(explain_field_name(text)) }
}

fn explain_field_name(text: &str) -> ValueError {
    let instead = match text.split_once(':') {
        Some((name, value)) if is_token(name.as_bytes()) => format!("write \"{name}\" \"{}\"", value.trim()),
        _ => "use letters, digits and hyphens, as in \"X-Frame-Options\"".to_owned(),
    };
    ValueError::new(format!("`{}` is not a field name", text.escape_debug()), instead)
}

pub(super) fn read_field_value(text: &str) -> Result<String, ValueError> {
    match Fields::new().append("x", text) {
        Ok(()) => Ok(text.trim_matches([' ', '\t']).to_owned()),
        Err(_) => Err(ValueError::new("the field value contains a control character", "write it on one line")),
    }
}

/// Reads a media type, which may have parameters.
pub(super) fn read_media_type(text: &str) -> Result<Value, ValueError> {
    let value = read_field_value(text)?;
    let essence = value.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((top, subtype)) if is_token(top.as_bytes()) && is_token(subtype.as_bytes()) && !essence.contains('*') => {
            Ok(Value::Text(value))
        }
        _ => Err(ValueError::new("this is not a media type", "write, for example, \"text/plain; charset=utf-8\"")),
    }
}

/// Reads a user name of Basic authentication, which ends at a colon (RFC 7617 §2). In a password file, `#` starts a
/// comment and surrounding blanks are ignored.
pub(super) fn read_user_name(text: &str) -> Result<Value, ValueError> {
    if text.is_empty() || text.contains(':') || text.contains(char::is_control) {
        return Err(ValueError::new(
            "this is not a user name",
            "a user name is not empty, and has no colon or control character",
        ));
    }
    if text.starts_with(|c: char| c == '#' || c.is_whitespace()) {
        return Err(ValueError::new("this is not a user name", "a user name does not start with `#` or a blank"));
    }
    Ok(Value::Text(text.to_owned()))
}

/// Prefixes of supported hashes.
const HASHES: [&str; 6] = ["$argon2id$", "$argon2i$", "$argon2d$", "$2y$", "$2b$", "$2a$"];

/// Whether a text has the form of a supported password hash.
pub(crate) fn is_password_hash(text: &str) -> bool {
    HASHES.iter().any(|start| text.starts_with(start)) && text.bytes().all(|b| matches!(b, b'!'..=b'~'))
}

pub(super) fn read_password_hash(text: &str) -> Result<Value, ValueError> {
    if is_password_hash(text) {
        return Ok(Value::Text(text.to_owned()));
    }
    // The text may be a password, so the message does not repeat it.
    Err(ValueError::new(
        "this is not an argon2 or bcrypt hash",
        "never write a password in clear; `htpasswd -nB NAME` prints its hash",
    ))
}
