//! Whether patterns tell upper from lower case.

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum CaseSensitivity {
    /// `a` is not `A`.
    #[default]
    Sensitive,
    /// An ASCII letter is equal to its other case.
    Insensitive,
}
