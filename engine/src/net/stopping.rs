//! Tells tasks of a worker that its server stops.

use crate::net::stop_state::StopState;
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch;

thread_local! {
    static STOP: RefCell<Option<watch::Receiver<StopState>>> = const { RefCell::new(None) };
}

/// Sets the progress of the stop for the tasks of this thread.
pub(crate) fn set_stop(stop: watch::Receiver<StopState>) {
    STOP.set(Some(stop));
}

/// Returns a future that resolves when the server of this worker begins to stop. A handler with a long response, such as
/// server-sent events or a long poll, can then end it; [`Limits::shutdown_timeout`](crate::Limits::shutdown_timeout)
/// aborts the others.
///
/// Call it in a handler or in a task on its worker. The future may then be sent to another thread. On a thread that is
/// no worker it never resolves.
///
/// ```
/// use std::time::Duration;
///
/// // Waits for news, but not longer than the server runs.
/// async fn poll_news() -> &'static str {
///     tokio::select! {
///         () = tokio::time::sleep(Duration::from_secs(60)) => "no news",
///         () = selvedge::stopping() => "poll again, at another server",
///     }
/// }
/// ```
pub fn stopping() -> Stopping {
    let stop = STOP.with_borrow(Option::clone);
    Stopping(match stop {
        Some(mut stop) => Box::pin(async move {
            // An error means that the server has ended.
            let _ = stop.wait_for(|state| *state >= StopState::Drain).await;
        }),
        None => Box::pin(pending()),
    })
}

/// The future of [`stopping`].
pub struct Stopping(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopping")
    }
}
