//! Names with rules of HTTP or the system.

use super::{Value, ValueError};
use crate::config::suggest::suggestion;
use crate::syntax::HostName;
use selvedge::proto::field::{Fields, InvalidField, is_token};

/// Words of other servers for the words of a choice.
const FOREIGN_CHOICES: [(&str, &str); 21] = [
    ("least_conn", "least-loaded"),
    ("least-conn", "least-loaded"),
    ("leastconn", "least-loaded"),
    ("least_time", "least-loaded"),
    ("random", "least-loaded"),
    ("random_choose", "least-loaded"),
    ("bybusyness", "least-loaded"),
    ("p2c", "least-loaded"),
    ("round_robin", "round-robin"),
    ("roundrobin", "round-robin"),
    ("static-rr", "round-robin"),
    ("byrequests", "round-robin"),
    ("ip_hash", "hash"),
    ("uri_hash", "hash"),
    ("client_ip_hash", "hash"),
    ("header", "hash"),
    ("source", "hash"),
    ("uri", "hash"),
    ("cookie", "sticky"),
    ("h2c", "http2"),
    ("h2", "http2"),
];

pub(super) fn read_choice(text: &str, words: &[&'static str]) -> Result<Value, ValueError> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_owned()));
    }
    let of_others = FOREIGN_CHOICES.iter().find(|(word, ours)| *word == text && words.contains(ours));
    if let Some((_, ours)) = of_others {
        return Err(ValueError::new(format!("unknown value `{text}`"), format!("write \"{ours}\"")));
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
    if text.eq_ignore_ascii_case("date") {
        return Err(ValueError::new(
            format!("`{text}` is set by the server and cannot be changed"),
            "it is the time at which the response was made; remove it",
        ));
    }
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

/// Fields of a request to an upstream that other settings set, and what to write.
const FORWARDED_FIELDS_SET: [(&str, &str); 10] = [
    ("host", "write `host \"NAME\"` in the block of `proxy`; without it, the host of the client is kept"),
    ("connection", "the server manages the connections to an upstream; remove it"),
    ("upgrade", "WebSocket and other upgrades need no setting; remove it"),
    ("keep-alive", "the server manages the connections to an upstream; remove it"),
    ("proxy-connection", "the server manages the connections to an upstream; remove it"),
    ("te", "the server manages the connections to an upstream; remove it"),
    ("trailer", "trailer fields are forwarded; remove it"),
    ("transfer-encoding", "it controls the framing of the message"),
    ("content-length", "it controls the framing of the message"),
    ("expect", "the server manages it for both sides; remove it"),
];

/// Reads the name of a field that requests to an upstream may have.
pub(super) fn read_forwarded_field_name(text: &str) -> Result<Value, ValueError> {
    match FORWARDED_FIELDS_SET.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
        Some((_, instead)) => {
            Err(ValueError::new(format!("`{text}` is set by the server and cannot be changed"), *instead))
        }
        None => read_request_field_name(text),
    }
}

/// Reads the host of requests to an upstream: `keep`, `upstream`, or a host with or without a port.
pub(super) fn read_forwarded_host(text: &str) -> Result<Value, ValueError> {
    let is_host = |text: &str| {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        is_port && matches!(host.parse(), Ok(HostName::Exact(_)))
    };
    if ["keep", "upstream"].contains(&text) || is_host(text) {
        return Ok(Value::Text(text.to_ascii_lowercase()));
    }
    let instead = match text {
        "$host" | "$http_host" | "on" => "write \"keep\", the default",
        "$proxy_host" | "off" => "write \"upstream\"",
        _ => "write \"keep\" for the host of the client, \"upstream\" for that of the server, or a host",
    };
    Err(ValueError::new(format!("`{}` is not a host", text.escape_debug()), instead))
}

/// Reads the name of a variable of a script or program. Values of the server replace `HTTP_PROXY`, so a program that
/// uses it as its own proxy never gets it from a client.
pub(super) fn read_variable_name(text: &str) -> Result<Value, ValueError> {
    let is_name = !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_name {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(ValueError::new(
            format!("`{}` is not the name of a variable", text.escape_debug()),
            "use letters, digits and `_`, as in \"APP_ENV\"",
        )),
    }
}

/// Reads the name of a cookie (RFC 6265 §4.1.1).
pub(super) fn read_cookie_name(text: &str) -> Result<Value, ValueError> {
    match is_token(text.as_bytes()) {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(ValueError::new(
            format!("`{}` is not the name of a cookie", text.escape_debug()),
            "use letters, digits, `-` and `_`, as in \"server\"",
        )),
    }
}

/// Reads what requests are distributed by.
pub(super) fn read_hash_key(text: &str) -> Result<Value, ValueError> {
    let is_key = match text.split_once(':') {
        None => ["path", "client"].contains(&text),
        Some(("header" | "cookie", name)) => is_token(name.as_bytes()),
        Some(_) => false,
    };
    if is_key {
        return Ok(Value::Text(text.to_owned()));
    }
    let instead = match text {
        "ip" | "source" | "$remote_addr" | "$binary_remote_addr" => "write \"client\"",
        "uri" | "url" | "$request_uri" | "$uri" => "write \"path\"",
        "header" => "write \"header:NAME\"",
        "cookie" => "write \"cookie:NAME\"",
        _ => "write \"path\", \"client\", \"header:NAME\" or \"cookie:NAME\"",
    };
    Err(ValueError::new(format!("`{}` is nothing to distribute requests by", text.escape_debug()), instead))
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

/// Reads a name that reports show. An empty one stands for none there, and control characters would forge lines.
pub(super) fn read_label(text: &str) -> Result<Value, ValueError> {
    match text.trim().is_empty() || text.contains(char::is_control) {
        true => Err(ValueError::new("this is not a name", "a name is not empty, and has no control character")),
        false => Ok(Value::Text(text.to_owned())),
    }
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
