//! Copies of files that cannot change, for files that are sent often.

use crate::file::{self, FileContent, SealedCopy, SendSource, SharedFile, SweeperGuard};
use crate::net::runtime::{sleep, spawn_blocking, spawn_local};
use std::sync::Arc;
use std::time::Instant;

/// Returns the sealed copy of the file, if one exists. Starts to create one if the file is used often enough.
pub(super) fn sealed_copy(content: &FileContent) -> Option<Arc<SealedCopy>> {
    match content.file.choose_source(&content.stamp, content.length, Instant::now()) {
        SendSource::Copy(copy) => Some(copy),
        SendSource::File => None,
        SendSource::FileWorthCopying => {
            drop(spawn_local(make_sealed_copy(content.file.shared().clone())));
            None
        }
    }
}

/// Creates a sealed copy, and evicts unused copies unless another task does so already.
async fn make_sealed_copy(file: Arc<SharedFile>) {
    let _ = spawn_blocking(move || file.ensure_copied()).await;
    let Some(_sweeper) = SweeperGuard::acquire() else { return };
    loop {
        sleep(file::SWEEP_INTERVAL).await;
        if spawn_blocking(file::sweep).await != Some(true) {
            return;
        }
    }
}
