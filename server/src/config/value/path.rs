//! Paths of the file system. Nothing here looks at it.

use super::{LogTarget, Value, Wrong};
use crate::config::nearest::nearest;
use std::path::{Component, Path, PathBuf};

/// Longest path that Linux takes.
const PATH_BYTES_MAX: usize = 4096;

/// A path; a relative one begins at the folder of the file that it is written in.
pub(super) fn read_path(text: &str, base: &Path) -> Result<PathBuf, Wrong> {
    check_no_nul(text)?;
    if text.starts_with("~/") {
        return Err(Wrong::new("`~` is not replaced here", "write the whole path, or \"${HOME}/...\""));
    }
    let mut path = PathBuf::new();
    for component in base.join(text).components() {
        // What is left out changes nothing; `..` may lead through a link, so it stays.
        if component != Component::CurDir {
            path.push(component);
        }
    }
    Ok(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path })
}

pub(super) fn check_no_nul(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err(Wrong::new("an empty path", "write \".\" for the folder of this file"));
    }
    if text.contains('\0') || text.len() > PATH_BYTES_MAX {
        return Err(Wrong::new("this is no path", "a path has no NUL and at most 4096 bytes"));
    }
    Ok(())
}

/// A name without a folder.
pub(super) fn read_file_name(text: &str) -> Result<Value, Wrong> {
    check_no_nul(text)?;
    if text.contains('/') || matches!(text, "." | "..") {
        return Err(Wrong::new(format!("`{text}` is no file name"), "a name without a folder, as in \"index.html\""));
    }
    Ok(Value::Text(text.to_owned()))
}

/// The targets that are no files.
const TARGETS: [(&str, LogTarget); 5] = [
    ("off", LogTarget::Off),
    ("stdout", LogTarget::Stdout),
    ("stderr", LogTarget::Stderr),
    ("syslog", LogTarget::Syslog),
    ("journald", LogTarget::Journald),
];

pub(super) fn read_log_target(text: &str, base: &Path) -> Result<LogTarget, Wrong> {
    if let Some((_, target)) = TARGETS.iter().find(|(name, _)| *name == text) {
        return Ok(target.clone());
    }
    // A file may have any name, but one that is nearly a target is a slip.
    if !text.contains(['/', '.'])
        && let Some(name) = nearest(text, TARGETS.iter().map(|(name, _)| *name))
    {
        let instead = format!("did you mean \"{name}\"? A file of that name is \"./{text}\"");
        return Err(Wrong::new(format!("`{text}` is no log target"), instead));
    }
    read_path(text, base).map(LogTarget::File)
}
