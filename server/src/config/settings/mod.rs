//! The table of every setting. The reader, the defaults, `selvedge settings` and
//! `docs/configuration.md` are all made from it.

mod access;
mod limits;
mod log;
pub(crate) mod reference;
mod route;
mod server;
mod site;

pub(crate) use route::ACTIONS;

use super::value::Kind;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a setting may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Outside of all braces.
    Top,
    Limits,
    Supervision,
    Log,
    LogFile,
    Site,
    Route,
    When,
    Files,
    Clients,
    BasicAuth,
}

impl Place {
    /// All of them, in the order of the reference.
    pub(crate) const ALL: [Self; 11] = [
        Self::Top,
        Self::Limits,
        Self::Supervision,
        Self::Log,
        Self::LogFile,
        Self::Site,
        Self::Route,
        Self::When,
        Self::Files,
        Self::Clients,
        Self::BasicAuth,
    ];

    /// Whose braces it is in, for sentences.
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
            Self::Clients => "`clients`",
            Self::BasicAuth => "`basic-auth`",
        }
    }
}

/// One entry of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) places: &'static [Place],
    pub(crate) arguments: &'static [Argument],
    pub(crate) properties: &'static [Property],
    /// What its braces may hold.
    pub(crate) inside: Option<Place>,
    pub(crate) times: Times,
    pub(crate) default: Default,
    /// One line.
    pub(crate) doc: &'static str,
    /// More, where one line does not do.
    pub(crate) more: &'static str,
    pub(crate) example: &'static str,
}

/// An argument of a setting; the last may stand more than once.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) count: Count,
}

/// How often an argument stands in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    One,
    Optional,
    OneOrMore,
}

/// A `name=value` of a setting.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    pub(crate) doc: &'static str,
}

/// How often a setting may stand in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Once,
    Many,
}

/// What holds when nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// As if this had been written; several values are divided by a space.
    Text(&'static str),
    /// Nothing is set, and this is what follows from it.
    Nothing(&'static str),
}

/// Every setting, in the order of the reference.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> + Clone {
    [server::SETTINGS, limits::SETTINGS, log::SETTINGS, site::SETTINGS, route::SETTINGS, access::SETTINGS]
        .into_iter()
        .flatten()
}

/// The settings that may stand in a place.
pub(crate) fn of(place: Place) -> impl Iterator<Item = &'static Setting> + Clone {
    all().filter(move |setting| setting.places.contains(&place))
}

static INDEX: LazyLock<HashMap<(Place, &'static str), &'static Setting>> = LazyLock::new(|| {
    all().flat_map(|setting| setting.places.iter().map(move |&place| ((place, setting.name), setting))).collect()
});

/// The setting of a name in a place.
pub(crate) fn find(place: Place, name: &str) -> Option<&'static Setting> {
    INDEX.get(&(place, name)).copied()
}

// How the entries are written: what is usual is left out.

const fn setting(places: &'static [Place], name: &'static str, doc: &'static str) -> Setting {
    Setting {
        name,
        places,
        arguments: &[],
        properties: &[],
        inside: None,
        times: Times::Once,
        default: Default::Nothing(""),
        doc,
        more: "",
        example: "",
    }
}

const fn one(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::One }
}

const fn optional(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::Optional }
}

const fn list(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, count: Count::OneOrMore }
}

const fn property(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Property {
    Property { name, kind, default, doc }
}

/// The property of everything that can be tried out before it is enforced.
const OBSERVE: Property = property(
    "observe",
    Kind::Flag,
    Default::Text("#false"),
    "Counts and logs what would be refused, and refuses nothing.",
);

impl Setting {
    const fn with(self, arguments: &'static [Argument]) -> Self {
        Self { arguments, ..self }
    }

    const fn properties(self, properties: &'static [Property]) -> Self {
        Self { properties, ..self }
    }

    const fn holds(self, inside: Place) -> Self {
        Self { inside: Some(inside), ..self }
    }

    const fn many(self) -> Self {
        Self { times: Times::Many, ..self }
    }

    const fn default(self, text: &'static str) -> Self {
        Self { default: Default::Text(text), ..self }
    }

    const fn otherwise(self, what_follows: &'static str) -> Self {
        Self { default: Default::Nothing(what_follows), ..self }
    }

    const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// The property of a name.
    pub(crate) fn property(&self, name: &str) -> Option<&'static Property> {
        self.properties.iter().find(|property| property.name == name)
    }
}
