//! Converts between engine fields and [`HeaderMap`], for embedded responses and trailers.

#[cfg(feature = "compression")]
use crate::coding::{FieldLookup, FieldMap};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use selvedge_proto::field::Fields;

/// Usual number of fields of a file response. More fields need another allocation.
const FIELDS_EXPECTED: usize = 8;

/// Converts fields to a map. All values share one copy of the field lines.
pub(super) fn from_fields(fields: &Fields) -> HeaderMap {
    let shared = Bytes::copy_from_slice(fields.lines());
    let valid = fields.iter().filter_map(|(name, value)| {
        let value = shared_slice(&shared, fields.lines(), value);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_maybe_shared(value).ok()?))
    });
    let mut map = HeaderMap::with_capacity(FIELDS_EXPECTED);
    for (name, value) in valid {
        map.append(name, value);
    }
    map
}

/// Converts a map to fields. Skips fields that only the engine may write.
pub(super) fn to_fields(map: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in map {
        // Both are valid. `append` refuses the fields that only the engine writes.
        let _ = fields.append(name.as_str(), value.as_bytes());
    }
    fields
}

/// Returns the slice of `shared`, a copy of a prefix of `bytes`, that corresponds to `part`.
pub(super) fn shared_slice(shared: &Bytes, bytes: &[u8], part: &[u8]) -> Bytes {
    let at = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
    match shared.get(at..at + part.len()) {
        Some(_) if !part.is_empty() => shared.slice(at..at + part.len()),
        _ => Bytes::copy_from_slice(part),
    }
}

#[cfg(feature = "compression")]
impl FieldLookup for HeaderMap {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}

#[cfg(feature = "compression")]
impl FieldMap for HeaderMap {
    fn replace(&mut self, name: &'static str, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.insert(name, value);
        }
    }

    fn remove_all(&mut self, name: &str) {
        self.remove(name);
    }
}
