//! Catches panics and records their locations for the log.
//!
//! Only the panic hook sees the location. The hook stores it for [`catch`] on that thread. Panics outside of
//! [`catch`] go to the previous hook, and so do those of a thread without an observer that reports them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PRINTING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`. A panic in it becomes an error message with its location.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(outer);
    result.map_err(|payload| CAUGHT.take().unwrap_or_else(|| message(&*payload).to_owned()))
}

/// Passes the caught panics of this thread to the previous hook, too, which prints them by default.
pub(crate) fn print_caught() {
    PRINTING.set(true);
}

/// Installs the panic hook. Later calls do nothing.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| match CATCHING.try_with(Cell::get) {
            Ok(true) => {
                CAUGHT.set(Some(describe(info)));
                if PRINTING.get() {
                    previous(info);
                }
            }
            _ => previous(info),
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    match info.location() {
        Some(location) => {
            format!("{} at {}:{}:{}", message(info.payload()), location.file(), location.line(), location.column())
        }
        None => message(info.payload()).to_owned(),
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}
