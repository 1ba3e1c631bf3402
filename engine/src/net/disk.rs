//! Files that are not in memory, read on a thread that may wait for the disk.

use crate::limits::DISK_READ_BYTES;
use crate::net::worker::offload;
use rustix::io::{Errno, pread};
use std::fs::File;

/// Reads part of a file, so that it is in the system's memory. `None` when it cannot be read.
pub(super) async fn bring_into_memory(file: &File, at: u64, len: u64) -> Option<()> {
    let file = file.try_clone().ok()?;
    offload(move || {
        let mut scratch = vec![0; DISK_READ_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let mut read = 0;
        while read < len {
            let want = scratch.len().min(usize::try_from(len - read).unwrap_or(usize::MAX));
            match pread(&file, &mut scratch[..want], at + read) {
                // Shorter than it was: the send will see it, too.
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
