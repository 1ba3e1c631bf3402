//! Prints the table of settings as a schema in the KDL Schema Language.

use super::{Argument, BlockKind, Property, Repeat, Setting, in_block};
use crate::config::value::ValueKind;
use std::fmt::Write;

/// Returns the schema of a configuration.
pub(crate) fn kdl_schema() -> String {
    let mut out = String::from(
        "// Made by `selvedge settings --schema`.\ndocument {\n    info {\n        title \"Selvedge configuration\" lang=\"en\"\n    }\n",
    );
    for setting in in_block(BlockKind::Top) {
        write_node(&mut out, setting, 1);
    }
    out.push_str("    definitions {\n");
    for block in BlockKind::ALL.into_iter().filter(|block| *block != BlockKind::Top) {
        line(&mut out, 2, &format!("children id={} {{", quote(&id(block))));
        for setting in in_block(block) {
            write_node(&mut out, setting, 3);
        }
        line(&mut out, 2, "}");
    }
    out.push_str("    }\n}\n");
    out
}

fn write_node(out: &mut String, setting: &Setting, depth: usize) {
    line(out, depth, &format!("node {} description={} {{", quote(setting.name), quote(setting.doc)));
    if setting.repeat == Repeat::Once {
        line(out, depth + 1, "max 1");
    }
    for argument in setting.arguments {
        write_argument(out, argument, depth + 1);
    }
    for property in setting.properties {
        write_property(out, property, depth + 1);
    }
    if let Some(block) = setting.block {
        line(out, depth + 1, &format!("children ref={}", quote(&format!("[id={}]", quote(&id(block))))));
    }
    line(out, depth, "}");
}

fn write_argument(out: &mut String, argument: &Argument, depth: usize) {
    line(out, depth, &format!("value description={} {{", quote(argument.name)));
    line(out, depth + 1, &format!("min {}", u8::from(!argument.arity.is_optional())));
    if !argument.arity.is_list() {
        line(out, depth + 1, "max 1");
    }
    write_kind(out, argument.kind, depth + 1);
    line(out, depth, "}");
}

fn write_property(out: &mut String, property: &Property, depth: usize) {
    line(out, depth, &format!("prop {} description={} {{", quote(property.name), quote(property.doc)));
    write_kind(out, property.kind, depth + 1);
    line(out, depth, "}");
}

/// Writes the type of a value. A text may stand for any type, because it may be a variable of the environment.
fn write_kind(out: &mut String, kind: ValueKind, depth: usize) {
    match kind {
        ValueKind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
            line(out, depth, &format!("enum {}", words.join(" ")));
        }
        ValueKind::Flag => line(out, depth, "type \"boolean\" \"string\""),
        _ if kind.is_number() => line(out, depth, "type \"number\" \"string\""),
        ValueKind::Listen => line(out, depth, "type \"string\" \"number\""),
        _ => line(out, depth, "type \"string\""),
    }
}

/// Returns the identifier of a block.
fn id(block: BlockKind) -> String {
    block.name().replace('`', "").replace(' ', "-")
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn line(out: &mut String, depth: usize, text: &str) {
    writeln!(out, "{:indent$}{text}", "", indent = depth * 4).expect("writing to a String never fails");
}
