//! The name of a serving process in the field Via of the requests that it forwards.

use super::random::random_bytes;
use selvedge::proto::forward::ViaPseudonym;

/// The name in Via. Each process has its own, so two servers in a chain are not taken for a loop.
#[derive(Clone, Debug)]
pub(super) struct ViaName(ViaPseudonym);

impl Default for ViaName {
    fn default() -> Self {
        let digits: String = random_bytes::<4>().iter().map(|byte| format!("{byte:02x}")).collect();
        Self(ViaPseudonym::new(&format!("selvedge-{digits}")).expect("letters, digits and a hyphen are a token"))
    }
}

impl ViaName {
    /// Creates a name for a command that forwards no requests, with a placeholder for the digits.
    pub(super) fn placeholder() -> Self {
        Self(ViaPseudonym::new("selvedge-ID").expect("letters and a hyphen are a token"))
    }

    /// Returns the name.
    pub(super) fn pseudonym(&self) -> ViaPseudonym {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        assert_ne!(ViaName::default().pseudonym(), ViaName::default().pseudonym());
    }
}
