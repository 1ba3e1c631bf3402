//! The request that opens a connection, for the requests that wait for it.

use super::opening::Opening;
use crate::client::error::ClientError;
use crate::client::group::Group;
use std::rc::Rc;

/// Ends the opening of a connection when it is dropped. That is when the settings of the upstream have arrived, or when
/// opening has failed. If the future of the request that opens is dropped, another request opens.
pub(super) struct OpeningGuard {
    group: Rc<Group>,
    opening: Rc<Opening>,
    error: Option<ClientError>,
}

impl OpeningGuard {
    pub(super) fn new(group: Rc<Group>) -> Self {
        let opening = Rc::new(Opening::default());
        group.opening.replace(Some(opening.clone()));
        Self { group, opening, error: None }
    }

    /// Sets the error that the waiting requests get.
    pub(super) fn fail(&mut self, error: ClientError) {
        self.error = Some(error);
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.group.opening.take();
        self.opening.finish(self.error);
    }
}
