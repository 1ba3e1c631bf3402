//! Calls an application of one of the ecosystem's kinds, as a service of the engine.
//!
//! A call has its room in a box and not in its connection's task: the next call mostly gets the same
//! memory, which is still in the core's cache, where a connection's own is not when there are many.
//!
//! Each worker has one clone of a tower service and calls that, so a request clones nothing. A
//! service that says it is not ready may have put that request in a queue: then it goes with the
//! request, and the worker goes on with another clone.

use crate::service::{HalfClosed, Request, Response, Service};
use crate::tower::application::{Manners, failed};
use crate::tower::convert;
use crate::tower::current::Current;
use crate::tower::{Body, BoxError};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{self, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tower_service::Service as TowerService;

macro_rules! manners {
    () => {
        fn half_closed(&self) -> HalfClosed {
            self.manners.half_closed
        }

        fn sends_ahead(&self) -> bool {
            self.manners.early_hints
        }
    };
}

/// A tower service.
#[derive(Debug)]
pub struct Tower<S> {
    service: RefCell<S>,
    manners: Manners,
}

impl<S> Tower<S> {
    pub(super) fn new(service: S, manners: Manners) -> Self {
        Self { service: RefCell::new(service), manners }
    }
}

impl<S, B> Service for Tower<S>
where
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    async fn call(&self, request: &mut Request) -> Response {
        Box::pin(answer(&self.service, request)).await
    }

    manners!();
}

/// A tower service that makes one for each connection.
#[derive(Debug)]
pub struct PerConnection<M> {
    make: RefCell<M>,
    manners: Manners,
}

impl<M> PerConnection<M> {
    pub(super) fn new(make: M, manners: Manners) -> Self {
        Self { make: RefCell::new(make), manners }
    }

    /// The service for the connection of a request, which keeps it.
    async fn made_for<S: 'static>(&self, request: &mut Request) -> Result<Rc<RefCell<S>>, M::Error>
    where
        M: TowerService<SocketAddr, Response = S> + Clone,
    {
        let own = ready(&self.make).await?;
        let service = Rc::new(RefCell::new(call(&self.make, own, request.peer()).await?));
        request.parts.keepsake = Some(Box::new(service.clone()));
        Ok(service)
    }
}

impl<M, S, B> Service for PerConnection<M>
where
    M: TowerService<SocketAddr, Response = S> + Clone + 'static,
    M::Error: Into<BoxError>,
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    async fn call(&self, request: &mut Request) -> Response {
        let kept = request.parts.keepsake.as_ref().and_then(|kept| kept.downcast_ref::<Rc<RefCell<S>>>()).cloned();
        let service = match kept {
            Some(service) => service,
            None => match Box::pin(self.made_for(request)).await {
                Ok(service) => service,
                Err(_) => return failed(),
            },
        };
        Box::pin(answer(&service, request)).await
    }

    fn keeps(&self) -> bool {
        true
    }

    manners!();
}

/// An asynchronous function.
#[derive(Debug)]
pub struct Function<F> {
    function: F,
    manners: Manners,
}

impl<F> Function<F> {
    pub(super) fn new(function: F, manners: Manners) -> Self {
        Self { function, manners }
    }
}

impl<F, B> Service for Function<F>
where
    F: AsyncFn(http::Request<Body>) -> http::Response<B> + 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    async fn call(&self, request: &mut Request) -> Response {
        let function = async |(), converted| Ok::<_, Infallible>((self.function)(converted).await);
        Box::pin(answered(request, future::ready(Ok(())), function)).await
    }

    manners!();
}

/// Asks a tower service, once it is ready for one more request.
async fn answer<S, B>(service: &RefCell<S>, request: &mut Request) -> Response
where
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    answered(request, ready(service), |own, converted| call(service, own, converted)).await
}

/// The answer to a request as the ecosystem has it, once there is one.
///
/// What each step needs is gone when the next one waits, so that all of it fits into the memory that
/// an allocator has at hand.
async fn answered<R, F, B, E>(
    request: &mut Request,
    ready: impl Future<Output = Result<R, E>>,
    call: impl FnOnce(R, http::Request<Body>) -> F,
) -> Response
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    let (converted, mut asked) = match convert::request(request) {
        Ok(converted) => converted,
        Err(response) => return response,
    };
    let current = Current::of(request);
    // Not before the request is one of theirs: what readiness has taken is given back by the call alone.
    let Ok(ready) = current.within(pin!(ready)).await else { return failed() };
    // It ends here: what it holds, such as a permit or the request's content, is not held for the answer.
    let Ok(answer) = current.within(pin!(current.during(|| call(ready, converted)))).await else { return failed() };
    let (mut response, content) = convert::response(answer, &mut asked);
    if let Some(content) = content {
        match content.read().await {
            Ok(content) => response.body = content,
            Err(text) => response = asked.excuse(text),
        }
    }
    asked.settle(request);
    response
}

/// Calls a service that is ready: `own`, or else the shared one.
fn call<S, T>(service: &RefCell<S>, own: Option<S>, request: T) -> S::Future
where
    S: TowerService<T>,
{
    match own {
        None => service.borrow_mut().call(request),
        Some(mut own) => own.call(request),
    }
}

/// Waits until a service is ready for one more request. It is the shared one, for a call that
/// follows at once; or one of the request's own, where the shared one made it wait.
async fn ready<S, T>(service: &RefCell<S>) -> Result<Option<S>, S::Error>
where
    S: TowerService<T> + Clone,
{
    let mut own: Option<S> = None;
    poll_fn(|cx| {
        if let Some(own) = &mut own {
            return own.poll_ready(cx);
        }
        let mut shared = service.borrow_mut();
        let polled = shared.poll_ready(cx);
        if !matches!(polled, Poll::Ready(Ok(()))) {
            // One that has failed is done for, and a clone may not be.
            let fresh = shared.clone();
            own = Some(std::mem::replace(&mut *shared, fresh));
        }
        polled
    })
    .await
    .map(|()| own)
}
