//! What an embedded application found out about a request, on its way to the observer of whoever
//! serves: with the answer, as one of its extensions.

use crate::service::Request;
use std::net::IpAddr;
use std::sync::Arc;

/// A client, a user and a label, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    client: Option<IpAddr>,
    user: Option<Arc<str>>,
    label: u32,
}

impl Noted {
    /// What is known of a request, where that is anything.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let remarks = &request.parts.remarks;
        let noted = Self { client: remarks.client, user: remarks.user.as_deref().map(Arc::from), label: remarks.label };
        (noted != Self { client: None, user: None, label: 0 }).then_some(noted)
    }

    /// Says it of the request that it was found out for.
    pub(super) fn remark(self, request: &mut Request) {
        if let Some(client) = self.client {
            request.set_client(client);
        }
        if let Some(user) = self.user {
            request.set_user((&*user).into());
        }
        request.set_label(self.label);
    }
}
