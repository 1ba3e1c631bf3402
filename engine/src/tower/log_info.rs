//! The log information of an embedded application, passed to the server's observer as a response
//! extension.

use crate::service::Request;
use std::net::IpAddr;
use std::sync::Arc;

/// Client address, user and site tag, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedLogInfo {
    client: Option<IpAddr>,
    user: Option<Arc<str>>,
    site_tag: u32,
}

impl SharedLogInfo {
    /// Returns the information that a request has, or `None` if it has none.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let log_info = &request.inner.log_info;
        let shared = Self {
            client: log_info.client,
            user: log_info.user.as_deref().map(Arc::from),
            site_tag: log_info.site_tag,
        };
        (shared != Self { client: None, user: None, site_tag: 0 }).then_some(shared)
    }

    /// Copies the information to a request.
    pub(super) fn apply_to(self, request: &mut Request) {
        if let Some(client) = self.client {
            request.set_client(client);
        }
        if let Some(user) = self.user {
            request.set_user((&*user).into());
        }
        request.set_site_tag(self.site_tag);
    }
}
