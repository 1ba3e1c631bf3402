//! Exchanges with upstreams that do what a test tells them, over Unix sockets within one runtime. Time is virtual.

mod http2;
mod http2_streams;
mod http2_tunnels;
mod pool;
mod requests;
mod responses;
mod splices;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod tunnels;

use super::*;
use crate::service::{Chunks, ContentError, ContentSource, IncomingBody, StreamId};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{spawn_local, yield_now};

/// Longest virtual time of a test.
const TEST_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Runs a test on a worker's kind of runtime, whose clock jumps to the next event when all tasks wait.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime can be created")
        .block_on(async { tokio::time::timeout(TEST_TIME_MAX, test).await.expect("a test ends") });
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..32 {
        yield_now().await;
    }
}

/// A listening upstream.
struct Upstream {
    path: PathBuf,
    listener: UnixListener,
}

impl Upstream {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("selvedge-client-{}-{number}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        Self { path, listener }
    }

    fn destination(&self) -> Destination {
        Destination::plain(Address::Unix(self.path.as_path().into()))
    }

    async fn accept(&self) -> Peer {
        let (socket, _) = self.listener.accept().await.unwrap();
        Peer { socket, received: Vec::new() }
    }

    /// Whether a connection waits to be accepted.
    async fn has_connection(&self) -> bool {
        settle().await;
        poll_fn(|cx| Poll::Ready(self.listener.poll_accept(cx).is_ready())).await
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The upstream's end of a connection.
struct Peer {
    socket: UnixStream,
    received: Vec<u8>,
}

impl Peer {
    /// Receives once. Returns false at the end.
    async fn receive(&mut self) -> bool {
        loop {
            self.socket.readable().await.unwrap();
            let mut piece = [0; 64 * 1024];
            match self.socket.try_read(&mut piece) {
                Ok(count) => {
                    self.received.extend_from_slice(&piece[..count]);
                    return count > 0;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }

    /// Receives up to a text, and takes everything up to its end.
    async fn take_until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.received.windows(end.len()).position(|part| part == end.as_bytes()) {
                let rest = self.received.split_off(at + end.len());
                return String::from_utf8(std::mem::replace(&mut self.received, rest)).unwrap();
            }
            assert!(self.receive().await, "ended after {:?}", self.received.escape_ascii().to_string());
        }
    }

    async fn take_head(&mut self) -> String {
        self.take_until("\r\n\r\n").await
    }

    /// Whether the client has closed its end. What it sends before is received.
    async fn is_closed(&mut self) -> bool {
        settle().await;
        loop {
            let mut piece = [0; 1024];
            match self.socket.try_read(&mut piece) {
                Ok(0) => return true,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    async fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.socket.writable().await.unwrap();
            match self.socket.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Sends pieces, each of which the client receives by itself.
    async fn send_pieces<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) {
        for piece in pieces {
            self.send(piece).await;
            settle().await;
        }
    }
}

fn client() -> Client {
    Client::new(ClientLimits::default())
}

/// Returns the head of a request without content.
fn request(method: &str) -> OutgoingHead {
    OutgoingHead {
        method: method.into(),
        target: b"/path?query".to_vec(),
        authority: b"example.com".to_vec(),
        fields: b"accept: */*\r\n".to_vec(),
        ..OutgoingHead::default()
    }
}

/// Sends a request without content, with default timeouts.
async fn fetch(client: &Client, to: &Destination, method: &str) -> Result<IncomingResponse, ClientError> {
    let (head, mut content) = (request(method), OutgoingContent::empty());
    client.send(to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
}

/// Sends a GET request in a task of its own.
fn spawn_fetch(
    client: &Client,
    to: &Destination,
    method: &'static str,
) -> tokio::task::JoinHandle<Result<IncomingResponse, ClientError>> {
    let (client, to) = (client.clone(), to.clone());
    spawn_local(async move { fetch(&client, &to, method).await })
}

/// Reads content to its end.
///
/// # Errors
/// The text of the error that ended it.
async fn read_all(content: &mut ResponseContent) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| Pin::new(&mut *content).poll_chunk(cx)).await {
        all.extend_from_slice(&piece.map_err(|error| error.to_string())?);
    }
    Ok(all)
}

/// Moves 3,000,000 bytes of a request without reading its response.
async fn move_upload(source: &Rc<TestContent>, content: &mut ResponseContent) {
    for _ in 0..100 {
        source.push(vec![b'x'; 30_000]);
    }
    source.end();
    let is_moved = poll_fn(|cx| {
        Pin::new(&mut *content).poll_progress(cx);
        if source.pieces.borrow().is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    tokio::time::timeout(Duration::from_secs(5), is_moved).await.expect("the upload does not wait for a reader");
}

/// Request content that a test provides.
#[derive(Default)]
struct TestContent {
    pieces: RefCell<VecDeque<Result<Bytes, ContentError>>>,
    is_over: Cell<bool>,
    trailers: RefCell<Option<Fields>>,
    reader: RefCell<Option<Waker>>,
}

impl TestContent {
    fn new() -> Rc<Self> {
        Rc::default()
    }

    fn push(&self, piece: impl Into<Bytes>) {
        self.pieces.borrow_mut().push_back(Ok(piece.into()));
        self.wake();
    }

    fn fail(&self, error: ContentError) {
        self.pieces.borrow_mut().push_back(Err(error));
        self.wake();
    }

    fn end(&self) {
        self.is_over.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn incoming(self: &Rc<Self>, length: Option<u64>) -> OutgoingContent {
        let source: Rc<dyn ContentSource> = self.clone();
        OutgoingContent::request(IncomingBody::new(Rc::downgrade(&source), StreamId(1), length, u64::MAX))
    }
}

impl ContentSource for TestContent {
    fn poll_content(&self, _stream: StreamId, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        match self.pieces.borrow_mut().pop_front() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if self.is_over.get() => Poll::Ready(None),
            None => {
                self.reader.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    fn trailers(&self, _stream: StreamId) -> Option<Fields> {
        self.trailers.borrow().clone()
    }

    fn send_interim(&self, _stream: StreamId, _status: StatusCode, _fields: &Fields) -> Result<(), ContentError> {
        Ok(())
    }
}
