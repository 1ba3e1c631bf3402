//! Sends the file that a script names in X-Sendfile or X-Accel-Redirect, if it is within a declared folder.

use super::error::{GatewayError, SendFileError};
use super::rules::SendFileFolder;
use crate::site::files;
use selvedge::proto::field::Fields;
use selvedge::proto::path::{SafePath, encode_segment};
use selvedge::{Request, Response};

const SENDFILE: &str = "x-sendfile";
const ACCEL_REDIRECT: &str = "x-accel-redirect";

/// Returns the response with the file that the fields name; `None` if they name none.
pub(super) async fn respond(
    request: &Request,
    folder: Option<&SendFileFolder>,
    fields: &Fields,
) -> Result<Option<Response>, GatewayError> {
    let by_path = fields.get(SENDFILE).map(|value| (value, false));
    let Some((value, is_encoded)) = by_path.or_else(|| fields.get(ACCEL_REDIRECT).map(|value| (value, true))) else {
        return Ok(None);
    };
    let failed = |error| GatewayError::SendFile(error);
    let folder = folder.ok_or(failed(SendFileError::NotConfigured))?;
    let path = match is_encoded {
        true => path_of_redirect(folder, value),
        false => path_of_file(folder, value),
    };
    let path = path.filter(|path| !path.names_directory()).ok_or(failed(SendFileError::Outside))?;
    let unreadable = |error| failed(SendFileError::Unreadable(error));
    let resource = files::load_once(&folder.folder, &path).await.map_err(unreadable)?;
    let mut response = files::respond_once(request, &resource).await;
    add_fields(&mut response, fields);
    Ok(Some(response))
}

/// Returns the path beneath the folder of an absolute path, which is not percent-encoded.
fn path_of_file(folder: &SendFileFolder, value: &[u8]) -> Option<SafePath> {
    let text = std::str::from_utf8(value).ok()?;
    let beneath = text.strip_prefix(folder.folder.path().to_str()?)?.strip_prefix('/')?;
    // Encoded, so that a percent sign stands for itself.
    let mut encoded = String::new();
    for segment in beneath.split('/') {
        encoded.push('/');
        encode_segment(segment, &mut encoded);
    }
    SafePath::decode(encoded.as_bytes()).ok()
}

/// Returns the path beneath the folder of a path of this server, which is percent-encoded.
fn path_of_redirect(folder: &SendFileFolder, value: &[u8]) -> Option<SafePath> {
    let prefix = folder.prefix.trim_end_matches('/').as_bytes();
    let beneath = value.strip_prefix(prefix).filter(|beneath| beneath.starts_with(b"/"))?;
    let path = beneath.split(|&b| b == b'?').next().unwrap_or(beneath);
    SafePath::decode(path).ok()
}

/// Adds the fields of the script: they replace the type of the file, and keep its validators.
fn add_fields(response: &mut Response, fields: &Fields) {
    let is_multipart =
        response.fields().get("content-type").is_some_and(|value| value.starts_with(b"multipart/byteranges"));
    for (name, value) in fields.iter().filter(|(name, _)| !is_directive(name)) {
        // They are valid, since they are fields already.
        let _ = match name {
            "content-type" if is_multipart => Ok(()),
            "content-type" => response.fields_mut().set(name, value),
            "etag" | "last-modified" | "accept-ranges" | "content-range" => Ok(()),
            _ => response.append(name, value),
        };
    }
}

/// Whether a field is for the server.
pub(super) fn is_directive(name: &str) -> bool {
    name == SENDFILE || name.starts_with("x-accel-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::files::root::Root;
    use std::sync::Arc;

    #[test]
    fn only_paths_within_the_folder_are_sent() {
        let base = std::env::temp_dir().join(format!("selvedge-send-file-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let folder = SendFileFolder { folder: Arc::new(Root::open(&base).unwrap()), prefix: "/protected/".into() };
        let base_text = base.to_str().unwrap();
        let file = |beneath: &str| {
            let path = path_of_file(&folder, format!("{base_text}{beneath}").as_bytes());
            path.map(|path| path.as_str().to_owned())
        };
        assert_eq!(file("/a/b%20c").as_deref(), Some("a/b%20c"));
        assert_eq!(file("/a/../b").as_deref(), Some("b"));
        assert_eq!(file("//x").as_deref(), Some("x"));
        for outside in ["/../x", "-other/x", "", "/a\0b", "/.."] {
            assert_eq!(file(outside), None, "{outside:?}");
        }
        assert_eq!(path_of_file(&folder, b"/etc/passwd"), None);
        let redirect = |path: &str| path_of_redirect(&folder, path.as_bytes()).map(|path| path.as_str().to_owned());
        assert_eq!(redirect("/protected/a%20b?c").as_deref(), Some("a b"));
        for outside in
            ["/protected/../x", "/protected", "/protectedx", "/x", "/protected/%2e%2e/x", "/protected/..%2fb"]
        {
            assert_eq!(redirect(outside), None, "{outside}");
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
