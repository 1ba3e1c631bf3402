//! Single flight over all workers: concurrent readers of a text that takes time to make share one execution.

use selvedge::spawn_blocking;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The most readers that wait for an execution. They hold no thread.
const WAITING_MAX: usize = 256;
/// The longest wait of a reader.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Sends the value of an execution, once.
type ValueSender<T> = watch::Sender<Option<T>>;

/// Makes values on threads for calls that block, one at a time.
pub(super) struct SharedWork<T> {
    /// The execution in progress, which owns the sender.
    execution: Mutex<Weak<ValueSender<T>>>,
    waiting: Semaphore,
}

impl<T> Default for SharedWork<T> {
    fn default() -> Self {
        Self { execution: Mutex::default(), waiting: Semaphore::new(WAITING_MAX) }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedWork<T> {
    /// Returns the value of the execution in progress, or of `work`, which is executed even if this call is cancelled.
    /// `None` if the work makes none, if it takes too long, or if too many readers wait.
    pub(super) async fn value(&self, work: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
        let _place = self.waiting.try_acquire().ok()?;
        let (mut made, begun) = self.join();
        let value = async {
            if let Some(sender) = begun {
                // Its end, also by a panic, drops the sender, which ends the execution.
                spawn_blocking(move || sender.send_replace(work())).await;
            }
            made.wait_for(Option::is_some).await.ok()?.clone()
        };
        timeout(WAIT_MAX, value).await.ok().flatten()
    }

    /// Joins the execution in progress. If none is, begins one and returns its sender.
    fn join(&self) -> (watch::Receiver<Option<T>>, Option<Arc<ValueSender<T>>>) {
        let mut execution = self.execution.lock().unwrap_or_else(PoisonError::into_inner);
        // A value that is known is of a time before this reader.
        if let Some(sender) = execution.upgrade().filter(|sender| sender.borrow().is_none()) {
            return (sender.subscribe(), None);
        }
        let sender = Arc::new(ValueSender::new(None));
        *execution = Arc::downgrade(&sender);
        (sender.subscribe(), Some(sender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Poll;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(future)
    }

    /// Work that ends when the sender sends or is dropped.
    fn gated(value: Option<u32>) -> (impl FnOnce() -> Option<u32> + Send, Sender<()>) {
        let (go, wait): (_, Receiver<()>) = channel();
        let work = move || {
            let _ = wait.recv();
            value
        };
        (work, go)
    }

    /// Polls a future once, and asserts that it is not complete.
    async fn begin<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) {
        assert!(poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await);
    }

    #[test]
    fn concurrent_readers_share_an_execution_even_if_the_first_is_cancelled() {
        let shared = SharedWork::default();
        run(async {
            let (work, go) = gated(Some(1));
            let mut first = Box::pin(shared.value(work));
            begin(first.as_mut()).await;
            let mut second = pin!(shared.value(|| Some(2)));
            begin(second.as_mut()).await;
            drop(first);
            go.send(()).unwrap();
            assert_eq!(second.await, Some(1));
            assert_eq!(shared.value(|| Some(3)).await, Some(3));
        });
        assert!(shared.execution.lock().unwrap().upgrade().is_none(), "no value is kept");
    }

    #[test]
    fn readers_are_bounded_and_wait_for_a_bounded_time() {
        let shared = SharedWork::default();
        run(async {
            let (work, go) = gated(Some(1));
            let mut readers = vec![Box::pin(shared.value(work)) as Pin<Box<dyn Future<Output = Option<u32>>>>];
            readers.extend((1..WAITING_MAX).map(|_| Box::pin(shared.value(|| Some(2))) as Pin<Box<_>>));
            for reader in &mut readers {
                begin(reader.as_mut()).await;
            }
            assert_eq!(shared.value(|| Some(3)).await, None, "one too many");
            tokio::time::advance(WAIT_MAX).await;
            for reader in readers {
                assert_eq!(reader.await, None);
            }
            // The execution goes on.
            let mut late = pin!(shared.value(|| Some(4)));
            begin(late.as_mut()).await;
            go.send(()).unwrap();
            assert_eq!(late.await, Some(1));
        });
    }

    #[test]
    fn work_that_fails_or_panics_ends_for_all_its_readers() {
        let shared = SharedWork::default();
        run(async {
            let (work, go) = gated(None);
            let (mut first, mut second) = (pin!(shared.value(work)), pin!(shared.value(|| Some(2))));
            begin(first.as_mut()).await;
            begin(second.as_mut()).await;
            drop(go);
            assert_eq!((first.await, second.await), (None, None));
            assert_eq!(shared.value(|| panic!("requested by the test")).await, None);
            assert_eq!(shared.value(|| Some(5)).await, Some(5));
        });
    }
}
