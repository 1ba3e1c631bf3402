//! Where a panic happened, for the log.
//!
//! The place is known only to the panic hook, so a hook keeps it for whoever catches the
//! panic on this thread. Panics elsewhere go to the hook that was there before.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`; a panic in it becomes a message with its place.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(outer);
    result.map_err(|payload| CAUGHT.take().unwrap_or_else(|| message(&*payload).to_owned()))
}

/// Puts the hook in place; later calls do nothing.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| match CATCHING.try_with(Cell::get) {
            Ok(true) => CAUGHT.set(Some(describe(info))),
            _ => previous(info),
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    match info.location() {
        Some(place) => format!("{} at {}:{}:{}", message(info.payload()), place.file(), place.line(), place.column()),
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
