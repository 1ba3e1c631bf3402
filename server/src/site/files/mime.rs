//! Finds the media type of a file by its name.

use super::media_types::TYPES;
use selvedge::proto::encoding::Coding;

/// Returns the Content-Type for a file name, with a charset for text.
pub(super) fn content_type(name: &str) -> String {
    let essence =
        known_type(name).or_else(|| mime_guess::from_path(name).first_raw()).unwrap_or("application/octet-stream");
    let textual = essence.starts_with("text/") || matches!(essence, "application/xml" | "application/xhtml+xml");
    if textual { format!("{essence}; charset=utf-8") } else { essence.to_owned() }
}

/// Returns the coding that a file has by its name. Without it in Content-Encoding, browsers show no `.svgz`.
pub(super) fn own_coding(name: &str) -> Option<Coding> {
    suffix_of(name).is_some_and(|suffix| suffix == "svgz").then_some(Coding::Gzip)
}

fn known_type(name: &str) -> Option<&'static str> {
    let suffix = suffix_of(name)?;
    TYPES.binary_search_by(|(known, _)| (*known).cmp(suffix.as_str())).ok().map(|at| TYPES[at].1)
}

/// Returns the suffix of a name in lower case. A name has one if something is before it.
fn suffix_of(name: &str) -> Option<String> {
    let (before, suffix) = name.rsplit_once('.')?;
    (!before.is_empty()).then(|| suffix.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("A.CJS", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.js.map", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.svgz", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.jxl", "image/jxl"),
            ("a.m3u8", "application/vnd.apple.mpegurl"),
            ("a.mpd", "application/dash+xml"),
            ("a.m3u", "audio/mpegurl"),
            ("a.cmfv", "video/mp4"),
            ("a.cmfa", "audio/mp4"),
            ("a.cmft", "application/mp4"),
            ("a.ec3", "audio/eac3"),
            ("a.eac3", "audio/eac3"),
            ("a.3mf", "model/3mf"),
            ("a.cab", "application/vnd.ms-cab-compressed"),
            ("a.dfxp", "application/ttml+xml"),
            ("a.har", "application/json"),
            ("a.nupkg", "application/zip"),
            ("a.usdc", "application/octet-stream"),
            ("a.ts", "video/mp2t"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.tar.gz", "application/gzip"),
            ("a.xml", "text/xml; charset=utf-8"),
            ("README", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("a.unknownending", "application/octet-stream"),
            // In no table of ours.
            ("a.class", "application/x-java-applet"),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
        assert_eq!((own_coding("a.SVGZ"), own_coding("a.svg.gz")), (Some(Coding::Gzip), None));
    }

    #[test]
    fn table_is_sorted() {
        assert!(TYPES.is_sorted_by(|one, other| one.0 < other.0));
        assert!(TYPES.iter().all(|(suffix, kind)| !suffix.contains('.') && kind.split('/').count() == 2));
    }
}
