//! Fields of a head, in the type of the engine or of another library.

use crate::service::Request;
use selvedge_proto::field::Fields;

/// Reads fields by name. Names are in lower case.
pub(crate) trait FieldLookup {
    /// Returns the values of a name, in order.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;

    /// Whether a field of this name exists.
    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

/// Changes fields by name.
pub(crate) trait FieldMap: FieldLookup {
    /// Replaces all fields of a name by one with this value, which the caller knows to be valid.
    fn replace(&mut self, name: &'static str, value: &[u8]);

    /// Removes all fields of a name.
    fn remove_all(&mut self, name: &str);
}

impl FieldLookup for Fields {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }
}

impl FieldMap for Fields {
    fn replace(&mut self, name: &'static str, value: &[u8]) {
        // The engine writes the framing fields, so they are not replaced here.
        let _ = self.set(name, value);
    }

    fn remove_all(&mut self, name: &str) {
        self.remove(name);
    }
}

impl FieldLookup for Request {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}
