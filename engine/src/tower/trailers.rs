//! Fields behind content, from the engine's form to the ecosystem's and back.

use http::{HeaderMap, HeaderName, HeaderValue};
use selvedge_proto::field::Fields;

/// As a map.
pub(super) fn to_map(fields: &Fields) -> HeaderMap {
    let valid = fields.iter().filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?))
    });
    let mut map = HeaderMap::new();
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
