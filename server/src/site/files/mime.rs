//! Finds the media type of a file by its name.

/// Returns the Content-Type for a file name, with a charset for text.
pub(super) fn content_type(name: &str) -> String {
    let mut essence = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    // Registered later than the names of mime_guess (RFC 9239, RFC 9512).
    essence = match essence {
        "application/javascript" | "application/x-javascript" => "text/javascript",
        "text/x-yaml" => "application/yaml",
        other => other,
    };
    let textual = essence.starts_with("text/") || matches!(essence, "application/xml" | "application/xhtml+xml");
    if textual { format!("{essence}; charset=utf-8") } else { essence.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn content_types() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.webp", "image/webp"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            ("a.unknownending", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
    }
}
