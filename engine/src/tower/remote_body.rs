//! Request content that can be read from any thread.
//!
//! The content of a request stays on its worker's thread, in a table. The application gets the key of
//! its entry. Reading on that thread is a table lookup. On another thread, a command makes the worker
//! read the content and send it through a channel.

use crate::mailbox::{MailboxReceiver, MailboxSender, mailbox};
use crate::service::{ContentError, IncomingBody};
use crate::tower::slab::{Slab, SlabKey};
use bytes::Bytes;
use selvedge_proto::field::Fields;
use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};
use tokio::sync::mpsc;

thread_local! {
    static THREAD_BODIES: ThreadBodies = ThreadBodies::new();
}

/// The request contents that one thread owns.
struct ThreadBodies {
    owner: Owner,
    bodies: Slab<IncomingBody>,
}

/// The thread that owns a content.
#[derive(Clone)]
struct Owner {
    thread: ThreadId,
    commands: MailboxSender<(SlabKey, BodyCommand)>,
}

/// A part of content sent to another thread. The end is explicit, since a closed channel only means that the sender
/// has ended.
enum RemotePart {
    Chunk(Result<Bytes, ContentError>),
    /// The end of the content, with its trailers.
    End(Option<Fields>),
}

/// A command from another thread about one content.
enum BodyCommand {
    /// Read all content and send it in chunks.
    Read(mpsc::Sender<RemotePart>),
    /// Drop the content.
    Discard,
}

impl ThreadBodies {
    fn new() -> Self {
        let (commands, receiver) = mailbox();
        // Without a runtime on this thread, no task could run the commands, and they are refused.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::spawn_local(run_commands(receiver));
        }
        Self { owner: Owner { thread: thread::current().id(), commands }, bodies: Slab::default() }
    }
}

/// Runs the commands of other threads.
async fn run_commands(mut receiver: MailboxReceiver<(SlabKey, BodyCommand)>) {
    loop {
        let (key, command) = receiver.receive().await;
        let content = THREAD_BODIES.with(|thread_bodies| thread_bodies.bodies.remove(key));
        if let (Some(content), BodyCommand::Read(sender)) = (content, command) {
            tokio::task::spawn_local(forward_chunks(content, sender));
        }
    }
}

/// Reads content and sends it to another thread; the channel bounds how far it reads ahead.
async fn forward_chunks(mut content: IncomingBody, sender: mpsc::Sender<RemotePart>) {
    loop {
        let (part, has_more) = match content.chunk().await {
            Some(chunk) => {
                let has_more = chunk.is_ok();
                (RemotePart::Chunk(chunk), has_more)
            }
            None => (RemotePart::End(content.trailers()), false),
        };
        if sender.send(part).await.is_err() || !has_more {
            return;
        }
    }
}

/// The channel from the worker, after reading has started on another thread.
struct RemoteParts {
    parts: mpsc::Receiver<RemotePart>,
    trailers: Option<Fields>,
}

impl RemoteParts {
    /// Polls the channel. A closed channel without an explicit end means that the worker has ended, and is
    /// reported as an error.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        Poll::Ready(match ready!(self.parts.poll_recv(cx)) {
            Some(RemotePart::Chunk(chunk)) => Some(chunk),
            Some(RemotePart::End(trailers)) => {
                self.trailers = trailers;
                None
            }
            None => Some(Err(ContentError::Ended)),
        })
    }
}

/// Handle to content that a worker's thread owns.
pub(super) struct RemoteBody {
    owner: Owner,
    key: SlabKey,
    remote: Option<RemoteParts>,
}

impl RemoteBody {
    /// Stores content in this thread's table.
    pub(super) fn new(content: IncomingBody) -> Self {
        THREAD_BODIES.with(|thread_bodies| Self {
            owner: thread_bodies.owner.clone(),
            key: thread_bodies.bodies.insert(content),
            remote: None,
        })
    }

    /// Returns the key of the content in the thread's table.
    pub(super) fn key(&self) -> SlabKey {
        self.key
    }

    /// Returns whether this thread's table still has the content: neither dropped nor moved to a channel.
    pub(super) fn is_on_thread(key: SlabKey) -> bool {
        THREAD_BODIES.with(|thread_bodies| thread_bodies.bodies.contains(key))
    }

    /// Polls the next chunk; `None` at the end.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        if let Some(remote) = &mut self.remote {
            return remote.poll_chunk(cx);
        }
        if thread::current().id() == self.owner.thread {
            return self.with_content(|content| content.poll_chunk(cx)).unwrap_or(Poll::Ready(None));
        }
        let (sender, parts) = mpsc::channel(1);
        self.owner.send(self.key, BodyCommand::Read(sender));
        self.remote.insert(RemoteParts { parts, trailers: None }).poll_chunk(cx)
    }

    /// Returns the trailer fields, if the content has ended and has any.
    pub(super) fn trailers(&mut self) -> Option<Fields> {
        match &mut self.remote {
            Some(remote) => remote.trailers.take(),
            None if thread::current().id() == self.owner.thread => {
                self.with_content(|content| content.trailers()).flatten()
            }
            None => None,
        }
    }

    fn with_content<T>(&self, read: impl FnOnce(&mut IncomingBody) -> T) -> Option<T> {
        THREAD_BODIES.with(|thread_bodies| thread_bodies.bodies.with(self.key, read))
    }
}

impl Owner {
    fn send(&self, key: SlabKey, command: BodyCommand) {
        // If the thread has ended, the command is dropped; the caller sees its channel close.
        let _ = self.commands.send((key, command));
    }
}

impl Drop for RemoteBody {
    fn drop(&mut self) {
        if self.remote.is_some() {
            // Dropping the receiver stops the worker's read task.
        } else if thread::current().id() == self.owner.thread {
            // The table may already be dropped if the thread is ending.
            let _ = THREAD_BODIES.try_with(|thread_bodies| drop(thread_bodies.bodies.remove(self.key)));
        } else {
            self.owner.send(self.key, BodyCommand::Discard);
        }
    }
}
