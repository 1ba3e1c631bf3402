//! Opens the files of certificates and keys that the serving process may not read, such as keys of root.
//!
//! Before the serving process gives its privileges up, it starts a second process, which keeps them. That process opens
//! the files that the configuration of the start names and no others, and passes their descriptors. It reads nothing
//! else from the serving process, and ends when the serving process does.

use super::link::Link;
use super::lock::lock;
use crate::certificates::OpenFile;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

/// Set for the process that opens files; its standard input is the link to the serving process.
const OPENER_VARIABLE: &str = "SELVEDGE_FILE_OPENER";
/// Most symbolic links that lead to a file, as in the kernel.
const LINKS_MAX: usize = 40;
/// The mode bits with which users other than the owner can change a folder, and the bit that protects its entries.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A message to the opener.
#[derive(Debug, Serialize, Deserialize)]
enum OpenerMessage {
    /// Permits a file. Valid before the first request.
    Permit(PathBuf),
    /// Requests the descriptor of a file.
    Open(PathBuf),
}

/// The reply to a request. The descriptor of an open file is passed with it.
#[derive(Debug, Serialize, Deserialize)]
enum OpenReply {
    Opened,
    /// The number of the system's error, if it has one, and a text.
    Failed(Option<i32>, String),
}

/// The serving process's side.
#[derive(Debug)]
pub(super) struct FileOpener {
    /// One request at a time.
    link: Mutex<Link>,
}

impl FileOpener {
    /// Starts the opener with the privileges of the caller.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(files: impl IntoIterator<Item = PathBuf>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("no process can be started that opens the files of keys: {error}");
        let (link, end) = Link::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("selvedge-files").env(OPENER_VARIABLE, "1").stdin(Stdio::from(end)).process_group(0);
        // It ends with this process, so it is not waited for.
        command.spawn().map_err(failed)?;
        drop(command);
        for file in files {
            link.send(&OpenerMessage::Permit(file)).map_err(failed)?;
        }
        Ok(Self { link: Mutex::new(link) })
    }
}

impl OpenFile for FileOpener {
    fn open(&self, path: &Path) -> io::Result<File> {
        let ended = |_| io::Error::new(ErrorKind::BrokenPipe, "the process that opens the files of keys has ended");
        let link = lock(&self.link);
        link.send(&OpenerMessage::Open(path.to_owned())).map_err(ended)?;
        let received = link.receive().and_then(|received| received.ok_or(ErrorKind::UnexpectedEof.into()));
        let (reply, descriptors) = received.map_err(ended)?;
        match (reply, descriptors.into_iter().next()) {
            (OpenReply::Opened, Some(descriptor)) => Ok(File::from(descriptor)),
            (OpenReply::Failed(Some(code), _), _) => Err(io::Error::from_raw_os_error(code)),
            (OpenReply::Failed(None, why), _) => Err(io::Error::other(why)),
            (OpenReply::Opened, None) => Err(io::Error::other("the descriptor of the file is missing")),
        }
    }
}

/// Whether this process opens files.
pub(crate) fn is_file_opener() -> bool {
    env::var_os(OPENER_VARIABLE).is_some()
}

/// Opens files until the serving process ends.
pub(crate) fn open_files() -> ExitCode {
    let _ = rustix::thread::set_name(c"selvedge-files");
    let Ok(link) = Link::of_standard_input() else { return ExitCode::FAILURE };
    let (mut permitted, mut is_complete) = (HashSet::new(), false);
    while let Ok(Some((message, _))) = link.receive() {
        let path = match message {
            OpenerMessage::Permit(path) if !is_complete => {
                permitted.insert(path);
                continue;
            }
            // The serving process reads what clients send, so it can permit nothing any more.
            OpenerMessage::Permit(_) => return ExitCode::FAILURE,
            OpenerMessage::Open(path) => path,
        };
        is_complete = true;
        let opened = match permitted.contains(&path) {
            true => open(&path),
            false => Err(io::Error::from(rustix::io::Errno::ACCESS)),
        };
        let sent = match opened {
            Ok(file) => link.send_with(&OpenReply::Opened, &[file.as_fd()]),
            Err(error) => link.send(&OpenReply::Failed(error.raw_os_error(), error.to_string())),
        };
        if sent.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Opens a regular file, unless another user could have chosen it.
fn open(path: &Path) -> io::Result<File> {
    check_folders(path)?;
    // Opening a FIFO would block.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Checks that only this user and root can change the folders on the way to a file, its symbolic links included. Another
/// user could let the way lead to any file of root.
pub(super) fn check_folders(path: &Path) -> io::Result<()> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::path::absolute(folder)?;
        folder.ancestors().try_for_each(check_folder)?;
        let real = folder.canonicalize()?;
        real.ancestors().try_for_each(check_folder)?;
        match fs::read_link(&path) {
            Ok(target) => path = real.join(target),
            Err(_) => return Ok(()),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Checks that only this user and root can change a folder.
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    let metadata = fs::metadata(folder)?;
    let is_own = [0, geteuid().as_raw()].contains(&metadata.uid());
    if is_own && (metadata.mode() & WRITABLE_BY_OTHERS == 0 || metadata.mode() & STICKY != 0) {
        return Ok(());
    }
    let folder = folder.display();
    Err(io::Error::other(format!(
        "permission denied, and root does not read it because other users can change {folder}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_are_opened_unless_another_user_could_have_chosen_them() {
        let folder = env::temp_dir().join(format!("selvedge-file-opener-{}", std::process::id()));
        let (own, shared) = (folder.join("own"), folder.join("shared"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(own.join("key"), "key").unwrap();
        fs::write(shared.join("key"), "key").unwrap();
        symlink("key", own.join("link")).unwrap();
        symlink("../own/key", shared.join("link")).unwrap();
        symlink("../shared/link", own.join("by-shared")).unwrap();
        symlink("loop", own.join("loop")).unwrap();
        for name in ["own/key", "own/link"] {
            assert!(open(&folder.join(name)).is_ok(), "{name}");
        }
        for name in ["shared/key", "shared/link", "own/by-shared"] {
            let error = open(&folder.join(name)).unwrap_err().to_string();
            assert!(error.ends_with("/shared"), "{name}: {error}");
        }
        assert_eq!(open(&own.join("loop")).unwrap_err().raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        assert_eq!(open(&own.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(open(&own).unwrap_err().to_string().contains("not a regular file"));
        fs::remove_dir_all(folder).unwrap();
    }
}
