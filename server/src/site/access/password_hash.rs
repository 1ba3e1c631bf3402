//! Password hashes in the format of htpasswd files.

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordVerifier};
use bcrypt::HashParts;
use std::fmt;

/// The maximum bcrypt cost: about four seconds of one core.
const BCRYPT_COST_MAX: u32 = 16;
/// The maximum memory of one Argon2 check in KiB.
const ARGON2_MEMORY_KIB_MAX: u32 = 256 * 1024;
/// The maximum number of passes over that memory.
const ARGON2_PASSES_MAX: u32 = 16;

/// The memory of one bcrypt check in bytes, rounded up.
const BCRYPT_BYTES: u64 = 8 << 10;

/// A stored password hash.
#[derive(Clone)]
pub(super) struct PasswordHash {
    text: Box<str>,
    scheme: HashScheme,
}

#[derive(Clone)]
enum HashScheme {
    Bcrypt,
    Argon2 { hash: Box<phc::PasswordHash>, memory_kib: u32 },
}

/// Why a text is not a usable password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashProblem {
    /// It is plain text, or of an older scheme that is quickly brute-forced.
    UnsupportedScheme,
    /// It has a known prefix but is not well-formed.
    Malformed,
    /// A check would exceed the limits on time or memory.
    TooExpensive,
}

impl fmt::Display for HashProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnsupportedScheme => {
                "a password hash is argon2id ($argon2id$) or bcrypt ($2y$), because others, such as apr1 and SHA, are \
                 quickly guessed; `selvedge hash-password` makes one"
            }
            Self::Malformed => "this hash is malformed",
            Self::TooExpensive => {
                "checking this hash costs too much: use bcrypt up to cost 16, or argon2id up to 256 MiB and 16 passes"
            }
        })
    }
}

impl std::error::Error for HashProblem {}

impl PasswordHash {
    pub(super) fn parse(text: &str) -> Result<Self, HashProblem> {
        let scheme = if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: HashParts = text.parse().map_err(|_| HashProblem::Malformed)?;
            match parts.get_cost() {
                4..=BCRYPT_COST_MAX => HashScheme::Bcrypt,
                0..4 => return Err(HashProblem::Malformed),
                _ => return Err(HashProblem::TooExpensive),
            }
        } else if text.starts_with("$argon2id$") {
            let hash = phc::PasswordHash::new(text).map_err(|_| HashProblem::Malformed)?;
            let params = Params::try_from(&hash).map_err(|_| HashProblem::Malformed)?;
            if hash.salt.is_none() || hash.hash.is_none() {
                return Err(HashProblem::Malformed);
            }
            if params.m_cost() > ARGON2_MEMORY_KIB_MAX || params.t_cost() > ARGON2_PASSES_MAX {
                return Err(HashProblem::TooExpensive);
            }
            HashScheme::Argon2 { hash: Box::new(hash), memory_kib: params.m_cost() }
        } else {
            return Err(HashProblem::UnsupportedScheme);
        };
        Ok(Self { text: text.into(), scheme })
    }

    /// Returns the hash as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the memory of one check in bytes: the parameter of Argon2, or the tables of bcrypt.
    pub(super) fn check_bytes(&self) -> u64 {
        match &self.scheme {
            HashScheme::Bcrypt => BCRYPT_BYTES,
            HashScheme::Argon2 { memory_kib, .. } => u64::from(*memory_kib) << 10,
        }
    }

    /// Checks a password in constant time. It is slow by design. bcrypt uses at most 72 bytes of the password.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match &self.scheme {
            HashScheme::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            HashScheme::Argon2 { hash, .. } => {
                let argon2 = Argon2::from(Params::default());
                debug_assert_eq!(hash.algorithm.as_str(), Algorithm::Argon2id.ident().as_str());
                argon2.verify_password(password, &**hash).is_ok()
            }
        }
    }
}

impl fmt::Debug for PasswordHash {
    /// Omits the hash, so that it never gets into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scheme {
            HashScheme::Bcrypt => "Bcrypt",
            HashScheme::Argon2 { .. } => "Argon2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_verifies() {
        let salt = *b"sixteen bytes...";
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
    fn hashes_of_other_programs_verify() {
        // From the tests of crypt_blowfish and of the reference implementation of Argon2.
        for prefix in ["$2y$", "$2a$"] {
            let bcrypt = format!("{prefix}05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW");
            assert!(PasswordHash::parse(&bcrypt).unwrap().verify(b"U*U"));
        }
        let argon2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(PasswordHash::parse(argon2).unwrap().verify(b"password"));
    }

    #[test]
    fn invalid_hashes() {
        for (text, problem) in [
            ("", HashProblem::UnsupportedScheme),
            ("secret", HashProblem::UnsupportedScheme),
            ("$apr1$abc$def", HashProblem::UnsupportedScheme),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", HashProblem::UnsupportedScheme),
            ("$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAA", HashProblem::UnsupportedScheme),
            ("$2y$", HashProblem::Malformed),
            ("$2y$04$short", HashProblem::Malformed),
            ("$2y$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", HashProblem::TooExpensive),
            ("$argon2id$v=19$m=64", HashProblem::Malformed),
            ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ", HashProblem::Malformed),
            (
                "$argon2id$v=19$m=1048576,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
                HashProblem::TooExpensive,
            ),
        ] {
            assert_eq!(PasswordHash::parse(text).err(), Some(problem), "{text}");
        }
    }
}
