//! `serve(listener, app)`, with the signature of `axum::serve`.

use crate::limits::Limits;
use crate::net::stream_listener::StreamListener;
use crate::replace_app::PlainHttp2;
use crate::server::{ExitCause, RunningServer, Server, limit_methods};
use crate::service::{EngineError, HalfClosed, NoObserver, Observer, Response};
use crate::tower::{Application, IntoListener};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
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

/// Serves an application on a listener with streams of its own type; see [`StreamListener`]. All else is as for
/// [`serve`].
pub fn serve_streams<A, K>(listener: impl StreamListener, app: A) -> Serve<A, K>
where
    A: Application<K> + Clone + Send,
{
    let server = Server::from_listeners(Vec::new(), crate::server::available_cores()).add_stream_listener(listener);
    Serve { server: Ok(server), app, signal: None, kind: PhantomData }
}

/// A server and its application before the start; see [`serve`].
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use std::time::Duration;
///
/// # async fn run() -> std::io::Result<()> {
/// let app = Router::new().route("/", get(async || "Hello!"));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let server = selvedge::serve(listener, app.into_make_service())
///     .workers(2)
///     .body_bytes_max(1 << 20)
///     .shutdown_timeout(Duration::from_secs(5))
///     .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) });
/// println!("listening on http://{}", server.local_addr()?);
/// server.await
/// # }
/// ```
#[must_use = "a server does nothing until it is awaited or started"]
pub struct Serve<A, K, O = NoObserver> {
    server: io::Result<Server<O>>,
    app: A,
    signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    kind: PhantomData<fn() -> K>,
}

impl<A, K, O: fmt::Debug> fmt::Debug for Serve<A, K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<A, K, O> Serve<A, K, O>
where
    A: Application<K> + Clone + Send,
    O: Observer + Clone + Send,
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

    /// Also serves the application on a listener with streams of its own type.
    pub fn add_stream_listener(self, listener: impl StreamListener) -> Self {
        self.with(|server| server.add_stream_listener(listener))
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

    /// Sets the observer of requests, connections and panics; see [`Server::observe`]. With the feature `tracing`,
    /// `TracingObserver` reports them as events.
    pub fn observe<P: Observer + Clone + Send>(self, observer: P) -> Serve<A, K, P> {
        let Self { server, app, signal, kind } = self;
        Serve { server: server.map(|server| server.observe(observer)), app, signal, kind }
    }

    /// Sets the form of the errors that the engine responds with by itself; see [`Server::error_responses`].
    pub fn error_responses(self, hook: impl Fn(&EngineError<'_>) -> Option<Response> + Send + Sync + 'static) -> Self {
        self.with(|server| server.error_responses(hook))
    }

    /// Returns the address of the first TCP listener, with the port that was taken for port 0.
    ///
    /// # Errors
    /// If the listener is invalid, or no listener has a TCP address, such as a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.server {
            Ok(server) => server.local_addr(),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }

    limit_methods!(|serve, value, set| serve.with(|mut server| {
        set(server.limits_mut(), value);
        server
    }));

    fn with(mut self, change: impl FnOnce(Server<O>) -> Server<O>) -> Self {
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

impl<A, K, O> IntoFuture for Serve<A, K, O>
where
    A: Application<K> + Clone + Send,
    K: 'static,
    O: Observer + Clone + Send,
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
