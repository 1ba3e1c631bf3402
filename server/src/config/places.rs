//! Where settings are written, by their order: what an explanation refers to while the server runs, without the texts.

use super::position::Texts;
use super::settings::Setting;
use super::tree::{Block, Item};
use std::path::{Path, PathBuf};

/// The places of all written settings, each before those of its block.
#[derive(Debug, Default)]
pub(crate) struct Places {
    files: Vec<PathBuf>,
    entries: Vec<WrittenSetting>,
}

/// A written setting.
#[derive(Debug)]
struct WrittenSetting {
    setting: &'static Setting,
    file: u32,
    /// From 1.
    line: u32,
    /// The number of blocks around it.
    depth: u32,
}

/// The file and line of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingLine<'a> {
    pub(crate) file: &'a Path,
    /// From 1.
    pub(crate) line: usize,
}

/// A setting with those of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedSetting<'a> {
    places: &'a Places,
    index: usize,
}

impl Places {
    /// Notes the places of the settings of the top level.
    pub(super) fn of(top: &Block, texts: &Texts) -> Self {
        let mut places = Self { files: texts.files().map(Path::to_owned).collect(), entries: Vec::new() };
        places.add(top, texts, 0);
        places.entries.shrink_to_fit();
        places
    }

    fn add(&mut self, block: &Block, texts: &Texts, depth: u32) {
        // A default has the place of its block, or none.
        let is_written = |item: &&Item| item.at != block.at;
        for item in block.items.iter().filter(is_written) {
            let line = u32::try_from(texts.line(item.at)).unwrap_or(u32::MAX);
            self.entries.push(WrittenSetting { setting: item.setting, file: item.at.file, line, depth });
            item.block.iter().for_each(|block| self.add(block, texts, depth + 1));
        }
    }

    /// Returns the setting of this name and number at the top level, such as the second site. Numbers start at 0.
    pub(crate) fn top(&self, name: &str, number: usize) -> Option<PlacedSetting<'_>> {
        self.nth((0, 0), name, number)
    }

    /// Finds a setting among those of a depth, from an entry on, up to the end of their block.
    fn nth(&self, (first, depth): (usize, u32), name: &str, number: usize) -> Option<PlacedSetting<'_>> {
        let block = self.block((first, depth));
        let mut named = block.filter(|&index| self.entries[index].setting.name == name);
        named.nth(number).map(|index| PlacedSetting { places: self, index })
    }

    /// Returns the entries of a block.
    fn block(&self, (first, depth): (usize, u32)) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate().skip(first);
        let entries = entries.take_while(move |(_, entry)| entry.depth >= depth);
        entries.filter(move |(_, entry)| entry.depth == depth).map(|(index, _)| index)
    }
}

impl<'a> PlacedSetting<'a> {
    /// Returns where the setting is written.
    pub(crate) fn place(self) -> SettingLine<'a> {
        let WrittenSetting { file, line, .. } = self.places.entries[self.index];
        SettingLine { file: &self.places.files[file as usize], line: line as usize }
    }

    /// Returns the setting of this name and number in its block. Numbers start at 0.
    pub(crate) fn inner(self, name: &str, number: usize) -> Option<Self> {
        self.places.nth(self.within(), name, number)
    }

    /// Returns the setting of this number in its block, with any of these names; with any name if the list is empty.
    pub(crate) fn inner_of(self, names: &[&str], number: usize) -> Option<Self> {
        let is_named = |index: &usize| names.is_empty() || names.contains(&self.places.entries[*index].setting.name);
        let mut block = self.places.block(self.within()).filter(is_named);
        block.nth(number).map(|index| Self { index, ..self })
    }

    /// Returns the number of settings of its block with any of these names.
    pub(crate) fn count_of(self, names: &[&str]) -> usize {
        self.places
            .block(self.within())
            .filter(|&index| names.contains(&self.places.entries[index].setting.name))
            .count()
    }

    fn within(self) -> (usize, u32) {
        (self.index + 1, self.places.entries[self.index].depth + 1)
    }
}
