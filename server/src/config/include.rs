//! Reads the files of a configuration.

use super::position::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::settings::BlockKind;
use super::text::{self, Node};
use super::tree::{Block, IncludedLists, Item};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Deepest nesting of includes.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Largest file.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Most included files; those included twice count twice.
const INCLUDES_MAX: usize = 200_000;

/// Whether a pattern may name any number of files.
pub(crate) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

impl Reader<'_> {
    /// Adds the content of included files in place of the `include`.
    pub(super) fn include(&mut self, item: &Item, block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        let is_list = matches!(block.kind, BlockKind::IpAccess | BlockKind::BasicAuth | BlockKind::When);
        let size = |block: &Block| block.items.len() + block.invalid.len();
        let before = size(block);
        for given in &item.arguments {
            if self.include_count > INCLUDES_MAX {
                return;
            }
            let pattern = given.text();
            let base = self.base(given.at).to_owned();
            match self.sources.matching_files(&base, pattern) {
                Ok(files) if files.is_empty() && !has_wildcard(pattern) => {
                    let shown = base.join(pattern);
                    self.problems.push(Problem::new(given.at, format!("no file {}", shown.display())));
                }
                Ok(files) => {
                    files.iter().for_each(|file| self.include_file(file, given.at, block, once));
                    self.matches.insert((base, pattern.to_owned()), files);
                }
                Err(error) => self.problems.push(Problem::new(given.at, format!("`{pattern}`: {error}"))),
            }
        }
        if is_list {
            block.lists = match block.lists {
                IncludedLists::Empty => IncludedLists::Empty,
                _ if size(block) == before => IncludedLists::Empty,
                _ => IncludedLists::Filled,
            };
        }
    }

    fn include_file(&mut self, file: &Path, at: Span, block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        if self.include_stack.iter().any(|open| open == file) {
            let chain: Vec<_> = self.include_stack.iter().map(|open| open.display().to_string()).collect();
            let problem = Problem::new(at, format!("{} includes itself", file.display()));
            self.problems.push(problem.suggest(format!("chain of includes: {}", chain.join(" > "))));
            return;
        }
        self.include_count += 1;
        if self.include_count > INCLUDES_MAX {
            if self.include_count == INCLUDES_MAX + 1 {
                let problem = Problem::new(at, "more than 200,000 files are included");
                self.problems.push(problem.suggest("check for files that include each other repeatedly"));
            }
            return;
        }
        if self.include_stack.len() >= INCLUDE_DEPTH_MAX {
            self.problems.push(Problem::new(at, format!("includes are nested more than {INCLUDE_DEPTH_MAX} deep")));
            return;
        }
        let nodes = match self.files.get(file) {
            Some(nodes) => nodes.clone(),
            None => self.read_file(file, Some(at)),
        };
        if matches!(block.kind, BlockKind::IpAccess | BlockKind::BasicAuth | BlockKind::When) {
            self.lists.insert(file.to_owned());
        }
        if let Some(nodes) = nodes {
            self.include_stack.push(file.to_owned());
            if block.kind == BlockKind::Top {
                self.collect_snippets(&nodes);
            }
            self.add(&nodes, block, once);
            self.include_stack.pop();
        }
    }

    /// Reads and parses a file. `at` is the position of the `include`.
    pub(super) fn read_file(&mut self, file: &Path, at: Option<Span>) -> Option<Rc<[Node]>> {
        let nodes = match self.text_of(file) {
            Ok(text) => {
                let number = self.texts.add(file, Arc::from(text.as_str()));
                Some(Rc::from(text::read(&text, number, &mut self.problems)))
            }
            Err(error) => {
                // Without a position of its own, the problem is reported in an empty text of that name.
                let place = at.unwrap_or_else(|| Span { file: self.texts.add(file, Arc::from("")), ..Span::default() });
                self.problems.push(Problem::new(place, format!("cannot read {}: {error}", file.display())));
                None
            }
        };
        self.files.insert(PathBuf::from(file), nodes.clone());
        nodes
    }

    fn text_of(&self, file: &Path) -> Result<String, String> {
        let text = self.sources.text(file)?;
        if text.len() > FILE_BYTES_MAX { Err("it is larger than 64 MiB".to_owned()) } else { Ok(text) }
    }
}
