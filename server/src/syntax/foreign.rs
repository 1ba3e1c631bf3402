//! Recognizes what means something in the values of other servers, and not here. It would stand for itself without a
//! word, so it is refused with what to write instead.

use super::ValueError;

/// Values of other servers and the placeholder of ours: the text between `$` or `%{` and its end.
const VARIABLES: &[(&str, &str)] = &[
    ("host", "{host}"),
    ("http_host", "{host}"),
    ("server_name", "{host}"),
    ("hostname", "{host}"),
    ("http.request.host", "{host}"),
    ("request_uri", "{path}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("path", "{path}"),
    ("http.request.uri", "{path}"),
    ("http.request.uri.path", "{path}"),
    ("args", "{query}"),
    ("query_string", "{query}"),
    ("query", "{query}"),
    ("http.request.uri.query", "{query}"),
    ("scheme", "{scheme}"),
    ("request_scheme", "{scheme}"),
    ("http.request.scheme", "{scheme}"),
    ("request_method", "{method}"),
    ("method", "{method}"),
    ("remote_addr", "{client}"),
    ("remote_host", "{client}"),
    ("binary_remote_addr", "{client}"),
    ("ssl_client_s_dn", "{client_subject}"),
    ("http.request.tls.client.subject", "{client_subject}"),
];

/// Refuses a path pattern of another server.
pub(super) fn check_pattern(text: &str) -> Result<(), ValueError> {
    if let Some(rest) = ["~*", "~"].iter().find_map(|mark| text.strip_prefix(mark)) {
        let case = if text.starts_with("~*") { " and ignore-case=#true" } else { "" };
        let instead = format!("write {}{case}", quoted(rest.trim_start()));
        return Err(ValueError::new("`~` does not mark a regular expression here", instead));
    }
    for (mark, end) in [("= ", ""), ("=/", ""), ("^~ ", "*")] {
        if let Some(rest) = text.strip_prefix(mark) {
            let path = rest.trim_start().trim_start_matches('/');
            let gap = if end.is_empty() || path.ends_with('/') || path.is_empty() { "" } else { "/" };
            let what = format!("`{}` before a path means nothing here", mark.trim_end().trim_end_matches('/'));
            return Err(ValueError::new(what, format!("write \"/{path}{gap}{end}\"")));
        }
    }
    if let Some(at) = separator(text) {
        let parts =
            text.split(&text[at..=at]).map(|part| part.trim().trim_matches(',')).filter(|part| !part.is_empty());
        let parts: Vec<_> = parts.map(|part| format!("\"{part}\"")).collect();
        return Err(ValueError::new("several patterns in one text", format!("write {}", parts.join(" "))));
    }
    if text.contains('?') {
        let instead =
            "a pattern matches the path; for the query, write `when { query \"name\" \"value\" }` in the block";
        return Err(ValueError::new("a pattern with a query", instead));
    }
    if text.contains('\\') {
        let instead = "separate segments with `/`; a regular expression begins with `regex:`";
        return Err(ValueError::new("a pattern with a backslash", instead));
    }
    if let Some(found) = text.chars().find(|c| matches!(c, '(' | ')' | '|' | '[' | ']' | '^' | '$')) {
        let instead = alternatives(text).unwrap_or_else(|| format!("write {}", quoted(&as_expression(text))));
        return Err(ValueError::new(format!("`{found}` has no meaning in a path pattern"), instead));
    }
    if let Some(segment) = text.split('/').find(|segment| segment.len() > 1 && segment.starts_with(':')) {
        let instead =
            format!("write {{{}}} for a segment with a name", segment.trim_start_matches(':').replace('-', "_"));
        return Err(ValueError::new(format!("`{segment}` is not a wildcard"), instead));
    }
    if let Some((before, list, behind)) = braces_with_list(text) {
        let all: Vec<_> = list.split(',').map(|word| format!("\"{before}{}{behind}\"", word.trim())).collect();
        return Err(ValueError::new("a list in braces is not a pattern", format!("write {}", all.join(" "))));
    }
    Ok(())
}

/// Refuses a variable of another server in a target or a text. A `$` or `%` before anything else stands for itself.
pub(super) fn check_variables(text: &str) -> Result<(), ValueError> {
    for (at, mark) in text.match_indices(['$', '%']) {
        let rest = &text[at + 1..];
        let braced = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
        let name = match (mark, braced) {
            (_, Some(name)) => name,
            ("$", None) => &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())],
            _ => continue,
        };
        if name.is_empty() {
            continue;
        }
        let written = if braced.is_some() { format!("{mark}{{{name}}}") } else { format!("{mark}{name}") };
        return Err(ValueError::new(format!("`{written}` is not filled in here"), instead_of(name, mark)));
    }
    Ok(())
}

/// Refuses the variables of other servers that this server has as well, in a text where `$` may mean a price.
pub(super) fn check_known_variables(text: &str) -> Result<(), ValueError> {
    let Some((written, ours)) = known_variables(text).next() else { return Ok(()) };
    Err(ValueError::new(format!("`{written}` is not filled in here"), format!("write {ours}")))
}

/// Returns the first variable of another server that this server has as well, as it is written.
pub(super) fn known_variable(text: &str) -> Option<&str> {
    known_variables(text).next().map(|(written, _)| written)
}

/// Returns each such variable as it is written, with the placeholder of ours.
fn known_variables(text: &str) -> impl Iterator<Item = (&str, &'static str)> {
    text.match_indices(['$', '%']).filter_map(move |(at, mark)| {
        let rest = &text[at + 1..];
        let braced = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
        let bare = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())];
        let name = if mark == "$" { braced.unwrap_or(bare) } else { braced.unwrap_or_default() };
        let length = 1 + name.len() + if braced.is_some() { 2 } else { 0 };
        placeholder(name).map(|ours| (&text[at..at + length], ours))
    })
}

/// Returns what to write for a placeholder of another server, such as `{uri}`.
pub(crate) fn placeholder(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    VARIABLES.iter().find(|(known, _)| *known == lower).map(|(_, ours)| *ours)
}

fn instead_of(name: &str, mark: &str) -> String {
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return format!("write {{{name}}} for the text of the pattern's wildcard {name}");
    }
    match placeholder(name) {
        Some(ours) => format!("write {ours}"),
        None if mark == "$" => "write {name} for a named wildcard of the pattern, and %24 for a `$`".to_owned(),
        None => "write {name} for a named wildcard of the pattern".to_owned(),
    }
}

/// Finds the comma or space between two patterns in one text.
fn separator(text: &str) -> Option<usize> {
    text.char_indices().filter(|(_, c)| matches!(c, ',' | ' ')).find_map(|(at, _)| {
        let next = text[at + 1..].trim_start();
        (at > 0 && next.starts_with(['/', '*', '.']) && !text[..at].ends_with('/')).then_some(at)
    })
}

/// Writes a pattern with one group of alternatives as several patterns.
fn alternatives(text: &str) -> Option<String> {
    let text = text.trim_start_matches('^').trim_end_matches('$');
    let (before, rest) = text.split_once('(')?;
    let (list, behind) = rest.split_once(')')?;
    let is_plain = |part: &str| !part.contains(['(', ')', '[', ']', '^', '$', '+', '\\']);
    if !list.contains('|') || list.contains(".*") {
        return None;
    }
    if ![before, list, behind].into_iter().all(is_plain) || before.contains(".*") || behind.contains(".*") {
        return None;
    }
    let all: Vec<_> = list.split('|').map(|word| format!("\"{before}{word}{behind}\"")).collect();
    Some(format!("write {}", all.join(" ")))
}

/// Quotes a regular expression for KDL: a backslash stands for itself in a raw string.
fn quoted(expression: &str) -> String {
    match expression.contains('\\') {
        true => format!("#\"regex:{expression}\"#"),
        false => format!("\"regex:{expression}\""),
    }
}

/// Writes what looks like a regular expression as one of ours.
fn as_expression(text: &str) -> String {
    let is_glob = text.contains('*') && !text.contains(".*") && !text.contains(")*");
    if is_glob { text.replace('*', ".*") } else { text.to_owned() }
}

/// Finds `{a,b}`.
fn braces_with_list(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (list, behind) = rest.split_once('}')?;
    list.contains(',').then_some((before, list, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_other_servers_are_explained() {
        for (text, suggestion) in [
            ("/(admin|private)/*", "write \"/admin/*\" \"/private/*\""),
            ("~ \\.php$", "write #\"regex:\\.php$\"#"),
            ("~* \\.(jpg|png)$", "write #\"regex:\\.(jpg|png)$\"# and ignore-case=#true"),
            ("= /exact", "write \"/exact\""),
            ("^~ /images/", "write \"/images/*\""),
            ("*.css, *.js", "write \"*.css\" \"*.js\""),
            ("/a,/b", "write \"/a\" \"/b\""),
            ("/a /b", "write \"/a\" \"/b\""),
            ("*.{css,js}", "write \"*.css\" \"*.js\""),
            ("/users/:id", "write {id} for a segment with a name"),
            ("/x[0-9]", "write \"regex:/x[0-9]\""),
            ("^/old/(.*)$", "write \"regex:^/old/(.*)$\""),
        ] {
            assert_eq!(check_pattern(text).unwrap_err().suggestion, suggestion, "{text}");
        }
        for text in ["/a", "/a,b", "/a b/c", "*.css", "/{id}/x", "/:"] {
            assert_eq!(check_pattern(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn variables_of_other_servers_are_explained() {
        for (text, suggestion) in [
            ("https://$host/x", "write {host}"),
            ("https://$host$request_uri", "write {host}"),
            ("/new/$1", "write {1} for the text of the pattern's wildcard 1"),
            ("https://%{HTTP_HOST}/", "write {host}"),
            ("/x?${args}", "write {query}"),
            ("/$foo", "write {name} for a named wildcard of the pattern, and %24 for a `$`"),
        ] {
            assert_eq!(check_variables(text).unwrap_err().suggestion, suggestion, "{text}");
        }
        for text in ["/a%20b", "/price$", "/$.json", "/100%"] {
            assert_eq!(check_variables(text), Ok(()), "{text}");
        }
    }
}
