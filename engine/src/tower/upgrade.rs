//! Connections that leave HTTP for another protocol (RFC 9110 §7.8).

use crate::service::{Body as Content, Duplex, GoesOn, Switch};
use crate::tower::Body;
#[cfg(feature = "hyper-upgrade")]
use crate::tower::puppet::Puppet;
use bytes::Bytes;
use http::{Extensions, HeaderValue, Response, StatusCode, header};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Then = Box<dyn FnOnce(Upgraded) + Send>;

/// Lets a connection go on with another protocol. It stands in the extensions of a request
/// whose client offers one in its Upgrade field.
///
/// The connection counts among the server's for as long as the other protocol has it, and no
/// deadline but that of a stop applies to it any longer: [`Upgraded::stopping`] tells of it.
///
/// ```
/// use selvedge::tower::{Body, Upgrade, Upgraded};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// async fn shout(mut request: http::Request<Body>) -> http::Response<Body> {
///     let Some(upgrade) = request.extensions_mut().remove::<Upgrade>() else {
///         return http::Response::builder().status(426).body(Body::empty()).expect("it is valid");
///     };
///     upgrade.to("shout", async |mut connection: Upgraded| {
///         let mut piece = [0; 1024];
///         while let Ok(count @ 1..) = connection.read(&mut piece).await {
///             piece.make_ascii_uppercase();
///             if connection.write_all(&piece[..count]).await.is_err() {
///                 break;
///             }
///         }
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Upgrade {
    then: Arc<Mutex<Option<Then>>>,
}

impl Upgrade {
    /// The answer that accepts. Once it has left, `then` has the connection, as a task on the
    /// worker.
    pub fn to<F, T>(self, protocol: &'static str, then: F) -> Response<Body>
    where
        F: FnOnce(Upgraded) -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        let then: Then = Box::new(|connection| {
            tokio::task::spawn_local(async move { then(connection).await });
        });
        *self.then.lock().unwrap_or_else(PoisonError::into_inner) = Some(then);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
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

/// What a request was offered, until its answer accepts it or not.
pub(super) struct Offer {
    then: Arc<Mutex<Option<Then>>>,
    #[cfg(feature = "hyper-upgrade")]
    puppet: Option<Puppet>,
}

/// Offers a request to upgrade.
pub(super) fn offer(extensions: &mut Extensions) -> Offer {
    let then: Arc<Mutex<Option<Then>>> = Arc::default();
    extensions.insert(Upgrade { then: then.clone() });
    Offer {
        then,
        #[cfg(feature = "hyper-upgrade")]
        puppet: Puppet::begin(extensions),
    }
}

impl Offer {
    /// What the engine is to do when the application has accepted.
    pub(super) fn accept(self, protocol: Bytes) -> Content {
        let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
        let then: GoesOn = match then {
            Some(then) => Box::new(|connection| then(Upgraded { connection })),
            #[cfg(feature = "hyper-upgrade")]
            None => match self.puppet {
                Some(puppet) => Box::new(|connection| puppet.become_real(connection)),
                None => Box::new(drop),
            },
            #[cfg(not(feature = "hyper-upgrade"))]
            None => Box::new(drop),
        };
        Content::Upgrade(Box::new(Switch { protocol, then }))
    }
}

/// A connection that has left HTTP. Dropping it ends the connection.
pub struct Upgraded {
    connection: Box<dyn Duplex>,
}

impl Upgraded {
    /// Waits until the server stops, or the application was replaced: what the connection
    /// is at can then be brought to an end before the drain limit cuts it.
    ///
    /// ```
    /// use selvedge::tower::Upgraded;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// async fn talk(mut connection: Upgraded) -> std::io::Result<()> {
    ///     let mut stopping = connection.stopping();
    ///     let mut piece = [0; 1024];
    ///     loop {
    ///         tokio::select! {
    ///             count = connection.read(&mut piece) => match count? {
    ///                 0 => return Ok(()),
    ///                 count => connection.write_all(&piece[..count]).await?,
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
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.poll_send(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.connection.finish())
    }
}
