//! Reads `snippet` and `use`.

use super::position::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::snippet::{DEPTH_MAX, Snippet};
use super::suggest::suggestion;
use super::text::{Entry, Node, Scalar};
use super::tree::Block;
use std::collections::HashMap;
use std::rc::Rc;

impl Reader<'_> {
    /// Collects the snippets among the nodes of the top level, so that they can be used before their place.
    pub(super) fn collect_snippets(&mut self, nodes: &[Node]) {
        for node in nodes.iter().filter(|node| node.name == "snippet") {
            let Some(entries) = &node.entries else { continue };
            let (name, nodes) = match (entries.as_slice(), &node.children) {
                ([Entry { name: None, scalar: Scalar::Text(name), .. }], Some(nodes)) => (name.clone(), nodes.clone()),
                _ => {
                    let problem = Problem::new(node.at, "a snippet has a name and a block");
                    self.problems.push(problem.suggest("write `snippet NAME { ... }`"));
                    continue;
                }
            };
            if let Some(first) = self.snippets.known.get(&name) {
                let problem = Problem::new(node.at, format!("snippet `{}` is repeated", name.escape_debug()));
                self.problems.push(problem.see_also(first.at, "the first one").suggest("choose another name"));
                continue;
            }
            let snippet = Snippet { name: name.clone(), nodes, at: node.at, is_used: std::cell::Cell::new(false) };
            self.snippets.known.insert(name, Rc::new(snippet));
        }
    }

    /// Adds the settings of a snippet in place of a `use`.
    pub(super) fn use_snippet(&mut self, node: &Node, block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        let Some(entries) = &node.entries else { return };
        if node.children.is_some() {
            let problem = Problem::new(node.at, "`use` takes no block");
            self.problems.push(problem.suggest("write `use NAME VARIABLE=VALUE`"));
            return;
        }
        let [Entry { name: None, scalar: Scalar::Text(name), value_at, .. }, values @ ..] = entries.as_slice() else {
            let problem = Problem::new(node.at, "`use` needs the name of a snippet");
            self.problems.push(problem.suggest("write `use NAME VARIABLE=VALUE`"));
            return;
        };
        let Some(snippet) = self.snippets.known.get(name).cloned() else {
            let problem = Problem::new(*value_at, format!("no snippet `{}`", name.escape_debug()));
            let known: Vec<&str> = self.snippets.known.keys().map(String::as_str).collect();
            let instead = match known.is_empty() {
                true => "write `snippet NAME { ... }` at the top".to_owned(),
                false => suggestion(name, known.into_iter()),
            };
            self.problems.push(problem.suggest(instead));
            return;
        };
        snippet.is_used.set(true);
        let is_open = self.snippets.stack.iter().any(|(open, _)| Rc::ptr_eq(open, &snippet));
        if is_open || self.snippets.stack.len() == DEPTH_MAX {
            let problem = Problem::new(*value_at, format!("snippet `{}` uses itself", name.escape_debug()));
            self.problems.push(problem.suggest("remove this `use`"));
            return;
        }
        let values = self.values_of_use(values, &snippet);
        self.snippets.stack.push((snippet.clone(), values));
        self.add(&snippet.nodes, block, once);
        self.snippets.stack.pop();
    }

    fn values_of_use(&mut self, entries: &[Entry], snippet: &Snippet) -> HashMap<String, String> {
        let mut values = HashMap::new();
        for entry in entries {
            let Some(name) = &entry.name else {
                let problem = Problem::new(entry.at, "a value without a name");
                self.problems.push(problem.suggest("write VARIABLE=VALUE"));
                continue;
            };
            if !snippet.nodes.iter().any(|node| mentions(node, name)) {
                let what = format!("snippet `{}` has no `${{{}}}`", snippet.name.escape_debug(), name.escape_debug());
                self.problems.push(Problem::new(entry.at, what).suggest("the value has no effect; remove it"));
                continue;
            }
            let text = match &entry.scalar {
                Scalar::Text(text) => match self.expand(text) {
                    Ok(text) => text,
                    Err(error) => {
                        self.problems.push(Problem::new(entry.value_at, error.message).suggest(error.suggestion));
                        continue;
                    }
                },
                Scalar::Integer(number) => number.to_string(),
                Scalar::Float(number) => number.to_string(),
                Scalar::Flag(flag) => flag.to_string(),
                Scalar::Null => String::new(),
            };
            if values.insert(name.clone(), text).is_some() {
                let problem = Problem::new(entry.at, format!("`{}` is repeated", name.escape_debug()));
                self.problems.push(problem.suggest("remove one of them"));
            }
        }
        values
    }
}

/// Whether a node or one beneath it has a variable.
fn mentions(node: &Node, variable: &str) -> bool {
    let is_it =
        |rest: &str| rest.strip_prefix(variable).is_some_and(|rest| rest.starts_with('}') || rest.starts_with(":-"));
    let has = |scalar: &Scalar| matches!(scalar, Scalar::Text(text) if text.split("${").skip(1).any(is_it));
    let in_entries = node.entries.iter().flatten().any(|entry| has(&entry.scalar));
    in_entries || node.children.iter().flatten().any(|child| mentions(child, variable))
}
