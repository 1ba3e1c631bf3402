//! Checks nodes against the table of settings, and makes items or problems of them.

use super::environment_variable;
use super::foreign_words;
use super::position::{Span, Texts};
use super::problem::Problem;
use super::settings::{self, Arity, BlockKind, DefaultValue, Repeat, Setting};
use super::snippet::Snippets;
use super::sources::Sources;
use super::suggest::{new_name, suggestion};
use super::text::{Entry, Node, Scalar};
use super::tree::{Block, IncludedLists, Item, SpannedValue};
use super::value::{self, Value, ValueError, ValueKind};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where a system has its configuration.
const FOLDER_OF_SYSTEM: &str = "/etc/selvedge";

/// Most settings; those of a file that is included twice count twice.
const ITEMS_MAX: usize = 4_000_000;

/// Most mistakes that are reported for one line.
const MISTAKES_MAX: usize = 8;

/// A value that only the module that uses it can check, such as a log format.
#[derive(Debug)]
pub(crate) struct RawValue {
    pub(crate) kind: ValueKind,
    pub(crate) text: String,
    pub(crate) at: Span,
}

/// Reads the files of a configuration.
pub(super) struct Reader<'a> {
    pub(super) sources: &'a dyn Sources,
    pub(super) texts: Texts,
    pub(super) problems: Vec<Problem>,
    pub(super) raw_values: Vec<RawValue>,
    /// Files that were read, so that a file that many sites include is read once.
    pub(super) files: HashMap<PathBuf, Option<Rc<[Node]>>>,
    /// The chain of includes that led here.
    pub(super) include_stack: Vec<PathBuf>,
    pub(super) item_count: usize,
    pub(super) snippets: Snippets,
    /// Files that were included; those included twice count twice.
    pub(super) include_count: usize,
    /// Files that were included in a list of networks or users.
    pub(super) lists: BTreeSet<PathBuf>,
    /// The files that patterns named, by folder and pattern.
    pub(super) matches: HashMap<(PathBuf, String), Vec<PathBuf>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(sources: &'a dyn Sources) -> Self {
        Self {
            sources,
            texts: Texts::default(),
            problems: Vec::new(),
            raw_values: Vec::new(),
            files: HashMap::new(),
            include_stack: Vec::new(),
            item_count: 0,
            snippets: Snippets::default(),
            include_count: 0,
            lists: BTreeSet::new(),
            matches: HashMap::new(),
        }
    }

    /// Returns the items of a block, with defaults.
    pub(super) fn block(&mut self, place: BlockKind, nodes: &[Node], at: Span) -> Block {
        let mut block = Block { items: Vec::new(), invalid: Vec::new(), at, kind: place, lists: IncludedLists::None };
        let mut once = Vec::new();
        self.add(nodes, &mut block, &mut once);
        for setting in settings::in_block(place) {
            if let DefaultValue::Text(text) = setting.default
                && block.get(setting.name).is_none()
            {
                let item = self.default_item(setting, text, at);
                block.items.push(item);
            }
        }
        block
    }

    /// Adds the items of nodes. `once` contains the settings that must not be repeated and were set.
    pub(super) fn add(&mut self, nodes: &[Node], block: &mut Block, once: &mut Vec<(&'static str, Span)>) {
        for node in nodes {
            self.item_count += 1;
            if self.item_count > ITEMS_MAX {
                if self.item_count == ITEMS_MAX + 1 {
                    self.problems.push(
                        Problem::new(node.at, "more than 4,000,000 settings")
                            .suggest("check for a file that is included many times"),
                    );
                }
                return;
            }
            let Some(setting) = settings::find(block.kind, &node.name) else {
                self.problems.push(unknown_setting(node, block.kind));
                continue;
            };
            match setting.name {
                // They are collected before.
                "snippet" => continue,
                "use" => {
                    self.use_snippet(node, block, once);
                    continue;
                }
                _ => {}
            }
            if setting.repeat == Repeat::Once {
                match once.iter().find(|(name, _)| *name == setting.name) {
                    Some(&(name, first)) => {
                        let problem =
                            Problem::new(node.name_at, format!("`{name}` is repeated in {}", block.kind.name()));
                        self.problems.push(problem.see_also(first, "the first one").suggest("remove one of them"));
                        continue;
                    }
                    None => once.push((setting.name, node.name_at)),
                }
            }
            match self.read_item(setting, node) {
                Some(item) if setting.name == "include" => self.include(&item, block, once),
                Some(item) => block.items.push(item),
                None => block.invalid.push(setting.name),
            }
        }
    }

    fn read_item(&mut self, setting: &'static Setting, node: &Node) -> Option<Item> {
        let before = self.problems.len();
        if let Some(problem) = self.block_without_braces(setting, node) {
            self.problems.push(problem);
            return None;
        }
        let mut arguments = Vec::with_capacity(setting.arguments.len());
        let mut properties: Vec<(&'static str, SpannedValue)> = Vec::with_capacity(setting.properties.len());
        let mut invalid = Vec::new();
        // Invalid entries have been reported; the block is checked nonetheless.
        let entries = node.entries.as_deref().unwrap_or_default();
        for entry in entries {
            if self.problems.len() > before + MISTAKES_MAX {
                break;
            }
            match &entry.name {
                None => match argument_kind(setting, arguments.len()) {
                    Some(kind) if is_list_at(setting, arguments.len()) && is_variable(entry) => {
                        let entries = self.entries_of_variable(entry);
                        arguments.extend(entries.iter().map(|entry| self.read_entry(kind, entry)));
                    }
                    // An invalid argument still occupies its position.
                    Some(kind) => arguments.push(self.read_entry(kind, entry)),
                    None => self.problems.push(too_many_values(setting, entry)),
                },
                Some(name) => {
                    let Some(property) = setting.property(name) else {
                        self.problems.push(unknown_property(setting, name, entry));
                        continue;
                    };
                    match self.read_entry(property.kind, entry) {
                        Some(_) if properties.iter().any(|(known, _)| known == name) => {
                            let problem = Problem::new(entry.at, format!("property `{name}` is repeated"));
                            self.problems.push(problem.suggest("remove one of them"));
                        }
                        Some(given) => properties.push((property.name, given)),
                        None => invalid.push(property.name),
                    }
                }
            }
        }
        let needed = setting.arguments.iter().filter(|argument| !argument.arity.is_optional()).count();
        let is_read = node.entries.is_some();
        if arguments.len() < needed && is_read && self.problems.len() == before {
            let missing = &setting.arguments[arguments.len()];
            let problem = Problem::new(node.at, format!("`{}` needs {}", setting.name, missing.kind.name()));
            self.problems.push(problem.suggest(format!("write `{}`", syntax(setting))));
        }
        let children = match (setting.block, &node.children) {
            (Some(place), nodes) => Some(self.block(place, nodes.as_deref().unwrap_or_default(), node.at)),
            (None, Some(_)) => {
                self.problems.push(
                    Problem::new(node.at, format!("`{}` takes no block", setting.name))
                        .suggest(format!("write `{}`", syntax(setting))),
                );
                None
            }
            (None, None) => None,
        };
        self.add_default_properties(setting, node.at, &mut properties);
        // Valid elements of a list are kept, so that the block is checked in full.
        let is_list = setting.arguments.last().is_some_and(|last| last.arity.is_list());
        let written = arguments.len();
        let arguments: Vec<_> = arguments.into_iter().flatten().collect();
        let is_usable = match setting.block {
            Some(_) => is_list || (arguments.len() == written && written >= needed),
            None => is_read && self.problems.len() == before,
        };
        let has_problem = node.has_problem || self.problems.len() > before;
        is_usable.then_some(Item { setting, arguments, properties, invalid, block: children, at: node.at, has_problem })
    }

    /// Returns the problem of a setting whose values are a setting of its block, as in `not client "10.0.0.1"`.
    fn block_without_braces(&self, setting: &Setting, node: &Node) -> Option<Problem> {
        let place = setting.block.filter(|_| setting.arguments.is_empty() && node.children.is_none())?;
        let entries = node.entries.as_deref()?;
        let [Entry { name: None, scalar: Scalar::Text(inner), at, .. }, ..] = entries else { return None };
        settings::find(place, inner)?;
        let written = self.texts.within(Span { end: node.at.end, ..*at });
        let problem = Problem::new(*at, format!("`{inner}` belongs in the block of `{}`", setting.name));
        Some(problem.suggest(format!("write `{} {{ {written}; }}`", setting.name)))
    }

    fn read_entry(&mut self, kind: ValueKind, entry: &Entry) -> Option<SpannedValue> {
        let at = entry.value_at;
        let read = match &entry.scalar {
            Scalar::Text(text) if text.contains("${") => match self.expand(text) {
                Ok(text) => value::read(kind, &environment_variable::as_scalar(kind, text), self.base(at)),
                Err(error) => Err(error),
            },
            scalar => value::read(kind, scalar, self.base(at)),
        };
        match read {
            Ok(value) => {
                if let (ValueKind::LogFormat | ValueKind::PasswordHash, Value::Text(text)) = (kind, &value) {
                    self.raw_values.push(RawValue { kind, text: text.clone(), at });
                }
                Some(SpannedValue { value, at })
            }
            Err(error) => {
                self.problems.push(Problem::new(at, error.message).suggest(error.suggestion));
                None
            }
        }
    }

    /// Replaces the variables of a text: those of the current snippet, then those of the environment.
    pub(super) fn expand(&self, text: &str) -> Result<String, ValueError> {
        let variable = |name: &str| self.snippets.variable(name).or_else(|| self.sources.variable(name));
        environment_variable::expand(text, &variable).map_err(|error| match self.snippets.is_within() {
            true => ValueError { suggestion: format!("{}, or give it to `use`", error.suggestion), ..error },
            false => error,
        })
    }

    /// Returns one entry for each word of a variable, which stands alone in a list.
    fn entries_of_variable(&self, entry: &Entry) -> Vec<Entry> {
        let Scalar::Text(text) = &entry.scalar else { return vec![entry.clone()] };
        match self.expand(text) {
            Ok(value) if value.split_whitespace().nth(1).is_some() => {
                // `$${` is a literal `${`.
                let word = |word: &str| Scalar::Text(word.replace("${", "$${"));
                value.split_whitespace().map(|text| Entry { scalar: word(text), ..entry.clone() }).collect()
            }
            // The reader of the value reports the error.
            _ => vec![entry.clone()],
        }
    }

    /// Returns the folder at which relative paths of a file start.
    pub(super) fn base(&self, at: Span) -> &Path {
        self.texts.path(at.file).parent().unwrap_or(Path::new(""))
    }

    /// Whether the configuration is that of a system. Its folder is for settings only, so sockets and certificates have
    /// other folders.
    pub(super) fn is_of_system(&self) -> bool {
        !self.texts.is_empty() && self.base(Span::default()) == Path::new(FOLDER_OF_SYSTEM)
    }

    /// Returns the default item of a setting.
    fn default_item(&mut self, setting: &'static Setting, text: &str, at: Span) -> Item {
        let kind = setting.arguments.first().expect("a setting with a default has an argument").kind;
        let arguments = vec![self.default_value(kind, text, at)];
        let mut properties = Vec::new();
        self.add_default_properties(setting, at, &mut properties);
        let children = setting.block.map(|place| self.block(place, &[], at));
        Item { setting, arguments, properties, invalid: Vec::new(), block: children, at, has_problem: false }
    }

    fn add_default_properties(
        &self,
        setting: &'static Setting,
        at: Span,
        properties: &mut Vec<(&'static str, SpannedValue)>,
    ) {
        for property in setting.properties {
            if let DefaultValue::Text(text) = property.default
                && !properties.iter().any(|(name, _)| *name == property.name)
            {
                properties.push((property.name, self.default_value(property.kind, text, at)));
            }
        }
    }

    fn default_value(&self, kind: ValueKind, text: &str, at: Span) -> SpannedValue {
        // Default paths start at the main file, not at an included one.
        let base = if self.texts.is_empty() { Path::new("") } else { self.base(Span::default()) };
        let scalar = match text {
            "#true" => Scalar::Flag(true),
            "#false" => Scalar::Flag(false),
            text => Scalar::Text(text.to_owned()),
        };
        let value = value::read(kind, &scalar, base).expect("each default of the table has its kind");
        SpannedValue { value, at }
    }
}

/// Returns the kind of an argument by its position.
fn argument_kind(setting: &Setting, position: usize) -> Option<ValueKind> {
    match setting.arguments.get(position) {
        Some(argument) => Some(argument.kind),
        None => setting.arguments.last().filter(|last| last.arity.is_list()).map(|last| last.kind),
    }
}

/// Whether the argument at a position may be repeated.
fn is_list_at(setting: &Setting, position: usize) -> bool {
    position + 1 >= setting.arguments.len() && setting.arguments.last().is_some_and(|last| last.arity.is_list())
}

/// Whether an entry is one variable of the environment.
fn is_variable(entry: &Entry) -> bool {
    matches!(&entry.scalar, Scalar::Text(text) if environment_variable::is_alone(text))
}

/// Returns how a setting is written, for messages.
pub(super) fn syntax(setting: &Setting) -> String {
    let mut shape = setting.name.to_owned();
    for argument in setting.arguments {
        let name = argument.name.to_uppercase();
        shape += &match argument.arity {
            Arity::One => format!(" {name}"),
            Arity::Optional => format!(" [{name}]"),
            Arity::OneOrMore => format!(" {name}..."),
            Arity::ZeroOrMore => format!(" [{name}...]"),
        };
    }
    for property in setting.properties {
        shape += &format!(" [{}=...]", property.name);
    }
    if setting.block.is_some() {
        shape += " { ... }";
    }
    shape
}

fn unknown_setting(node: &Node, place: BlockKind) -> Problem {
    let what = format!("`{}` is not known in {}", node.name.escape_debug(), place.name());
    let elsewhere: Vec<_> =
        settings::all().filter(|setting| setting.name == node.name).flat_map(|setting| setting.blocks).collect();
    let of_action = settings::in_block(place)
        .find(|setting| settings::ACTIONS.contains(&setting.name) && setting.property(&node.name).is_some());
    let opener = settings::all().find(|setting| setting.block == Some(place));
    let is_above_blocks = matches!(place, BlockKind::Top | BlockKind::Site);
    let instead = if let Some(words) = foreign_words::in_block(&node.name, place) {
        words.to_owned()
    } else if let Some(words) = foreign_words::suggestion(&node.name, place).filter(|_| is_above_blocks) {
        words
    } else if let Some(opener) = opener.filter(|opener| opener.property(&node.name).is_some()) {
        format!("it is a property: `{} ... {}=...`", opener.name, node.name)
    } else if let Some(action) = of_action {
        format!("it is a property: `{} {}=...`", action.name, node.name)
    } else if !elsewhere.is_empty() {
        let places: Vec<_> = elsewhere.iter().map(|place| place.name()).collect();
        format!("it belongs in {}", places.join(", "))
    } else if let Some(owner) = settings::in_block(place).find(|setting| setting.property(&node.name).is_some()) {
        format!("it is a property: `{} ... {}=...`", owner.name, node.name)
    } else if let Some(words) = foreign_words::suggestion(&node.name, place) {
        words
    } else if place == BlockKind::Top && is_host_like(&node.name) && node.children.is_some() {
        format!("a site begins with `site`: `site \"{}\" {{ ... }}`", node.name.escape_debug())
    } else if let Some(new) = new_name(&node.name) {
        format!("it was renamed to `{new}`")
    } else {
        suggestion(&node.name, settings::in_block(place).map(|setting| setting.name))
    };
    Problem::new(node.name_at, what).suggest(instead)
}

/// Whether a name looks like a host, which is the name of a block elsewhere.
fn is_host_like(name: &str) -> bool {
    name.contains('.') || name.contains('*') || name.starts_with(':') || name == "localhost"
}

fn unknown_property(setting: &Setting, name: &str, entry: &Entry) -> Problem {
    let what = format!("`{}` has no property `{}`", setting.name, name.escape_debug());
    let instead = match setting.block {
        Some(place) if settings::find(place, name).is_some() => {
            format!("it belongs in the block: `{} {{ {name} ... }}`", setting.name)
        }
        _ if foreign_words::property(setting.name, name).is_some() => {
            foreign_words::property(setting.name, name).unwrap_or_default().to_owned()
        }
        _ if setting.properties.is_empty() => format!("write `{}`", syntax(setting)),
        _ => suggestion(name, setting.properties.iter().map(|property| property.name)),
    };
    Problem::new(entry.at, what).suggest(instead)
}

fn too_many_values(setting: &Setting, entry: &Entry) -> Problem {
    Problem::new(entry.at, format!("too many values for `{}`", setting.name))
        .suggest(format!("write `{}`", syntax(setting)))
}
