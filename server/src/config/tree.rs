//! From nodes to items that the table knows: names, arguments, properties, defaults.
//!
//! Invariant: what leaves this room has every argument and property that the table asks for,
//! each of the kind that the table says, and stands where it may stand.

use super::place::Span;
use super::settings::{Place, Setting};
use super::value::Value;
use std::time::Duration;

/// The settings of one place, with the defaults of those that were not said.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) items: Vec<Item>,
    /// What was said and is wrong, which has been noted.
    pub(super) broken: Vec<&'static str>,
    pub(super) at: Span,
    pub(super) place: Place,
}

/// One setting as it is in force.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) setting: &'static Setting,
    pub(super) arguments: Vec<Given>,
    pub(super) properties: Vec<(&'static str, Given)>,
    /// Properties that were said and are wrong, which has been noted.
    pub(super) broken: Vec<&'static str>,
    /// There always is one when the setting has braces, also when none were written.
    pub(super) children: Option<Block>,
    pub(super) at: Span,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) at: Span,
}

impl Block {
    /// The first item of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        debug_assert!(
            super::settings::find(self.place, name).is_some(),
            "{name} is not in the table for {:?}",
            self.place
        );
        self.items.iter().find(|item| item.setting.name == name)
    }

    /// All items of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Item> {
        debug_assert!(
            super::settings::find(self.place, name).is_some(),
            "{name} is not in the table for {:?}",
            self.place
        );
        self.items.iter().filter(move |item| item.setting.name == name)
    }

    /// Whether any of these was said, be it wrong.
    pub(super) fn says_any(&self, names: &[&str]) -> bool {
        let said = self.items.iter().map(|item| item.setting.name);
        said.chain(self.broken.iter().copied()).any(|said| names.contains(&said))
    }

    /// The item of a setting that has a default.
    pub(super) fn one(&self, name: &str) -> &Item {
        self.get(name).expect("the table has a default for it")
    }
}

impl Item {
    /// The first argument.
    pub(super) fn first(&self) -> &Given {
        self.arguments.first().expect("an item has the arguments that the table asks for")
    }

    /// A property that was said or has a default.
    pub(super) fn property(&self, name: &str) -> Option<&Given> {
        debug_assert!(self.setting.property(name).is_some(), "{name} is not in the table");
        self.properties.iter().find(|(known, _)| *known == name).map(|(_, given)| given)
    }

    /// A property that has a default.
    pub(super) fn the(&self, name: &str) -> &Given {
        self.property(name).expect("the table has a default for it")
    }

    /// Its braces.
    pub(super) fn inside(&self) -> &Block {
        self.children.as_ref().expect("the table says that it has braces")
    }
}

/// What a value is, where the table leaves no doubt.
impl Given {
    pub(super) fn flag(&self) -> bool {
        let Value::Flag(flag) = self.value else { unreachable!("the table says that it is a flag") };
        flag
    }

    pub(super) fn number(&self) -> u64 {
        let Value::Number(number) = self.value else { unreachable!("the table says that it is a number") };
        number
    }

    pub(super) fn time(&self) -> Duration {
        let Value::Time(time) = self.value else { unreachable!("the table says that it is a time") };
        time
    }

    pub(super) fn text(&self) -> &str {
        let Value::Text(text) = &self.value else { unreachable!("the table says that it is a text") };
        text
    }

    pub(super) fn path(&self) -> &std::path::Path {
        let Value::Path(path) = &self.value else { unreachable!("the table says that it is a path") };
        path
    }
}
