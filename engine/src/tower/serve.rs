//! `serve(listener, app)`, with the signature of `axum::serve`.

use crate::limits::Limits;
use crate::replace_app::PlainHttp2;
use crate::server::{ExitCause, RunningServer, Server, limit_methods};
use crate::service::HalfClosed;
use crate::tower::{Application, IntoListener};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Serves an application on a listener, with one worker per core and default [`Limits`].
///
/// Await the result on any runtime, as with `axum::serve`. In a program without a runtime, use
/// [`Serve::start`].
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
    let server = listener
        .into_listener()
        .map(|listener| Server::from_listeners(vec![listener], crate::server::available_cores()));
    Serve { server, app, signal: None, kind: PhantomData }
}

/// A server and its application before the start; see [`serve`].
#[must_use = "a server does nothing until it is awaited or started"]
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
    /// Shuts down gracefully when this future resolves; see [`crate::Handle::stop`].
    pub fn with_graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// Also serves the application on this listener.
    pub fn add_listener(mut self, listener: impl IntoListener) -> Self {
        self.server = self.server.and_then(|server| server.add_listener(listener));
        self
    }

    /// Uses TLS at the listeners; see [`Server::tls`].
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: crate::tls::Tls) -> Self {
        self.with(|server| server.tls(tls))
    }

    /// Sets which listeners without TLS accept HTTP/2; see [`Server::plain_http2`]. Listeners with TLS agree on the
    /// protocol in the handshake.
    ///
    /// ```no_run
    /// # async fn run(app: axum::Router) -> std::io::Result<()> {
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    /// selvedge::serve(listener, app).plain_http2(selvedge::PlainHttp2::Always).await
    /// # }
    /// ```
    pub fn plain_http2(self, plain_http2: PlainHttp2) -> Self {
        self.with(|server| server.plain_http2(plain_http2))
    }

    /// Sets the number of workers; see [`Server::workers`].
    pub fn workers(self, workers: usize) -> Self {
        self.with(|server| server.workers(workers))
    }

    /// Sets all limits; see [`Server::limits`].
    pub fn limits(self, limits: Limits) -> Self {
        self.with(|server| server.limits(limits))
    }

    /// Sets whether a request is cancelled when its client shuts down its sending side; see
    /// [`Server::half_closed`].
    pub fn half_closed(self, half_closed: HalfClosed) -> Self {
        self.with(|server| server.half_closed(half_closed))
    }

    /// Enables `103 Early Hints`; see [`Server::early_hints`].
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

    /// Starts the server on its own threads and returns.
    ///
    /// Ignores [`Self::with_graceful_shutdown`], which only applies to an awaited server.
    ///
    /// # Errors
    /// If the listener is invalid or [`Server::serve`] fails.
    pub fn start(self) -> io::Result<RunningServer> {
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

    /// Starts the server and waits until it has stopped. Dropping the future stops the server.
    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let signal = self.signal.take();
            let running = self.start()?;
            let handle = running.handle();
            let stop = StopOnDrop(handle);
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
                ExitCause::Stopped => Ok(()),
                ExitCause::WorkerPanicked => Err(io::Error::other("a worker panicked")),
            }
        })
    }
}

struct StopOnDrop(crate::Handle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
