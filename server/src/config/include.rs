//! Reads the files that a configuration is made of.

use super::place::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::text::{self, Node};
use super::tree::{Block, Item};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// How deep files may include files.
const DEPTH_MAX: usize = 16;
/// Largest file.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Most files, those that are included twice counted twice.
const INCLUDED_MAX: usize = 200_000;

impl Reader<'_> {
    /// Adds what the files of an `include` say, as if it stood in its place.
    pub(super) fn include(&mut self, item: &Item, block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        for given in &item.arguments {
            if self.included > INCLUDED_MAX {
                return;
            }
            let pattern = given.text();
            let base = self.base(given.at).to_owned();
            let has_wildcard = pattern.contains(['*', '?', '[']);
            match self.sources.matches(&base, pattern) {
                Ok(files) if files.is_empty() && !has_wildcard => {
                    let shown = base.join(pattern);
                    self.problems.push(Problem::new(given.at, format!("there is no file {}", shown.display())));
                }
                Ok(files) => files.iter().for_each(|file| self.include_file(file, given.at, block, once)),
                Err(error) => self.problems.push(Problem::new(given.at, format!("`{pattern}`: {error}"))),
            }
        }
    }

    fn include_file(&mut self, file: &Path, at: Span, block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        if self.stack.iter().any(|open| open == file) {
            let chain: Vec<_> = self.stack.iter().map(|open| open.display().to_string()).collect();
            let problem = Problem::new(at, format!("{} includes itself", file.display()));
            self.problems.push(problem.instead(format!("the way here: {}", chain.join(" > "))));
            return;
        }
        self.included += 1;
        if self.included > INCLUDED_MAX {
            if self.included == INCLUDED_MAX + 1 {
                let problem = Problem::new(at, "more than 200,000 files are included");
                self.problems.push(problem.instead("files may include each other many times over"));
            }
            return;
        }
        if self.stack.len() >= DEPTH_MAX {
            self.problems.push(Problem::new(at, format!("files include files more than {DEPTH_MAX} deep")));
            return;
        }
        let nodes = match self.files.get(file) {
            Some(nodes) => nodes.clone(),
            None => self.read_file(file, Some(at)),
        };
        if let Some(nodes) = nodes {
            self.stack.push(file.to_owned());
            self.add(&nodes, block, once);
            self.stack.pop();
        }
    }

    /// Reads a file and remembers what it says. `at` is what asked for it.
    pub(super) fn read_file(&mut self, file: &Path, at: Option<Span>) -> Option<Rc<[Node]>> {
        let nodes = match self.text_of(file) {
            Ok(text) => {
                let number = self.texts.add(file, Arc::from(text.as_str()));
                Some(Rc::from(text::read(&text, number, &mut self.problems)))
            }
            Err(error) => {
                // Without a place of its own, the problem stands in an empty text of that name.
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
