//! Tells the handler of another protocol, on any thread, that the server stops.

use crate::peer::StoppingFuture;
use tokio::sync::watch;

/// Dropped when the server stops. Nothing is ever sent on the channel.
pub(crate) struct StopSignal(#[expect(dead_code, reason = "its drop is the signal")] watch::Sender<()>);

/// The handler's end.
pub(crate) struct StopWatch(watch::Receiver<()>);

/// Creates a signal.
pub(crate) fn stop_signal() -> (StopSignal, StopWatch) {
    let (signal, watch) = watch::channel(());
    (StopSignal(signal), StopWatch(watch))
}

impl StopWatch {
    /// Completes when the signal is dropped.
    pub(crate) fn stopping(&self) -> StoppingFuture {
        let mut watch = self.0.clone();
        Box::pin(async move { while watch.changed().await.is_ok() {} })
    }
}
