//! What the wildcards of a pattern matched.

use super::glob::Ranges;

/// The texts that wildcards matched, with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'p> {
    parts: Vec<(&'p str, &'p str)>,
    rest: Option<&'p str>,
}

impl<'p> Captures<'p> {
    /// Returns the text of a wildcard by its index, from 0; empty if it does not exist.
    pub(crate) fn get(&self, number: usize) -> &'p str {
        self.parts.get(number).map_or("", |(_, text)| text)
    }

    /// Returns the text of a wildcard without a name by its index among those, from 0.
    pub(crate) fn star(&self, number: usize) -> &'p str {
        self.parts.iter().filter(|(name, _)| name.is_empty()).nth(number).map_or("", |(_, text)| text)
    }

    /// Returns the text of a wildcard by its name; empty if it does not exist.
    pub(crate) fn named(&self, name: &str) -> &'p str {
        self.parts.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
    }

    /// Returns what is beneath the path of the pattern, if it ends with a wildcard for that.
    pub(crate) fn rest(&self) -> Option<&'p str> {
        self.rest
    }

    /// The capture of a single star.
    #[cfg(test)]
    pub(super) fn whole(part: &'p str) -> Self {
        Self { parts: vec![("", part)], rest: None }
    }

    /// No captures yet, of a pattern with this rest.
    pub(super) fn with_rest(rest: Option<&'p str>) -> Self {
        Self { parts: Vec::new(), rest }
    }

    /// Returns their number.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Adds the captures of ranges of a text.
    pub(super) fn add(&mut self, names: &'p [Box<str>], text: &'p str, ranges: Ranges) {
        self.parts.extend(names.iter().map(|name| &**name).zip(ranges.into_iter().map(|range| &text[range])));
    }
}
