//! Holds nodes to the table: makes items of them, or problems.

use super::nearest::suggestion;
use super::place::{Span, Texts};
use super::problem::Problem;
use super::settings::{self, Count, Default, Place, Setting, Times};
use super::text::{Entry, Node, Scalar};
use super::tree::{Block, Given, Item};
use super::value::{self, Kind, Value};
use super::{Sources, variable};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Most settings, those of a file that is included twice counted twice.
const ITEMS_MAX: usize = 4_000_000;

/// Most mistakes of one line that are noted.
const MISTAKES_MAX: usize = 8;

/// A value of which any text is taken here, since only the room that it is meant for can tell
/// what it may be.
#[derive(Debug)]
pub(crate) struct Passage {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) at: Span,
}

/// Reads a configuration's files.
pub(super) struct Reader<'a> {
    pub(super) sources: &'a dyn Sources,
    pub(super) texts: Texts,
    pub(super) problems: Vec<Problem>,
    pub(super) passages: Vec<Passage>,
    /// What was read already, so that a file that many sites include is read once.
    pub(super) files: HashMap<PathBuf, Option<Rc<[Node]>>>,
    /// The files whose includes led here.
    pub(super) stack: Vec<PathBuf>,
    pub(super) items: usize,
    /// How many files were included, those that were included twice counted twice.
    pub(super) included: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(sources: &'a dyn Sources) -> Self {
        Self {
            sources,
            texts: Texts::default(),
            problems: Vec::new(),
            passages: Vec::new(),
            files: HashMap::new(),
            stack: Vec::new(),
            items: 0,
            included: 0,
        }
    }

    /// The items of a place, with defaults for what is not said.
    pub(super) fn block(&mut self, place: Place, nodes: &[Node], at: Span) -> Block {
        let mut block = Block { items: Vec::new(), broken: Vec::new(), at, place };
        let mut once = Vec::new();
        self.add(nodes, &mut block, &mut once);
        for setting in settings::of(place) {
            if let Default::Text(text) = setting.default
                && block.get(setting.name).is_none()
            {
                let item = self.default_item(setting, text, at);
                block.items.push(item);
            }
        }
        block
    }

    /// Adds what nodes say. `once` has what may stand once and stood already.
    pub(super) fn add(&mut self, nodes: &[Node], block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        for node in nodes {
            self.items += 1;
            if self.items > ITEMS_MAX {
                if self.items == ITEMS_MAX + 1 {
                    self.problems.push(
                        Problem::new(node.at, "more than 4,000,000 settings")
                            .instead("a file may include itself many times over"),
                    );
                }
                return;
            }
            let Some(setting) = settings::find(block.place, &node.name) else {
                self.problems.push(unknown(node, block.place));
                continue;
            };
            if setting.times == Times::Once {
                match once.iter().find(|(name, _)| *name == setting.name) {
                    Some(&(name, first)) => {
                        let problem =
                            Problem::new(node.name_at, format!("`{name}` a second time in {}", block.place.name()));
                        self.problems.push(problem.beside(first, "the first").instead("one of them has to go"));
                        continue;
                    }
                    None => once.push((setting.name, node.name_at)),
                }
            }
            match self.item(setting, node) {
                Some(item) if setting.name == "include" => self.include(&item, block, once),
                Some(item) => block.items.push(item),
                None => block.broken.push(setting.name),
            }
        }
    }

    fn item(&mut self, setting: &'static Setting, node: &Node) -> Option<Item> {
        let before = self.problems.len();
        let mut arguments = Vec::with_capacity(setting.arguments.len());
        let mut properties: Vec<(&'static str, Given)> = Vec::with_capacity(setting.properties.len());
        let mut broken = Vec::new();
        // What cannot be read has been noted; its braces are judged all the same.
        let entries = node.entries.as_deref().unwrap_or_default();
        for entry in entries {
            if self.problems.len() > before + MISTAKES_MAX {
                break;
            }
            match &entry.name {
                None => match argument_kind(setting, arguments.len()) {
                    // An argument that is wrong still takes its place, so that the next ones keep theirs.
                    Some(kind) => arguments.push(self.given(kind, entry)),
                    None => self.problems.push(too_many(setting, entry)),
                },
                Some(name) => {
                    let Some(property) = setting.property(name) else {
                        self.problems.push(unknown_property(setting, name, entry));
                        continue;
                    };
                    match self.given(property.kind, entry) {
                        Some(_) if properties.iter().any(|(known, _)| known == name) => {
                            let problem = Problem::new(entry.at, format!("`{name}` a second time"));
                            self.problems.push(problem.instead("one of them has to go"));
                        }
                        Some(given) => properties.push((property.name, given)),
                        None => broken.push(property.name),
                    }
                }
            }
        }
        let needed = setting.arguments.iter().filter(|argument| argument.count != Count::Optional).count();
        let is_read = node.entries.is_some();
        if arguments.len() < needed && is_read && self.problems.len() == before {
            let missing = &setting.arguments[arguments.len()];
            let problem = Problem::new(node.at, format!("`{}` without {}", setting.name, missing.kind.name()));
            self.problems.push(problem.instead(format!("write `{}`", shape(setting))));
        }
        let children = match (setting.inside, &node.children) {
            (Some(place), nodes) => Some(self.block(place, nodes.as_deref().unwrap_or_default(), node.at)),
            (None, Some(_)) => {
                self.problems.push(
                    Problem::new(node.at, format!("`{}` has no braces", setting.name))
                        .instead(format!("write `{}`", shape(setting))),
                );
                None
            }
            (None, None) => None,
        };
        self.add_default_properties(setting, node.at, &mut properties);
        // Of a list, what can be read is kept, so that what the braces hold is judged in full.
        let is_list = setting.arguments.last().is_some_and(|last| last.count == Count::OneOrMore);
        let written = arguments.len();
        let arguments: Vec<_> = arguments.into_iter().flatten().collect();
        let is_usable = match setting.inside {
            Some(_) => is_list || (arguments.len() == written && written >= needed),
            None => is_read && self.problems.len() == before,
        };
        is_usable.then_some(Item { setting, arguments, properties, broken, children, at: node.at })
    }

    fn given(&mut self, kind: Kind, entry: &Entry) -> Option<Given> {
        let at = entry.value_at;
        let read = match &entry.scalar {
            Scalar::Text(text) if text.contains("${") => match variable::expand(text, self.sources) {
                Ok(text) => value::read(kind, &Scalar::Text(text), self.base(at)),
                Err(wrong) => Err(wrong),
            },
            scalar => value::read(kind, scalar, self.base(at)),
        };
        match read {
            Ok(value) => {
                if let (Kind::LogFormat | Kind::PasswordHash, Value::Text(text)) = (kind, &value) {
                    self.passages.push(Passage { kind, text: text.clone(), at });
                }
                Some(Given { value, at })
            }
            Err(wrong) => {
                self.problems.push(Problem::new(at, wrong.what).instead(wrong.instead));
                None
            }
        }
    }

    /// Where relative paths of a file begin.
    pub(super) fn base(&self, at: Span) -> &Path {
        self.texts.path(at.file).parent().unwrap_or(Path::new(""))
    }

    /// What holds when a setting is not said.
    fn default_item(&mut self, setting: &'static Setting, text: &str, at: Span) -> Item {
        let kind = setting.arguments.first().expect("what has a default has an argument").kind;
        let arguments = vec![self.default_value(kind, text, at)];
        let mut properties = Vec::new();
        self.add_default_properties(setting, at, &mut properties);
        let children = setting.inside.map(|place| self.block(place, &[], at));
        Item { setting, arguments, properties, broken: Vec::new(), children, at }
    }

    fn add_default_properties(&self, setting: &'static Setting, at: Span, properties: &mut Vec<(&'static str, Given)>) {
        for property in setting.properties {
            if let Default::Text(text) = property.default
                && !properties.iter().any(|(name, _)| *name == property.name)
            {
                properties.push((property.name, self.default_value(property.kind, text, at)));
            }
        }
    }

    fn default_value(&self, kind: Kind, text: &str, at: Span) -> Given {
        // Paths that are defaults begin at the file that was named, not at an included one.
        let base = if self.texts.is_empty() { Path::new("") } else { self.base(Span::default()) };
        let scalar = match text {
            "#true" => Scalar::Flag(true),
            "#false" => Scalar::Flag(false),
            text => Scalar::Text(text.to_owned()),
        };
        let value = value::read(kind, &scalar, base).expect("the defaults of the table are of their kinds");
        Given { value, at }
    }
}

/// The kind of an argument at a place in the line.
fn argument_kind(setting: &Setting, position: usize) -> Option<Kind> {
    match setting.arguments.get(position) {
        Some(argument) => Some(argument.kind),
        None => setting.arguments.last().filter(|last| last.count == Count::OneOrMore).map(|last| last.kind),
    }
}

/// How a setting is written, for whoever got it wrong.
pub(super) fn shape(setting: &Setting) -> String {
    let mut shape = setting.name.to_owned();
    for argument in setting.arguments {
        let name = argument.name.to_uppercase();
        shape += &match argument.count {
            Count::One => format!(" {name}"),
            Count::Optional => format!(" [{name}]"),
            Count::OneOrMore => format!(" {name}..."),
        };
    }
    for property in setting.properties {
        shape += &format!(" [{}=...]", property.name);
    }
    if setting.inside.is_some() {
        shape += " { ... }";
    }
    shape
}

fn unknown(node: &Node, place: Place) -> Problem {
    let what = format!("`{}` is not known in {}", node.name.escape_debug(), place.name());
    let elsewhere: Vec<_> =
        settings::all().filter(|setting| setting.name == node.name).flat_map(|setting| setting.places).collect();
    let instead = if !elsewhere.is_empty() {
        let places: Vec<_> = elsewhere.iter().map(|place| place.name()).collect();
        format!("it stands in {}", places.join(", "))
    } else if let Some(owner) = settings::of(place).find(|setting| setting.property(&node.name).is_some()) {
        format!("it is a property: `{} ... {}=...`", owner.name, node.name)
    } else {
        suggestion(&node.name, settings::of(place).map(|setting| setting.name))
    };
    Problem::new(node.name_at, what).instead(instead)
}

fn unknown_property(setting: &Setting, name: &str, entry: &Entry) -> Problem {
    let what = format!("`{}` has no property `{}`", setting.name, name.escape_debug());
    let instead = match setting.inside {
        Some(place) if settings::find(place, name).is_some() => {
            format!("it stands in the braces: `{} {{ {name} ... }}`", setting.name)
        }
        _ if setting.properties.is_empty() => format!("write `{}`", shape(setting)),
        _ => suggestion(name, setting.properties.iter().map(|property| property.name)),
    };
    Problem::new(entry.at, what).instead(instead)
}

fn too_many(setting: &Setting, entry: &Entry) -> Problem {
    Problem::new(entry.at, format!("one value too many for `{}`", setting.name))
        .instead(format!("write `{}`", shape(setting)))
}
