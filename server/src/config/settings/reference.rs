//! Prints the table of settings as text, as JSON, and as `docs/configuration.md`.

use super::{Argument, Arity, BlockKind, DefaultValue, Property, Repeat, Setting, all, in_block};
use crate::config::reader::syntax;
use crate::syntax::VARIABLES;
use serde_json::{Value, json};
use std::fmt::Write;

/// Returns one line for each setting, by block.
pub(crate) fn text() -> String {
    let mut out = String::new();
    for place in BlockKind::ALL {
        line(&mut out, &format!("in {}:", place.name().replace('`', "")));
        for setting in in_block(place) {
            line(&mut out, &format!("    {}", syntax(setting)));
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

/// Returns a list of all settings.
pub(crate) fn json() -> String {
    let settings: Vec<_> = all().map(setting_json).collect();
    let mut out = serde_json::to_string_pretty(&settings).expect("names and texts are valid JSON");
    out.push('\n');
    out
}

fn setting_json(setting: &Setting) -> Value {
    let argument = |argument: &Argument| {
        let count = match argument.arity {
            Arity::One => "one",
            Arity::Optional => "optional",
            Arity::OneOrMore => "one or more",
            Arity::ZeroOrMore => "any number",
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
        "blocks": setting.blocks.iter().map(|block| block.name().replace('`', "")).collect::<Vec<_>>(),
        "arguments": setting.arguments.iter().map(argument).collect::<Vec<_>>(),
        "properties": setting.properties.iter().map(property).collect::<Vec<_>>(),
        "block": setting.block.map(|block| block.name().replace('`', "")),
        "repeats": setting.repeat == Repeat::Many,
        "default": default_json(setting.default),
        "doc": setting.doc,
        "more": setting.details,
        "example": setting.example,
    })
}

fn default_json(default: DefaultValue) -> Value {
    match default {
        DefaultValue::Text(text) => json!(text),
        DefaultValue::Effect(_) => Value::Null,
    }
}

fn default_text(default: DefaultValue) -> &'static str {
    match default {
        DefaultValue::Text(text) | DefaultValue::Effect(text) => text,
    }
}

/// The start of the page.
const PREFACE: &str = "\
# Configuration

<!-- Made by `selvedge settings --markdown` from the table in server/src/config/settings/. -->

A configuration is a text in [KDL](https://kdl.dev). A setting is a name with values, properties (`name=value`) and, if it
contains other settings, a block in braces. Values with characters other than letters, digits, `-`, `_` and `.` need quotes.
Flags are `#true` and `#false`. A line end or `;` ends a setting; before `}` neither is needed. `//` starts a comment, and `/-` comments
out the next setting.

`selvedge check` reports every problem of a configuration, with its place and what to write instead.

- **Sizes** have a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB` (short: `k`, `M`, `G`, powers of 1,024), or `kB`, `MB`, `GB`, `TB` (powers
  of 1,000).
- **Times** have a unit: `ms`, `s`, `m`, `h`, `d`.
- **Relative paths** start at the folder of the file that contains them.
- **Environment variables** are allowed in every value: `\"${SITE_ROOT}\"`, or with a default `\"${SITE_ROOT:-/srv/site}\"`. A
  variable that is not set and has no default is a problem. `$${` is a literal `${`. A flag may be `true` or `false` there, and a
  variable that stands alone in a list may have several values, separated by blanks.
- **Order**: routes are tried in the written order. The order of other settings has no effect.
";

/// The grammar of patterns.
const PATTERNS: &str = "
## Patterns

A path pattern is compared with the whole decoded path. The case of letters matters unless `ignore-case=#true` stands beside
it. Every wildcard captures what it matched, for a target or text of the route.

| pattern | matches |
|---|---|
| `/about` | this path alone, not `/about/` |
| `/app/*` | `/app`, `/app/` and everything beneath; not `/apple` |
| `/app/{rest...}` | as before, with a name for what is beneath |
| `/*/feed.xml`, `/img/x*.png` | `*` within the path: any text of one segment, or none |
| `/blog/{year}/{title}` | `{name}`: at least one character of one segment |
| `/**/secret/*` | `**`: any number of segments, or none |
| `*.css` | the last segment, in any folder |
| `/*`, `*` | every path; `//` is one slash, and `%2F` a part of its segment unless `encoded-slash` is set |
| `regex:^/p(?<id>[0-9]+)$` | a [regular expression](https://docs.rs/regex/latest/regex/#syntax), found anywhere in the path unless it \
has `^` and `$`; its groups are the wildcards |

Several patterns are several values: `route \"*.css\" \"*.js\"`. `( ) | [ ] ^ $ \\ ?`, `{a,b}` and `:name` have no meaning and are
problems. In the values of `when`, `*` is any text, with slashes, and `regex:` marks a regular expression.

## Placeholders

The targets of `redirect` and `rewrite`, entries of `try-files`, the text of `respond`, the values of `header` and `header-add`, and in
`proxy` those of `path`, `header-up` and `header-down` can have these. In other values they are problems. A value is percent-encoded where it is inserted.

| placeholder | value |
|---|---|
| `{1}` to `{8}` | what the wildcard of this number in the pattern matched |
| `{name}` | what the wildcard of this name matched, in the pattern or in `when { host ... }` |
| `*` | in a target: what the `*` at this position among the stars of the pattern matched; in `try-files`: the path of the request |
";

/// Returns the reference page.
pub(crate) fn markdown() -> String {
    let mut out = format!("{PREFACE}{PATTERNS}");
    for (name, _, doc) in VARIABLES {
        line(&mut out, &format!("| `{{{name}}}` | {doc} |"));
    }
    line(
        &mut out,
        "\nIn the place of a host stands what the rule wrote, `{host}`, or a wildcard of `when { host ... }`; never a part of the path.",
    );
    for place in BlockKind::ALL {
        let title = place.name().replace("the top level", "The top level");
        line(&mut out, &format!("\n## {}{title}", if place == BlockKind::Top { "" } else { "In " }));
        for setting in in_block(place) {
            setting_markdown(&mut out, setting, place);
        }
    }
    out
}

fn setting_markdown(out: &mut String, setting: &Setting, place: BlockKind) {
    line(out, &format!("\n### `{}`\n", setting.name));
    // A setting of several blocks is described in the first one.
    if let Some(first) = setting.blocks.first().filter(|first| **first != place) {
        line(out, &format!("{} See {}.", setting.doc, first.name()));
        return;
    }
    line(out, &format!("{}\n", setting.doc));
    line(out, &format!("    {}\n", syntax(setting)));
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
    let repeats = match setting.repeat {
        Repeat::Many => "May be repeated. ",
        Repeat::Once => "",
    };
    if !repeats.is_empty() || !setting.details.is_empty() {
        line(out, &format!("\n{repeats}{}", setting.details));
    }
    if !setting.example.is_empty() {
        line(out, &format!("\n```kdl\n{}\n```", setting.example));
    }
}

fn default_cell(default: DefaultValue) -> String {
    match default {
        DefaultValue::Text(text) => format!("`{text}`"),
        DefaultValue::Effect(text) => text.to_owned(),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String never fails");
}
