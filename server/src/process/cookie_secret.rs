//! The key of the cookies by which clients stay at their servers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The key for cookies of `balance "sticky"` that have no secret of their own. The supervisor makes one for all serving
/// processes, so that a client stays at its server when another process serves it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CookieSecret([u8; 32]);

impl CookieSecret {
    pub(crate) fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl Default for CookieSecret {
    /// Returns a random key.
    fn default() -> Self {
        let mut secret = [0; 32];
        let mut filled = 0;
        while filled < secret.len() {
            let rest = &mut secret[filled..];
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
                .expect("the kernel has random bytes after the start of the machine");
        }
        Self(secret)
    }
}

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_not_printed() {
        let secret = CookieSecret::default();
        assert_ne!(secret, CookieSecret::default());
        assert_eq!(format!("{secret:?}"), "CookieSecret");
        let sent = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<CookieSecret>(&sent).unwrap(), secret);
    }
}
