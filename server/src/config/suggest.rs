//! Suggestions for unknown names.

use std::cmp::Reverse;

/// Renamed settings, properties and words, with their new names. The old names are no aliases.
pub(super) const RENAMED: [(&str, &str); 13] = [
    ("body-bytes-per-second-min", "body-min-rate"),
    ("body-silence", "body-timeout"),
    ("chunk-overhead-bytes-free", "chunk-overhead-allowance"),
    ("clients", "ip-access"),
    ("drain-bytes-max", "discard-bytes-max"),
    ("drain-time", "shutdown-timeout"),
    ("head-time", "header-timeout"),
    ("keep-alive", "keep-alive-timeout"),
    ("observe", "dry-run"),
    ("send-bytes-per-second-min", "send-min-rate"),
    ("send-silence", "send-timeout"),
    ("sidecars", "precompressed"),
    ("try", "try-files"),
];

/// Returns the new name of a renamed setting, property or word.
pub(super) fn new_name(written: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == written).map(|&(_, new)| new)
}

/// Returns the nearest known name, if it is close enough. Of two equally near names, the one with the longer common
/// prefix wins, because endings are forgotten more often.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // No known name is this long.
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

/// Returns the new name of a renamed one, "did you mean" with the nearest name, or the list of all names.
pub(super) fn suggestion<'a>(written: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    if let Some(new) = new_name(written).filter(|new| known.clone().any(|name| name == *new)) {
        return format!("it was renamed to `{new}`");
    }
    match nearest(written, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let names: Vec<_> = known.map(|name| format!("`{name}`")).collect();
            format!("expected one of {}", names.join(", "))
        }
    }
}
