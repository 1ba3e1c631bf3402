//! Engine applications as tower services, so that they can be part of other applications.
//!
//! An engine application belongs to one thread. So each worker makes its own instance at the first
//! request, and calls it. If the response is available, such as a cached file, it is ready at the
//! first poll. On other servers, one thread of this library runs all engine applications
//! (`fallback_thread`).

mod fallback_thread;
mod from_http;
mod to_http;

pub use to_http::EmbeddedBody;

use crate::service::{Response, Service};
use crate::tower::BoxError;
use crate::tower::log_info::SharedLogInfo;
use crate::tower::request_context::RequestContext;
use selvedge_proto::StatusCode;
use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A [`Service`] of the engine as a tower service over [`http`] types, for axum's `nest_service`,
/// `route_service` and `fallback_service`. It works on this server and on others.
///
/// On this server, the application gets the peer address from the connection
/// ([`crate::Request::peer`]). On other servers, and in spawned tasks, the address is 0.0.0.0 unless
/// [`Embedded::find_peer`] finds it. Request content is read when the application reads it.
pub struct Embedded<S> {
    shared: Arc<Shared<S>>,
}

type FindPeer = dyn Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync;

struct Shared<S> {
    make: Arc<dyn Fn() -> S + Send + Sync>,
    find_peer: Option<Arc<FindPeer>>,
}

impl<S> Clone for Embedded<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<S> fmt::Debug for Embedded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embedded")
    }
}

impl<S: Service> Embedded<S> {
    /// Wraps an application. Each serving thread calls `make` once for its own instance.
    pub fn new(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(Shared { make: Arc::new(make), find_peer: None }) }
    }

    /// Sets a function that finds the peer address in a request's extensions, for example in axum's
    /// `ConnectInfo`. Its result takes precedence over the connection's address.
    #[must_use]
    pub fn find_peer(self, find: impl Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(Shared { make: self.shared.make.clone(), find_peer: Some(Arc::new(find)) }) }
    }
}

impl<S, B> tower_service::Service<http::Request<B>> for Embedded<S>
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<EmbeddedBody>;
    type Error = Infallible;
    type Future = EmbeddedFuture<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> EmbeddedFuture<S, B> {
        EmbeddedFuture { state: CallState::Requested(self.shared.clone(), Box::new(request)), service: PhantomData }
    }
}

/// A future that resolves to the response of an [`Embedded`] application.
pub struct EmbeddedFuture<S, B> {
    state: CallState<S, B>,
    service: PhantomData<fn() -> S>,
}

enum CallState<S, B> {
    Requested(Arc<Shared<S>>, Box<http::Request<B>>),
    /// A task on this worker runs the application.
    OnWorker(AbortOnDrop),
    /// The response is known.
    Ready(Box<http::Response<EmbeddedBody>>),
    /// The fallback thread for other servers runs the application.
    OnFallbackThread(oneshot::Receiver<http::Response<EmbeddedBody>>),
    Done,
}

/// Aborts the task when the future is dropped.
struct AbortOnDrop(JoinHandle<http::Response<EmbeddedBody>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S, B> EmbeddedFuture<S, B> {
    /// Creates a future with a response that needs no call of the application, such as a redirect. Its content is not
    /// a stream.
    pub fn ready(response: Response) -> Self {
        let response = Box::new(to_http::build_response(response, None));
        Self { state: CallState::Ready(response), service: PhantomData }
    }
}

impl<S, B> fmt::Debug for EmbeddedFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbeddedFuture")
    }
}

impl<S, B> Future for EmbeddedFuture<S, B>
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<http::Response<EmbeddedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.state = match &mut self.state {
                CallState::OnWorker(task) => {
                    let joined = ready!(Pin::new(&mut task.0).poll(cx));
                    return Poll::Ready(Ok(joined.unwrap_or_else(|_| failure_response())));
                }
                CallState::OnFallbackThread(receiver) => {
                    let received = ready!(Pin::new(receiver).poll(cx));
                    return Poll::Ready(Ok(received.unwrap_or_else(|_| failure_response())));
                }
                CallState::Done => return Poll::Pending,
                ready @ CallState::Ready(_) => {
                    let CallState::Ready(response) = std::mem::replace(ready, CallState::Done) else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(*response));
                }
                requested => {
                    let CallState::Requested(shared, request) = std::mem::replace(requested, CallState::Done) else {
                        return Poll::Pending;
                    };
                    match RequestContext::current() {
                        None => CallState::OnFallbackThread(fallback_thread::run(move |context| {
                            shared.respond(*request, context)
                        })),
                        Some(context) => {
                            // Boxed, so that it can be spawned without moving it if it is pending.
                            let mut call = Box::pin(shared.respond(*request, context));
                            match call.as_mut().poll(cx) {
                                Poll::Ready(response) => return Poll::Ready(Ok(response)),
                                Poll::Pending => CallState::OnWorker(AbortOnDrop(tokio::task::spawn_local(call))),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the response for an application that panicked, or if its thread cannot be started.
fn failure_response() -> http::Response<EmbeddedBody> {
    let response = Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("the application failed");
    to_http::build_response(response, None)
}

impl<S: Service> Shared<S> {
    async fn respond<B>(
        self: Arc<Self>,
        request: http::Request<B>,
        context: RequestContext,
    ) -> http::Response<EmbeddedBody>
    where
        B: http_body::Body + 'static,
        B::Error: Into<BoxError>,
    {
        let peer = self.find_peer.as_ref().and_then(|find| find(request.extensions()));
        let context = RequestContext { peer: peer.unwrap_or(context.peer), ..context };
        let service = thread_service(&self);
        let (mut request, content) = match from_http::request(request, context) {
            Ok(converted) => converted,
            Err(reject) => {
                let response = Response::error_with_text(reject.status(), reject.message());
                return to_http::build_response(response, None);
            }
        };
        let mut response = service.call(&mut request).await;
        //= RFC 8441 §4: a success would open a stream of another protocol, which an embedded application cannot
        if request.head().is_extended_connect() && matches!(response.status.code(), 200..=299) {
            let reason = "an embedded application responded to CONNECT with 2xx";
            response = Response::error(StatusCode::NOT_IMPLEMENTED).log_reason(reason);
        }
        let (log_info, version) = (SharedLogInfo::of(&request), request.version());
        from_http::recycle(request);
        let mut http_response = to_http::build_response(response, content);
        //= RFC 9113 §8.2.2: a connection-specific field is malformed
        if !version.is_http1() {
            http_response.headers_mut().remove(http::header::CONNECTION);
        }
        if let Some(log_info) = log_info {
            http_response.extensions_mut().insert(log_info);
        }
        http_response
    }
}

/// The instance of an application that belongs to this thread.
struct ThreadService {
    shared: Weak<dyn Any + Send + Sync>,
    service: Rc<dyn Any>,
}

thread_local! {
    static THREAD_SERVICES: RefCell<Vec<ThreadService>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's instance of the application, and makes it if necessary.
fn thread_service<S: Service>(shared: &Arc<Shared<S>>) -> Rc<S> {
    let belongs_to_shared = |own: &ThreadService| std::ptr::addr_eq(own.shared.as_ptr(), Arc::as_ptr(shared));
    let found =
        THREAD_SERVICES.with_borrow(|all| all.iter().find(|own| belongs_to_shared(own)).map(|own| own.service.clone()));
    if let Some(service) = found.and_then(|service| service.downcast::<S>().ok()) {
        return service;
    }
    let service = Rc::new((shared.make)());
    let weak: Weak<Shared<S>> = Arc::downgrade(shared);
    let own = ThreadService { shared: weak, service: service.clone() };
    // Instances of dropped applications are removed here, but dropped after the borrow has ended.
    let unused: Vec<ThreadService> = THREAD_SERVICES.with_borrow_mut(|all| {
        all.push(own);
        all.extract_if(.., |own| own.shared.strong_count() == 0).collect()
    });
    drop(unused);
    service
}
