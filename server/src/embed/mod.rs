//! Embeds sites in applications: as services of the engine, and as tower services over `http` types, for
//! example for axum's router.
//!
//! Only this module names types of the tower ecosystem. It serves what the program serves.

mod dir;
#[cfg(feature = "configuration")]
mod sites;

pub use dir::ServeDir;
#[cfg(feature = "configuration")]
pub use sites::{InvalidConfiguration, Sites};

use crate::site::{RouteTable, SiteService as Served, SlashRedirect};
use selvedge::{Request, Response, Service, StatusCode};
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::thread;

/// Returns the route table, or `None` if a directory cannot be opened. A failure is retried at the next
/// request.
type TableSource = Arc<dyn Fn() -> Option<Arc<RouteTable>> + Send + Sync>;

/// The sites of one worker with its file cache: a [`Service`] of the engine for
/// [`selvedge::Server::serve_each`], or for a caller of your own.
pub struct LocalSites {
    source: TableSource,
    service: OnceCell<Served>,
}

impl LocalSites {
    fn new(source: TableSource) -> Self {
        Self { source, service: OnceCell::new() }
    }

    fn service(&self) -> Option<&Served> {
        if self.service.get().is_none() {
            // The number of workers is unknown here. One per core is usual.
            let workers = thread::available_parallelism().map_or(1, usize::from);
            let served = Served::new((self.source)()?, workers).with_slash_redirect(SlashRedirect::Relative);
            return Some(self.service.get_or_init(|| served));
        }
        self.service.get()
    }
}

impl Service for LocalSites {
    async fn call(&self, request: &mut Request) -> Response {
        match self.service() {
            Some(served) => served.call(request).await,
            None => Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("cannot open the directory to serve"),
        }
    }
}

impl fmt::Debug for LocalSites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalSites")
    }
}

/// Returns the redirect of a request for the folder that axum's `nest_service` or `nest` serves at `/path`, to `/path/`.
/// Relative links of its index need the slash, and the application sees `/` for both.
#[cfg(feature = "axum")]
fn redirect_of_nested_root<B>(request: &http::Request<B>) -> Option<Response> {
    use axum::extract::{NestedPath, OriginalUri};
    let is_nested_root = request.uri().path() == "/" && request.extensions().get::<NestedPath>().is_some();
    let OriginalUri(original) = request.extensions().get().filter(|_| is_nested_root)?;
    let name = original.path().rsplit('/').next().filter(|name| !name.is_empty())?;
    if !matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
        return None;
    }
    let query = original.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::error(StatusCode::MOVED_PERMANENTLY);
    // A relative path with a dot never names another host.
    response.append("location", format!("./{name}/{query}")).ok().map(|()| response)
}

#[cfg(not(feature = "axum"))]
fn redirect_of_nested_root<B>(_: &http::Request<B>) -> Option<Response> {
    None
}

/// Implements tower's `Service` by the method `respond`.
macro_rules! tower_service {
    ($name:ident) => {
        impl<B> tower_service::Service<http::Request<B>> for $name
        where
            B: http_body::Body + Send + 'static,
            B::Error: Into<selvedge::tower::BoxError>,
        {
            type Response = http::Response<selvedge::tower::EmbeddedBody>;
            type Error = std::convert::Infallible;
            type Future = selvedge::tower::EmbeddedFuture<$crate::LocalSites, B>;

            fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<B>) -> Self::Future {
                self.respond(request)
            }
        }
    };
}
use tower_service;
