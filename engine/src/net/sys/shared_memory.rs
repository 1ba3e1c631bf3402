//! Memory that processes share: numbers in a file without a name.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Numbers in memory that outlives the process while another one has its descriptor. All are 0 at first, and take memory
/// when they are written first.
pub struct SharedMemory {
    start: NonNull<AtomicU64>,
    length: usize,
    file: OwnedFd,
}

// SAFETY: the memory is a mapping that belongs to the value, wherever that is.
unsafe impl Send for SharedMemory {}
// SAFETY: the memory is accessed as atomic numbers only.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates memory for `length` numbers. Its size is sealed, so no access can fail.
    ///
    /// # Errors
    /// As `memfd_create(2)` and `mmap(2)`.
    pub fn new(length: usize) -> io::Result<Self> {
        let file = memfd_create(c"selvedge-recorder", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = length.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory in use is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        // A mapping begins at a page, and so is aligned for numbers.
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length, file })
    }
}

impl AsFd for SharedMemory {
    /// Returns the file of the memory, which another process can read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for SharedMemory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `length` numbers, begins aligned, stays until `self` is dropped, and cannot lose pages,
        // since the file cannot shrink. Every pattern of bits is a number. Processes access it as atomic numbers or with
        // system calls.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} numbers)", self.length)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this start and length, and no reference to it remains.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length * size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok(), "a mapped range can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn numbers_are_in_the_file_and_its_size_is_fixed() {
        let memory = SharedMemory::new(1000).unwrap();
        assert!(memory.len() == 1000 && memory.iter().all(|number| number.load(Ordering::Relaxed) == 0));
        memory[999].store(7, Ordering::Relaxed);
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        file.set_len(8).expect_err("it is sealed");
        drop(memory);
        let mut last = [0; 8];
        file.read_exact_at(&mut last, 999 * 8).unwrap();
        assert_eq!(u64::from_ne_bytes(last), 7, "it outlives the mapping");
    }
}
