//! File system paths, and paths of a site. Nothing here accesses the file system.

use super::{LogTarget, Value, ValueError};
use crate::config::suggest::nearest;
use crate::syntax::check_path_characters;
use std::path::{Component, Path, PathBuf};

/// Longest path in Linux.
const PATH_BYTES_MAX: usize = 4096;

/// Reads a path. A relative one starts at the folder of its configuration file.
pub(super) fn read_path(text: &str, base: &Path) -> Result<PathBuf, ValueError> {
    check_no_nul(text)?;
    if text.starts_with("~/") {
        return Err(ValueError::new("`~` is not expanded", "write the full path, or \"${HOME}/...\""));
    }
    let mut path = PathBuf::new();
    for component in base.join(text).components() {
        // `.` changes nothing. `..` may pass through a link, so it stays.
        if component != Component::CurDir {
            path.push(component);
        }
    }
    Ok(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path })
}

pub(super) fn check_no_nul(text: &str) -> Result<(), ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("an empty path", "write \".\" for the folder of this file"));
    }
    if text.contains('\0') || text.len() > PATH_BYTES_MAX {
        return Err(ValueError::new("this is not a path", "a path has no NUL and at most 4096 bytes"));
    }
    Ok(())
}

/// Reads a path as a client would request it.
pub(super) fn read_url_path(text: &str) -> Result<String, ValueError> {
    check_path_characters(text)?;
    if !text.starts_with('/') {
        return Err(ValueError::new("a path without a leading slash", format!("write \"/{text}\", as in a request")));
    }
    if text.contains(['*', '?']) {
        return Err(ValueError::new("a path with a wildcard or a query", "write the path of one file"));
    }
    if text.split('/').any(|segment| segment == "..") {
        return Err(ValueError::new("a path with `..`", "write the path that it leads to"));
    }
    Ok(text.to_owned())
}

/// Reads a file name without a folder.
pub(super) fn read_file_name(text: &str) -> Result<Value, ValueError> {
    check_no_nul(text)?;
    if text.contains('/') || matches!(text, "." | "..") {
        return Err(ValueError::new(
            format!("`{text}` is not a file name"),
            "write a name without a folder, as in \"index.html\"",
        ));
    }
    Ok(Value::Text(text.to_owned()))
}

/// Reads the suffix of file names, with or without its dot. One that no file name is compared with is refused.
pub(super) fn read_suffix(text: &str) -> Result<Value, ValueError> {
    let suffix = text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text);
    if suffix.contains(['*', '?', '/', '{']) || suffix.is_empty() {
        let instead = "write it as in \"foo\"; `content-type` is for patterns";
        return Err(ValueError::new(format!("`{text}` is not a suffix of file names"), instead));
    }
    if text.starts_with('*') {
        let what = format!("`{text}` is a pattern, and a suffix is expected");
        return Err(ValueError::new(what, format!("write \"{suffix}\"")));
    }
    if suffix.chars().any(char::is_uppercase) {
        let what = format!("`{text}` is not a suffix of file names: the case of suffixes does not matter");
        let instead = format!(
            "write \"{}\"; for files of this name, write `content-type \"*{suffix}\"` and the type",
            suffix.to_lowercase()
        );
        return Err(ValueError::new(what, instead));
    }
    Ok(Value::Text(suffix.to_owned()))
}

/// Log targets that are no files.
const TARGETS: [(&str, LogTarget); 5] = [
    ("off", LogTarget::Off),
    ("stdout", LogTarget::Stdout),
    ("stderr", LogTarget::Stderr),
    ("syslog", LogTarget::Syslog),
    ("journald", LogTarget::Journald),
];

pub(super) fn read_log_target(text: &str, base: &Path) -> Result<LogTarget, ValueError> {
    if let Some((_, target)) = TARGETS.iter().find(|(name, _)| *name == text) {
        return Ok(target.clone());
    }
    // A file may have any name, but a near miss of a target is probably a mistake.
    if !text.contains(['/', '.'])
        && let Some(name) = nearest(text, TARGETS.iter().map(|(name, _)| *name))
    {
        let instead = format!("did you mean \"{name}\"? For a file of that name, write \"./{text}\"");
        return Err(ValueError::new(format!("`{text}` is not a log target"), instead));
    }
    read_path(text, base).map(LogTarget::File)
}
