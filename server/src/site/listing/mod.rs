//! Directory listings as HTML and JSON.

mod entries;
mod page;
mod query;

use super::accept::prefers_json;
use super::files::root::Root;
use bytes::Bytes;
use entries::ListedDirectory;
use query::ListingQuery;
use selvedge::proto::path::SafePath;
use selvedge::{Request, Response, StatusCode, spawn_blocking};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of entries of a page.
const PAGE_ENTRIES: usize = 2_000;
/// The number of entries of a JSON document, which programs read.
const JSON_ENTRIES: usize = 5_000;
/// The maximum number of listings of a worker that wait, are built, or are not sent yet. Together with the number of
/// entries this bounds their memory.
const LISTINGS_MAX: usize = 32;
/// The maximum number of listings built at once, so that blocking threads are left for files.
const BUILT_AT_ONCE_MAX: usize = 2;

/// The limits on concurrent listings of a worker.
pub(super) struct ListingLimits {
    in_flight: Arc<Semaphore>,
    being_built: Arc<Semaphore>,
}

impl ListingLimits {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Arc::new(Semaphore::new(LISTINGS_MAX)),
            being_built: Arc::new(Semaphore::new(BUILT_AT_ONCE_MAX)),
        }
    }
}

/// A listing that occupies its permit until it is sent.
struct ListingPage {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for ListingPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Responds with the listing of a directory: JSON if the client prefers it, otherwise HTML.
pub(super) async fn respond(
    limits: &ListingLimits,
    request: &Request,
    path: &SafePath,
    (directory, root): (OwnedFd, Arc<Root>),
) -> Response {
    let Ok(permit) = limits.in_flight.clone().try_acquire_owned() else {
        let busy =
            Response::error(StatusCode::SERVICE_UNAVAILABLE).log_reason("too many directory listings are in progress");
        return busy.field("retry-after", "1");
    };
    let query = ListingQuery::parse(request.query().unwrap_or(""));
    let as_json = prefers_json(request);
    let build_permit = limits.being_built.clone().acquire_owned().await;
    let path = path.clone();
    let page = spawn_blocking(move || {
        let _build_permit = build_permit;
        let listed = ListedDirectory { directory, root, path };
        if as_json {
            serde_json::to_vec(&listed.read(&query, JSON_ENTRIES)?).ok()
        } else {
            Some(page::render(&listed.read(&query, PAGE_ENTRIES)?, &query).into_string().into_bytes())
        }
    })
    .await
    .flatten();
    let Some(page) = page else {
        return Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("cannot read the directory");
    };
    let media_type = if as_json { "application/json" } else { "text/html; charset=utf-8" };
    Response::new(StatusCode::OK)
        .field("content-type", media_type)
        .field("vary", "accept")
        .field("cache-control", "no-cache")
        .body(Bytes::from_owner(ListingPage { bytes: page, _permit: permit }))
}
