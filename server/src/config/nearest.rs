//! What was probably meant by a name that is not known.

use std::cmp::Reverse;

/// The known name that is nearest, if it is near enough to have been meant. Of two that are as
/// near, the one that begins as the written one does: the end is what is forgotten.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A long name is not worth comparing: nothing here is called so.
    if written.len() > 64 {
        return None;
    }
    let written = written.to_ascii_lowercase().replace('_', "-");
    known
        .map(|name| (strsim::osa_distance(&written, name), name))
        .filter(|&(distance, name)| distance <= (name.len().min(written.len()) / 3).max(1))
        .min_by_key(|&(distance, name)| (distance, Reverse(common_prefix(&written, name))))
        .map(|(_, name)| name)
}

fn common_prefix(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// "did you mean" and the nearest name, or all that there are.
pub(super) fn suggestion<'a>(written: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(written, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let names: Vec<_> = known.map(|name| format!("`{name}`")).collect();
            format!("known here: {}", names.join(", "))
        }
    }
}
