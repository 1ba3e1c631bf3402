//! The table of all settings. The reader, the defaults, `selvedge settings` and `docs/configuration.md` are generated
//! from it.

mod access;
mod expect;
mod gateway;
mod limits;
mod log;
mod proxy;
pub(crate) mod reference;
mod route;
#[cfg(feature = "program")]
pub(crate) mod schema;
mod server;
mod site;
mod tls;
mod traces;
mod upstream;

pub(crate) use route::ACTIONS;
pub(crate) use tls::PRELOAD_MIN;

use super::value::ValueKind;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The block in which a setting is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BlockKind {
    /// Outside of all blocks.
    Top,
    Limits,
    Supervision,
    Log,
    LogFile,
    Site,
    Route,
    When,
    Files,
    IpAccess,
    BasicAuth,
    Acme,
    Traces,
    Upstream,
    UpstreamTls,
    Proxy,
    Php,
    FastCgi,
    Scgi,
    Cgi,
    Expect,
}

impl BlockKind {
    /// All blocks, in the order of the reference.
    pub(crate) const ALL: [Self; 21] = [
        Self::Top,
        Self::Limits,
        Self::Supervision,
        Self::Acme,
        Self::Traces,
        Self::Log,
        Self::LogFile,
        Self::Upstream,
        Self::UpstreamTls,
        Self::Site,
        Self::Route,
        Self::When,
        Self::Files,
        Self::Proxy,
        Self::Php,
        Self::FastCgi,
        Self::Scgi,
        Self::Cgi,
        Self::IpAccess,
        Self::BasicAuth,
        Self::Expect,
    ];

    /// Returns the name of the block for sentences.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Top => "the top level",
            Self::Limits => "`limits`",
            Self::Supervision => "`supervision`",
            Self::Log => "`log`",
            Self::LogFile => "`access` and `error`",
            Self::Site => "`site`",
            Self::Route => "`route`",
            Self::When => "`when`",
            Self::Files => "`files`",
            Self::IpAccess => "`ip-access`",
            Self::BasicAuth => "`basic-auth`",
            Self::Acme => "`acme`",
            Self::Traces => "`traces`",
            Self::Upstream => "`upstream`",
            Self::UpstreamTls => "`tls`",
            Self::Proxy => "`proxy`",
            Self::Php => "`php`",
            Self::FastCgi => "`fastcgi`",
            Self::Scgi => "`scgi`",
            Self::Cgi => "`cgi`",
            Self::Expect => "`expect`",
        }
    }
}

/// One entry of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) blocks: &'static [BlockKind],
    pub(crate) arguments: &'static [Argument],
    pub(crate) properties: &'static [Property],
    /// The block that it opens.
    pub(crate) block: Option<BlockKind>,
    pub(crate) repeat: Repeat,
    pub(crate) default: DefaultValue,
    /// One line.
    pub(crate) doc: &'static str,
    /// Further text.
    pub(crate) details: &'static str,
    pub(crate) example: &'static str,
}

/// An argument of a setting; the last may be repeated.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) arity: Arity,
}

/// How often an argument may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arity {
    One,
    Optional,
    OneOrMore,
    ZeroOrMore,
}

impl Arity {
    /// Whether the argument may be repeated.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::OneOrMore | Self::ZeroOrMore)
    }

    /// Whether the argument may be absent.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Self::Optional | Self::ZeroOrMore)
    }
}

/// A `name=value` of a setting.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) default: DefaultValue,
    pub(crate) doc: &'static str,
}

/// How often a setting may occur in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Once,
    Many,
}

/// What applies if the setting is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultValue {
    /// As if this had been written; several values are separated by a space.
    Text(&'static str),
    /// No value; the text states the effect.
    Effect(&'static str),
}

/// Returns all settings in the order of the reference.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> + Clone {
    [
        server::SETTINGS,
        traces::SETTINGS,
        limits::SETTINGS,
        log::SETTINGS,
        upstream::SETTINGS,
        site::SETTINGS,
        tls::SETTINGS,
        route::SETTINGS,
        proxy::SETTINGS,
        gateway::SETTINGS,
        access::SETTINGS,
        expect::SETTINGS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the settings of a block.
pub(crate) fn in_block(place: BlockKind) -> impl Iterator<Item = &'static Setting> + Clone {
    all().filter(move |setting| setting.blocks.contains(&place))
}

static INDEX: LazyLock<HashMap<(BlockKind, &'static str), &'static Setting>> = LazyLock::new(|| {
    all().flat_map(|setting| setting.blocks.iter().map(move |&place| ((place, setting.name), setting))).collect()
});

/// Finds a setting by name in a block.
pub(crate) fn find(place: BlockKind, name: &str) -> Option<&'static Setting> {
    INDEX.get(&(place, name)).copied()
}

// Constructors for entries, with defaults for the common values.

const fn setting(places: &'static [BlockKind], name: &'static str, doc: &'static str) -> Setting {
    Setting {
        name,
        blocks: places,
        arguments: &[],
        properties: &[],
        block: None,
        repeat: Repeat::Once,
        default: DefaultValue::Effect(""),
        doc,
        details: "",
        example: "",
    }
}

const fn one(name: &'static str, kind: ValueKind) -> Argument {
    Argument { name, kind, arity: Arity::One }
}

const fn optional(name: &'static str, kind: ValueKind) -> Argument {
    Argument { name, kind, arity: Arity::Optional }
}

const fn list(name: &'static str, kind: ValueKind) -> Argument {
    Argument { name, kind, arity: Arity::OneOrMore }
}

const fn any_number(name: &'static str, kind: ValueKind) -> Argument {
    Argument { name, kind, arity: Arity::ZeroOrMore }
}

const fn property(name: &'static str, kind: ValueKind, default: DefaultValue, doc: &'static str) -> Property {
    Property { name, kind, default, doc }
}

/// The property of limits that can be tried before they are enforced.
const DRY_RUN: Property = property(
    "dry-run",
    ValueKind::Flag,
    DefaultValue::Text("#false"),
    "Counts and logs what would be refused, and refuses nothing.",
);

/// The property of patterns that may ignore the case of letters.
const IGNORE_CASE: Property = property(
    "ignore-case",
    ValueKind::Flag,
    DefaultValue::Text("#false"),
    "Whether `a` matches `A`; for ASCII letters.",
);

impl Setting {
    const fn arguments(self, arguments: &'static [Argument]) -> Self {
        Self { arguments, ..self }
    }

    const fn properties(self, properties: &'static [Property]) -> Self {
        Self { properties, ..self }
    }

    const fn opens(self, inside: BlockKind) -> Self {
        Self { block: Some(inside), ..self }
    }

    const fn repeatable(self) -> Self {
        Self { repeat: Repeat::Many, ..self }
    }

    const fn default(self, text: &'static str) -> Self {
        Self { default: DefaultValue::Text(text), ..self }
    }

    const fn if_absent(self, what_follows: &'static str) -> Self {
        Self { default: DefaultValue::Effect(what_follows), ..self }
    }

    const fn details(self, more: &'static str) -> Self {
        Self { details: more, ..self }
    }

    const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// Finds a property by name.
    pub(crate) fn property(&self, name: &str) -> Option<&'static Property> {
        self.properties.iter().find(|property| property.name == name)
    }
}
