//! Several logs, and which request is in which.

use super::{Directory, Format, LogConfig, Serving, config, lines, site};
use crate::log::Logs;
use crate::log::config::{Destination, ErrorFormat};
use crate::process::connect;
use std::fs;

#[test]
fn a_request_is_in_the_logs_of_its_site() {
    let directory = Directory::new();
    // More logs than threads.
    let formats = (0..10).map(|number| Format::parse(&format!("{number} %v %U")).unwrap());
    let sites = vec![site("none", [0]), site("one", [1, 9]), site("quiet", []), site("shares", [9, 5])];
    let serving = Serving::start(&config(&directory, formats, sites));
    for (path, number) in [("/a", "1"), ("/b", "2"), ("/c", "3"), ("/d", "0"), ("/e", "77"), ("/f", "1")] {
        serving.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Site: {number}\r\nConnection: close\r\n\r\n"));
    }
    // Refused before it belongs to a site.
    serving.request("GET / HTTP/1.1\r\n\r\n");
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
    use crate::log::config::Level;
    for (level, format, expected) in [
        (Level::Error, ErrorFormat::Text, &["error"][..]),
        (Level::Warn, ErrorFormat::Json, &["error", "warn"]),
        (Level::Info, ErrorFormat::Text, &["error", "warn"]),
        (Level::Debug, ErrorFormat::Json, &["error", "warn", "debug"]),
    ] {
        let directory = Directory::new();
        let mut config = config(&directory, [], vec![]);
        (config.error.level, config.error.format) = (level, format);
        let serving = Serving::start(&config);
        serving.request("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        serving.request("GET / HTTP/1.1\r\n\r\n");
        serving.request("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
        serving.end();
        let lines = lines(&directory.path("error"));
        let mut levels: Vec<String> = lines
            .iter()
            .map(|line| match format {
                ErrorFormat::Text => line.split(' ').nth(1).unwrap().to_owned(),
                ErrorFormat::Json => {
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
    let problem = |config: &LogConfig| Logs::start(config, connect).unwrap_err().to_string();
    let mut missing = config(&directory, [Format::named("common").unwrap()], vec![]);
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
    let mut twice = config(&directory, [Format::named("common").unwrap()], vec![]);
    twice.error.destination = twice.access[0].destination.clone();
    assert!(problem(&twice).contains("another log is written there"));
    let wrong = config(&directory, [], vec![site("a.example", [0])]);
    assert!(problem(&wrong).contains("a.example: no such log"));
}
