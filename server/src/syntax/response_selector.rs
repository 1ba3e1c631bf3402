//! Selects responses by path or by media type.

use super::ValueError;
use super::case_sensitivity::CaseSensitivity;
use super::pattern::Pattern;
use std::fmt;

/// The first parts of registered media types.
const TOP_LEVEL_TYPES: [&str; 9] =
    ["application", "audio", "font", "image", "message", "model", "multipart", "text", "video"];

/// Which responses a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseSelector {
    /// Those to a request for such a path, and those with a file of such a path.
    Path(Pattern),
    /// Those with a file of this media type: `text/html`, `image/*`.
    MediaType(Box<str>),
}

/// The file of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentFile<'a> {
    /// Its path in the form that patterns match.
    pub(crate) path: &'a str,
    pub(crate) media_type: &'a str,
}

impl ResponseSelector {
    /// Parses a media type or a path pattern.
    pub(crate) fn parse(text: &str, case: CaseSensitivity) -> Result<Self, ValueError> {
        let Some((top, _)) = text.split_once('/').filter(|(top, _)| TOP_LEVEL_TYPES.contains(top)) else {
            return Pattern::parse_with(text, case).map(Self::Path);
        };
        let is_subtype = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
        };
        let subtype = &text[top.len() + 1..];
        if subtype == "*" || is_subtype(subtype) {
            return Ok(Self::MediaType(text.to_ascii_lowercase().into()));
        }
        let instead = "write a type without parameters, as in \"text/html\" or \"image/*\"";
        Err(ValueError::new("this is not a media type", instead))
    }

    /// Returns this selector with the case of letters ignored, which media types always do.
    pub(crate) fn ignoring_case(&self) -> Self {
        match self {
            Self::Path(pattern) => Self::Path(pattern.ignoring_case()),
            Self::MediaType(_) => self.clone(),
        }
    }

    /// Whether a response is selected: by the path of the request, if it counts, or by the file that is sent.
    pub(crate) fn selects(&self, requested: Option<&str>, file: Option<SentFile<'_>>) -> bool {
        match self {
            Self::Path(pattern) => {
                let mut paths = requested.into_iter().chain(file.map(|file| file.path));
                paths.any(|path| pattern.is_match(path))
            }
            Self::MediaType(wanted) => file.is_some_and(|file| {
                let essence = file.media_type.split(';').next().unwrap_or_default().trim();
                match wanted.strip_suffix('*') {
                    Some(top) => essence.get(..top.len()).is_some_and(|own| own.eq_ignore_ascii_case(top)),
                    None => essence.eq_ignore_ascii_case(wanted),
                }
            }),
        }
    }
}

impl fmt::Display for ResponseSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(pattern) => pattern.fmt(f),
            Self::MediaType(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_selected() {
        let file = SentFile { path: "/docs/index.html", media_type: "Text/HTML; charset=utf-8" };
        for (text, requested, with_file, expected) in [
            ("text/html", None, true, true),
            ("text/*", Some("/docs/"), true, true),
            ("text/css", Some("/docs/"), true, false),
            ("text/html", Some("/docs/"), false, false),
            ("/docs/", Some("/docs/"), false, true),
            ("*.html", Some("/docs/"), true, true),
            ("*.html", Some("/docs/"), false, false),
            ("/docs/*", None, true, true),
        ] {
            let selector = ResponseSelector::parse(text, CaseSensitivity::Sensitive).unwrap();
            assert_eq!(selector.selects(requested, with_file.then_some(file)), expected, "{text} {requested:?}");
        }
        for text in ["text/html; charset=utf-8", "text/", "static/a", "text"] {
            assert!(ResponseSelector::parse(text, CaseSensitivity::Sensitive).is_err(), "{text}");
        }
    }
}
