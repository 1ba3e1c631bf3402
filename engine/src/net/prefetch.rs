//! Reads files into the page cache on a blocking thread.

use crate::limits::PREFETCH_BYTES;
use crate::net::runtime::spawn_blocking;
use rustix::io::{Errno, pread};
use std::fs::File;

/// Reads part of a file, so that it is in the page cache. Returns `None` if it cannot be read.
pub(super) async fn prefetch_file(file: &File, at: u64, len: u64) -> Option<()> {
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
