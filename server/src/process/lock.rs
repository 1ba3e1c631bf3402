//! Locks whose value stays consistent if a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex. A panic while it was locked leaves the value consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tries to lock a mutex; `None` if it is locked.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(lock) => Some(lock),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
