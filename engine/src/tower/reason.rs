//! Why an application answers with an error, for the log alone.

/// Why an answer is an error, as an extension of the answer: whoever observes the server is told
/// ([`crate::service::Exchange::reason`]), and no client.
///
/// ```
/// use http::{Response, StatusCode};
///
/// let mut answer = Response::new(String::new());
/// *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
/// answer.extensions_mut().insert(selvedge::tower::Reason("the database is away"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub &'static str);
