//! Whatever a client sends, each request is one line in every format, and JSON stays valid.

use super::{Directory, Format, Serving, config, lines, site};

const CASES: usize = 400;

/// A reproducible random number generator (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns random bytes, with a preference for those that have a meaning in logs.
    fn bytes(&mut self, without: &[u8]) -> Vec<u8> {
        const TELLING: &[u8] = b"\"\\\r\n\t %{}[]:,\x00\x1b\x7f\x80\xc3\xa9\xff\xe2\x80\xa8";
        let length = self.next() % 24;
        let bytes = (0..length).map(|_| match self.next() {
            number if number % 2 == 0 => TELLING[(number >> 8) as usize % TELLING.len()],
            number => (number >> 8) as u8,
        });
        bytes.filter(|byte| !without.contains(byte)).collect()
    }
}

/// Parses one line of the Combined format by hand; `None` if it is invalid.
fn is_combined(line: &str) -> Option<()> {
    let rest = line.strip_prefix("127.0.0.1 - ")?;
    let (user, rest) = rest.split_once(" [")?;
    let (_, rest) = rest.split_once("] ")?;
    let rest = after_quotes(rest)?.strip_prefix(' ')?;
    let (status, rest) = rest.split_once(' ')?;
    let (bytes, rest) = rest.split_once(' ')?;
    let rest = after_quotes(rest)?.strip_prefix(' ')?;
    let numbers = status.parse::<u16>().is_ok() && (bytes == "-" || bytes.parse::<u64>().is_ok());
    (after_quotes(rest)?.is_empty() && numbers && !user.contains(' ')).then_some(())
}

fn after_quotes(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '\\' => drop(rest.next()?),
            '"' => return Some(&text[at + 2..]),
            _ => {}
        }
    }
    None
}

#[test]
fn any_bytes_are_one_line_in_every_format() {
    let directory = Directory::new();
    let own = r#"%h %u "%r" "%U%q" %V "%{Referer}i" "%{X-Any}i" "%{id}C" %{X-Any}i"#;
    let formats = ["common", "combined", "json"].map(|name| Format::named(name).unwrap());
    let formats = formats.into_iter().chain([Format::parse(own).unwrap()]);
    let serving = Serving::start(&config(&directory, formats, vec![site("\u{e9}\u{2028}\"", 0..4)]));
    let mut numbers = Numbers(0x5e1f_ed6e_0b5e_55ed);
    let mut agents = Vec::new();
    for case in 0..CASES {
        // In some requests only one part is odd, and most agents are plausible.
        let mut part = |odd: bool, without: &[u8]| if odd { numbers.bytes(without) } else { b"plain".to_vec() };
        let (any, controls) =
            (case % 4 == 0, [&(0..9).collect::<Vec<u8>>()[..], &(10..32).collect::<Vec<u8>>(), b"\x7f"].concat());
        let (target, host, agent) =
            (part(any, b""), part(case % 8 == 1, b""), part(true, if any { b"" } else { &controls }));
        let (referer, other) = (part(any, b""), part(any, b""));
        let request = [
            &b"GET /"[..],
            &target,
            b" HTTP/1.1\r\nHost: ",
            &host,
            b"\r\nUser-Agent: ",
            &agent,
            b"\r\nReferer: ",
            &referer,
            b"\r\nX-Any: ",
            &other,
            b"\r\nCookie: id=",
            &other,
            b"\r\nX-User: ",
            &other,
            b"\r\n\r\n",
        ];
        let (response, _) = serving.request(request.concat());
        assert!(response.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&response));
        if response.starts_with(b"HTTP/1.1 200 ") && !any {
            agents.push(agent);
        }
    }
    serving.end();
    let logs: Vec<Vec<String>> = (0..4).map(|number| lines(&directory.path(&number.to_string()))).collect();
    assert!(logs.iter().all(|lines| lines.len() == logs[0].len() && lines.len() >= CASES));
    for line in logs.iter().flatten() {
        assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
    }
    for line in &logs[1] {
        is_combined(line).unwrap_or_else(|| panic!("{line}"));
    }
    for (common, combined) in logs[0].iter().zip(&logs[1]) {
        assert!(combined.starts_with(common), "{common} and {combined}");
    }
    let json: Vec<serde_json::Value> = logs[2].iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(json.iter().all(|line| line["site"] == "\u{e9}\u{2028}\""));
    // JSON contains exactly the bytes that were sent.
    let logged: std::collections::HashSet<Vec<u8>> = json
        .iter()
        .filter_map(|line| line["request"]["headers"]["User-Agent"][0].as_str())
        .map(|text| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect())
        .collect();
    assert!(agents.len() > CASES / 4, "{}", agents.len());
    for agent in agents {
        assert!(logged.contains(selvedge::proto::field::trim(&agent)), "{}", agent.escape_ascii());
    }
}

#[test]
fn a_line_has_a_bound() {
    let directory = Directory::new();
    let own = "%{X-Many}i %U%q %{X-Many}i";
    let formats = ["common", "combined", "json"].map(|name| Format::named(name).unwrap());
    let formats = formats.into_iter().chain([Format::parse(own).unwrap()]);
    let serving = Serving::start(&config(&directory, formats, vec![site("site", 0..4)]));
    let many = "X-Many: 0123456789012345678901234567890123456789\r\n".repeat(90);
    for (target, referer, more) in [
        ("a".repeat(3_900), String::new(), ""),
        ("b".repeat(8_000), String::new(), ""),
        ("c".repeat(3_000), "\u{e9}\"".repeat(1_500), ""),
        ("d".repeat(3_000), "\u{e9}\"".repeat(1_500), &many),
        ("e".to_owned(), "\t".repeat(12_000), ""),
        // Refused, and shown as far as it was read.
        ("\u{1}".repeat(2_000), String::new(), ""),
    ] {
        let fields = format!("Host: a\r\nReferer: x{referer}\r\nUser-Agent: y{referer}\r\n");
        let fields = if referer.len() > 8_000 { fields.split_once("User-Agent").unwrap().0 } else { &fields };
        serving.request(format!("GET /{target} HTTP/1.1\r\n{fields}{more}Connection: close\r\n\r\n"));
    }
    serving.end();
    for number in 0..4 {
        let lines = lines(&directory.path(&number.to_string()));
        assert_eq!(lines.len(), 6);
        for line in &lines {
            assert!(line.len() < 4_096, "{} bytes: {line}", line.len());
            match number {
                1 => is_combined(line).unwrap_or_else(|| panic!("{line}")),
                2 => drop(serde_json::from_str::<serde_json::Value>(line).expect(line)),
                _ => {}
            }
        }
        // A value that fits is complete, and a cut value is marked.
        assert!(number == 2 || lines[0].contains(&"a".repeat(3_900)), "{}", lines[0]);
        assert!(lines[1].contains("bbb...") && lines[1].len() > 2_000, "{}", lines[1]);
        assert!(number == 3 || lines[1].contains("HTTP/1.1"), "{}", lines[1]);
    }
}
