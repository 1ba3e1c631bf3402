//! Random bytes of the kernel.

/// Returns random bytes.
pub(crate) fn random_bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random bytes after the start of the machine");
    }
    bytes
}
