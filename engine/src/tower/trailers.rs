//! Fields, as of embedded answers and behind content, from the engine's form to the ecosystem's and back.

use crate::tower::convert;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use selvedge_proto::field::Fields;

/// As many as an answer with a file has. More take another allocation.
const FIELDS_USUAL: usize = 8;

/// As a map, whose values share one copy of the lines.
pub(super) fn to_map(fields: &Fields) -> HeaderMap {
    let shared = Bytes::copy_from_slice(fields.lines());
    let valid = fields.iter().filter_map(|(name, value)| {
        let value = convert::part(&shared, fields.lines(), value);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_maybe_shared(value).ok()?))
    });
    let mut map = HeaderMap::with_capacity(FIELDS_USUAL);
    for (name, value) in valid {
        map.append(name, value);
    }
    map
}

/// As lines. What the engine alone writes is left out.
pub(super) fn from_map(map: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in map {
        // Both are valid in a head already.
        let _ = fields.append(name.as_str(), value.as_bytes());
    }
    fields
}
