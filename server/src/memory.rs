//! The most memory that a configuration lets the server use, term by term.

use crate::compile::{Compiled, RATE_CLIENTS};
use crate::config::model::{Action, Driver, Settings, Site, Switch};
use crate::config::value::LogTarget;
use crate::site::{CACHE_BYTES_MAX, DIRECTORIES_BYTES_MAX, PASSWORDS_AT_ONCE_MAX};
use selvedge::Limits;
use selvedge::service::OpenFile;
use std::collections::HashSet;
use std::fmt;
use std::thread;

/// Content that a connection may still be sending after the cache has let go of it: a small
/// file's. Copies of larger ones have a bound of their own, in all.
const CONTENT_BYTES_MAX: u64 = 32 << 10;
/// Lists of directories of one worker: 32 on their way, of 2,000 entries with 1 KiB each.
const LISTS_BYTES_MAX: u64 = 32 * 2_000 * 1024;
/// What may wait for one access log: 1,024 batches of 32 KiB.
const ACCESS_QUEUE_BYTES_MAX: u64 = 1024 * (32 << 10);
/// What may wait for one error log: 1,024 lines, each with a request line.
const ERROR_QUEUE_BYTES_MAX: u64 = 1024 * (10 << 10);

/// The terms of the bound.
#[derive(Debug)]
pub(crate) struct Memory {
    terms: Vec<Term>,
}

#[derive(Debug)]
struct Term {
    count: u64,
    of: &'static str,
    bytes_each: u64,
}

impl Memory {
    /// The bound that follows from these settings, and from what they make, on this machine.
    pub(crate) fn of(settings: &Settings, compiled: &Compiled) -> Self {
        let (limits, sites) = (&compiled.limits, &compiled.table);
        let workers =
            settings.process.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let workers = workers as u64;
        let mut terms = vec![
            Term {
                count: limits.connections_max as u64,
                of: "connections",
                bytes_each: limits.connection_bytes_max() + CONTENT_BYTES_MAX,
            },
            Term { count: workers, of: "caches of files", bytes_each: 2 * CACHE_BYTES_MAX as u64 },
            Term { count: workers, of: "tables of directories", bytes_each: DIRECTORIES_BYTES_MAX as u64 },
            Term { count: 1, of: "copies of larger files", bytes_each: OpenFile::copies_bytes_max() },
            Term { count: workers, of: "pools and disk threads", bytes_each: Limits::worker_bytes_max() },
        ];
        if settings.process.driver != Driver::Epoll {
            let (connections, bytes_each) = (limits.connections_max as u64, Limits::ring_connection_bytes_max());
            terms.push(Term { count: workers, of: "rings", bytes_each: Limits::ring_bytes_max() });
            terms.push(Term { count: connections, of: "connections' bytes in rings", bytes_each });
        }
        if lists(settings) {
            terms.push(Term { count: workers, of: "lists of directories", bytes_each: LISTS_BYTES_MAX });
        }
        if let Some(bytes_each) = sites.password_bytes_max() {
            terms.push(Term { count: PASSWORDS_AT_ONCE_MAX as u64, of: "checks of passwords", bytes_each });
        }
        let access = settings.sites.iter().filter_map(|site| site.access_log.as_ref());
        let access = access.chain([&settings.logs.access]).map(|log| &log.target);
        let error = settings.sites.iter().filter_map(|site| site.error_log.as_ref());
        let error = error.chain([&settings.logs.error]).map(|log| &log.target);
        terms.push(Term { count: rates(settings), of: "tables of rates", bytes_each: 8 * RATE_CLIENTS as u64 });
        terms.push(Term { count: distinct(access), of: "queues of access logs", bytes_each: ACCESS_QUEUE_BYTES_MAX });
        terms.push(Term { count: distinct(error), of: "queues of error logs", bytes_each: ERROR_QUEUE_BYTES_MAX });
        Self { terms }
    }

    fn total(&self) -> u64 {
        self.terms.iter().map(|term| term.count.saturating_mul(term.bytes_each)).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "// The most memory that these settings let the server use, but for the settings themselves:")?;
        for Term { count, of, bytes_each } in &self.terms {
            let bytes = mebibytes(count.saturating_mul(*bytes_each));
            writeln!(f, "//   {bytes:>12} = {count} {of} of {} KiB", bytes_each.div_ceil(1024))?;
        }
        writeln!(f, "//   {:>12} in all", mebibytes(self.total()))
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Whether any directory may be answered with a list.
fn lists(settings: &Settings) -> bool {
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.any(|route| matches!(&route.action, Action::Files(files) if files.listing == Switch::On))
}

/// How many rates are kept: one for each site and each route that says one of its own.
fn rates(settings: &Settings) -> u64 {
    let of_site = |site: &Site| {
        let own = site.routes.iter().filter(|route| route.gate.rate_limit != site.gate.rate_limit);
        usize::from(site.gate.rate_limit.is_some()) + own.count()
    };
    settings.sites.iter().map(of_site).sum::<usize>() as u64
}

fn distinct<'a>(targets: impl Iterator<Item = &'a LogTarget>) -> u64 {
    let known: HashSet<_> = targets.filter(|target| **target != LogTarget::Off).collect();
    known.len() as u64
}
