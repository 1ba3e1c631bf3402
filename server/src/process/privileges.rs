//! The user and group of the serving process.
//!
//! Names are looked up by the C library's name service switch, so users of LDAP, sssd and systemd are found.

use super::file_opener::{check_folder, check_folders};
use crate::certificates::CertificateFolder;
use nix::unistd::{Group, User, getgrouplist};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::thread;

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceAccount {
    name: String,
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl ServiceAccount {
    /// Looks up a user, and a group that replaces the user's primary group. `None` if neither is given.
    ///
    /// # Errors
    /// If the name service fails or does not know a name.
    pub(super) fn find(user: Option<&str>, group: Option<&str>) -> Result<Option<Self>, String> {
        if user.is_none() && group.is_none() {
            return Ok(None);
        }
        let group = group.map(find_group).transpose()?;
        let Some(name) = user else {
            let group = group.unwrap_or_else(getegid);
            return Ok(Some(Self { name: String::new(), user: geteuid(), group, groups: vec![group] }));
        };
        let user = find_user(name)?;
        let group = group.unwrap_or(Gid::from_raw(user.gid.as_raw()));
        let groups = groups_of(&user, group)?;
        Ok(Some(Self { name: name.to_owned(), user: Uid::from_raw(user.uid.as_raw()), group, groups }))
    }

    /// Whether the calling process already has this user and group.
    pub(super) fn is_current(&self) -> bool {
        geteuid() == self.user && getegid() == self.group
    }

    /// Makes this user the owner of a folder of certificates, and creates it if it is missing. These folders stay as they are:
    /// that of another user than root, one that another user could have chosen, and one with other files.
    pub(super) fn own_folder(&self, folder: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
        let existing = missing.last().map_or(folder, |first| first.parent().unwrap_or(first));
        check_folders(existing)?;
        check_folder(existing)?;
        if missing.is_empty() && !CertificateFolder::is_used(folder)? {
            return Ok(());
        }
        CertificateFolder::open(folder)?;
        let own = |path: &Path| lchown(path, Some(self.user.as_raw()), Some(self.group.as_raw()));
        // Files from before the configuration had a user, or of `selvedge trust`.
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                own(&entry.path())?;
            }
        }
        own(folder)?;
        missing.into_iter().try_for_each(own)
    }

    /// Drops the privileges of the calling thread for good. Call it while the process has one thread.
    pub(super) fn drop_privileges(&self) -> Result<(), String> {
        if self.is_current() {
            return Ok(());
        }
        debug_assert_eq!(fs::read_dir("/proc/self/task").map_or(1, Iterator::count), 1, "no thread keeps its rights");
        self.become_current().map_err(|error| {
            let hint = if error == Errno::PERM { " (only a server that root has started can)" } else { "" };
            format!("cannot become the user {}: {error}{hint}", self.name)
        })
    }

    /// Makes this the user of the calling thread.
    fn become_current(&self) -> rustix::io::Result<()> {
        // The user is last: without its privileges, the groups could not be changed.
        set_thread_groups(&self.groups)?;
        set_thread_gid(self.group)?;
        set_thread_uid(self.user)
    }

    /// Runs a function as this user: on this thread if it has this user, else on another thread, which then ends. `None` if
    /// the process may not become this user.
    pub(super) fn run<T: Send>(&self, function: impl FnOnce() -> T + Send) -> Option<T> {
        if self.is_current() {
            return Some(function());
        }
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.become_current().ok().map(|()| function()));
            thread.join().ok().flatten()
        })
    }

    /// Returns the name of the group, or its number.
    pub(super) fn group_name(&self) -> String {
        let known = Group::from_gid(nix::unistd::Gid::from_raw(self.group.as_raw()));
        known.ok().flatten().map_or_else(|| self.group.as_raw().to_string(), |group| group.name)
    }
}

/// Looks up a user by name or number.
///
/// # Errors
/// If the name service fails or does not know the user.
pub(crate) fn find_user(name: &str) -> Result<User, String> {
    let found = match name.parse() {
        Ok(number) => User::from_uid(nix::unistd::Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("no user named {name}")),
        Err(error) => Err(format!("cannot look up the user {name}: {error}")),
    }
}

/// Looks up a group by name. A number needs no entry.
///
/// # Errors
/// If the name service fails or does not know the group.
pub(crate) fn find_group(name: &str) -> Result<Gid, String> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Gid::from_raw(group.gid.as_raw())),
        Ok(None) => Err(format!("no group named {name}")),
        Err(error) => Err(format!("cannot look up the group {name}: {error}")),
    }
}

/// Returns all groups of a user, `group` first.
fn groups_of(user: &User, group: Gid) -> Result<Vec<Gid>, String> {
    let failed = |error: String| format!("cannot look up the groups of {}: {error}", user.name);
    let name = CString::new(user.name.as_bytes()).map_err(|error| failed(error.to_string()))?;
    let known =
        getgrouplist(&name, nix::unistd::Gid::from_raw(group.as_raw())).map_err(|error| failed(error.to_string()))?;
    let further = known.into_iter().map(|other| Gid::from_raw(other.as_raw())).filter(|other| *other != group);
    Ok(std::iter::once(group).chain(further).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn find(user: Option<&str>, group: Option<&str>) -> Result<ServiceAccount, String> {
        ServiceAccount::find(user, group).map(|account| account.expect("a name was given"))
    }

    #[test]
    fn a_user_brings_its_groups() {
        let root = find(Some("root"), None).unwrap();
        assert_eq!((root.user.as_raw(), root.group.as_raw(), root.groups[0].as_raw()), (0, 0, 0));
        let daemon = find(Some("daemon"), Some("sys")).unwrap();
        assert_ne!(daemon.user.as_raw(), 0);
        assert_eq!(daemon.group, find_group("sys").unwrap());
        assert_eq!(daemon.groups[0], daemon.group);
        assert_eq!(daemon.groups.iter().filter(|group| **group == daemon.group).count(), 1);
    }

    #[test]
    fn a_folder_of_root_is_handed_over_unless_another_user_could_have_chosen_it() {
        if !geteuid().is_root() {
            return;
        }
        let base = std::env::temp_dir().join(format!("selvedge-own-folder-{}", std::process::id()));
        let (new, shared) = (base.join("a/b"), base.join("shared"));
        fs::create_dir_all(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        let daemon = find(Some("daemon"), None).unwrap();
        daemon.own_folder(&new).unwrap();
        let expected = daemon.user.as_raw();
        assert_eq!((owner(&new), owner(&base.join("a")), owner(&base)), (expected, expected, 0));
        // A folder with files of root.
        let old = base.join("old");
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(old.join("key"), "").unwrap();
        daemon.own_folder(&old).unwrap();
        assert_eq!((owner(&old), owner(&old.join("key"))), (0, 0), "no server has written to it");
        fs::write(old.join("journal"), "").unwrap();
        daemon.own_folder(&old).unwrap();
        assert_eq!((owner(&old), owner(&old.join("key"))), (expected, expected));
        std::os::unix::fs::symlink(&base, shared.join("link")).unwrap();
        for path in [shared.join("new"), shared.join("link/new"), shared.clone()] {
            assert!(daemon.own_folder(&path).is_err(), "{}", path.display());
        }
        assert_eq!((owner(&shared), base.join("new").exists(), shared.join("new").exists()), (0, false, false));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_group_alone_keeps_the_user() {
        let account = find(None, Some("daemon")).unwrap();
        assert_eq!(account.user, geteuid());
        assert_eq!(account.groups, [find_group("daemon").unwrap()]);
    }

    #[test]
    fn numbers_name_users_and_groups() {
        assert_eq!(find(Some("0"), None).unwrap().groups, find(Some("root"), None).unwrap().groups);
        assert_eq!(find(Some("root"), Some("12345")).unwrap().group.as_raw(), 12345);
        assert_eq!(find(Some("4123456789"), None).unwrap_err(), "no user named 4123456789");
    }

    #[test]
    fn unknown_names_are_errors() {
        assert_eq!(find(Some("no-such-user"), None).unwrap_err(), "no user named no-such-user");
        assert_eq!(find(Some("root"), Some("no-such-group")).unwrap_err(), "no group named no-such-group");
        assert_eq!(ServiceAccount::find(None, None), Ok(None));
    }
}
