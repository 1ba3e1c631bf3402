//! Users and their password hashes, read from an htpasswd file.

use super::password_hash::{HashProblem, PasswordHash};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The users of an access rule.
#[derive(Debug)]
pub(crate) struct Users {
    by_name: HashMap<Box<str>, Arc<PasswordHash>>,
    /// Hashes that passwords of unknown users are checked against. A secret selects one by the name, so that
    /// the duration of a check does not reveal whether a user exists.
    decoys: Vec<Arc<PasswordHash>>,
    secret: RandomState,
}

/// A problem with a line of an htpasswd file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserProblem {
    /// The line number from 1.
    pub(crate) line: usize,
    /// The kind of problem.
    pub(crate) kind: UserProblemKind,
}

/// The kind of a [`UserProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserProblemKind {
    /// The line has no colon, or no name before it.
    MissingName,
    /// An earlier line has this name.
    DuplicateName,
    /// The hash cannot be used.
    Hash(HashProblem),
    /// The line is not UTF-8.
    NotUtf8,
}

impl UserProblem {
    /// Whether the hash is the problem.
    pub(crate) fn is_hash_problem(&self) -> bool {
        matches!(self.kind, UserProblemKind::Hash(_))
    }
}

impl fmt::Display for UserProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            UserProblemKind::MissingName => f.write_str("a line must be NAME:HASH"),
            UserProblemKind::DuplicateName => f.write_str("an earlier line has this name, or the configuration does"),
            UserProblemKind::Hash(problem) => problem.fmt(f),
            UserProblemKind::NotUtf8 => f.write_str("the line is not UTF-8"),
        }
    }
}

impl std::error::Error for UserProblem {}

impl Users {
    /// Parses an htpasswd file. A line with a problem has no user: it must not keep a user who was removed from the other
    /// lines. U+FFFD stands for bytes that are not UTF-8.
    pub(crate) fn parse(text: &str) -> (Self, Vec<UserProblem>) {
        let (mut by_name, mut decoys, mut problems) = (HashMap::new(), Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let kind = match parse_line(line) {
                Ok((name, _)) if by_name.contains_key(name) => UserProblemKind::DuplicateName,
                Ok((name, hash)) => {
                    let hash = Arc::new(hash);
                    decoys.push(hash.clone());
                    by_name.insert(Box::from(name), hash);
                    continue;
                }
                Err(kind) => kind,
            };
            problems.push(UserProblem { line: index + 1, kind });
        }
        (Self { by_name, decoys, secret: RandomState::new() }, problems)
    }

    /// Returns the maximum memory of a check of one of the passwords in bytes.
    pub(super) fn check_bytes_max(&self) -> u64 {
        self.by_name.values().map(|hash| hash.check_bytes()).max().unwrap_or(0)
    }

    /// Whether both have equal names with equal hashes.
    pub(super) fn has_hashes_of(&self, other: &Self) -> bool {
        self.by_name.len() == other.by_name.len()
            && self
                .by_name
                .iter()
                .all(|(name, hash)| other.by_name.get(name).is_some_and(|known| known.text() == hash.text()))
    }

    /// Returns the hash of a user.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        self.by_name.get(name)
    }

    /// Returns the hash that the password of an unknown user is checked against; `None` without users.
    pub(super) fn decoy(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        let index = self.secret.hash_one(name).checked_rem(self.decoys.len() as u64)?;
        self.decoys.get(index as usize)
    }
}

fn parse_line(line: &str) -> Result<(&str, PasswordHash), UserProblemKind> {
    if line.contains(char::REPLACEMENT_CHARACTER) {
        return Err(UserProblemKind::NotUtf8);
    }
    let (name, hash) = line.split_once(':').ok_or(UserProblemKind::MissingName)?;
    if name.is_empty() || name.bytes().any(|b| b.is_ascii_control()) {
        return Err(UserProblemKind::MissingName);
    }
    // Other programs treat the text after a second colon as a comment.
    let hash = hash.split(':').next().unwrap_or_default();
    Ok((name, PasswordHash::parse(hash).map_err(UserProblemKind::Hash)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    #[test]
    fn htpasswd_file_is_parsed() {
        let (users, problems) = Users::parse(&format!("# people\n\nann:{HASH}\r\nbör:{HASH}:comment\n"));
        assert_eq!(problems, []);
        assert!(users.get("ann").is_some() && users.get("bör").is_some());
        assert!(users.get("").is_none() && users.get("Ann").is_none());
        assert_eq!(users.decoy("eve").unwrap().text(), HASH);
    }

    #[test]
    fn every_problem_has_its_line_number_and_costs_only_its_user() {
        let text = format!("ann:{HASH}\nbob\n:{HASH}\nann:{HASH}\ncid:plain\nd\u{fffd}:{HASH}\neve:{HASH}");
        let (users, problems) = Users::parse(&text);
        assert!(users.get("ann").is_some() && users.get("eve").is_some() && users.by_name.len() == 2);
        let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.kind)).collect();
        assert_eq!(
            found,
            [
                (2, UserProblemKind::MissingName),
                (3, UserProblemKind::MissingName),
                (4, UserProblemKind::DuplicateName),
                (5, UserProblemKind::Hash(HashProblem::UnsupportedScheme)),
                (6, UserProblemKind::NotUtf8),
            ]
        );
        let (users, problems) = Users::parse("# no users\n");
        assert!(users.decoy("ann").is_none() && problems.is_empty());
    }
}
