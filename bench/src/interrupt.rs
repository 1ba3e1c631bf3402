//! Handles INT and TERM, so that every loop ends and every started process is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Registers the signal handlers.
///
/// # Errors
/// If the system does not allow it.
pub(crate) fn register_handlers() -> std::io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, REQUESTED.clone())?;
    }
    Ok(())
}

/// Whether INT or TERM was received.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
