//! Finds the script of a path. A script has to exist beneath its root, and its name is matched byte for byte.

use super::rules::PhpRules;
use crate::site::files::root::{DiskAccess, Root};
use crate::site::files::{FileError, Files};
use crate::site::lookup::{self, AddressChange, FileLookup, FoundBy, FoundFile};
use crate::syntax::absolute_path;
use rustix::fs::FileType;
use rustix::io::Errno;
use selvedge::proto::path::SafePath;
use selvedge::spawn_blocking;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::site::files::resolve::Resolved;

/// A script, and the rest of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetScript {
    /// SCRIPT_NAME.
    pub(super) name: String,
    /// PATH_INFO.
    pub(super) path_info: String,
    /// The path beneath the root.
    pub(super) file: String,
}

/// What a path of a PHP application leads to.
pub(super) enum PhpLookup {
    Script(TargetScript),
    /// A file, or a directory whose path has no trailing slash.
    File(FileLookup),
}

/// The index of each folder.
const INDEX: &str = "index.php";

/// Finds what a path leads to: the script, the file, the index of the folder, else the front controller.
pub(super) async fn find_php(
    files: &Files,
    rules: &PhpRules,
    path: &SafePath,
    now: Duration,
) -> Result<PhpLookup, FileError> {
    let root = &rules.files.root;
    if !is_hidden(path) {
        if let Some(script) = find_script_in(root, path).await? {
            return Ok(PhpLookup::Script(script));
        }
        if let Some(found) = find_file(files, root, path, now).await? {
            return Ok(found);
        }
    }
    match &rules.front_controller {
        Some(script) if is_file(root, script).await? => Ok(PhpLookup::Script(whole_path(script))),
        _ => Err(FileError::NotFound),
    }
}

/// Finds the first segment that ends with `.php` and names a file. A path that leads nowhere has no such segment behind
/// that place, so a long path costs few look-ups.
async fn find_script_in(root: &Arc<Root>, path: &SafePath) -> Result<Option<TargetScript>, FileError> {
    for (index, segment) in path.segments().enumerate() {
        // The byte before the suffix is there: `.php` alone is a hidden name.
        if segment.len() > 4 && segment.ends_with(".php") {
            let (script, path_info) = path.split(index + 1);
            match type_of(root, &script).await {
                Ok(FileType::RegularFile) => return Ok(Some(TargetScript { path_info, ..whole_path(&script) })),
                Ok(FileType::Directory) => {}
                Ok(_) | Err(FileError::NotFound) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// Finds a file that is sent as it is, or the index of a directory.
async fn find_file(
    files: &Files,
    root: &Arc<Root>,
    path: &SafePath,
    now: Duration,
) -> Result<Option<PhpLookup>, FileError> {
    let file_type = match type_of(root, path).await {
        Err(FileError::NotFound) => return Ok(None),
        file_type => file_type?,
    };
    if file_type == FileType::Directory {
        let index = path.join(INDEX);
        if is_file(root, &index).await? {
            return Ok(Some(match path.names_directory() {
                true => PhpLookup::Script(whole_path(&index)),
                false => PhpLookup::File(FileLookup::Moved(AddressChange::AddSlash)),
            }));
        }
    }
    if is_source(path.file_name()) {
        return Ok(None);
    }
    match lookup::resolve_path(files, path, now).await {
        Ok((Resolved::File(resource), _)) if is_source(resource.name()) => Ok(None),
        Ok((Resolved::File(resource), fresh_until)) => {
            let found = FileLookup::File(FoundFile::new(resource, path), FoundBy::Path(fresh_until));
            Ok(Some(PhpLookup::File(found)))
        }
        // A directory that has a page gets its slash, another one is a path of the application.
        Ok((Resolved::DirectoryWithoutSlash, _)) if has_page(files, path, now).await => {
            Ok(Some(PhpLookup::File(FileLookup::Moved(AddressChange::AddSlash))))
        }
        Err(error) if !error.is_missing() => Err(error),
        _ => Ok(None),
    }
}

async fn has_page(files: &Files, path: &SafePath, now: Duration) -> bool {
    let resolved = lookup::resolve_path(files, &path.as_directory(), now).await;
    matches!(resolved, Ok((Resolved::File(resource), _)) if !is_source(resource.name()))
}

/// Finds the program of a path: the first segments that name a file. `rest` is the part of the path beneath the folder.
pub(super) async fn find_program(
    folder: &Arc<Root>,
    prefix: &str,
    rest: &SafePath,
) -> Result<Option<TargetScript>, FileError> {
    if is_hidden(rest) {
        return Ok(None);
    }
    for count in 1..=rest.segments().count() {
        let (program, path_info) = rest.split(count);
        match type_of(folder, &program).await {
            Ok(FileType::RegularFile) => {
                let file = program.as_str().to_owned();
                return Ok(Some(TargetScript { name: format!("{prefix}/{file}"), path_info, file }));
            }
            Ok(FileType::Directory) => {}
            Ok(_) | Err(FileError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn whole_path(script: &SafePath) -> TargetScript {
    TargetScript { name: absolute_path(script), path_info: String::new(), file: script.as_str().to_owned() }
}

/// Whether a segment begins with a dot. Such files are no scripts.
fn is_hidden(path: &SafePath) -> bool {
    path.segments().any(|segment| segment.starts_with('.'))
}

/// Whether a file with this name has source code of PHP, which is never sent. Copies that an editor or a packer has left
/// have it, too, and so have names with upper-case letters, which some file systems do not distinguish.
pub(super) fn is_source(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.match_indices(".ph").any(|(at, _)| {
        let suffix = &name[at + 3..];
        let rest = ["tml", "ar", "ps", "p"].into_iter().find_map(|known| suffix.strip_prefix(known));
        // A version may follow, as in `.php8`.
        let rest = rest.map(|rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphabetic()))
    })
}

/// Whether a path names a regular file.
pub(super) async fn is_file(root: &Arc<Root>, path: &SafePath) -> Result<bool, FileError> {
    match type_of(root, path).await {
        Ok(file_type) => Ok(file_type == FileType::RegularFile),
        Err(FileError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns what a path is, on this thread if that is in memory.
async fn type_of(root: &Arc<Root>, path: &SafePath) -> Result<FileType, FileError> {
    match root.type_beneath(path, DiskAccess::CachedOnly) {
        Err(Errno::AGAIN) => {
            let (root, path) = (root.clone(), path.clone());
            let find = move || root.type_beneath(&path, DiskAccess::MayBlock);
            file_type(spawn_blocking(find).await.ok_or(FileError::ShuttingDown)?)
        }
        found => file_type(found),
    }
}

/// Returns the type of a path. A link out of the root leads to nothing.
fn file_type(found: rustix::io::Result<FileType>) -> Result<FileType, FileError> {
    found.map_err(|error| match FileError::from(error) {
        missing if missing.is_missing() => FileError::NotFound,
        error => error,
    })
}

/// Returns the path of a script as the server that runs it sees it.
pub(super) fn file_beneath(root: &Path, file: &str) -> String {
    root.join(file).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_known_by_its_name() {
        for name in [
            "a.php",
            "A.PHP",
            "a.php~",
            "a.php.bak",
            "a.php.gz",
            "a.php5",
            "a.php8.orig",
            "a.phtml",
            "a.phar",
            "a.phps",
            "index.php.swp",
            "a.php_",
            "a.php-old",
            "a.Php",
        ] {
            assert!(is_source(name), "{name}");
        }
        for name in ["a.html", "a.phpx", "aphp", "php", "a.phone", "graph.svg", "a.photo.jpg", "style.css"] {
            assert!(!is_source(name), "{name}");
        }
    }
}
