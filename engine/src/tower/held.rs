//! Request content whose other end may be on any thread.
//!
//! The content of a request belongs to its worker and never leaves it. What an application
//! gets is a number under which the worker's thread holds it: on that thread, reading is a
//! look into a table. Elsewhere, the worker is asked to read and to send what it reads.

use crate::service::{ContentError, IncomingBody};
use crate::tower::table::{Table, Ticket};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use tokio::sync::{Notify, mpsc};

thread_local! {
    static HOME: Home = Home::new();
}

/// What one thread holds.
struct Home {
    door: Arc<Door>,
    held: Table<IncomingBody>,
}

/// Where other threads ask.
struct Door {
    thread: ThreadId,
    /// `None` once the thread has ended, and nobody would hear them.
    wishes: Mutex<Option<Vec<(Ticket, Wish)>>>,
    knock: Notify,
}

/// What comes of content on another thread: a piece, or `None` for its end. Whoever sends may end
/// before the content does, so an end has to be said.
type Sent = Option<Result<Bytes, ContentError>>;

/// What another thread wants of content.
enum Wish {
    /// All of it, piece by piece.
    Read(mpsc::Sender<Sent>),
    /// To be rid of it.
    Forget,
}

impl Home {
    fn new() -> Self {
        let wishes = Mutex::new(Some(Vec::new()));
        let door = Door { thread: thread::current().id(), wishes, knock: Notify::new() };
        let door = Arc::new(door);
        // Without a runtime on this thread nobody could ask it anything.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::spawn_local(attend(door.clone()));
        }
        Self { door, held: Table::default() }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Whoever waits for what is let go of here hears that nothing comes.
        drop(self.door.wishes.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Does what other threads ask of this one.
async fn attend(door: Arc<Door>) {
    loop {
        door.knock.notified().await;
        let wishes = door.wishes.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take);
        for (ticket, wish) in wishes.unwrap_or_default() {
            let content = HOME.with(|home| home.held.take(ticket));
            if let (Some(content), Wish::Read(to)) = (content, wish) {
                tokio::task::spawn_local(pass_on(content, to));
            }
        }
    }
}

/// Reads content for another thread, no faster than that one takes it.
async fn pass_on(mut content: IncomingBody, to: mpsc::Sender<Sent>) {
    loop {
        let piece = content.chunk().await;
        let goes_on = matches!(piece, Some(Ok(_)));
        if to.send(piece).await.is_err() || !goes_on {
            return;
        }
    }
}

/// What came from the worker. A worker that ends in the middle has content end there, which is no
/// end of the content's own.
fn poll_sent(away: &mut mpsc::Receiver<Sent>, cx: &mut Context<'_>) -> Poll<Sent> {
    away.poll_recv(cx).map(|sent| sent.unwrap_or(Some(Err(ContentError::Ended))))
}

/// Content that a worker holds.
pub(super) struct Held {
    door: Arc<Door>,
    ticket: Ticket,
    /// What the worker sends to where this is now.
    away: Option<mpsc::Receiver<Sent>>,
}

impl Held {
    /// Has this thread hold content.
    pub(super) fn hold(content: IncomingBody) -> Self {
        HOME.with(|home| Self { door: home.door.clone(), ticket: home.held.put(content), away: None })
    }

    /// By what this thread knows it.
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether the content of a ticket is still with this thread: neither let go of nor away.
    pub(super) fn is_held(ticket: Ticket) -> bool {
        HOME.with(|home| home.held.has(ticket))
    }

    /// The next piece; `None` at the end.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        if let Some(away) = &mut self.away {
            return poll_sent(away, cx);
        }
        if thread::current().id() == self.door.thread {
            return self.with(|content| content.poll_chunk(cx)).unwrap_or(Poll::Ready(None));
        }
        let (to, mut away) = mpsc::channel(1);
        self.door.wish(self.ticket, Wish::Read(to));
        let polled = poll_sent(&mut away, cx);
        self.away = Some(away);
        polled
    }

    /// The trailer fields, where the content has any and was read on its own thread.
    pub(super) fn trailers(&self) -> Option<selvedge_proto::field::Fields> {
        if self.away.is_some() || thread::current().id() != self.door.thread {
            return None;
        }
        self.with(|content| content.trailers()).flatten()
    }

    fn with<T>(&self, look: impl FnOnce(&mut IncomingBody) -> T) -> Option<T> {
        HOME.with(|home| home.held.with(self.ticket, look))
    }
}

impl Door {
    fn wish(&self, ticket: Ticket, wish: Wish) {
        let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        // A wish that nobody hears is dropped, which whoever wishes notices.
        if let Some(wishes) = &mut *wishes {
            wishes.push((ticket, wish));
        }
        drop(wishes);
        self.knock.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.away.is_some() {
            // Whoever reads sees that nobody takes it.
        } else if thread::current().id() == self.door.thread {
            // A thread that ends has let go of everything already.
            let _ = HOME.try_with(|home| drop(home.held.take(self.ticket)));
        } else {
            self.door.wish(self.ticket, Wish::Forget);
        }
    }
}
