//! The URI and the fields of a request, as hyper presents those of each version.

use crate::service::Request;
use crate::tower::header_map;
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{Uri, uri};
use selvedge_proto::head::{RequestHead, Scheme};

/// The fields of a head that are no fields of the request: they carry pseudo-fields of HTTP/2 and HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PseudoFields {
    /// Host carries `:authority`.
    authority: bool,
    /// Upgrade carries `:protocol`.
    protocol: bool,
}

impl PseudoFields {
    pub(super) fn of(head: &RequestHead) -> Self {
        let is_multiplexed = !head.version.is_http1();
        Self { authority: is_multiplexed && head.target.authority.is_some(), protocol: is_multiplexed }
    }

    /// Whether the field of this name, in lower case, carries a pseudo-field.
    pub(super) fn contain(self, name: &[u8]) -> bool {
        match name {
            b"host" => self.authority,
            b"upgrade" => self.protocol,
            _ => false,
        }
    }
}

/// Returns the authority of a request if its URI does not name it, as in HTTP/2. `shared` is a copy of `original`, which
/// has the field section.
pub(super) fn authority(head: &RequestHead, bytes: &[u8], original: &[u8], shared: &Bytes) -> Option<Authority> {
    if head.version.is_http1() || head.scheme.is_none() {
        return None;
    }
    let authority = head.target.authority?.of(bytes);
    Authority::from_maybe_shared(header_map::shared_slice(shared, original, authority)).ok()
}

/// Returns the URI of a request.
pub(super) fn uri(request: &Request, target: Bytes, authority: Option<Authority>) -> Option<Uri> {
    let Some(authority) = authority else { return Uri::from_maybe_shared(target).ok() };
    let mut parts = uri::Parts::default();
    parts.scheme = Some(match request.head().scheme {
        Some(Scheme::Https) => uri::Scheme::HTTPS,
        Some(Scheme::Http) | None => uri::Scheme::HTTP,
    });
    parts.authority = Some(authority);
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(target).ok()?);
    Uri::from_parts(parts).ok()
}
