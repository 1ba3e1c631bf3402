//! Tells the handler of another protocol, which may run on any thread, that its connection is about to end.

use crate::peer::StoppingFuture;
use tokio::sync::watch;

/// Creates both ends of a notice.
pub(crate) fn stop_notice() -> (StopSender, StopNotice) {
    let (sender, receiver) = watch::channel(());
    (StopSender(Some(sender)), StopNotice(receiver))
}

/// The end of the worker. Dropping it announces the stop, too.
pub(crate) struct StopSender(Option<watch::Sender<()>>);

impl StopSender {
    pub(crate) fn announce(&mut self) {
        self.0 = None;
    }
}

/// The end of the handler.
pub(crate) struct StopNotice(watch::Receiver<()>);

impl StopNotice {
    /// Returns a future that resolves when the stop is announced.
    pub(crate) fn future(&self) -> StoppingFuture {
        let mut receiver = self.0.clone();
        // No value is ever sent on this channel; it only closes.
        Box::pin(async move { while receiver.changed().await.is_ok() {} })
    }
}
