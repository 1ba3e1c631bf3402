//! What each directive writes for a request with all values, for a minimal one, and for malformed bytes.

use super::{Directory, Format, Serving, config, lines, site};
use std::collections::HashSet;

const FULL: &str = "POST /404/a%20b?c=%22d&e HTTP/1.1\r\nHost: a.example:8080\r\nReferer: http://b/\r\n\
    User-Agent: \"agent\" \\\r\nCookie: no=1; id=7=8; last=9\r\nX-User: A User\r\nX-Client: 192.0.2.7\r\n\
    X-Two: one\r\nX-Two: two\r\nX-Site: 1\r\nConnection: close\r\n\r\n";
const BARE: &str = "GET / HTTP/1.0\r\n\r\n";
const BROKEN: &str = "GET /\u{1b}\"\\ HTTP/1.1\r\n\r\n";

/// A format, and its line for each of the three requests. `PEER`, `PID` and a `#` for each digit stand for unknown
/// values.
const TABLE: &[(&str, [&str; 3])] = &[
    ("%h %a", ["192.0.2.7 192.0.2.7", "127.0.0.1 127.0.0.1", "127.0.0.1 127.0.0.1"]),
    ("%{c}a %{c}h", ["127.0.0.1 127.0.0.1"; 3]),
    ("%{remote}p", ["PEER"; 3]),
    ("%p %{canonical}p", ["8080 8080", "80 80", "80 80"]),
    ("%l", ["-"; 3]),
    ("%u", [r"A\x20User", "-", "-"]),
    ("%t", ["[##/@@@/####:##:##:## +0000]"; 3]),
    ("%{%Y-%m-%d}t %{end:%H:%M}t %{begin:%S}t", ["####-##-## ##:## ##"; 3]),
    ("%{sec}t %{end:sec}t", ["########## ##########"; 3]),
    ("%{msec}t %{end:usec}t %{msec_frac}t %{end:usec_frac}t", ["############# ################ ### ######"; 3]),
    ("%{}t %{end:}t", ["[##/@@@/####:##:##:## +0000] [##/@@@/####:##:##:## +0000]"; 3]),
    ("%r", ["POST /404/a%20b?c=%22d&e HTTP/1.1", "GET / HTTP/1.0", r#"GET /\x1b\"\\ HTTP/1.1"#]),
    ("%m %U%q %H", ["POST /404/a%20b?c=%22d&e HTTP/1.1", "GET / HTTP/1.0", "- - -"]),
    ("%s %>s %<s", ["200 200 200", "200 200 200", "400 400 400"]),
    ("%b %B", ["7 7", "7 7", "BODY BODY"]),
    ("%v", ["b.example", "first", "first"]),
    ("%V", ["a.example", "-", "-"]),
    ("%P %{pid}P", ["PID PID"; 3]),
    ("%{TRACE_ID}x", ["-"; 3]),
    ("%X %k", ["- 0", "- 0", "- 0"]),
    ("%{Referer}i|%{user-agent}i|%{HOST}i", [r#"http://b/|\"agent\" \\|a.example:8080"#, "-|-|-", "-|-|-"]),
    ("%{x-two}i|%{X-None}i", ["one, two|-", "-|-", "-|-"]),
    ("%{id}C %{no}C %{last}C %{i}C", ["7=8 1 9 -", "- - - -", "- - - -"]),
    ("%{cache-control}o|%{Vary}o|%{etag}o", ["no-store|a, b|-", "no-store|a, b|-", "-|accept|-"]),
    ("%400,404{Referer}i %!400{User-agent}i", [r#"- \"agent\" \\"#, "- -", "- -"]),
    ("%200{Referer}i %!200,404>s %>!200{HOST}i", ["http://b/ - -", "- - -", "- 400 -"]),
    (r#"%% a \"b\" \'c\' \\ \t é\n"#, ["% a \"b\" 'c' \\ \t é"; 3]),
    ("\t-", ["\t-"; 3]),
];

fn fits(line: &str, expected: &str, peer: u16, body: usize) -> bool {
    let expected = expected.replace("PEER", &peer.to_string()).replace("BODY", &body.to_string());
    let expected = expected.replace("PID", &std::process::id().to_string());
    line.chars().count() == expected.chars().count()
        && line.chars().zip(expected.chars()).all(|(c, like)| match like {
            '#' => c.is_ascii_digit(),
            '@' => c.is_ascii_alphabetic(),
            like => c == like,
        })
}

#[test]
fn each_directive_writes_its_value() {
    let directory = Directory::new();
    let formats =
        TABLE.iter().map(|(text, _)| Format::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}")));
    let all = || 0..TABLE.len();
    let serving = Serving::start(&config(&directory, formats, vec![site("first", all()), site("b.example", all())]));
    // The path of the first request is no status.
    let requests = [FULL, BARE, BROKEN].map(|request| serving.request(request));
    serving.end();
    for (number, (format, expected)) in TABLE.iter().enumerate() {
        let lines = lines(&directory.path(&number.to_string()));
        assert_eq!(lines.len(), 3, "{format}: {lines:?}");
        for ((line, expected), (response, peer)) in lines.iter().zip(expected).zip(&requests) {
            let head = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            assert!(fits(line, expected, *peer, response.len() - head), "{format}: {line} is not {expected}");
        }
    }
}

/// `docs/logs.md` lists all directives; a directive that is not listed is refused.
#[test]
fn the_page_has_every_directive_and_no_other() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/logs.md")).unwrap();
    let (_, list) = page.split_once("\n| directive |").unwrap();
    let (list, _) = list.split_once("\n### ").unwrap();
    let directives = list.split('`').skip(1).step_by(2).filter(|code| code.starts_with('%'));
    let listed: HashSet<String> = directives.map(|code| code.replace("FORMAT", "%Y").replace("Name", "A")).collect();
    for format in &listed {
        assert!(Format::read(format).is_ok(), "{format}: {:?}", Format::read(format).err());
    }
    let letters = ('!'..='~').flat_map(|letter| [format!("%{letter}"), format!("%{{A}}{letter}")]);
    for format in letters.filter(|format| Format::read(format).is_ok()) {
        // A time format may contain any text.
        assert!(listed.contains(&format) || format == "%{A}t", "{format} is not listed");
    }
}

#[test]
fn bytes_durations_and_the_fate_of_connections() {
    let directory = Directory::new();
    let formats =
        ["%O", "%D %{us}T", "%T %{s}T %{ms}T", "%X%k", "%s %{X-Site}i %v"].map(|text| Format::parse(text).unwrap());
    let serving = Serving::start(&config(&directory, formats, vec![site("first", 0..5), site("second", [4])]));
    let host = "HTTP/1.1\r\nHost: a\r\n";
    let (responses, _) =
        serving.request(format!("GET / {host}\r\nGET /204 {host}\r\nHEAD / {host}Connection: close\r\n\r\n"));
    serving.request(format!("GET /panic {host}X-Site: 1\r\n\r\n"));
    serving.end();
    let lines = |number: usize| lines(&directory.path(&number.to_string()));
    let sent: usize = lines(0).iter().map(|line| line.parse::<usize>().unwrap()).sum();
    assert_eq!(sent, responses.len());
    for line in lines(1) {
        let (micros, same) = line.split_once(' ').unwrap();
        assert_eq!(micros, same);
        assert!((0..5_000_000).contains(&micros.parse::<u64>().unwrap()), "{line}");
    }
    for line in lines(2) {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] == numbers[1] && numbers[2] / 1000 == numbers[0], "{line}");
    }
    assert_eq!(lines(3), ["+0", "+1", "-2"]);
    // The response after a panic belongs to its site as well.
    assert_eq!(lines(4), ["200 - first", "204 - first", "200 - first", "500 1 second"]);
}

#[test]
fn well_known_formats() {
    let directory = Directory::new();
    let formats = ["common", "combined", "json"].map(|name| Format::named(name).unwrap());
    let serving = Serving::start(&config(&directory, formats, vec![site("", 0..3), site("b.example", 0..3)]));
    let requests = [FULL, BARE, BROKEN].map(|request| serving.request(request));
    serving.end();
    let time = "[##/@@@/####:##:##:## +0000]";
    let full = format!(r#"192.0.2.7 - A\x20User {time} "POST /404/a%20b?c=%22d&e HTTP/1.1" 200 7"#);
    let bare = format!(r#"127.0.0.1 - - {time} "GET / HTTP/1.0" 200 7"#);
    let broken = format!(r#"127.0.0.1 - - {time} "GET /\x1b\"\\ HTTP/1.1" 400 BODY"#);
    for (line, (expected, (response, _))) in
        lines(&directory.path("0")).iter().zip([&full, &bare, &broken].iter().zip(&requests))
    {
        let head = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert!(fits(line, expected, 0, response.len() - head), "{line} is not {expected}");
    }
    let combined = lines(&directory.path("1"));
    assert!(fits(&combined[0], &format!(r#"{full} "http://b/" "\"agent\" \\""#), 0, 0), "{combined:?}");
    assert!(fits(&combined[1], &format!(r#"{bare} "-" "-""#), 0, 0), "{combined:?}");
    let json: Vec<serde_json::Value> =
        lines(&directory.path("2")).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = &json[0]["request"];
    assert_eq!(
        (&json[0]["site"], &json[0]["user_id"], &json[0]["status"]),
        (&"b.example".into(), &"A User".into(), &200.into())
    );
    assert_eq!((&request["client_ip"], &request["remote_ip"]), (&"192.0.2.7".into(), &"127.0.0.1".into()));
    assert_eq!((&request["method"], &request["host"]), (&"POST".into(), &"a.example".into()));
    assert_eq!(request["headers"]["User-Agent"][0], "\"agent\" \\");
    assert!(json[0]["duration"].as_f64().unwrap() < 5.0 && json[0]["outcome"] == "complete");
    assert!(json[1].get("site").is_none() && json[1].get("user_id").is_none());
    assert_eq!(json[1]["request"]["headers"], serde_json::json!({}));
    assert_eq!(
        (&json[2]["request"]["uri"], &json[2]["request"]["method"]),
        (&r#"GET /\x1b\"\\ HTTP/1.1"#.into(), &"".into())
    );
}

#[test]
fn a_problem_has_a_position_and_a_hint() {
    for (format, at, expected, hint) in [
        ("%h %Q", 3, "%Q is not known", "%%"),
        ("%h %", 3, "ends within a directive", "%%"),
        ("%{Referer", 0, "not closed", "%{Referer}i"),
        ("a %i", 2, "%i needs a name", "%{Referer}i"),
        ("%{a b}i", 2, "no name of a field", ""),
        ("%{}C", 2, "no name of a field", ""),
        ("%{Content-Length}o", 2, "is not kept", "%B"),
        ("%{date}o", 2, "is not kept", "%{end:"),
        ("%{%Y %Q}t", 5, "%Q, which is not known", "strftime"),
        ("%{end:%Y%n}t", 8, "%n, which is not known", "strftime"),
        ("%{h}T", 2, "%{h}T does not take \"h\"", "%{ms}T"),
        ("%{local}p", 2, "does not take \"local\"", "%{remote}p"),
        ("%{tid}P", 2, "does not take \"tid\"", "%{pid}P"),
        ("%{x}U", 2, "does not take \"x\"", "without braces"),
        ("%{x}Q", 0, "%{x}Q is not known", "%%"),
        ("%A", 0, "%A is not known", "%v"),
        ("%I", 0, "%I is not known", "%O"),
        ("%{a}^ti", 0, "%{a}^ is not known", "trailers"),
        ("%20,x{A}i", 1, "\"20,\" is no list of statuses", "%400,501"),
        ("%!{A}i", 1, "\"!\" is no list of statuses", "%400,501"),
        ("%999s", 1, "\"999\" is no list", "%400,501"),
        (r"a\nb", 1, "line end within the format", "one line"),
        ("a\nb", 1, "control character '\\n'", "one line"),
        (r"a\", 1, "escapes nothing", r"\\"),
        (r"\x41", 0, "escapes nothing", r"\\"),
        ("", 0, "empty", "combined"),
        (r"\n", 0, "empty", "combined"),
    ] {
        let problem = Format::parse(format).expect_err(format);
        let text = problem.to_string();
        assert!(problem.at == at && text.contains(expected) && problem.hint.contains(hint), "{format}: {problem:?}");
        assert!(text.contains(&format!("(at byte {})", at + 1)) && text.contains(problem.hint), "{text}");
    }
    assert!(Format::named("nonsense").is_none());
}
