//! The application's form of the engine's own error responses.

use crate::service::{Request, Response};
use selvedge_proto::StatusCode;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The reason in the log if the hook panics.
const HOOK_PANICKED: &str = "the function for error responses panicked";

/// An error that the engine responds with by itself: a refused request head, content that is too large or too slow, or
/// an application that failed.
#[derive(Clone, Copy, Debug)]
pub struct EngineError<'a> {
    /// The status code, which stays.
    pub status: StatusCode,
    /// A constant sentence for the client, without a full stop; it may be empty.
    pub text: &'static str,
    /// The request; `None` if its head was refused.
    pub request: Option<&'a Request>,
}

type ErrorFn = dyn Fn(&EngineError<'_>) -> Option<Response> + Send + Sync;

/// The application's hook; the default hook keeps the engine's responses.
#[derive(Clone, Default)]
pub(crate) struct ErrorHook(Option<Arc<ErrorFn>>);

impl ErrorHook {
    pub(crate) fn new(hook: impl Fn(&EngineError<'_>) -> Option<Response> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Returns the response to send in place of one of the engine's own errors. Other responses stay. If the hook panics,
    /// the engine's response stays, and the panic hook of the process gets the panic.
    pub(crate) fn apply(&self, response: Response, request: Option<&Request>) -> Response {
        let (Some(hook), Some(text)) = (&self.0, response.engine_text()) else { return response };
        let error = EngineError { status: response.status, text, request };
        // A panic must not end the worker and its other connections.
        match catch_unwind(AssertUnwindSafe(|| hook(&error))) {
            Ok(Some(replacement)) => replacement.in_place_of(&response),
            Ok(None) => response,
            Err(_) => response.log_reason(HOOK_PANICKED),
        }
    }
}

impl fmt::Debug for ErrorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ErrorHook(set)" } else { "ErrorHook(none)" })
    }
}
