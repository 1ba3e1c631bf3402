//! The table for people and for programs: as text, as JSON, as the page
//! `docs/configuration.md`.

use super::{Argument, Count, Default, Place, Property, Setting, Times, all, of};
use crate::config::reader::shape;
use serde_json::{Value, json};
use std::fmt::Write;

/// One line for each setting, by place.
pub(crate) fn text() -> String {
    let mut out = String::new();
    for place in Place::ALL {
        line(&mut out, &format!("in {}:", place.name().replace('`', "")));
        for setting in of(place) {
            line(&mut out, &format!("    {}", shape(setting)));
            line(&mut out, &format!("        {}", setting.doc));
            line(&mut out, &format!("        default: {}", default_text(setting.default)));
            for property in setting.properties {
                let default = default_text(property.default);
                line(&mut out, &format!("        {}: {} (default: {default})", property.name, property.doc));
            }
        }
        out.push('\n');
    }
    out
}

/// A list of all settings.
pub(crate) fn json() -> String {
    let settings: Vec<_> = all().map(setting_json).collect();
    let mut out = serde_json::to_string_pretty(&settings).expect("names and texts make JSON");
    out.push('\n');
    out
}

fn setting_json(setting: &Setting) -> Value {
    let argument = |argument: &Argument| {
        let count = match argument.count {
            Count::One => "one",
            Count::Optional => "optional",
            Count::OneOrMore => "one or more",
        };
        let kind = argument.kind;
        json!({ "name": argument.name, "type": kind.name(), "unit": kind.unit(), "range": kind.range(), "count": count })
    };
    let property = |property: &Property| {
        let kind = property.kind;
        let default = default_json(property.default);
        json!({ "name": property.name, "type": kind.name(), "unit": kind.unit(), "range": kind.range(),
                "default": default, "doc": property.doc })
    };
    json!({
        "name": setting.name,
        "places": setting.places.iter().map(|place| place.name().replace('`', "")).collect::<Vec<_>>(),
        "arguments": setting.arguments.iter().map(argument).collect::<Vec<_>>(),
        "properties": setting.properties.iter().map(property).collect::<Vec<_>>(),
        "holds": setting.inside.map(|place| place.name().replace('`', "")),
        "repeats": setting.times == Times::Many,
        "default": default_json(setting.default),
        "doc": setting.doc,
        "more": setting.more,
        "example": setting.example,
    })
}

fn default_json(default: Default) -> Value {
    match default {
        Default::Text(text) => json!(text),
        Default::Nothing(_) => Value::Null,
    }
}

fn default_text(default: Default) -> &'static str {
    match default {
        Default::Text(text) | Default::Nothing(text) => text,
    }
}

/// What stands at the head of the page.
const PREFACE: &str = "\
# Configuration

<!-- Made by `selvedge settings --markdown` from the table in server/src/config/settings/. -->

A configuration is a text in [KDL](https://kdl.dev): a setting is a name, its values, its properties (`name=value`),
and, where it holds others, braces. Values with anything but letters, digits, `-`, `_` and `.` stand in quotes; flags are
`#true` and `#false`; `//` begins a comment and `/-` takes the next setting out.

`selvedge check` says everything that is wrong with a configuration, where, and what to write instead.

- **Sizes** have a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB` (`k`, `M`, `G` are short for the first three with a power of 1,024),
  or `kB`, `MB`, `GB`, `TB` for thousands.
- **Times** have a unit: `ms`, `s`, `m`, `h`, `d`.
- **Relative paths** begin at the folder of the file that they are written in.
- **Variables** of the environment stand in any value: `\"${SITE_ROOT}\"`, or `\"${SITE_ROOT:-/srv/site}\"` with a default. One
  that is not set and has no default is a problem. `$${` is a `${` that is none.
- **Order**: routes are tried in the order they stand; everything else may stand in any order.
";

/// The reference page.
pub(crate) fn markdown() -> String {
    let mut out = PREFACE.to_owned();
    for place in Place::ALL {
        let title = place.name().replace("the top level", "The top level");
        line(&mut out, &format!("\n## {}{title}", if place == Place::Top { "" } else { "In " }));
        for setting in of(place) {
            setting_markdown(&mut out, setting, place);
        }
    }
    out
}

fn setting_markdown(out: &mut String, setting: &Setting, place: Place) {
    line(out, &format!("\n### `{}`\n", setting.name));
    // What stands in several places is described at the first of them.
    if let Some(first) = setting.places.first().filter(|first| **first != place) {
        line(out, &format!("{} As in {}.", setting.doc, first.name()));
        return;
    }
    line(out, &format!("{}\n", setting.doc));
    line(out, &format!("    {}\n", shape(setting)));
    line(out, "| | type | range | default |\n|---|---|---|---|");
    for (number, argument) in setting.arguments.iter().enumerate() {
        let default = if number == 0 { default_cell(setting.default) } else { String::new() };
        let name = argument.name.to_uppercase();
        line(out, &format!("| {name} | {} | {} | {default} |", argument.kind.name(), argument.kind.range()));
    }
    if setting.arguments.is_empty() {
        line(out, &format!("| | | | {} |", default_cell(setting.default)));
    }
    for property in setting.properties {
        let (kind, default) = (property.kind, default_cell(property.default));
        line(
            out,
            &format!("| `{}`: {} | {} | {} | {default} |", property.name, property.doc, kind.name(), kind.range()),
        );
    }
    let repeats = match setting.times {
        Times::Many => "May stand more than once. ",
        Times::Once => "",
    };
    if !repeats.is_empty() || !setting.more.is_empty() {
        line(out, &format!("\n{repeats}{}", setting.more));
    }
    if !setting.example.is_empty() {
        line(out, &format!("\n```kdl\n{}\n```", setting.example));
    }
}

fn default_cell(default: Default) -> String {
    match default {
        Default::Text(text) => format!("`{text}`"),
        Default::Nothing(text) => text.to_owned(),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes whatever is written to it");
}
