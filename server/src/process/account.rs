//! Who the serving process is, once it needs no more rights.

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::fs;
use std::path::Path;

/// A user, a group, and the further groups of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    name: String,
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Account {
    /// Looks a user up, and a group where it is not to be the user's first.
    pub(super) fn find(user: Option<&str>, group: Option<&str>) -> Result<Option<Self>, String> {
        if user.is_none() && group.is_none() {
            return Ok(None);
        }
        let users = text(Path::new("/etc/passwd"))?;
        let groups = text(Path::new("/etc/group"))?;
        Self::among(user, group, &users, &groups).map(Some)
    }

    fn among(user: Option<&str>, group: Option<&str>, users: &str, groups: &str) -> Result<Self, String> {
        let (name, own, first) = match user {
            Some(user) => {
                let unknown = || format!("there is no user {user}");
                let line = line_of(users, user).ok_or_else(unknown)?;
                (user, number(line, 2).ok_or_else(unknown)?, number(line, 3).ok_or_else(unknown)?)
            }
            None => ("", geteuid().as_raw(), getegid().as_raw()),
        };
        let first = match group {
            Some(group) => {
                line_of(groups, group).and_then(|line| number(line, 2)).ok_or(format!("there is no group {group}"))?
            }
            None => first,
        };
        let is_member = |line: &&str| line.split(':').nth(3).is_some_and(|list| list.split(',').any(|m| m == name));
        let further = groups.lines().filter(is_member).filter_map(|line| number(line, 2));
        let further = further.filter(|&number| !name.is_empty() && number != first);
        let all: Vec<u32> = std::iter::once(first).chain(further).collect();
        Ok(Self {
            name: name.to_owned(),
            user: Uid::from_raw(own),
            group: Gid::from_raw(first),
            groups: all.into_iter().map(Gid::from_raw).collect(),
        })
    }

    /// Becomes it for good. Only the calling thread does, and those that it starts: so it is
    /// to be the only one.
    pub(super) fn assume(&self) -> Result<(), String> {
        if geteuid() == self.user && getegid() == self.group {
            return Ok(());
        }
        debug_assert_eq!(fs::read_dir("/proc/self/task").map_or(1, Iterator::count), 1, "no thread keeps its rights");
        // The user last: without its rights, the groups could not be changed any more.
        set_thread_groups(&self.groups)
            .and_then(|()| set_thread_gid(self.group))
            .and_then(|()| set_thread_uid(self.user))
            .map_err(|error| format!("cannot become the user {}: {error}", self.name))
    }
}

fn text(path: &Path) -> Result<String, String> {
    fs::read(path)
        .map(|octets| String::from_utf8_lossy(&octets).into_owned())
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn line_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find(|line| line.split(':').next() == Some(name))
}

fn number(line: &str, place: usize) -> Option<u32> {
    line.split(':').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:44::/:/bin/false\nbroken:x:many:1::/:\n";
    const GROUPS: &str = "root:x:0:\nweb:x:44:\nkeys:x:70:mail,web\nweber:x:71:weber\nlogs:x:80:web\n";

    #[test]
    fn a_user_brings_its_groups() {
        let find = |user, group| Account::among(user, group, USERS, GROUPS);
        let raw = |account: Account| {
            let groups: Vec<u32> = account.groups.iter().map(|group| group.as_raw()).collect();
            (account.user.as_raw(), account.group.as_raw(), groups)
        };
        assert_eq!(raw(find(Some("web"), None).unwrap()), (33, 44, vec![44, 70, 80]));
        assert_eq!(raw(find(Some("web"), Some("logs")).unwrap()), (33, 80, vec![80, 70]));
        assert_eq!(raw(find(None, Some("keys")).unwrap()), (geteuid().as_raw(), 70, vec![70]));
        assert_eq!(find(Some("we"), None).unwrap_err(), "there is no user we");
        assert_eq!(find(Some("broken"), None).unwrap_err(), "there is no user broken");
        assert_eq!(find(Some("web"), Some("nobody")).unwrap_err(), "there is no group nobody");
    }
}
