//! What holds for the table of settings, and for what is made from it.

use super::Memory;
use crate::config::settings::{self, Count, Default, Place, reference};
use crate::config::text::Scalar;
use crate::config::value;
use std::collections::HashSet;
use std::path::Path;

#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("SELVEDGE_UPDATE").is_some() {
        std::fs::write(&path, reference::markdown()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == reference::markdown(), "selvedge settings --markdown > docs/configuration.md");
}

#[test]
fn every_default_is_of_its_kind() {
    let scalar = |text: &str| match text {
        "#true" => Scalar::Flag(true),
        "#false" => Scalar::Flag(false),
        text => Scalar::Text(text.to_owned()),
    };
    for setting in settings::all() {
        if let Default::Text(text) = setting.default {
            let kind = setting.arguments[0].kind;
            assert!(value::read(kind, &scalar(text), Path::new("")).is_ok(), "{} {text}", setting.name);
        }
        for property in setting.properties {
            if let Default::Text(text) = property.default {
                assert!(value::read(property.kind, &scalar(text), Path::new("")).is_ok(), "{} {text}", property.name);
            }
        }
    }
}

#[test]
fn every_entry_is_complete_and_stands_once_in_a_place() {
    let mut known = HashSet::new();
    for setting in settings::all() {
        assert!(!setting.places.is_empty() && setting.doc.ends_with('.'), "{}", setting.name);
        for place in setting.places {
            assert!(known.insert((*place, setting.name)), "{} in {place:?}", setting.name);
        }
        let (_, before) = setting.arguments.split_last().unzip();
        for argument in before.unwrap_or_default() {
            assert_eq!(argument.count, Count::One, "{}: only the last may be left out or repeated", setting.name);
        }
        if let Default::Nothing(what_follows) = setting.default {
            assert!(!what_follows.is_empty(), "{} does not say what holds without it", setting.name);
        }
    }
    for place in Place::ALL {
        let owned = settings::all().any(|setting| setting.inside == Some(place));
        assert!(settings::of(place).count() > 0 && (owned || place == Place::Top), "{place:?}");
    }
}

#[test]
fn every_example_can_be_read() {
    for setting in settings::all().filter(|setting| !setting.example.is_empty()) {
        let example = setting.example;
        let inside = match setting.places[0] {
            Place::Top => example.to_owned(),
            Place::Log => format!("log {{\n{example}\n}}"),
            Place::Site => format!("site \"a\" {{\nroot \"a\"\n{example}\n}}"),
            Place::Route if example.starts_with("route") => format!("site \"a\" {{\nroot \"a\"\n{example}\n}}"),
            Place::Route => format!("site \"a\" {{\nroute \"/*\" {{\ndeny\n{example}\n}}\n}}"),
            Place::Files => format!("site \"a\" {{\nroot \"a\"\nroute \"/*\" {{\nfiles {{\n{example}\n}}\n}}\n}}"),
            place => panic!("an example in {place:?}"),
        };
        let mut memory = Memory::of(&inside);
        memory.files.insert("sites/a.kdl".into(), String::new());
        if let Err(problems) = memory.read() {
            panic!("{}: {problems}", setting.name);
        }
    }
}

/// The page that is made and the engine that is run by default must not drift apart.
#[test]
fn the_defaults_of_limits_are_those_of_the_engine() {
    let ours = Memory::of("").read().unwrap().settings.limits;
    let engine = selvedge::Limits::default();
    assert_eq!(ours.request_line_bytes_max, engine.message.request_line_bytes_max);
    assert_eq!(ours.head_bytes_max, engine.message.head_bytes_max);
    assert_eq!(ours.fields_max, engine.message.fields_max);
    assert_eq!(ours.chunk_extension_bytes_max, engine.message.chunk_extension_bytes_max);
    assert_eq!(ours.chunk_overhead_bytes_free, engine.message.chunk_overhead_bytes_free);
    assert_eq!(ours.trailer_bytes_max, engine.message.trailer_bytes_max);
    assert_eq!(ours.head_time, engine.head_time);
    assert_eq!(ours.body_silence, engine.body_silence);
    assert_eq!(ours.body_bytes_per_second_min, engine.body_bytes_per_second_min);
    assert_eq!(ours.send_silence, engine.send_silence);
    assert_eq!(ours.send_bytes_per_second_min, engine.send_bytes_per_second_min);
    assert_eq!(ours.keep_alive, engine.keep_alive);
    assert_eq!(ours.body_bytes_max, engine.body_bytes_max);
    assert_eq!(ours.drain_bytes_max, engine.drain_bytes_max);
    assert_eq!(ours.drain_time, engine.drain_time);
    assert_eq!(ours.connections_max, None);
}

#[test]
fn the_list_for_programs_has_every_setting() {
    let list: serde_json::Value = serde_json::from_str(&reference::json()).unwrap();
    assert_eq!(list.as_array().unwrap().len(), settings::all().count());
    let head_time = list.as_array().unwrap().iter().find(|entry| entry["name"] == "head-time").unwrap();
    assert_eq!(head_time["default"], "10s");
    assert_eq!(head_time["arguments"][0]["unit"], "seconds");
    assert!(reference::text().contains("head-time TIME"));
}
