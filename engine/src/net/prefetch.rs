//! Reads files into the page cache, with the ring or on a blocking thread.

use crate::limits::PREFETCH_BYTES;
use crate::net::runtime::spawn_blocking;
use crate::net::worker::Worker;
use rustix::io::{Errno, pread};
use std::fs::File;

/// Reads part of a file into the page cache without blocking the worker, so that sending it does not wait for the disk.
/// Returns `None` if it cannot be read.
pub(crate) async fn prefetch(worker: &Worker, file: &File, at: u64, len: u64) -> Option<()> {
    match worker.ring() {
        Some(ring) => ring.prefetch(file, at, len).await,
        None => prefetch_file(file, at, len).await,
    }
}

async fn prefetch_file(file: &File, at: u64, len: u64) -> Option<()> {
    let file = file.try_clone().ok()?;
    spawn_blocking(move || {
        let mut scratch = vec![0; PREFETCH_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let mut read = 0;
        while read < len {
            let count_max = scratch.len().min(usize::try_from(len - read).unwrap_or(usize::MAX));
            match pread(&file, &mut scratch[..count_max], at + read) {
                // The file was truncated. The send notices that, too.
                Ok(0) => return Some(()),
                Ok(count) => read += count as u64,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(())
    })
    .await?
}
