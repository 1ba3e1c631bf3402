//! The engine's own applications as tower services, so that they are part of others.
//!
//! An application of the engine's belongs to one thread. So each worker makes one for itself when
//! the first request comes to it there, and calls it; an answer that is at hand, as a file that is
//! remembered, is ready at the first poll. On other servers one thread of this library's does
//! the work for all of theirs (`elsewhere`).

mod answer;
mod asked;
mod elsewhere;

pub use answer::EmbeddedBody;

use crate::service::{Response, Service};
use crate::tower::BoxError;
use crate::tower::current::Current;
use crate::tower::noted::Noted;
use selvedge_proto::Status;
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

/// A [`Service`] of the engine's as a tower service over [`http`] types: axum's `nest_service`,
/// `route_service` and `fallback_service` take it, on this server and on others.
///
/// Whoever is served by this library is known to the application by its address
/// ([`crate::Request::peer`]). On other servers, and in a task of its own, nobody is: then it is
/// 0.0.0.0, unless [`Embedded::peers`] finds it. Content that a request has is read when the
/// application reads it.
pub struct Embedded<S> {
    shared: Arc<Shared<S>>,
}

type Peers = dyn Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync;

struct Shared<S> {
    make: Arc<dyn Fn() -> S + Send + Sync>,
    peers: Option<Arc<Peers>>,
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
    /// An application that each thread which serves makes for itself.
    pub fn new(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(Shared { make: Arc::new(make), peers: None }) }
    }

    /// With a way to tell from a request's extensions who asks, as for axum's `ConnectInfo`. Its
    /// word counts for more than the connection's.
    #[must_use]
    pub fn peers(self, find: impl Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(Shared { make: self.shared.make.clone(), peers: Some(Arc::new(find)) }) }
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
    type Future = Answering<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answering<S, B> {
        Answering { state: State::Asked(self.shared.clone(), Box::new(request)), service: PhantomData }
    }
}

/// An answer of an [`Embedded`] application that is being made.
pub struct Answering<S, B> {
    state: State<S, B>,
    service: PhantomData<fn() -> S>,
}

enum State<S, B> {
    Asked(Arc<Shared<S>>, Box<http::Request<B>>),
    /// A task of this worker's makes it.
    Here(Task),
    /// The thread for other servers makes it.
    Elsewhere(oneshot::Receiver<http::Response<EmbeddedBody>>),
    Over,
}

/// Ends with whoever waits for it.
struct Task(JoinHandle<http::Response<EmbeddedBody>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S, B> fmt::Debug for Answering<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}

impl<S, B> Future for Answering<S, B>
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<http::Response<EmbeddedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.state = match &mut self.state {
                State::Here(task) => {
                    let made = ready!(Pin::new(&mut task.0).poll(cx));
                    return Poll::Ready(Ok(made.unwrap_or_else(|_| failed())));
                }
                State::Elsewhere(answer) => {
                    let made = ready!(Pin::new(answer).poll(cx));
                    return Poll::Ready(Ok(made.unwrap_or_else(|_| failed())));
                }
                State::Over => return Poll::Pending,
                asked => {
                    let State::Asked(shared, request) = std::mem::replace(asked, State::Over) else {
                        return Poll::Pending;
                    };
                    match Current::get() {
                        None => State::Elsewhere(elsewhere::ask(move |current| shared.answer(*request, current))),
                        Some(current) => {
                            // Pinned where it stays, should it have to wait.
                            let mut answer = Box::pin(shared.answer(*request, current));
                            match answer.as_mut().poll(cx) {
                                Poll::Ready(made) => return Poll::Ready(Ok(made)),
                                Poll::Pending => State::Here(Task(tokio::task::spawn_local(answer))),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The answer for an application that panicked, or whose thread cannot be had.
fn failed() -> http::Response<EmbeddedBody> {
    let failed = Response::error(Status::INTERNAL_SERVER_ERROR).because("the application failed");
    answer::of(failed, None)
}

impl<S: Service> Shared<S> {
    async fn answer<B>(self: Arc<Self>, request: http::Request<B>, current: Current) -> http::Response<EmbeddedBody>
    where
        B: http_body::Body + 'static,
        B::Error: Into<BoxError>,
    {
        let peer = self.peers.as_ref().and_then(|find| find(request.extensions()));
        let current = Current { peer: peer.unwrap_or(current.peer), ..current };
        let service = here(&self);
        let (mut request, content) = match asked::request(request, current) {
            Ok(asked) => asked,
            Err(reject) => {
                let refused = Response::error_with_text(reject.status(), reject.text());
                return answer::of(refused, None);
            }
        };
        let response = service.call(&mut request).await;
        let noted = Noted::of(&request);
        asked::settle(request);
        let mut answer = answer::of(response, content);
        if let Some(noted) = noted {
            answer.extensions_mut().insert(noted);
        }
        answer
    }
}

/// An application that a thread has made for itself, and whose it is.
struct Own {
    shared: Weak<dyn Any + Send + Sync>,
    service: Rc<dyn Any>,
}

thread_local! {
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

/// This thread's own application.
fn here<S: Service>(shared: &Arc<Shared<S>>) -> Rc<S> {
    let is_of = |own: &Own| std::ptr::addr_eq(own.shared.as_ptr(), Arc::as_ptr(shared));
    let found = OWN.with_borrow(|all| all.iter().find(|own| is_of(own)).map(|own| own.service.clone()));
    if let Some(service) = found.and_then(|service| service.downcast::<S>().ok()) {
        return service;
    }
    let service = Rc::new((shared.make)());
    let weak: Weak<Shared<S>> = Arc::downgrade(shared);
    let own = Own { shared: weak, service: service.clone() };
    // What nobody can ask any more goes, once the list is not in use.
    let over: Vec<Own> = OWN.with_borrow_mut(|all| {
        all.push(own);
        all.extract_if(.., |own| own.shared.strong_count() == 0).collect()
    });
    drop(over);
    service
}
