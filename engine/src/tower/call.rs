//! Calls an application of one of the ecosystem's kinds, as a service of the engine.
//!
//! Each worker has one clone of a tower service and calls that, so a request clones nothing. A
//! service that says it is not ready may have put that request in a queue: then it goes with the
//! request, and the worker goes on with another clone.

use crate::service::{HalfClosed, Request, Response, Service};
use crate::tower::application::{Manners, failed};
use crate::tower::convert::{self, Asked};
use crate::tower::current::Current;
use crate::tower::{Body, BoxError};
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
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
        Current::of(request).within(answer(&self.service, request)).await
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
            None => {
                let peer = request.peer();
                let made = match begin(&self.make, || Ok::<_, Response>(peer)).await {
                    Ok(Begun::Called(made)) => made.await,
                    Ok(Begun::Refused(response)) => return response,
                    Err(_) => return failed(),
                };
                let Ok(service) = made else { return failed() };
                let service = Rc::new(RefCell::new(service));
                request.parts.keepsake = Some(Box::new(service.clone()));
                service
            }
        };
        Current::of(request).within(answer(&service, request)).await
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
        let (converted, mut asked) = match convert::request(request) {
            Ok(converted) => converted,
            Err(response) => return response,
        };
        let answer = Current::of(request).within((self.function)(converted)).await;
        let response = convert::response(answer, &mut asked).await;
        asked.settle(request);
        response
    }

    manners!();
}

/// Asks a tower service.
async fn answer<S, B>(service: &RefCell<S>, request: &mut Request) -> Response
where
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    let mut asked: Option<Asked> = None;
    let convert = || {
        let (converted, lent) = convert::request(request)?;
        asked = Some(lent);
        Ok(converted)
    };
    let answer = match begin(service, convert).await {
        Ok(Begun::Called(future)) => future.await,
        Ok(Begun::Refused(response)) => return response,
        Err(error) => Err(error),
    };
    let (Ok(answer), Some(mut asked)) = (answer, asked) else { return failed() };
    let response = convert::response(answer, &mut asked).await;
    asked.settle(request);
    response
}

/// How a call began.
enum Begun<F> {
    /// The service has the request.
    Called(F),
    /// The request never came to it.
    Refused(Response),
}

/// Calls a service once it is ready for one more request, which is made only then.
async fn begin<S, T>(
    service: &RefCell<S>,
    mut request: impl FnMut() -> Result<T, Response>,
) -> Result<Begun<S::Future>, S::Error>
where
    S: TowerService<T> + Clone,
{
    let mut call = |service: &mut S| match request() {
        Ok(request) => Begun::Called(service.call(request)),
        Err(response) => Begun::Refused(response),
    };
    let mut own = None;
    poll_fn(|cx| {
        if own.is_none() {
            let mut shared = service.borrow_mut();
            match shared.poll_ready(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(call(&mut shared))),
                // A service that has failed is done for; a clone may not be.
                Poll::Ready(Err(error)) => {
                    let fresh = shared.clone();
                    *shared = fresh;
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    let fresh = shared.clone();
                    own = Some(std::mem::replace(&mut *shared, fresh));
                    return Poll::Pending;
                }
            }
        }
        let Some(own) = &mut own else { return Poll::Pending };
        own.poll_ready(cx).map(|ready| ready.map(|()| call(own)))
    })
    .await
}
