//! The way of a request through a site: method, path, file.

use super::action::Sidecars;
use super::files::cache::Cache;
use super::files::resolve::Found;
use super::files::root::Root;
use super::files::{Files, Place};
use super::listing;
use selvedge::proto::head::{Expectation, Framing};
use selvedge::proto::path::SafePath;
use selvedge::proto::target::Form;
use selvedge::service::ContentError;
use selvedge::{Method, Request, Response, Service, Status};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// How a site serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// A directory without an index is answered with a list.
    pub(crate) listing: bool,
    /// How many workers share what the process may hold open.
    pub(crate) workers: usize,
}

/// One worker's view of a site.
pub(crate) struct Site {
    files: Files,
    lists: listing::Lists,
    options: Options,
}

/// Longer content is left to the engine, which answers first and then closes.
const CONTENT_DISCARDED_BYTES_MAX: u64 = 256 << 10;

/// The name that stands for a directory.
const INDEX: &str = "index.html";

/// The methods that files have, for Allow (RFC 9110 §10.2.1).
const ALLOW: &str = "GET, HEAD, OPTIONS";

impl Site {
    pub(crate) fn new(root: Arc<Root>, options: Options) -> Self {
        let cache = Rc::new(RefCell::new(Cache::new(options.workers)));
        let place = Place { root, index: [Box::from(INDEX)].into(), sidecars: Sidecars::On };
        let files = Files::new(place, cache);
        Self { files, lists: listing::Lists::new(), options }
    }

    /// The way of a request with content.
    async fn answer_with_content(&self, request: &mut Request) -> Response {
        match discard_content(request, u64::MAX).await {
            Ok(()) => self.answer(request).await,
            Err(error) => error.into(),
        }
    }

    /// The way of everything that the cache does not answer.
    async fn answer(&self, request: &Request) -> Response {
        if let Some(response) = answer_method(request) {
            return response;
        }
        debug_assert!(matches!(request.target_form(), Form::Origin | Form::Absolute), "other forms have other methods");
        let path = match SafePath::decode(request.path_bytes()) {
            Ok(path) => path,
            Err(reject) => return Response::error_with_text(reject.status(), reject.text()),
        };
        match self.files.find(request.moment().since_start, request.path_bytes(), &path).await {
            Ok(Found::File(resource)) => self.files.respond(request, &resource).await,
            Ok(Found::DirectoryWithoutSlash) => redirect_to_slash(&path, request.query()),
            Ok(Found::Directory(directory)) if self.options.listing => {
                listing::respond(&self.lists, request, &path, directory).await
            }
            Ok(Found::Directory(_)) => Response::error(Status::NOT_FOUND),
            Err(failure) => failure.into(),
        }
    }
}

impl Service for Site {
    async fn call(&self, request: &mut Request) -> Response {
        if request.head().framing != Framing::None {
            return Box::pin(self.answer_with_content(request)).await;
        }
        // Returned early, so that the future keeps no room for it while it waits.
        if let Some(response) = self.files.respond_from_cache(request) {
            return response;
        }
        Box::pin(self.answer(request)).await
    }
}

/// Reads content, which files have no use for, before the answer, so that a request whose
/// framing is broken is refused and not answered in part.
///
/// Content of more than `bytes_max` is refused; so is any that is announced to be longer.
pub(super) async fn discard_content(request: &mut Request, bytes_max: u64) -> Result<(), ContentError> {
    if request.body().length().is_some_and(|length| length > bytes_max) {
        return Err(ContentError::TooLarge);
    }
    match request.head().expectation {
        Expectation::None => {
            request.body().limit(bytes_max);
            request.body().discard(CONTENT_DISCARDED_BYTES_MAX).await
        }
        // Who waits to be told to go on is not told: the answer comes instead.
        Expectation::Continue => Ok(()),
    }
}

/// The answer to a method that asks for no file.
pub(super) fn answer_method(request: &Request) -> Option<Response> {
    Some(match request.method() {
        Method::Get | Method::Head => return None,
        Method::Options => Response::new(Status::NO_CONTENT).field("allow", ALLOW),
        Method::Other => Response::error_with_text(Status::NOT_IMPLEMENTED, "this method is not implemented here"),
        _ => {
            let refused = Response::error_with_text(Status::METHOD_NOT_ALLOWED, "this method is not allowed here");
            refused.field("allow", ALLOW)
        }
    })
}

/// Relative links in a directory's page need the slash. The location is path-absolute
/// with one leading slash, so it never names another host.
pub(super) fn redirect_to_slash(path: &SafePath, query: Option<&str>) -> Response {
    let mut location = path.encode();
    location.push('/');
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::error(Status::MOVED_PERMANENTLY);
    match response.append("location", location) {
        Ok(()) => response,
        Err(_) => Response::error(Status::BAD_REQUEST),
    }
}
