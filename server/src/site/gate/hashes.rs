//! Hashes of passwords, as htpasswd files have them.

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordVerifier};
use bcrypt::HashParts;
use std::fmt;

/// The most that one check may cost: about four seconds of a core.
const BCRYPT_COST_MAX: u32 = 16;
/// The most memory of one check, in KiB.
const ARGON2_MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Passes over that memory.
const ARGON2_PASSES_MAX: u32 = 16;

/// The tables that bcrypt works on, with room to spare.
const BCRYPT_BYTES: u64 = 8 << 10;

/// The hash of a password.
#[derive(Clone)]
pub(super) struct PasswordHash {
    text: Box<str>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Bcrypt,
    Argon2 { hash: Box<phc::PasswordHash>, memory_kib: u32 },
}

/// Why a text is no hash that passwords are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashProblem {
    /// It is one of the older forms, which are guessed in no time, or no hash at all.
    Kind,
    /// It begins as a hash should and goes on otherwise.
    Malformed,
    /// Checking it would cost more time or memory than is given to that.
    Cost,
}

impl fmt::Display for HashProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => {
                "a password is stored as bcrypt ($2y$) or as argon2id ($argon2id$): htpasswd -B makes the first"
            }
            Self::Malformed => "this hash is not complete",
            Self::Cost => {
                "checking this hash costs too much: bcrypt up to cost 16, argon2id up to 256 MiB and 16 passes"
            }
        })
    }
}

impl std::error::Error for HashProblem {}

impl PasswordHash {
    pub(super) fn parse(text: &str) -> Result<Self, HashProblem> {
        let kind = if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: HashParts = text.parse().map_err(|_| HashProblem::Malformed)?;
            match parts.get_cost() {
                4..=BCRYPT_COST_MAX => Kind::Bcrypt,
                0..4 => return Err(HashProblem::Malformed),
                _ => return Err(HashProblem::Cost),
            }
        } else if text.starts_with("$argon2id$") {
            let hash = phc::PasswordHash::new(text).map_err(|_| HashProblem::Malformed)?;
            let params = Params::try_from(&hash).map_err(|_| HashProblem::Malformed)?;
            if hash.salt.is_none() || hash.hash.is_none() {
                return Err(HashProblem::Malformed);
            }
            if params.m_cost() > ARGON2_MEMORY_KIB_MAX || params.t_cost() > ARGON2_PASSES_MAX {
                return Err(HashProblem::Cost);
            }
            Kind::Argon2 { hash: Box::new(hash), memory_kib: params.m_cost() }
        } else {
            return Err(HashProblem::Kind);
        };
        Ok(Self { text: text.into(), kind })
    }

    /// The hash as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The memory of one check: what Argon2 says, or the tables of bcrypt.
    pub(super) fn bytes_of_check(&self) -> u64 {
        match &self.kind {
            Kind::Bcrypt => BCRYPT_BYTES,
            Kind::Argon2 { memory_kib, .. } => u64::from(*memory_kib) << 10,
        }
    }

    /// Whether this is the password, of which bcrypt looks at 72 octets. Takes long, on
    /// purpose; compares in constant time.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match &self.kind {
            Kind::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            Kind::Argon2 { hash, .. } => {
                let argon2 = Argon2::from(Params::default());
                debug_assert_eq!(hash.algorithm.as_str(), Algorithm::Argon2id.ident().as_str());
                argon2.verify_password(password, &**hash).is_ok()
            }
        }
    }
}

impl fmt::Debug for PasswordHash {
    /// Hashes stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Bcrypt => "Bcrypt",
            Kind::Argon2 { .. } => "Argon2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_password_and_no_other() {
        let salt = *b"sixteen octets..";
        let bcrypt = bcrypt::hash_with_salt("käse", 4, salt).unwrap().format_for_version(bcrypt::Version::TwoY);
        let params = Params::new(64, 1, 1, None).unwrap();
        let argon2 = {
            use argon2::PasswordHasher;
            let hasher = Argon2::new(Algorithm::Argon2id, argon2::Version::V0x13, params);
            let hash: phc::PasswordHash = hasher.hash_password_with_salt("käse".as_bytes(), &salt).unwrap();
            hash.to_string()
        };
        for text in [bcrypt, argon2] {
            let hash = PasswordHash::parse(&text).unwrap();
            assert!(hash.verify("käse".as_bytes()), "{text}");
            for wrong in ["", "kase", "käse ", "KÄSE"] {
                assert!(!hash.verify(wrong.as_bytes()), "{text} {wrong}");
            }
            assert!(!format!("{hash:?}").contains('$'));
        }
    }

    #[test]
    fn hashes_of_other_programs() {
        // From the tests of crypt_blowfish and of the reference implementation of Argon2.
        for prefix in ["$2y$", "$2a$"] {
            let bcrypt = format!("{prefix}05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW");
            assert!(PasswordHash::parse(&bcrypt).unwrap().verify(b"U*U"));
        }
        let argon2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(PasswordHash::parse(argon2).unwrap().verify(b"password"));
    }

    #[test]
    fn texts_that_are_no_hash() {
        for (text, problem) in [
            ("", HashProblem::Kind),
            ("secret", HashProblem::Kind),
            ("$apr1$abc$def", HashProblem::Kind),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", HashProblem::Kind),
            ("$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAA", HashProblem::Kind),
            ("$2y$", HashProblem::Malformed),
            ("$2y$04$short", HashProblem::Malformed),
            ("$2y$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", HashProblem::Cost),
            ("$argon2id$v=19$m=64", HashProblem::Malformed),
            ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ", HashProblem::Malformed),
            (
                "$argon2id$v=19$m=1048576,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
                HashProblem::Cost,
            ),
        ] {
            assert_eq!(PasswordHash::parse(text).err(), Some(problem), "{text}");
        }
    }
}
