//! Replaces basic authentication in builds without the feature `configuration`, in which no site can have
//! users. The cryptography of password checks is a large part of the build.

use super::{AccessDecision, DenialCounter};
use crate::site::step_recorder::StepRecorder;
use selvedge::Request;
use std::sync::Arc;

/// Has no values, since no site has users.
#[derive(Debug)]
pub(crate) enum BasicAuthenticator {}

impl BasicAuthenticator {
    pub(super) fn check_bytes_max(&self) -> u64 {
        match *self {}
    }

    pub(super) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        match *self {}
    }

    pub(super) async fn check(&self, _: &mut Request, _: &Verifier, _: Option<&StepRecorder>) -> AccessDecision {
        match *self {}
    }
}

/// An empty cache.
#[derive(Debug, Default)]
pub(crate) struct PasswordCache;

/// A verifier that is never called.
pub(crate) struct Verifier;

impl Verifier {
    pub(crate) fn new(_: Arc<PasswordCache>) -> Self {
        Self
    }
}
