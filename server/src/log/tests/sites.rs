//! Several logs: which request is in which.

use super::{Directory, Format, LogPlan, Serving, lines, plan, site};
use crate::log::Logs;
use crate::log::plan::{Destination, ErrorForm};
use crate::process::connect;
use std::fs;

#[test]
fn a_request_is_in_the_logs_of_its_site() {
    let directory = Directory::new();
    // More logs than threads.
    let formats = (0..10).map(|number| Format::parse(&format!("{number} %v %U")).unwrap());
    let sites = vec![site("none", [0]), site("one", [1, 9]), site("quiet", []), site("shares", [9, 5])];
    let serving = Serving::start(&plan(&directory, formats, sites));
    for (path, number) in [("/a", "1"), ("/b", "2"), ("/c", "3"), ("/d", "0"), ("/e", "77"), ("/f", "1")] {
        serving.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Site: {number}\r\nConnection: close\r\n\r\n"));
    }
    // Refused before it could belong to any.
    serving.ask("GET / HTTP/1.1\r\n\r\n");
    serving.end();
    let lines = |number: usize| lines(&directory.path(&number.to_string()));
    assert_eq!(lines(0), ["0 none /d", "0 none /e", "0 none -"]);
    assert_eq!(lines(1), ["1 one /a", "1 one /f"]);
    assert_eq!(lines(9), ["9 one /a", "9 shares /c", "9 one /f"]);
    assert_eq!(lines(5), ["5 shares /c"]);
    for number in [2, 3, 4, 6, 7, 8] {
        assert_eq!(lines(number), [""; 0]);
    }
}

#[test]
fn the_error_log_has_levels_and_forms() {
    use crate::log::plan::Level;
    for (level, form, expected) in [
        (Level::Error, ErrorForm::Text, &["error"][..]),
        (Level::Warn, ErrorForm::Json, &["error", "warn"]),
        (Level::Info, ErrorForm::Text, &["error", "warn"]),
        (Level::Debug, ErrorForm::Json, &["error", "warn", "debug"]),
    ] {
        let directory = Directory::new();
        let mut plan = plan(&directory, [], vec![]);
        (plan.error.level, plan.error.form) = (level, form);
        let serving = Serving::start(&plan);
        serving.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        serving.ask("GET / HTTP/1.1\r\n\r\n");
        serving.ask("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
        serving.end();
        let lines = lines(&directory.path("error"));
        let mut levels: Vec<String> = lines
            .iter()
            .map(|line| match form {
                ErrorForm::Text => line.split(' ').nth(1).unwrap().to_owned(),
                ErrorForm::Json => {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert!(line["count"].as_u64() >= Some(1) && line["time"].as_str().unwrap().ends_with('Z'));
                    line["level"].as_str().unwrap().to_owned()
                }
            })
            .collect();
        levels.sort_unstable();
        levels.dedup();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(levels, expected, "{lines:?}");
    }
}

#[test]
fn what_cannot_be_opened_is_named_and_nothing_starts() {
    let directory = Directory::new();
    let problem = |plan: &LogPlan| Logs::start(plan, connect).unwrap_err().to_string();
    let mut missing = plan(&directory, [Format::named("common").unwrap()], vec![]);
    missing.access[0].destination = Destination::file(directory.path("no/access"));
    let text = problem(&missing);
    assert!(text.contains("cannot open the access log ") && text.contains("no/access: No such file"), "{text}");
    missing.access[0].destination = Destination::Syslog { path: directory.path("log") };
    let text = problem(&missing);
    assert!(text.contains("to syslog at ") && text.contains("No such file"), "{text}");
    fs::create_dir(directory.path("directory")).unwrap();
    missing.error.destination = Destination::file(directory.path("directory"));
    let text = problem(&missing);
    assert!(text.contains("cannot open the error log ") && text.contains("Is a directory"), "{text}");
    let mut twice = plan(&directory, [Format::named("common").unwrap()], vec![]);
    twice.error.destination = twice.access[0].destination.clone();
    assert!(problem(&twice).contains("another log is written there"));
    let wrong = plan(&directory, [], vec![site("a.example", [0])]);
    assert!(problem(&wrong).contains("a.example: there is no such log"));
}
