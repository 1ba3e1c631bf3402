//! Users and the hashes of their passwords, as an htpasswd file has them.

use super::hashes::{HashProblem, PasswordHash};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The users of a gate.
#[derive(Debug)]
pub(crate) struct Users {
    by_name: HashMap<Box<str>, Arc<PasswordHash>>,
    /// What a name that nobody has is held against: which hash depends on the name and on a
    /// secret, so that the time tells strangers from users in no way.
    stand_ins: Vec<Arc<PasswordHash>>,
    secret: RandomState,
}

/// What is wrong with a line of an htpasswd file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserProblem {
    /// The line, the first being 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) kind: UserProblemKind,
}

/// See [`UserProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserProblemKind {
    /// There is no colon, or nothing before it.
    NoName,
    /// The name is on an earlier line, too.
    NameTwice,
    /// The hash is none.
    Hash(HashProblem),
    /// There is no user at all.
    Nobody,
}

impl UserProblem {
    /// Whether it is the hash that is wrong, whoever's it is.
    pub(crate) fn is_of_hash(&self) -> bool {
        matches!(self.kind, UserProblemKind::Hash(_))
    }
}

impl fmt::Display for UserProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            UserProblemKind::NoName => f.write_str("a line is a name, a colon and the hash of a password"),
            UserProblemKind::NameTwice => f.write_str("the name is on an earlier line, too"),
            UserProblemKind::Hash(problem) => problem.fmt(f),
            UserProblemKind::Nobody => f.write_str("the file names no user, so nobody could pass"),
        }
    }
}

impl std::error::Error for UserProblem {}

impl Users {
    /// Reads the text of an htpasswd file; on problems, all of them.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<UserProblem>> {
        let (mut by_name, mut stand_ins, mut problems) = (HashMap::new(), Vec::new(), Vec::new());
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match read_line(line) {
                Ok((name, hash)) => {
                    let hash = Arc::new(hash);
                    stand_ins.push(hash.clone());
                    if by_name.insert(name.into(), hash).is_some() {
                        problems.push(UserProblem { line: place + 1, kind: UserProblemKind::NameTwice });
                    }
                }
                Err(kind) => problems.push(UserProblem { line: place + 1, kind }),
            }
        }
        if stand_ins.is_empty() && problems.is_empty() {
            problems.push(UserProblem { line: 0, kind: UserProblemKind::Nobody });
        }
        match problems.is_empty() {
            true => Ok(Self { by_name, stand_ins, secret: RandomState::new() }),
            false => Err(problems),
        }
    }

    /// The most memory that checking one of their passwords takes.
    pub(super) fn bytes_of_check_max(&self) -> u64 {
        self.by_name.values().map(|hash| hash.bytes_of_check()).max().unwrap_or(0)
    }

    /// The hash of a user.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        self.by_name.get(name)
    }

    /// A hash to hold the password of a stranger against.
    pub(super) fn stand_in(&self, name: &str) -> &Arc<PasswordHash> {
        let place = self.secret.hash_one(name) % self.stand_ins.len() as u64;
        &self.stand_ins[place as usize]
    }
}

fn read_line(line: &str) -> Result<(&str, PasswordHash), UserProblemKind> {
    let (name, hash) = line.split_once(':').ok_or(UserProblemKind::NoName)?;
    if name.is_empty() || name.bytes().any(|b| b.is_ascii_control()) {
        return Err(UserProblemKind::NoName);
    }
    // What follows another colon is a comment to other programs.
    let hash = hash.split(':').next().unwrap_or_default();
    Ok((name, PasswordHash::parse(hash).map_err(UserProblemKind::Hash)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    #[test]
    fn a_file_with_users() {
        let users = Users::parse(&format!("# people\n\nann:{HASH}\r\nbör:{HASH}:comment\n")).unwrap();
        assert!(users.get("ann").is_some() && users.get("bör").is_some());
        assert!(users.get("").is_none() && users.get("Ann").is_none());
        assert_eq!(users.stand_in("eve").text(), HASH);
    }

    #[test]
    fn every_problem_has_its_line() {
        let text = format!("ann:{HASH}\nbob\n:{HASH}\nann:{HASH}\ncid:plain\n");
        let problems = Users::parse(&text).unwrap_err();
        let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.kind)).collect();
        assert_eq!(
            found,
            [
                (2, UserProblemKind::NoName),
                (3, UserProblemKind::NoName),
                (4, UserProblemKind::NameTwice),
                (5, UserProblemKind::Hash(HashProblem::Kind)),
            ]
        );
        assert_eq!(Users::parse("# nobody\n").unwrap_err()[0].kind, UserProblemKind::Nobody);
    }
}
