//! `selvedge hash-password`: makes a password hash for `basic-auth`.

use crate::cli::HashPasswordArgs;
use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Write};

/// Memory in KiB, passes and lanes of a hash: the second choice of RFC 9106 §4, for machines with little memory.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
const LANES: u32 = 4;
/// The length of the random salt in bytes (RFC 9106 §3.1).
const SALT_BYTES: usize = 16;
/// The maximum length of a password in bytes; a longer one would not fit into a request.
const PASSWORD_BYTES_MAX: usize = 512;

/// Reads a password and prints its hash, or a line of an htpasswd file for a name.
pub(crate) fn run(options: &HashPasswordArgs) -> Result<(), String> {
    if options.name.as_ref().is_some_and(|name| name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()))
    {
        return Err("a user name has no colon and no control character".to_owned());
    }
    let password = match isatty(io::stdin()) {
        true => {
            let password = read_hidden("Password: ")?;
            if read_hidden("Repeat the password: ")? != password {
                return Err("the passwords differ".to_owned());
            }
            password
        }
        false => read_line()?,
    };
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || password.contains(char::is_control) {
        return Err(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes and no control character"));
    }
    let hash = hash(&password)?;
    let line = options.name.as_ref().map_or_else(|| hash.clone(), |name| format!("{name}:{hash}"));
    writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot write the hash: {error}"))
}

/// Hashes a password with a random salt.
fn hash(password: &str) -> Result<String, String> {
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt).map_err(|error| format!("cannot get random bytes: {error}"))?;
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|error| error.to_string())?;
    let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash: phc::PasswordHash =
        hasher.hash_password_with_salt(password.as_bytes(), &salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

fn fill_random(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a line of the terminal, which does not show it.
fn read_hidden(prompt: &str) -> Result<String, String> {
    let fail = |error: io::Error| format!("cannot read the password: {error}");
    let shown = tcgetattr(io::stdin()).map_err(|error| fail(error.into()))?;
    let set =
        |modes: &Termios| tcsetattr(io::stdin(), OptionalActions::Flush, modes).map_err(|error| fail(error.into()));
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let mut terminal = io::stderr();
    terminal.write_all(prompt.as_bytes()).and_then(|()| terminal.flush()).map_err(fail)?;
    set(&hidden)?;
    let line = read_line();
    set(&shown)?;
    // The line end of the reader was hidden, too.
    writeln!(terminal).map_err(fail)?;
    line
}

fn read_line() -> Result<String, String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| format!("cannot read the password: {error}"))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Users;

    #[test]
    fn hashes_have_random_salts_and_are_accepted() {
        let (one, other) = (hash("warp and weft").unwrap(), hash("warp and weft").unwrap());
        assert_ne!(one, other);
        assert!(one.starts_with("$argon2id$v=19$m=65536,t=3,p=4$"), "{one}");
        assert_eq!(Users::parse(&format!("ann:{one}\nbob:{other}\n")).1, []);
    }
}
