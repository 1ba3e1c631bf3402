//! Identifiers of requests, which the access log and upstreams have in common. One is made when it is first needed.

use crate::service::Request;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// A random number of the thread, and the number of identifiers that it has made.
    static NEXT: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Returns the identifier of a request: the one that the application has set, or 32 hexadecimal digits that no other
/// request has.
pub fn request_id(request: &Request) -> &str {
    request.inner.log_info.id.get_or_init(new_id)
}

/// Returns the identifier of a request if it was set or needed before.
pub fn known_request_id(request: &Request) -> Option<&str> {
    request.inner.log_info.id.get().map(|id| &**id)
}

/// Sets the identifier of a request, for example to the one that a trusted proxy has sent.
pub fn set_request_id(request: &mut Request, id: Box<str>) {
    request.inner.log_info.id = id.into();
}

fn new_id() -> Box<str> {
    let (random, count) = NEXT.get().unwrap_or_else(|| (RandomState::new().hash_one(0_u8), 0));
    NEXT.set(Some((random, count.wrapping_add(1))));
    // Consecutive numbers would tell clients of each other.
    let mixed = (count ^ random.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hexadecimal((u128::from(random) << 64) | u128::from(mixed))
}

fn hexadecimal(number: u128) -> Box<str> {
    let digits: [u8; 32] =
        std::array::from_fn(|place| b"0123456789abcdef"[(number >> (124 - 4 * place)) as usize & 15]);
    digits.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn identifiers_differ_within_a_thread_and_between_threads() {
        let some = || (0..1_000).map(|_| new_id()).collect::<Vec<_>>();
        let all: Vec<_> = (0..4).flat_map(|_| std::thread::spawn(some).join().unwrap()).collect();
        assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
