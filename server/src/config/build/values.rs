//! Values whose kind the table requires, and checks that several actions share.

use crate::config::problem::Problem;
use crate::config::tree::SpannedValue;
use crate::config::value::Value;
use crate::syntax::{Pattern, TextTemplate};

pub(super) fn pattern(given: &SpannedValue) -> Pattern {
    let Value::Pattern(pattern) = &given.value else { unreachable!("the table requires a pattern") };
    pattern.clone()
}

pub(super) fn status(given: &SpannedValue) -> u16 {
    u16::try_from(given.number()).expect("a status has three digits")
}

pub(super) fn text_template(given: &SpannedValue) -> TextTemplate {
    let Value::TextTemplate(text) = &given.value else { unreachable!("the table requires a text") };
    text.clone()
}

/// Returns the problem of a prefix that is to be taken off, but is not in every pattern.
pub(super) fn check_prefix(given: &SpannedValue, patterns: &[Pattern]) -> Option<Problem> {
    let pattern = patterns.iter().find(|pattern| given.flag() && !pattern.ends_with_rest())?;
    let problem = Problem::new(given.at, format!("`{pattern}` has no prefix to strip"));
    Some(problem.suggest("a pattern with a prefix ends with `/*` or `/{name...}`"))
}
