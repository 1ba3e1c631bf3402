//! Whether the user of the server may read the files of its configuration, which a reload reads with its privileges.

use super::privileges::ServiceAccount;
use crate::config::model::Process;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::fmt::Write;
use std::path::{Path, PathBuf, absolute};

/// Most files that a command names.
const FILES_MAX: usize = 8;

/// Files of a configuration that the user of the server may not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableFiles {
    /// The user, or the group that the server has instead of that of its user.
    reader: String,
    group: String,
    /// Never empty.
    files: Vec<PathBuf>,
    /// Folders above the files that the user may not enter.
    folders: Vec<PathBuf>,
}

impl UnreadableFiles {
    /// Looks at the files as the user of the settings. `None` if it may read them, if the settings have no user, or if this
    /// process cannot look as that user.
    pub(crate) fn find<'a>(process: &Process, files: impl Iterator<Item = &'a Path>) -> Option<Self> {
        let (user, group) = (process.user.as_deref(), process.group.as_deref());
        let account = ServiceAccount::find(user, group).ok()??;
        let files: Vec<PathBuf> = files.filter_map(|file| absolute(file).ok()).collect();
        let (files, folders) = account.run(|| denied(files))?;
        let group = account.group_name();
        let reader = user.map_or_else(|| format!("the group {group}"), |user| format!("the user {user}"));
        (!files.is_empty()).then_some(Self { reader, group, files, folders })
    }

    /// Returns what follows, for the operator.
    pub(crate) fn consequence(&self) -> String {
        let more = match self.files.len() - 1 {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!(
            "{} may not read {}{more}: each reload starts another process, and cannot report what has changed",
            self.reader,
            self.files[0].display()
        )
    }

    /// Returns a command that permits it. Of many files, it names some.
    pub(crate) fn command(&self) -> String {
        let words = |paths: &[PathBuf]| {
            paths.iter().take(FILES_MAX).fold(String::new(), |mut words, path| {
                // Writing to memory cannot fail.
                let _ = write!(words, " {}", shell_word(path));
                words
            })
        };
        let (folders, files) = (words(&self.folders), words(&self.files));
        let enter = if folders.is_empty() { String::new() } else { format!(" && chmod g+rx{folders}") };
        format!("chgrp {}{folders}{files}{enter} && chmod g+r{files}", self.group)
    }
}

/// Returns the files that the calling thread may not read, and the outermost folders above them that it may not enter.
fn denied(files: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let is_denied = |path: &Path, wanted| access(path, wanted) == Err(Errno::ACCESS);
    let files: Vec<_> = files.into_iter().filter(|file| is_denied(file, Access::READ_OK)).collect();
    let mut folders: Vec<PathBuf> = Vec::new();
    for file in &files {
        // Within a folder that cannot be entered, all is denied.
        let above: Vec<&Path> = file.ancestors().skip(1).collect();
        let outermost = above.into_iter().rev().find(|folder| is_denied(folder, Access::EXEC_OK));
        folders.extend(outermost.filter(|folder| !folders.iter().any(|known| known == folder)).map(Path::to_owned));
    }
    (files, folders)
}

/// Returns a path as a word of a shell.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%,:=".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_folders_and_files() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
        let mut unreadable = UnreadableFiles {
            reader: "the user web".to_owned(),
            group: "www".to_owned(),
            files: paths(&["/etc/s/a.kdl", "/etc/s/it's b.kdl"]),
            folders: paths(&["/etc/s"]),
        };
        assert_eq!(
            unreadable.command(),
            r"chgrp www /etc/s /etc/s/a.kdl '/etc/s/it'\''s b.kdl' && chmod g+rx /etc/s && chmod g+r /etc/s/a.kdl '/etc/s/it'\''s b.kdl'"
        );
        assert_eq!(
            unreadable.consequence(),
            "the user web may not read /etc/s/a.kdl and 1 more: each reload starts another process, and cannot report what \
             has changed"
        );
        unreadable.folders.clear();
        unreadable.files.truncate(1);
        assert_eq!(unreadable.command(), "chgrp www /etc/s/a.kdl && chmod g+r /etc/s/a.kdl");
    }
}
