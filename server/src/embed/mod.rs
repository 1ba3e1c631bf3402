//! Sites as applications of the library: services of the engine, and tower services over `http`
//! types, so that axum's router has them among its routes.
//!
//! The only place that names the ecosystem's types; what is served is what the program serves.

mod dir;
#[cfg(feature = "configuration")]
mod sites;

pub use dir::ServeDir;
#[cfg(feature = "configuration")]
pub use sites::{InvalidConfiguration, Sites};

use crate::site::{SiteTable, Sites as Served, SlashRedirect};
use selvedge::{Request, Response, Service, Status};
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::thread;

/// Where the sites come from. `None` when they cannot be had, which is tried again with the next request.
type Source = Arc<dyn Fn() -> Option<Arc<SiteTable>> + Send + Sync>;

/// What one worker serves, with what it remembers of files: a [`Service`] of the engine's, for
/// [`selvedge::Server::serve_each`] or to be called by another.
pub struct LocalSites {
    source: Source,
    served: OnceCell<Served>,
}

impl LocalSites {
    fn new(source: Source) -> Self {
        Self { source, served: OnceCell::new() }
    }

    fn served(&self) -> Option<&Served> {
        if self.served.get().is_none() {
            // Whose workers these are, and how many, nobody says; each core has one as a rule.
            let workers = thread::available_parallelism().map_or(1, usize::from);
            let served = Served::new((self.source)()?, workers).redirecting(SlashRedirect::Relative);
            return Some(self.served.get_or_init(|| served));
        }
        self.served.get()
    }
}

impl Service for LocalSites {
    async fn call(&self, request: &mut Request) -> Response {
        match self.served() {
            Some(served) => served.call(request).await,
            None => Response::error(Status::INTERNAL_SERVER_ERROR).because("the folder to serve cannot be opened"),
        }
    }
}

impl fmt::Debug for LocalSites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalSites")
    }
}

/// A tower service whose field `service` is one.
macro_rules! tower_service {
    ($name:ident) => {
        impl<B> tower_service::Service<http::Request<B>> for $name
        where
            B: http_body::Body + Send + 'static,
            B::Error: Into<selvedge::tower::BoxError>,
        {
            type Response = http::Response<selvedge::tower::EmbeddedBody>;
            type Error = std::convert::Infallible;
            type Future = selvedge::tower::Answering<$crate::LocalSites, B>;

            fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<B>) -> Self::Future {
                self.service.call(request)
            }
        }
    };
}
use tower_service;
