//! Golden files: `server/tests/config/*.txt`, each a set of files and the expected settings or problems.
//!
//! `SELVEDGE_UPDATE=1 cargo test -p selvedge-server golden` writes the current results.

use super::Memory;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Defaults of a site, which are left out.
const SITE_DEFAULTS: [&str; 6] = [
    "automatic-certificate #false",
    "index \"index.html\"",
    "listing #false",
    "precompressed #true",
    "body-bytes-max \"10MiB\"",
    "try-files \"*\"",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

/// Splits a golden file into its files and its expectation.
fn divide(text: &str) -> (&str, &str) {
    let at = ["-- settings --\n", "-- problems --\n"].iter().find_map(|mark| text.find(mark));
    text.split_at(at.unwrap_or(text.len()))
}

fn sources(given: &str) -> Memory {
    let mut memory = Memory::default();
    for section in given.split("\n-- ").map(|section| section.trim_start_matches("-- ")) {
        let (name, body) = section.split_once(" --\n").expect("a section has a name between dashes");
        match name {
            "variables" => {
                let pairs = body.lines().filter_map(|line| line.split_once('='));
                memory.variables.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            file => drop(memory.files.insert(file.into(), format!("{}\n", body.trim_end_matches('\n')))),
        }
    }
    memory
}

/// Returns the settings or problems of a golden file's configuration.
fn outcome(memory: &Memory) -> String {
    match memory.read() {
        Ok(configuration) => format!("-- settings --\n{}", without_defaults(&configuration.settings.to_string())),
        Err(problems) => format!("-- problems --\n{problems}"),
    }
}

/// Returns printed settings without the lines of an empty configuration, and without blocks that contain nothing
/// else.
fn without_defaults(printed: &str) -> String {
    let empty = Memory::of("").read().expect("an empty configuration is one").settings.to_string();
    let usual: HashSet<String> = with_paths(&empty).into_iter().map(|(path, line)| format!("{path}{line}")).collect();
    let mut kept: Vec<&str> = Vec::new();
    for (path, line) in with_paths(printed) {
        let is_default = path.starts_with("site ") && SITE_DEFAULTS.contains(&line.trim());
        let closes = line.trim() == "}";
        if closes && kept.last().is_some_and(|last| last.ends_with('{')) {
            // An empty `files` block becomes its head; other empty blocks vanish.
            let head = kept.pop().expect("it was there a moment ago");
            let head = head.trim_end_matches(" {");
            if head.trim_start().starts_with("files ") || head.starts_with("site ") {
                kept.push(head);
            }
        } else if closes || line.ends_with('{') || !(is_default || usual.contains(&format!("{path}{line}"))) {
            kept.push(line);
        }
    }
    kept.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns each line with the heads of its blocks.
fn with_paths(printed: &str) -> Vec<(String, &str)> {
    let mut open: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for line in printed.lines() {
        if line.trim() == "}" {
            open.pop();
        }
        lines.push((open.join("/"), line));
        if line.ends_with('{') {
            open.push(line);
        }
    }
    lines
}

#[test]
fn golden_files_match() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (given, expected) = divide(&text);
        let memory = sources(given);
        let actual = outcome(&memory);
        if std::env::var_os("SELVEDGE_UPDATE").is_some() {
            fs::write(&path, format!("{}\n\n{actual}", given.trim_end())).unwrap();
        } else if actual != expected {
            wrong.push(format!("{}: got\n{actual}\nexpected\n{expected}", path.display()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 60, "only {count} golden files were found");
}

#[test]
fn printed_settings_parse_to_equal_settings() {
    if std::env::var_os("SELVEDGE_UPDATE").is_some() {
        // The files are being written.
        return;
    }
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let Ok(configuration) = sources(divide(&text).0).read() else { continue };
        let printed = configuration.settings.to_string();
        let again = match Memory::of(&printed).read() {
            Ok(again) => again.settings,
            Err(problems) => panic!("{}: {problems}\n{printed}", path.display()),
        };
        assert_eq!(again, configuration.settings, "{}", path.display());
        assert_eq!(again.to_string(), printed, "{}", path.display());
        count += 1;
    }
    assert!(count > 20, "only {count} golden files have settings");
}
