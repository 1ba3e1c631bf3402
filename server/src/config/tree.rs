//! Items: settings that were checked against the table.
//!
//! Invariant: an item has every argument and property that the table requires, each of the kind in the table, and
//! is in a permitted block.

use super::position::Span;
use super::settings::{BlockKind, Setting};
use super::value::Value;
use std::time::Duration;

/// The settings of one block, with defaults.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) items: Vec<Item>,
    /// Settings with a reported problem.
    pub(super) invalid: Vec<&'static str>,
    pub(super) at: Span,
    pub(super) kind: BlockKind,
    /// What included lists added to it.
    pub(super) lists: IncludedLists,
}

/// What the included lists of a block added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncludedLists {
    /// No list is included.
    None,
    /// Each list has settings.
    Filled,
    /// A list is empty, as when its last entry was removed.
    Empty,
}

/// One setting in force.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) setting: &'static Setting,
    pub(super) arguments: Vec<SpannedValue>,
    pub(super) properties: Vec<(&'static str, SpannedValue)>,
    /// Properties with a reported problem.
    pub(super) invalid: Vec<&'static str>,
    /// Present if the setting has a block in the table, even if none was written.
    pub(super) block: Option<Block>,
    pub(super) at: Span,
    /// Whether a problem was reported within it.
    pub(super) has_problem: bool,
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct SpannedValue {
    pub(super) value: Value,
    pub(super) at: Span,
}

impl Block {
    /// Returns the first item of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        debug_assert!(
            super::settings::find(self.kind, name).is_some(),
            "{name} is not in the table for {:?}",
            self.kind
        );
        self.items.iter().find(|item| item.setting.name == name)
    }

    /// Returns all items of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Item> {
        debug_assert!(
            super::settings::find(self.kind, name).is_some(),
            "{name} is not in the table for {:?}",
            self.kind
        );
        self.items.iter().filter(move |item| item.setting.name == name)
    }

    /// Whether any of these settings was written, even with a problem.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        let is_written = self.items.iter().map(|item| item.setting.name);
        is_written.chain(self.invalid.iter().copied()).any(|is_written| names.contains(&is_written))
    }

    /// Whether a list is included in it or in a block within it, so that its content changes while the server runs.
    pub(super) fn has_list(&self) -> bool {
        let mut blocks = self.items.iter().filter_map(|item| item.block.as_ref());
        self.lists != IncludedLists::None || blocks.any(Self::has_list)
    }

    /// Whether any of these settings was written with a problem.
    pub(super) fn has_any_invalid(&self, names: &[&str]) -> bool {
        self.invalid.iter().any(|invalid| names.contains(invalid))
    }

    /// Returns the item of a setting that has a default.
    pub(super) fn item(&self, name: &str) -> &Item {
        self.get(name).expect("the table has a default for it")
    }
}

impl Item {
    /// Returns the first argument.
    pub(super) fn first(&self) -> &SpannedValue {
        self.arguments.first().expect("an item has the arguments of the table")
    }

    /// Returns a property that was written or has a default.
    pub(super) fn property(&self, name: &str) -> Option<&SpannedValue> {
        debug_assert!(self.setting.property(name).is_some(), "{name} is not in the table");
        self.properties.iter().find(|(known, _)| *known == name).map(|(_, given)| given)
    }

    /// Returns a property that has a default.
    pub(super) fn required(&self, name: &str) -> &SpannedValue {
        self.property(name).expect("the table has a default for it")
    }

    /// Returns the block.
    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("the table gives it a block")
    }
}

/// Typed access where the table guarantees the kind.
impl SpannedValue {
    pub(super) fn flag(&self) -> bool {
        let Value::Flag(flag) = self.value else { unreachable!("the table requires a flag") };
        flag
    }

    pub(super) fn number(&self) -> u64 {
        let Value::Number(number) = self.value else { unreachable!("the table requires a number") };
        number
    }

    pub(super) fn time(&self) -> Duration {
        let Value::Time(time) = self.value else { unreachable!("the table requires a time") };
        time
    }

    pub(super) fn ratio(&self) -> f64 {
        let Value::Ratio(ratio) = self.value else { unreachable!("the table requires a ratio") };
        ratio
    }

    pub(super) fn text(&self) -> &str {
        let Value::Text(text) = &self.value else { unreachable!("the table requires a text") };
        text
    }

    pub(super) fn path(&self) -> &std::path::Path {
        let Value::Path(path) = &self.value else { unreachable!("the table requires a path") };
        path
    }
}
