//! Names of the compared servers, and the folder of the bench.

use std::path::Path;

/// The name of Selvedge in the table.
pub(crate) const SELVEDGE: &str = "selvedge";
/// The server that applications are compared with: axum on hyper.
pub(crate) const AXUM: &str = "axum";

/// The server that the ratio to the baseline refers to.
pub(crate) const BASELINE: &str = "baseline-epoll";
/// The prefix of the names of all baseline servers.
pub(crate) const BASELINE_PREFIX: &str = "baseline";

/// Whether a server name is that of Selvedge.
pub(crate) fn is_selvedge(name: &str) -> bool {
    name.contains(SELVEDGE)
}

/// Returns the folder of this crate.
pub(crate) fn bench_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
