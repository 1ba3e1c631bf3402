//! A queue of messages from any thread to one task.
//!
//! tokio's queue can keep a message that is sent while its receiver is dropped: the message lives on until the last
//! sender is dropped. A caller that waits for the message to be handled or dropped would wait forever. Here, every
//! message is received, dropped with the receiver, or returned to its sender.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Creates an empty mailbox.
pub(crate) fn mailbox<T>() -> (MailboxSender<T>, MailboxReceiver<T>) {
    let state = Arc::new(MailboxState { messages: Mutex::new(Some(VecDeque::new())), has_messages: Notify::new() });
    (MailboxSender(state.clone()), MailboxReceiver(state))
}

struct MailboxState<T> {
    /// `None` after the receiver was dropped.
    messages: Mutex<Option<VecDeque<T>>>,
    has_messages: Notify,
}

impl<T> MailboxState<T> {
    fn messages(&self) -> MutexGuard<'_, Option<VecDeque<T>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end of a mailbox. All clones send to one receiver.
pub(crate) struct MailboxSender<T>(Arc<MailboxState<T>>);

impl<T> MailboxSender<T> {
    /// Sends a message, or returns it if the receiver was dropped.
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        match &mut *self.0.messages() {
            Some(messages) => messages.push_back(message),
            None => return Err(message),
        }
        self.0.has_messages.notify_one();
        Ok(())
    }

    /// Whether the receiver was dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.messages().is_none()
    }
}

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for MailboxSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxSender").finish_non_exhaustive()
    }
}

/// The receiving end of a mailbox. Messages arrive in the order in which they were sent.
pub(crate) struct MailboxReceiver<T>(Arc<MailboxState<T>>);

impl<T> MailboxReceiver<T> {
    /// Returns the next message, if one was sent.
    pub(crate) fn try_receive(&mut self) -> Option<T> {
        self.0.messages().as_mut()?.pop_front()
    }

    /// Waits for the next message.
    pub(crate) async fn receive(&mut self) -> T {
        loop {
            if let Some(message) = self.try_receive() {
                return message;
            }
            self.0.has_messages.notified().await;
        }
    }
}

impl<T> Drop for MailboxReceiver<T> {
    fn drop(&mut self) {
        let unreceived = self.0.messages().take();
        // Dropped without the lock, because the drop of a message may send another one.
        drop(unreceived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::thread;

    #[test]
    fn messages_arrive_in_order_and_are_returned_after_the_end() {
        let (sender, mut receiver) = mailbox();
        assert_eq!(receiver.try_receive(), None);
        for number in 0..3 {
            sender.clone().send(number).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(receiver.receive()), 0);
        assert_eq!(receiver.try_receive(), Some(1));
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send(3), Err(3));
    }

    #[test]
    fn no_message_outlives_the_receiver() {
        for _ in 0..1_000 {
            let (sender, receiver) = mailbox();
            let (message, all_dropped) = channel::<()>();
            let end = thread::spawn(move || drop(receiver));
            while sender.send(message.clone()).is_ok() {}
            end.join().unwrap();
            drop(message);
            // A lost message would keep the channel open.
            assert_eq!(all_dropped.try_recv(), Err(TryRecvError::Disconnected));
        }
    }
}
