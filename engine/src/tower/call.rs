//! Calls applications of the ecosystem's types as engine services.
//!
//! A call's future is boxed and not part of its connection's task. The next call usually gets the
//! recently freed memory, which is still in the CPU cache; with many connections, the connection's
//! own memory is not.
//!
//! Each worker owns one clone of a tower service and calls it, so a request clones nothing. A
//! service that is not ready may have reserved a place in a queue for that request. The request
//! then takes this instance, and the worker continues with a new clone.

use crate::service::{HalfClosed, Request, Response, Service};
use crate::tower::connection_info::ConnectionTarget;
use crate::tower::convert;
use crate::tower::request_context::RequestContext;
use crate::tower::{Body, BoxError};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{self, poll_fn};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tower_service::Service as TowerService;

/// Options for applications of the ecosystem's types.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceOptions {
    /// Whether a request is cancelled when its client shuts down its sending side.
    pub half_closed: HalfClosed,
    /// Whether requests get an [`crate::tower::EarlyHints`] extension.
    pub early_hints: bool,
}

macro_rules! options {
    () => {
        fn half_closed(&self) -> HalfClosed {
            self.options.half_closed
        }

        fn sends_interim(&self) -> bool {
            self.options.early_hints
        }

        fn accepts_extended_connect(&self) -> bool {
            true
        }
    };
}

/// A tower service.
#[derive(Debug)]
pub struct Tower<S> {
    service: RefCell<S>,
    options: ServiceOptions,
}

impl<S> Tower<S> {
    pub(super) fn new(service: S, options: ServiceOptions) -> Self {
        Self { service: RefCell::new(service), options }
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
        Box::pin(call_when_ready(&self.service, request)).await
    }

    options!();
}

/// A tower service that makes a service for each connection.
#[derive(Debug)]
pub struct PerConnection<M, C = SocketAddr> {
    make: RefCell<M>,
    options: ServiceOptions,
    target: PhantomData<fn() -> C>,
}

impl<M, C: ConnectionTarget> PerConnection<M, C> {
    pub(super) fn new(make: M, options: ServiceOptions) -> Self {
        Self { make: RefCell::new(make), options, target: PhantomData }
    }

    /// Makes the service for the connection of a request, and stores it in the connection.
    async fn make_service<S: 'static>(&self, request: &mut Request) -> Result<Rc<RefCell<S>>, M::Error>
    where
        M: TowerService<C, Response = S> + Clone,
    {
        let own = ready(&self.make).await?;
        let service = Rc::new(RefCell::new(call(&self.make, own, C::of(request)).await?));
        request.inner.connection_extensions = Some(service.clone());
        Ok(service)
    }
}

impl<M, C, S, B> Service for PerConnection<M, C>
where
    C: ConnectionTarget,
    M: TowerService<C, Response = S> + Clone + 'static,
    M::Error: Into<BoxError>,
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    async fn call(&self, request: &mut Request) -> Response {
        let stored = request.inner.connection_extensions.clone().map(Rc::downcast::<RefCell<S>>);
        let service = match stored {
            Some(Ok(service)) => service,
            Some(Err(_)) | None => match Box::pin(self.make_service(request)).await {
                Ok(service) => service,
                Err(_) => return failure_response(),
            },
        };
        Box::pin(call_when_ready(&service, request)).await
    }

    fn uses_connection_extensions(&self) -> bool {
        true
    }

    options!();
}

/// An asynchronous function.
#[derive(Debug)]
pub struct Function<F> {
    function: F,
    options: ServiceOptions,
}

impl<F> Function<F> {
    pub(super) fn new(function: F, options: ServiceOptions) -> Self {
        Self { function, options }
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
        Box::pin(convert_and_call(request, future::ready(Ok(())), function)).await
    }

    options!();
}

/// Calls a tower service after it becomes ready.
async fn call_when_ready<S, B>(service: &RefCell<S>, request: &mut Request) -> Response
where
    S: TowerService<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    convert_and_call(request, ready(service), |own, converted| call(service, own, converted)).await
}

/// Converts a request, calls the application and converts its response.
///
/// Each step drops its state before the next one waits, so the future stays small enough for
/// memory that the allocator has at hand.
async fn convert_and_call<R, F, B, E>(
    request: &mut Request,
    ready: impl Future<Output = Result<R, E>>,
    call: impl FnOnce(R, http::Request<Body>) -> F,
) -> Response
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    let (converted, mut context) = match convert::to_http_request(request) {
        Ok(converted) => converted,
        Err(response) => return response,
    };
    let request_context = RequestContext::of(request);
    // Convert the request first: only a call releases what `poll_ready` has reserved.
    let Ok(ready) = request_context.scope(pin!(ready)).await else { return failure_response() };
    // The future is dropped here, so a permit or the request's content is not held while the response is read.
    let Ok(http_response) = request_context.scope(pin!(request_context.sync_scope(|| call(ready, converted)))).await
    else {
        return failure_response();
    };
    let (mut response, content) = convert::from_http_response(http_response, &mut context);
    if let Some(content) = content {
        match content.into_body().await {
            Ok(content) => response.body = content,
            Err(text) => response = context.error_response(text),
        }
    }
    context.finish(request);
    response
}

/// Calls a ready service: `own` if set, or the shared one.
fn call<S, T>(service: &RefCell<S>, own: Option<S>, request: T) -> S::Future
where
    S: TowerService<T>,
{
    match own {
        None => service.borrow_mut().call(request),
        Some(mut own) => own.call(request),
    }
}

/// Waits until a service is ready. Returns `None` if the shared service is ready, and the caller must
/// call it at once. Returns the request's own instance if the shared one was not ready.
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
            // A service that has failed stays failed, but a clone may work.
            let fresh = shared.clone();
            own = Some(std::mem::replace(&mut *shared, fresh));
        }
        polled
    })
    .await
    .map(|()| own)
}

/// Returns the response for an application that returned an error.
fn failure_response() -> Response {
    convert::application_error("the application failed")
}
