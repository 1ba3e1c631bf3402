//! `${NAME}` and `${NAME:-default}` in values.

use super::sources::Sources;
use super::value::ValueError;

/// Replaces variables by their values. `$` without a brace is literal, and `$${` is a literal `${`.
pub(super) fn expand(text: &str, sources: &dyn Sources) -> Result<String, ValueError> {
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
        match (sources.variable(name), default) {
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
