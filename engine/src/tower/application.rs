//! Application types that can be served, selected by their types.

use crate::service::Service;
use crate::tower::call::{Function, PerConnection, ServiceOptions, Tower};
use crate::tower::connection_info::{ConnectionInfo, WithConnection};
use crate::tower::{Body, BoxError};
use std::net::SocketAddr;

/// An application that can be served. The compiler infers `EntryKind`, which is one of five:
///
/// - a tower service from [`http::Request`] of a [`Body`] to [`http::Response`] of any
///   [`http_body::Body`], such as axum's `Router`;
/// - a tower service from [`SocketAddr`] (the client's) to such a service, called once per
///   connection, such as the result of axum's `into_make_service_with_connect_info`;
/// - a [`WithConnection`] of a tower service from a [`ConnectionInfo`] to such a service;
/// - an asynchronous function from such a request to such a response;
/// - a [`Service`] of this library.
///
/// If a service returns an error, the client gets a 500. `poll_ready` is respected: if a service is
/// not ready, only that request waits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no application that can be served",
    label = "this is neither a tower service, nor a function of a request, nor a `selvedge::Service`",
    note = "an axum `Router` needs its state: call `.with_state(...)`, so that it is a `Router<()>`",
    note = "a function returns a response: `async fn(http::Request<selvedge::Body>) -> http::Response<B>`, not a `String`; \
            axum handlers belong in a route: `Router::new().route(\"/\", get(handler))`",
    note = "own connect info implements `Connected<SocketAddr>`, or with `selvedge::tower::WithConnection` \
            `Connected<ConnectionInfo>`; `Connected<IncomingStream<...>>` is for `axum::serve` alone",
    note = "the application is `Clone`, and its response's body is an `http_body::Body`"
)]
pub trait Application<Kind>: Sized + 'static {
    /// The service that runs on a worker.
    type Service: Service;

    /// Converts the application to a service. Called on the worker's thread.
    fn into_service(self, options: ServiceOptions) -> Self::Service;
}

/// The kinds of application, inferred by the compiler.
pub mod kind {
    /// A tower service that makes a tower service for each connection, from a
    /// [`ConnectionInfo`](crate::tower::ConnectionInfo).
    #[derive(Debug)]
    pub struct WithConnection;
    /// A tower service.
    #[derive(Debug)]
    pub struct Tower;
    /// A tower service that makes a tower service for each connection.
    #[derive(Debug)]
    pub struct PerConnection;
    /// An asynchronous function.
    #[derive(Debug)]
    pub struct Function;
    /// A [`Service`](crate::Service) of this library.
    #[derive(Debug)]
    pub struct Native;
}

impl<T: Service> Application<kind::Native> for T {
    type Service = T;

    fn into_service(self, _: ServiceOptions) -> T {
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

    fn into_service(self, options: ServiceOptions) -> Tower<S> {
        Tower::new(self, options)
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

    fn into_service(self, options: ServiceOptions) -> PerConnection<M> {
        PerConnection::new(self, options)
    }
}

impl<M, S, B> Application<kind::WithConnection> for WithConnection<M>
where
    M: tower_service::Service<ConnectionInfo, Response = S> + Clone + 'static,
    M::Error: Into<BoxError>,
    S: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Service = PerConnection<M, ConnectionInfo>;

    fn into_service(self, options: ServiceOptions) -> PerConnection<M, ConnectionInfo> {
        PerConnection::new(self.0, options)
    }
}

impl<F, B> Application<kind::Function> for F
where
    F: AsyncFn(http::Request<Body>) -> http::Response<B> + 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    type Service = Function<F>;

    fn into_service(self, options: ServiceOptions) -> Function<F> {
        Function::new(self, options)
    }
}
