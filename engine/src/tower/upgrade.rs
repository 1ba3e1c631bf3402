//! Connections of HTTP/1.1 that upgrade to another protocol (RFC 9110 §7.8), and streams of HTTP/2 that open one
//! (RFC 8441).

use crate::service::{Body as Content, Duplex, Request, UpgradeHandler, UpgradeResponse};
use crate::tower::Body;
#[cfg(feature = "hyper-upgrade")]
use crate::tower::hyper_upgrade::HyperUpgrade;
use bytes::Bytes;
use http::{Extensions, HeaderValue, Response, StatusCode, header};
#[cfg(feature = "hyper-upgrade")]
use selvedge_proto::field::KnownField;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type UpgradeTask = Box<dyn FnOnce(Upgraded) + Send>;

/// Upgrades a connection to another protocol. It is an extension of a request whose client offers a
/// protocol: in the Upgrade field of HTTP/1.1, or by an extended CONNECT of HTTP/2 (RFC 8441). In HTTP/2 one stream
/// switches, and the other streams of the connection go on.
///
/// An upgraded connection counts toward the connection limit. No timeout applies to it except the
/// shutdown timeout; [`Upgraded::stopping`] resolves when the shutdown begins.
///
/// ```
/// use selvedge::tower::{Body, Upgrade, Upgraded};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// async fn shout(mut request: http::Request<Body>) -> http::Response<Body> {
///     let Some(upgrade) = request.extensions_mut().remove::<Upgrade>() else {
///         return http::Response::builder().status(426).body(Body::empty()).expect("the response is valid");
///     };
///     upgrade.accept("shout", async |mut connection: Upgraded| {
///         let mut buffer = [0; 1024];
///         while let Ok(count @ 1..) = connection.read(&mut buffer).await {
///             buffer.make_ascii_uppercase();
///             if connection.write_all(&buffer[..count]).await.is_err() {
///                 break;
///             }
///         }
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Upgrade {
    task: Arc<Mutex<Option<UpgradeTask>>>,
    /// The status code that accepts.
    status: StatusCode,
}

impl Upgrade {
    /// Builds the response that accepts the upgrade: 101, or 200 to an extended CONNECT. After the response was sent, `handler` gets the
    /// connection and runs as a task on the worker.
    pub fn accept<F, T>(self, protocol: &'static str, handler: F) -> Response<Body>
    where
        F: FnOnce(Upgraded) -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        let task: UpgradeTask = Box::new(|connection| {
            tokio::task::spawn_local(async move { handler(connection).await });
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if let Ok(protocol) = HeaderValue::from_str(protocol) {
            response.headers_mut().insert(header::UPGRADE, protocol);
        }
        response
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}

/// The upgrade offered to a request, until its response accepts it or not.
pub(super) struct UpgradeOffer {
    task: Arc<Mutex<Option<UpgradeTask>>>,
    #[cfg(feature = "hyper-upgrade")]
    hyper_upgrade: Option<HyperUpgrade>,
}

/// Adds the upgrade extensions to a request.
pub(super) fn offer(request: &Request, extensions: &mut Extensions) -> UpgradeOffer {
    let task: Arc<Mutex<Option<UpgradeTask>>> = Arc::default();
    let is_extended_connect = request.head().is_extended_connect();
    let status = if is_extended_connect { StatusCode::OK } else { StatusCode::SWITCHING_PROTOCOLS };
    extensions.insert(Upgrade { task: task.clone(), status });
    #[cfg(feature = "hyper-upgrade")]
    if is_extended_connect && let Some(protocol) = request.known_field(KnownField::Upgrade) {
        extensions.insert(hyper::ext::Protocol::from(&*String::from_utf8_lossy(protocol)));
    }
    UpgradeOffer {
        task,
        #[cfg(feature = "hyper-upgrade")]
        hyper_upgrade: HyperUpgrade::start(extensions),
    }
}

impl UpgradeOffer {
    /// Returns the engine's response body for an accepted upgrade.
    pub(super) fn into_engine_body(self, protocol: Bytes) -> Content {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let handler: UpgradeHandler = match task {
            Some(task) => Box::new(|connection| task(Upgraded { connection })),
            #[cfg(feature = "hyper-upgrade")]
            None => match self.hyper_upgrade {
                Some(hyper_upgrade) => Box::new(|connection| hyper_upgrade.connect(connection)),
                None => Box::new(drop),
            },
            #[cfg(not(feature = "hyper-upgrade"))]
            None => Box::new(drop),
        };
        Content::Upgrade(Box::new(UpgradeResponse { protocol, handler }))
    }
}

/// An upgraded connection. Dropping it closes the connection.
pub struct Upgraded {
    connection: Box<dyn Duplex>,
}

impl Upgraded {
    /// Resolves when the server shuts down or the application is replaced. The handler can then end the
    /// protocol before the shutdown timeout aborts the connection.
    ///
    /// ```
    /// use selvedge::tower::Upgraded;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// async fn talk(mut connection: Upgraded) -> std::io::Result<()> {
    ///     let mut stopping = connection.stopping();
    ///     let mut buffer = [0; 1024];
    ///     loop {
    ///         tokio::select! {
    ///             count = connection.read(&mut buffer) => match count? {
    ///                 0 => return Ok(()),
    ///                 count => connection.write_all(&buffer[..count]).await?,
    ///             },
    ///             () = &mut stopping => return connection.write_all(b"bye").await,
    ///         }
    ///     }
    /// }
    /// ```
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.connection.stopping()
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgraded")
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let received = ready!(self.connection.poll_receive(cx, into.initialize_unfilled()))?;
        into.advance(received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.poll_send(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.connection.shutdown_write())
    }
}
