//! Regular expressions, marked by `regex:`. They match in linear time, and their size is bounded.

use super::ValueError;
use super::case_sensitivity::CaseSensitivity;
use super::glob::{self, Ranges, WILDCARDS_MAX};
use regex::{Regex, RegexBuilder};

/// The mark of a regular expression.
const MARK: &str = "regex:";

/// The maximum size of a compiled expression in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct RegularExpression(Regex);

/// Returns the expression of a text with the mark.
pub(super) fn written(text: &str) -> Option<&str> {
    text.strip_prefix(MARK)
}

/// Escapes a text so that it stands for itself.
pub(super) fn escape(text: &str) -> String {
    regex::escape(text)
}

impl RegularExpression {
    pub(super) fn compile(expression: &str, case: CaseSensitivity) -> Result<Self, ValueError> {
        let mut builder = RegexBuilder::new(expression);
        builder.size_limit(COMPILED_BYTES_MAX).case_insensitive(case == CaseSensitivity::Insensitive);
        match builder.build() {
            Ok(regex) => Ok(Self(regex)),
            Err(regex::Error::CompiledTooBig(_)) => {
                let instead = "shorten it, or write smaller repetitions";
                Err(ValueError::new("this regular expression takes more than 1 MiB of memory", instead))
            }
            Err(error) => {
                // The last line has the reason; those before it repeat the expression.
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let instead = "the syntax is that of the Rust crate `regex`: no look-around and no back-references";
                Err(ValueError::new(format!("this is not a regular expression: {reason}"), instead))
            }
        }
    }

    /// Returns the names of its groups; empty for one without a name.
    pub(super) fn names(&self) -> Result<Vec<Box<str>>, ValueError> {
        let mut names = Vec::new();
        for name in self.0.capture_names().skip(1) {
            if names.len() == WILDCARDS_MAX {
                let instead = format!("it has at most {WILDCARDS_MAX}; write (?:...) for a group without a capture");
                return Err(ValueError::new("too many groups", instead));
            }
            match name {
                Some(name) => glob::add_name(name, &mut names)?,
                None => names.push("".into()),
            }
        }
        Ok(names)
    }

    /// Matches a text, and adds the ranges of the groups.
    pub(super) fn matches(&self, text: &str, ranges: &mut Ranges) -> bool {
        if self.0.captures_len() == 1 {
            return self.0.is_match(text);
        }
        let Some(captures) = self.0.captures(text) else { return false };
        ranges.extend((1..captures.len()).map(|group| captures.get(group).map_or(0..0, |found| found.range())));
        true
    }
}
