//! Compiles changes of fields, of responses and of forwarded requests.

use super::{Compiler, RouteIndex};
use crate::config::model::{HeaderChange, HeaderChangeKind};
use crate::site::HeaderEdits;

/// Compiles changes of fields.
pub(super) fn header_edits(compiler: &mut Compiler<'_>, at: RouteIndex, changes: &[HeaderChange]) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    for HeaderChange { name, kind, only_for } in changes {
        let result = match kind {
            HeaderChangeKind::Set(value) => edits.set(name, value.clone(), only_for.clone()),
            HeaderChangeKind::Add(value) => edits.add(name, value.clone(), only_for.clone()),
            HeaderChangeKind::Remove => edits.remove(name, only_for.clone()),
        };
        compiler.checked(at, result.map_err(|error| format!("`{name}`: {error}")));
    }
    edits
}
