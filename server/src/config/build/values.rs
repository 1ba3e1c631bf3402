//! Values whose kind the table requires.

use crate::config::tree::SpannedValue;
use crate::config::value::Value;
use crate::syntax::Pattern;

pub(super) fn pattern(given: &SpannedValue) -> Pattern {
    let Value::Pattern(pattern) = &given.value else { unreachable!("the table requires a pattern") };
    pattern.clone()
}

pub(super) fn status(given: &SpannedValue) -> u16 {
    u16::try_from(given.number()).expect("a status has three digits")
}
