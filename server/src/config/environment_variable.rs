//! `${NAME}` and `${NAME:-default}` in values.

use super::text::Scalar;
use super::value::{ValueError, ValueKind};

/// Whether a text is one variable and nothing else, so that its value may be a list.
pub(super) fn is_alone(text: &str) -> bool {
    text.starts_with("${") && text.find('}') == Some(text.len() - 1)
}

/// Returns the value that the text of a variable stands for: a flag or a number is written without quotes elsewhere.
pub(super) fn as_scalar(kind: ValueKind, text: String) -> Scalar {
    match (kind, text.trim_start_matches('#')) {
        (ValueKind::Flag, "true") => Scalar::Flag(true),
        (ValueKind::Flag, "false") => Scalar::Flag(false),
        _ => match text.parse() {
            Ok(number) if kind.is_number() => Scalar::Integer(number),
            _ => Scalar::Text(text),
        },
    }
}

/// Replaces variables by their values. `$` without a brace is literal, and `$${` is a literal `${`.
pub(super) fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, ValueError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = behind;
            continue;
        }
        out.push_str(before);
        let Some((inside, behind)) = behind.split_once('}') else {
            return Err(ValueError::new("`${` without `}`", "write \"${NAME}\", or `$${` for a literal `${`"));
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(ValueError::new(
                format!("`{}` is not a variable name", name.escape_debug()),
                "use letters, digits and `_`, as in \"${SITE_ROOT}\"",
            ));
        }
        // As in a shell, an empty variable counts as missing if a default is given.
        match (variable(name), default) {
            (Some(value), _) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (Some(_), None) => {}
            (None, None) => {
                let instead = format!("set it, or write \"${{{name}:-default}}\"");
                return Err(ValueError::new(format!("environment variable {name} is not set"), instead));
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
