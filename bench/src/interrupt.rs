//! Notices that the user wants to stop, so that every loop ends and everything started is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on, INT and TERM are noted.
///
/// # Errors
/// When the system does not allow it.
pub(crate) fn watch() -> std::io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, REQUESTED.clone())?;
    }
    Ok(())
}

/// Whether somebody asked to stop.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
