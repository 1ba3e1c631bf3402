//! `serve(listener, app)`: the shape that axum's has, so that one line is all that changes.

use crate::limits::Limits;
use crate::net::listen::Listener;
use crate::server::{Ending, Running, Server, limit_methods};
use crate::service::HalfClosed;
use crate::tower::Application;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// What can be listened at: a [`Listener`], or a listening socket of the standard library's or of
/// tokio's, for TCP or of the Unix kind.
pub trait IntoListener {
    /// Makes a listener of it.
    ///
    /// # Errors
    /// As [`Listener::from_sockets`].
    fn into_listener(self) -> io::Result<Listener>;
}

impl IntoListener for Listener {
    fn into_listener(self) -> io::Result<Listener> {
        Ok(self)
    }
}

impl IntoListener for std::net::TcpListener {
    fn into_listener(self) -> io::Result<Listener> {
        Listener::from_sockets(vec![OwnedFd::from(self)])
    }
}

impl IntoListener for std::os::unix::net::UnixListener {
    fn into_listener(self) -> io::Result<Listener> {
        Listener::from_sockets(vec![OwnedFd::from(self)])
    }
}

impl IntoListener for tokio::net::TcpListener {
    fn into_listener(self) -> io::Result<Listener> {
        self.into_std()?.into_listener()
    }
}

impl IntoListener for tokio::net::UnixListener {
    fn into_listener(self) -> io::Result<Listener> {
        self.into_std()?.into_listener()
    }
}

/// Serves an application at a listener, with one worker for each core and every limit on.
///
/// What comes back is to be awaited, on any runtime, as axum's is; [`Serve::start`] is for a
/// program without one.
///
/// ```no_run
/// use axum::{Router, routing::get};
///
/// #[tokio::main]
/// async fn main() -> std::io::Result<()> {
///     let app = Router::new().route("/", get(async || "Hello, World!"));
///     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
///     selvedge::serve(listener, app).await
/// }
/// ```
pub fn serve<A, K>(listener: impl IntoListener, app: A) -> Serve<A, K>
where
    A: Application<K> + Clone + Send,
{
    let server = listener.into_listener().map(|listener| Server::on(vec![listener], crate::server::cores()));
    Serve { server, app, signal: None, kind: PhantomData }
}

/// A server that is being set up, with its application; see [`serve`].
#[must_use = "it serves once it is awaited or started"]
pub struct Serve<A, K> {
    server: io::Result<Server>,
    app: A,
    signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    kind: PhantomData<fn() -> K>,
}

impl<A, K> fmt::Debug for Serve<A, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<A, K> Serve<A, K>
where
    A: Application<K> + Clone + Send,
{
    /// Stops gracefully when this future ends; see [`crate::Handle::stop`].
    pub fn with_graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// Listens here, too.
    pub fn also(mut self, listener: impl IntoListener) -> Self {
        self.server = self.server.and_then(|server| server.also(listener));
        self
    }

    /// As [`Server::workers`].
    pub fn workers(self, workers: usize) -> Self {
        self.with(|server| server.workers(workers))
    }

    /// As [`Server::limits`].
    pub fn limits(self, limits: Limits) -> Self {
        self.with(|server| server.limits(limits))
    }

    /// As [`Server::half_closed`].
    pub fn half_closed(self, half_closed: HalfClosed) -> Self {
        self.with(|server| server.half_closed(half_closed))
    }

    /// As [`Server::early_hints`].
    pub fn early_hints(self) -> Self {
        self.with(Server::early_hints)
    }

    limit_methods!(|serve, value, set| serve.with(|mut server| {
        set(server.limits_mut(), value);
        server
    }));

    fn with(mut self, change: impl FnOnce(Server) -> Server) -> Self {
        self.server = self.server.map(change);
        self
    }

    /// Starts to serve, on threads of its own. A signal for a graceful stop is for those who wait
    /// for the server; here it is not looked at.
    ///
    /// # Errors
    /// When the listener is none, or as [`Server::serve`].
    pub fn start(self) -> io::Result<Running> {
        self.server?.serve(self.app)
    }
}

impl<A, K> IntoFuture for Serve<A, K>
where
    A: Application<K> + Clone + Send,
    K: 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

    /// Starts to serve, and waits until the server has stopped. Whoever lets go of the future
    /// stops it.
    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let signal = self.signal.take();
            let running = self.start()?;
            let handle = running.handle();
            let stop = StopWhenDropped(handle);
            let mut ended = pin!(running.ended());
            let mut signal = signal;
            let ending = std::future::poll_fn(|cx| {
                if signal.as_mut().is_some_and(|signal| signal.as_mut().poll(cx).is_ready()) {
                    signal = None;
                    stop.0.stop();
                }
                match ended.as_mut().poll(cx) {
                    Poll::Ready(ending) => Poll::Ready(ending),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            match ending {
                Ending::Stopped => Ok(()),
                Ending::WorkerLost => Err(io::Error::other("a worker panicked")),
            }
        })
    }
}

struct StopWhenDropped(crate::Handle);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop();
    }
}
