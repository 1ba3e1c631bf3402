//! The reason of an error response, for the log only.

/// Why a response is an error, as a response extension. The server's observer gets it
/// ([`crate::service::Exchange::reason`]); the client does not.
///
/// ```
/// use http::{Response, StatusCode};
///
/// let mut response = Response::new(String::new());
/// *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
/// response.extensions_mut().insert(selvedge::tower::LogReason("the database is unavailable"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReason(pub &'static str);
