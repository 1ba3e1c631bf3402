//! Listeners of an application, whose streams are no sockets of the engine: TLS of another library, streams that count
//! or record, tunnels.
//!
//! A thread of its own accepts. Each stream is copied to and from one end of a socket pair, and a worker serves the other
//! end as it serves an accepted socket.

use crate::limits::SWEEP_INTERVAL;
use crate::net::accepted::Accepted;
use crate::net::listen::Endpoint;
use crate::net::stop_state::StopState;
use crate::net::worker::{WorkerCommand, WorkerPool};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A listener with streams of its own type, like `axum::serve::Listener`: for TLS of another library in this process, or
/// for a stream that counts, records or delays.
///
/// It runs on a thread of its own, on a runtime of tokio. Its bytes are copied once more than those of a socket; use
/// sockets where you can. Each stream counts toward [`Limits::connections_max`](crate::Limits::connections_max), and all
/// other limits apply. With `Server::tls`, name the other listeners by `Tls::only_at`: the
/// engine is not to use TLS within these streams.
///
/// ```no_run
/// use selvedge::StreamListener;
/// use std::net::SocketAddr;
/// use tokio::net::{TcpListener, TcpStream};
///
/// struct Announced(TcpListener);
///
/// impl StreamListener for Announced {
///     type Stream = TcpStream;
///
///     async fn accept(&mut self) -> (TcpStream, SocketAddr) {
///         loop {
///             match self.0.accept().await {
///                 Ok((stream, peer)) => {
///                     println!("{peer} is here");
///                     return (stream, peer);
///                 }
///                 Err(error) => {
///                     eprintln!("cannot accept: {error}");
///                     tokio::time::sleep(std::time::Duration::from_millis(100)).await;
///                 }
///             }
///         }
///     }
///
///     fn local_addr(&self) -> Option<SocketAddr> {
///         self.0.local_addr().ok()
///     }
/// }
///
/// # async fn run(app: axum::Router) -> std::io::Result<()> {
/// let listener = Announced(TcpListener::bind("127.0.0.1:3000").await?);
/// selvedge::serve_streams(listener, app.into_make_service()).await
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no listener with streams of its own",
    label = "this does not implement `StreamListener`",
    note = "a listening socket of the standard library or of tokio belongs to `selvedge::serve(listener, app)`",
    note = "the type of an `axum::serve::Listener` implements `StreamListener` by its method `accept`"
)]
pub trait StreamListener: Send + 'static {
    /// A connection to a client.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection, and returns it with the address of its client. It handles errors by itself, and
    /// must be cancel-safe: the server drops the future when it stops.
    fn accept(&mut self) -> impl Future<Output = (Self::Stream, SocketAddr)> + Send;

    /// Returns the address at which clients connect, for `local_addr` of the server. Default: none.
    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}

/// What a thread that accepts streams shares with the workers.
pub(crate) struct StreamContext {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) stop: watch::Receiver<StopState>,
    /// Time for streams that are open when the server stops.
    pub(crate) shutdown_timeout: Duration,
}

type StartThread = Box<dyn FnOnce(StreamContext) -> io::Result<JoinHandle<()>> + Send>;

/// A listener before the start of its server.
pub(crate) struct StreamSource(StartThread);

impl StreamSource {
    pub(crate) fn new(listener: impl StreamListener) -> Self {
        Self(Box::new(|context| start(listener, context)))
    }

    /// Starts the thread.
    pub(crate) fn start(self, context: StreamContext) -> io::Result<JoinHandle<()>> {
        (self.0)(context)
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamSource")
    }
}

fn start(listener: impl StreamListener, context: StreamContext) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    thread::Builder::new()
        .name("selvedge-streams".to_owned())
        .spawn(move || runtime.block_on(accept_streams(listener, context)))
}

/// Accepts until the server stops, and copies until all streams have ended.
async fn accept_streams(mut listener: impl StreamListener, context: StreamContext) {
    let StreamContext { pool, permits, stop, shutdown_timeout } = context;
    let endpoint = Endpoint::Unix(PathBuf::new());
    let mut copies = JoinSet::new();
    loop {
        let next = async {
            let (stream, peer) = listener.accept().await;
            // Only a client that waits is worth the eviction of an idle connection.
            permit(&permits, &pool).await.map(|permit| (stream, peer, permit))
        };
        let Some((stream, peer, permit)) = unless(reached(&stop, StopState::Drain), next).await else { break };
        while copies.try_join_next().is_some() {}
        // Without descriptors, the stream is closed.
        if let Ok(own_end) = serve((peer, permit), &pool, &endpoint) {
            copies.spawn(copy(stream, own_end));
        }
    }
    let all_ended = async {
        while copies.join_next().await.is_some() {}
        Some(())
    };
    let _ = timeout(shutdown_timeout, unless(reached(&stop, StopState::Immediate), all_ended)).await;
}

/// Waits until the stop of the server has reached a state.
async fn reached(stop: &watch::Receiver<StopState>, state: StopState) {
    // An error means that the server has ended.
    let _ = stop.clone().wait_for(|current| *current >= state).await;
}

/// Waits for a future. Returns `None` if the other one, `stopped`, completes first.
async fn unless<T>(stopped: impl Future<Output = ()>, future: impl Future<Output = Option<T>>) -> Option<T> {
    let (mut stopped, mut future) = (pin!(stopped), pin!(future));
    poll_fn(|cx| match stopped.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx),
    })
    .await
}

/// Waits for a permit. If none is free, workers close idle connections.
async fn permit(permits: &Arc<Semaphore>, pool: &WorkerPool) -> Option<OwnedSemaphorePermit> {
    for worker in pool.inboxes.iter().cycle() {
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        let _ = worker.send(WorkerCommand::Evict);
        if let Ok(permit) = timeout(SWEEP_INTERVAL, permits.clone().acquire_owned()).await {
            return permit.ok();
        }
    }
    None
}

/// Passes one end of a new socket pair to the worker with the fewest connections. Returns the other end.
fn serve(
    (peer, permit): (SocketAddr, OwnedSemaphorePermit),
    pool: &WorkerPool,
    endpoint: &Endpoint,
) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (own, fd): (OwnedFd, OwnedFd) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let own = UnixStream::from_std(BlockingStream::from(own))?;
    let least_loaded = (0..pool.loads.len()).min_by_key(|&number| pool.loads[number].load(Ordering::Relaxed));
    let worker = &pool.inboxes[least_loaded.unwrap_or(0)];
    // A worker that has ended drops the connection.
    let _ = worker.send(WorkerCommand::Serve(Accepted { fd, peer, permit }, endpoint.clone()));
    Ok(own)
}

async fn copy(mut stream: impl AsyncRead + AsyncWrite + Unpin, mut own_end: UnixStream) {
    // Either side may end at any time, which ends the other one.
    let _ = copy_bidirectional(&mut stream, &mut own_end).await;
}
