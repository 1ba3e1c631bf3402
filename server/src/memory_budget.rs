//! The most memory that a configuration lets the server use, term by term.

use crate::compile::{Compiled, RATE_CLIENTS, client_limits};
use crate::config::model::{Action, Driver, Listener, Route, Settings, Site, Switch};
use crate::log::{PENDING_BYTES_MAX, ROUTE_COUNTER_BYTES, queue_bytes_max};
use crate::recorder::RING_BYTES;
use crate::site::{CACHE_BYTES_MAX, DIRECTORIES_BYTES_MAX, PASSWORD_CHECKS_AT_ONCE_MAX, STATUS_STREAMS_MAX};
use crate::traces::QUEUED_BYTES_MAX;
use selvedge::client::ClientLimits;
use selvedge::service::OpenFile;
use selvedge::{ContentCoder, Limits};
use std::fmt;
use std::thread;

/// Content of a small file that a connection sends after the cache evicted it. Sealed copies of larger files have a
/// limit of their own.
const CONTENT_BYTES_MAX: u64 = 32 << 10;
/// Directory listings of one worker: 32 pages at a time, of 5,000 entries with 1 KiB each, and two that are built, of
/// 100,000 entries.
const LISTS_BYTES_MAX: u64 = (32 * 5_000 + 2 * 100_000) * 1024;

/// A request to a script or program. 64 KiB each: the head of its response, a received and a sent record of FastCGI, and
/// content that waits for its length. Two pieces of 256 KiB are on the way to a file. Messages have 16 KiB.
const SCRIPT_BYTES_MAX: u64 = (64 + 2 * 64 + 64 + 2 * 256 + 16) << 10;

/// A live page or one of its events, with what it is made of: 8 tables of at most 20 rows.
const LIVE_PAGE_BYTES_MAX: u64 = 512 << 10;

/// The terms of the memory budget.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    terms: Vec<MemoryTerm>,
}

#[derive(Debug)]
struct MemoryTerm {
    count: u64,
    name: &'static str,
    bytes_each: u64,
}

impl MemoryBudget {
    /// Derives the budget of settings on this machine.
    pub(crate) fn of(settings: &Settings, compiled: &Compiled) -> Self {
        let (limits, sites) = (&compiled.limits, &compiled.table);
        let workers =
            settings.process.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let workers = workers as u64;
        let mut terms = vec![
            MemoryTerm {
                count: limits.connections_max as u64,
                name: "connections",
                bytes_each: limits.connection_bytes_max() + CONTENT_BYTES_MAX,
            },
            MemoryTerm { count: workers, name: "file caches", bytes_each: CACHE_BYTES_MAX as u64 },
            MemoryTerm { count: workers, name: "directory caches", bytes_each: DIRECTORIES_BYTES_MAX as u64 },
            MemoryTerm { count: 1, name: "copies of larger files", bytes_each: OpenFile::copies_bytes_max() },
            MemoryTerm { count: workers, name: "pools and disk threads", bytes_each: Limits::worker_bytes_max() },
        ];
        if settings.listeners.iter().any(|listener| listener.tls == Switch::On) {
            let (connections, bytes_each) = (limits.connections_max as u64, Limits::tls_connection_bytes_max());
            terms.push(MemoryTerm { count: connections, name: "TLS sessions", bytes_each });
        }
        let has_http2 = |listener: &Listener| listener.tls == Switch::On || listener.plain_http2 == Switch::On;
        if settings.listeners.iter().any(has_http2) {
            let (connections, bytes_each) = (limits.connections_max as u64, limits.http2_connection_bytes_max());
            terms.push(MemoryTerm { count: connections, name: "HTTP/2 connections", bytes_each });
        }
        if settings.process.driver != Driver::Epoll {
            let (connections, bytes_each) = (limits.connections_max as u64, Limits::ring_connection_bytes_max());
            terms.push(MemoryTerm { count: workers, name: "io_uring rings", bytes_each: Limits::ring_bytes_max() });
            terms.push(MemoryTerm { count: connections, name: "connections' buffers in io_uring", bytes_each });
        }
        if settings.sites.iter().flat_map(|site| &site.routes).any(|route| route.compress == Switch::On) {
            let bytes_each = ContentCoder::new().bytes_max();
            terms.push(MemoryTerm { count: 1, name: "compressed files and their encoders", bytes_each });
        }
        if has_listings(settings) {
            terms.push(MemoryTerm { count: workers, name: "directory listings", bytes_each: LISTS_BYTES_MAX });
        }
        terms.extend(live_page_term(settings));
        if let Some(bytes_each) = sites.password_check_bytes_max() {
            terms.push(MemoryTerm { count: PASSWORD_CHECKS_AT_ONCE_MAX as u64, name: "password checks", bytes_each });
        }
        terms.push(MemoryTerm {
            count: rate_limit_count(settings),
            name: "rate limit tables",
            bytes_each: 8 * RATE_CLIENTS as u64,
        });
        terms.extend(upstream_terms(settings, limits, workers));
        let count = script_requests_max(settings);
        if count > 0 {
            terms.push(MemoryTerm { count, name: "requests to scripts and programs", bytes_each: SCRIPT_BYTES_MAX });
        }
        terms.push(MemoryTerm { count: workers, name: "flight recorders", bytes_each: RING_BYTES });
        terms.push(route_counter_term(settings, workers));
        let of_spans = |_| MemoryTerm { count: 1, name: "queue of spans", bytes_each: QUEUED_BYTES_MAX as u64 };
        terms.extend(settings.traces.as_ref().map(of_spans));
        let logs = &compiled.logs;
        terms.push(MemoryTerm {
            count: workers * logs.access.len() as u64,
            name: "pending lines of access logs",
            bytes_each: PENDING_BYTES_MAX as u64,
        });
        terms.push(MemoryTerm {
            count: logs.count() as u64,
            name: "log queues",
            bytes_each: queue_bytes_max(logs.count()) as u64,
        });
        Self { terms }
    }

    fn total(&self) -> u64 {
        self.terms.iter().map(|term| term.count.saturating_mul(term.bytes_each)).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "// Most memory that the server can use with these settings, without the settings themselves:")?;
        for MemoryTerm { count, name: of, bytes_each } in &self.terms {
            let bytes = mebibytes(count.saturating_mul(*bytes_each));
            writeln!(f, "//   {bytes:>12} = {count} {of} of {} KiB", bytes_each.div_ceil(1024))?;
        }
        writeln!(f, "//   {:>12} total", mebibytes(self.total()))
    }
}

/// Returns the memory of the counters of routes.
fn route_counter_term(settings: &Settings, workers: u64) -> MemoryTerm {
    // Requests that no route or no site serves have counters, too.
    let routes = settings.sites.iter().map(|site| site.routes.len() + 1).sum::<usize>() as u64 + 1;
    // A reload has the counters of two configurations.
    let count = 2 * workers * routes;
    MemoryTerm { count, name: "counters of routes", bytes_each: ROUTE_COUNTER_BYTES as u64 }
}

/// Returns the terms of connections to upstreams. Each connection of a client may have a request at work, and one of
/// HTTP/2 as many as its streams, unless every upstream has a limit.
fn upstream_terms(settings: &Settings, limits: &Limits, workers: u64) -> Vec<MemoryTerm> {
    if settings.upstreams.is_empty() {
        return Vec::new();
    }
    let client = client_limits(&settings.limits);
    let has_http2 = |listener: &Listener| listener.tls == Switch::On || listener.plain_http2 == Switch::On;
    let streams = if settings.listeners.iter().any(has_http2) { limits.http2.streams_max } else { 1 };
    let of_clients = (limits.connections_max as u64).saturating_mul(u64::from(streams));
    let count = settings.forwarded_requests_max().map_or(of_clients, |most| most.min(of_clients));
    let bytes_each = client.exchange_bytes_max() + settings.buffered_bytes_max();
    vec![
        MemoryTerm { count, name: "requests to upstreams", bytes_each },
        MemoryTerm { count: workers, name: "idle connections to upstreams", bytes_each: client.idle_bytes_max() },
        MemoryTerm { count: workers, name: "pipes from upstreams", bytes_each: ClientLimits::pipe_bytes_max() },
    ]
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Returns the most requests at work of routes that run scripts or programs.
fn script_requests_max(settings: &Settings) -> u64 {
    let routes = settings.sites.iter().flat_map(|site| &site.routes);
    let of = |route: &Route| match &route.action {
        Action::Gateway(gateway) => u64::from(gateway.requests_max),
        _ => 0,
    };
    routes.map(of).sum()
}

/// Whether any directory may be listed.
fn has_listings(settings: &Settings) -> bool {
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.any(|route| matches!(&route.action, Action::Files(files) if files.listing == Switch::On))
}

/// Returns the term of the live page, if a route has it.
fn live_page_term(settings: &Settings) -> Option<MemoryTerm> {
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    let has_page = routes.any(|route| matches!(&route.action, Action::StatusPage { .. }));
    // One page is made at a time.
    let count = STATUS_STREAMS_MAX as u64 + 1;
    has_page.then_some(MemoryTerm { count, name: "live pages and events", bytes_each: LIVE_PAGE_BYTES_MAX })
}

/// Returns the number of rate limits: one for each site and route with its own.
fn rate_limit_count(settings: &Settings) -> u64 {
    let of_site = |site: &Site| {
        let own = site.routes.iter().filter(|route| route.access.rate_limit != site.access.rate_limit);
        // Those of wrong passwords have half as many places for clients and as many for names.
        let own_users = site.routes.iter().filter(|route| route.access.basic_auth != site.access.basic_auth);
        let wrong_passwords = usize::from(site.access.basic_auth.is_some()) + own_users.count();
        usize::from(site.access.rate_limit.is_some()) + own.count() + wrong_passwords
    };
    settings.sites.iter().map(of_site).sum::<usize>() as u64
}
