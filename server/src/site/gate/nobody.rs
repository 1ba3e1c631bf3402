//! Users where no site has any: whatever asks for a password comes from a configuration, and what
//! checks it is a third of all that is compiled.

use super::Verdict;
use selvedge::Request;
use std::sync::Arc;

/// There is none.
#[derive(Debug)]
pub(crate) enum BasicGate {}

impl BasicGate {
    pub(super) fn bytes_of_check_max(&self) -> u64 {
        match *self {}
    }

    pub(super) fn observed(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) async fn admit(&self, _: &mut Request, _: &Verifier) -> Verdict {
        match *self {}
    }
}

/// What is known of passwords.
#[derive(Debug, Default)]
pub(crate) struct Passwords;

/// One worker's way to have a password checked.
pub(crate) struct Verifier;

impl Verifier {
    pub(crate) fn new(_: Arc<Passwords>) -> Self {
        Self
    }
}
