//! The action that responds with the metrics of the server. What formats them is another part of the program.

use super::methods::respond_to_method;
use selvedge::{Request, Response, StatusCode, spawn_blocking};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Calls that format at once. Each takes milliseconds.
const AT_WORK_MAX: u32 = 4;

/// The format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl MetricsFormat {
    /// Returns the format that a request prefers: OpenMetrics, if it names that.
    pub(crate) fn of(request: &Request) -> Self {
        const OPENMETRICS: &[u8] = b"application/openmetrics-text";
        let accept = request.field("accept").unwrap_or_default();
        match accept.windows(OPENMETRICS.len()).any(|part| part.eq_ignore_ascii_case(OPENMETRICS)) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Returns the response without its content.
    fn response(self) -> Response {
        let media_type = match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        };
        let response = Response::new(StatusCode::OK).field("content-type", media_type);
        response.field("cache-control", "no-store").field("vary", "accept")
    }
}

/// Formats metrics. The call may wait for workers, so it is not made on one.
pub(crate) type FormatMetrics = dyn Fn(MetricsFormat) -> Option<String> + Send + Sync;

/// What formats the metrics of the server, once that runs.
#[derive(Default)]
pub(crate) struct MetricsSlot {
    call: OnceLock<Box<FormatMetrics>>,
    at_work: AtomicU32,
}

impl fmt::Debug for MetricsSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsSlot")
    }
}

impl MetricsSlot {
    /// Sets what formats the metrics. Only the first call has an effect.
    #[cfg(feature = "program")]
    pub(crate) fn set(&self, format: Box<FormatMetrics>) {
        let _ = self.call.set(format);
    }

    fn text(&self, format: MetricsFormat) -> Option<String> {
        self.call.get().and_then(|call| call(format))
    }

    /// Formats the metrics on a thread for calls that block, unless that many do so already.
    async fn text_elsewhere(self: &Arc<Self>, format: MetricsFormat) -> Option<String> {
        /// Ends the call even if its request is cancelled: the thread has it.
        struct AtWork(Arc<MetricsSlot>);
        impl Drop for AtWork {
            fn drop(&mut self) {
                self.0.at_work.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.at_work.fetch_add(1, Ordering::Relaxed);
        let at_work = AtWork(self.clone());
        if before >= AT_WORK_MAX {
            return None;
        }
        spawn_blocking(move || at_work.0.text(format)).await.flatten()
    }

    /// Returns the response to a request that is only explained. Formats nothing.
    pub(super) fn explain(request: &Request) -> Response {
        respond_to_method(request).unwrap_or_else(|| MetricsFormat::of(request).response())
    }

    /// Responds with the metrics. A thread for calls that block formats them.
    pub(crate) async fn respond(self: &Arc<Self>, request: &Request) -> Response {
        if let Some(response) = respond_to_method(request) {
            return response;
        }
        let format = MetricsFormat::of(request);
        match self.text_elsewhere(format).await {
            Some(text) => format.response().body(text),
            None => Response::error(StatusCode::SERVICE_UNAVAILABLE)
                .field("retry-after", "1")
                .log_reason("no metrics are available now"),
        }
    }
}
