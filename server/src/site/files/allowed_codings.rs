//! Which content codings the site's own fields leave for a file.

use selvedge::proto::field::{Fields, list_members};

/// The representations of a file that may be sent beside the file itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::site) enum AllowedCodings {
    /// Precompressed files, and those that the server encodes.
    #[default]
    All,
    /// Precompressed files, which are the site's own.
    Precompressed,
    /// No other representation.
    None,
}

/// Fields whose value is of the content in one coding.
const CONTENT_FIELDS: [&str; 5] = ["content-encoding", "content-digest", "repr-digest", "digest", "content-md5"];

impl AllowedCodings {
    /// Returns what the fields allow that the site sets for a file.
    pub(in crate::site) fn of(site_fields: &Fields) -> Self {
        //= RFC 9530 §2, §3: digests are of the bytes that are sent, or of the representation with its coding
        if CONTENT_FIELDS.into_iter().any(|name| site_fields.get(name).is_some()) {
            return Self::None;
        }
        //= RFC 9110 §7.7: no-transform forbids the server to encode the content
        let lines = site_fields.iter().filter(|(name, _)| *name == "cache-control");
        let mut directives = lines.flat_map(|(_, value)| list_members(value));
        match directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform")) {
            true => Self::Precompressed,
            false => Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_no_transform_forbid_codings() {
        for (name, value, expected) in [
            ("cache-control", "max-age=60", AllowedCodings::All),
            ("cache-control", "max-age=60, No-Transform", AllowedCodings::Precompressed),
            ("cache-control", "x=\"no-transform\"", AllowedCodings::All),
            ("Content-Digest", "sha-256=:AA==:", AllowedCodings::None),
            ("repr-digest", "sha-256=:AA==:", AllowedCodings::None),
            ("Digest", "sha-256=AA==", AllowedCodings::None),
            ("content-encoding", "gzip", AllowedCodings::None),
        ] {
            let mut fields = Fields::new();
            fields.append(name, value).unwrap();
            assert_eq!(AllowedCodings::of(&fields), expected, "{name}: {value}");
        }
        assert_eq!(AllowedCodings::of(&Fields::new()), AllowedCodings::All);
    }
}
