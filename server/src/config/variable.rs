//! `${NAME}` and `${NAME:-default}` in values.

use super::Sources;
use super::value::Wrong;

/// Puts the variables of the environment in their places. `$` without a brace is itself,
/// and `$${` is a `${` that is none.
pub(super) fn expand(text: &str, sources: &dyn Sources) -> Result<String, Wrong> {
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
            return Err(Wrong::new(
                "a `${` without its `}`",
                "as in \"${NAME}\"; a `${` that is none is written `$${`",
            ));
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(Wrong::new(
                format!("`{}` is no name of a variable", name.escape_debug()),
                "letters, digits and `_`, as in \"${SITE_ROOT}\"",
            ));
        }
        // As in a shell, an empty one counts as missing where there is a default.
        match (sources.variable(name), default) {
            (Some(value), _) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (Some(_), None) => {}
            (None, None) => {
                let instead = format!("set it, or write \"${{{name}:-default}}\"");
                return Err(Wrong::new(format!("the variable {name} is not set"), instead));
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}
