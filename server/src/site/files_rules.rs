//! Where the files of a route are, as validated values.

use super::files::root::Root;
use crate::syntax::Template;
use selvedge::proto::path::SafePath;
use std::fmt;
use std::sync::Arc;

/// Where files are and how they are found.
///
/// Routes match the request path. An index or a file with a suffix that stands for it is not matched against
/// the routes again.
#[derive(Clone, Debug)]
pub(crate) struct FilesRules {
    /// The directory.
    pub(crate) root: Arc<Root>,
    /// Which part of the path is resolved beneath it.
    pub(crate) path_prefix: PathPrefix,
    /// The names of index files, in order of precedence.
    pub(crate) index: IndexNames,
    /// The entries to try, in order; the first that exists is served. Empty for a file, then a directory.
    pub(crate) try_files: Vec<TryFile>,
    /// The page of a single-page application, served for navigations that lead to no file.
    pub(crate) fallback: Option<SafePath>,
    /// Whether a directory without an index is listed.
    pub(crate) listing: Listing,
    /// Whether precompressed files are served in place of the file beside them.
    pub(crate) precompressed: Precompressed,
    /// At which paths pages are.
    pub(crate) addresses: PageAddresses,
}

/// The paths of pages: HTML files, and directories with an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageAddresses {
    pub(crate) clean_urls: CleanUrls,
    pub(crate) trailing_slash: TrailingSlash,
}

/// Whether the path of a page has the suffix of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CleanUrls {
    /// It has: `/about.html`.
    #[default]
    Off,
    /// It has not: `/about` is `about.html`, and `/about.html` is redirected to it.
    On,
}

/// Whether the path of a page ends in a slash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrailingSlash {
    /// That of a directory does, that of a file does not.
    #[default]
    Auto,
    /// Each does. The other path is redirected.
    Add,
    /// None does. The other path is redirected.
    Remove,
}

/// What becomes of the path before the wildcard at the end of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPrefix {
    /// The whole path is resolved.
    Kept,
    /// Only what the wildcard matched is resolved.
    Stripped,
}

/// One entry of `try-files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TryFile {
    /// The file at the request path.
    File,
    /// The file at the request path with this suffix, as in `.html`.
    Suffix(Suffix),
    /// The directory at the request path: its index, its listing, or a redirect to its trailing slash.
    Directory,
    /// The file at this path, in which a star stands for the request path.
    Path(Template),
}

/// The response for a directory without an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// 404 (Not Found).
    Off,
    /// A list of its entries.
    On,
}

/// How a precompressed file such as `style.css.br` is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precompressed {
    /// It is a file of its own.
    Off,
    /// It is served in place of `style.css` if the client accepts its coding.
    On,
}

/// Whether responses are compressed that no precompressed file exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compress {
    Off,
    On,
}

/// Names of index files.
#[derive(Clone, Debug)]
pub(crate) struct IndexNames(pub(super) Arc<[Box<str>]>);

/// A suffix that is appended to file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suffix(pub(super) Box<str>);

/// The text is not a file name or a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidFileName;

impl fmt::Display for InvalidFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file name has no slash, backslash or control character, and does not begin with a dot")
    }
}

impl std::error::Error for InvalidFileName {}

fn is_valid_in_name(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|b| b.is_ascii_control() || matches!(b, b'/' | b'\\'))
}

impl IndexNames {
    /// Validates the names.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidFileName> {
        let names: Arc<[Box<str>]> = names.into_iter().map(Box::from).collect();
        let are_names = names.iter().all(|name| is_valid_in_name(name) && !name.starts_with('.'));
        if are_names { Ok(Self(names)) } else { Err(InvalidFileName) }
    }
}

impl Suffix {
    /// Validates the suffix.
    pub(crate) fn new(text: &str) -> Result<Self, InvalidFileName> {
        if is_valid_in_name(text) { Ok(Self(text.into())) } else { Err(InvalidFileName) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_path() {
        for name in ["", "a/b", ".index", "..", "a\\b", "a\n"] {
            assert!(IndexNames::new([name]).is_err(), "{name}");
        }
        assert!(Suffix::new("/x").is_err() && Suffix::new("").is_err() && Suffix::new(".html").is_ok());
    }
}
