//! What can be served: four kinds of application, told apart by their types.

use crate::service::{HalfClosed, Response, Service};
use crate::tower::call::{Function, PerConnection, Tower};
use crate::tower::{Body, BoxError};
use std::net::SocketAddr;

/// How applications of the ecosystem's types are treated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// What becomes of a request whose client sends nothing more.
    pub half_closed: HalfClosed,
    /// Whether requests have an [`crate::tower::EarlyHints`].
    pub early_hints: bool,
}

/// An application that can be served. There are four kinds, and `Kind` is found by itself:
///
/// - a tower service from [`http::Request`] of a [`Body`] to [`http::Response`] of any
///   [`http_body::Body`], as axum's `Router` is;
/// - a tower service from [`SocketAddr`], the client's, to such a service: it is asked once for
///   each connection, as what axum's `into_make_service_with_connect_info` makes;
/// - an asynchronous function from such a request to such a response;
/// - a [`Service`] of this library's own.
///
/// An error of a service is answered with 500. `poll_ready` is respected: a service that is not
/// ready makes its request wait, and no other.
pub trait Application<Kind>: Sized + 'static {
    /// What serves on a worker.
    type Service: Service;

    /// Makes it of the application, on the worker's own thread.
    fn into_service(self, manners: Manners) -> Self::Service;
}

/// The kinds of application. They are found by themselves and never have to be named.
pub mod kind {
    /// A tower service.
    #[derive(Debug)]
    pub struct Tower;
    /// A tower service that makes a tower service for each connection.
    #[derive(Debug)]
    pub struct PerConnection;
    /// An asynchronous function.
    #[derive(Debug)]
    pub struct Function;
    /// A service of this library's own.
    #[derive(Debug)]
    pub struct Native;
}

impl<T: Service> Application<kind::Native> for T {
    type Service = T;

    fn into_service(self, _: Manners) -> T {
        self
    }
}

impl<S, B> Application<kind::Tower> for S
where
    S: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Service = Tower<S>;

    fn into_service(self, manners: Manners) -> Tower<S> {
        Tower::new(self, manners)
    }
}

impl<M, S, B> Application<kind::PerConnection> for M
where
    M: tower_service::Service<SocketAddr, Response = S> + Clone + 'static,
    M::Error: Into<BoxError>,
    S: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Service = PerConnection<M>;

    fn into_service(self, manners: Manners) -> PerConnection<M> {
        PerConnection::new(self, manners)
    }
}

impl<F, B> Application<kind::Function> for F
where
    F: AsyncFn(http::Request<Body>) -> http::Response<B> + 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Service = Function<F>;

    fn into_service(self, manners: Manners) -> Function<F> {
        Function::new(self, manners)
    }
}

/// What an application's failure is answered with.
pub(super) fn failed() -> Response {
    super::convert::failed("the application failed")
}
