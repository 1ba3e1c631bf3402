//! The access log on standard output, the error log on standard error.

use crate::support::program::{Program, selvedge_serve_in_shell};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A parsed line of the Combined Log Format.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    host: String,
    request: String,
    status: String,
    bytes: String,
    referer: String,
    agent: String,
}

/// Parses a line as log tools do: fields end at spaces, quoted ones at a quote without a preceding backslash.
fn parse(line: &str) -> Line {
    assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "not printable ASCII: {line}");
    let (host, rest) = line.split_once(" - - [").expect(line);
    let (time, rest) = rest.split_once("] ").expect(line);
    assert_is_time(time);
    let (request, rest) = quoted(rest);
    let mut parts = rest.trim_start().splitn(3, ' ');
    let mut next = || parts.next().expect(line).to_owned();
    let (status, bytes, rest) = (next(), next(), next());
    assert!(status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()), "{line}");
    assert!(bytes == "-" || bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0), "{line}");
    let (referer, rest) = quoted(&rest);
    let (agent, rest) = quoted(rest.trim_start());
    assert_eq!(rest, "", "{line}");
    Line { host: host.to_owned(), request, status, bytes, referer, agent }
}

fn quoted(text: &str) -> (String, &str) {
    let inside = text.strip_prefix('"').expect(text);
    let mut escaped = false;
    let end = inside.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    let end = end.expect("the quoted field ends with a quote");
    (inside[..end].to_owned(), &inside[end + 1..])
}

/// Asserts the format `10/Oct/2000:13:55:36 +0000`.
fn assert_is_time(time: &str) {
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let month = shape.get(3..6).expect(time);
    assert!("JanFebMarAprMayJunJulAugSepOctNovDec".contains(month), "{time}");
    assert_eq!(shape, format!("00/{month}/0000:00:00:00 +0000"));
}

/// Waits for this number of access lines, stops the program, and asserts that it wrote no more lines.
fn lines(program: Program, count: usize) -> Vec<Line> {
    wait_until("the lines are written while the program runs", || {
        (program.access_lines().len() >= count).then_some(())
    });
    let exit = program.stop();
    let lines: Vec<Line> = exit.out.lines().map(parse).collect();
    assert_eq!(lines.len(), count, "{}", exit.out);
    lines
}

#[test]
fn each_request_is_logged_in_one_line() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    tree.write("large", vec![b'A'; 3_000_000]);
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let tag = client.get("/a.txt").etag().to_owned();
    client.request("HEAD", "/a.txt", "");
    client.get("/large?a=b");
    client.get_with("/a.txt", "Range: bytes=0-1");
    client.get_with("/a.txt", &format!("If-None-Match: {tag}"));
    let missing = client.get("/missing").length().to_string();
    client.request("OPTIONS", "*", "");
    let refused = client.request("BREW", "http://b.example/a.txt", "").length().to_string();
    let expected = [
        ("GET /a.txt HTTP/1.1", "200", "7"),
        ("HEAD /a.txt HTTP/1.1", "200", "-"),
        ("GET /large?a=b HTTP/1.1", "200", "3000000"),
        ("GET /a.txt HTTP/1.1", "206", "2"),
        ("GET /a.txt HTTP/1.1", "304", "-"),
        ("GET /missing HTTP/1.1", "404", &missing),
        ("OPTIONS * HTTP/1.1", "204", "-"),
        ("BREW http://b.example/a.txt HTTP/1.1", "501", &refused),
    ];
    let lines = lines(program, expected.len());
    for (line, (request, status, bytes)) in lines.iter().zip(expected) {
        assert_eq!((&*line.request, &*line.status, &*line.bytes), (request, status, bytes));
        assert_eq!((&*line.host, &*line.referer, &*line.agent), ("127.0.0.1", "-", "-"));
    }
}

#[test]
fn pipelined_requests_are_logged() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    (0..500).for_each(|_| client.send_request("GET", "/a.txt", ""));
    (0..500).for_each(|_| assert_eq!(client.receive("GET").unwrap().status, 200));
    lines(program, 500);
}

#[test]
fn values_from_clients_are_escaped() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    client.send(b"GET /a.txt?\"quote\" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let quote_status = client.receive("GET").unwrap().status.to_string();
    let mut client = program.connect();
    client.send(
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: http://a/\"\\\r\nUser-Agent: a\tb \xc3\xa9\xff \"c\" \\\r\n\r\n",
    );
    assert_eq!(client.receive("GET").unwrap().status, 200);
    let mut client = program.connect();
    client.send_request("GET", "/a.txt", "Referer: \nUser-Agent: Mozilla/5.0 (X11; Linux) [a] - 200 5");
    client.receive("GET").unwrap();
    // Refused before parsing; the request line is logged with escapes.
    for line in [&b"GET /\x1b[31m\x00\xff HTTP/1.1"[..], b"\"; drop \\ \x7f", b"GET /a.txt HTTP/1.1\rforged"] {
        let mut client = program.connect();
        client.send([line, b"\r\nHost: a\r\n\r\n"].concat());
        assert_eq!(client.receive("GET").unwrap().status, 400);
        client.assert_closed();
    }
    let lines = lines(program, 6);
    let find = |request: &str| lines.iter().find(|line| line.request == request).unwrap_or_else(|| panic!("{lines:?}"));
    let quote = find(r#"GET /a.txt?\"quote\" HTTP/1.1"#);
    assert_eq!(quote.status, quote_status);
    let escaped = lines.iter().find(|line| line.referer != "-").expect("one line has a Referer");
    assert_eq!((&*escaped.referer, &*escaped.agent), (r#"http://a/\"\\"#, r#"a\x09b \xc3\xa9\xff \"c\" \\"#));
    assert!(lines.iter().any(|line| line.agent == "Mozilla/5.0 (X11; Linux) [a] - 200 5" && line.referer == "-"));
    for request in [r"GET /\x1b[31m\x00\xff HTTP/1.1", r#"\"; drop \\ \x7f"#, "GET /a.txt HTTP/1.1"] {
        assert_eq!(lines.iter().filter(|line| line.request == request && line.status == "400").count(), 1, "{request}");
    }
}

#[test]
fn the_access_log_can_be_off() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve_with(&tree, &["--log", "off"]);
    let mut client = program.connect();
    assert_eq!(client.get("/a.txt").status, 200);
    assert_eq!(client.request("POST", "/a.txt", "").status, 405);
    wait_until("errors are still logged", || (program.error_lines().len() == 1).then_some(()));
    assert_eq!(program.stop().out, "");
}

/// Sends `count` requests on one connection.
fn serve_many(program: &Program, count: usize) {
    let mut client = program.connect();
    // In batches, so that the socket buffers can hold the unread responses.
    for _ in 0..count / 100 {
        (0..100).for_each(|_| client.send_request("GET", "/a.txt", "User-Agent: a rather long name of a browser"));
        (0..100).for_each(|_| assert_eq!(client.receive("GET").expect("a response").status, 200));
    }
}

#[test]
fn lines_lost_on_a_full_disk_are_counted() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::start(&mut selvedge_serve_in_shell(&tree, "exec \"$@\" >/dev/full"));
    serve_many(&program, 1_000);
    let exit = program.stop();
    let lines: Vec<_> = exit.err.lines().skip(1).map(name_and_count).collect();
    assert!(lines.iter().all(|(name, _)| *name == "LogLinesLost"), "{}", exit.err);
    assert_eq!(lines.iter().map(|(_, count)| count).sum::<u64>(), 1_000, "{}", exit.err);
}

/// Returns a program whose access log is a full FIFO, the path of the FIFO, and its reader, which reads nothing.
fn serve_unread(tree: &Tree) -> (Program, PathBuf, File) {
    let fifo = tree.outside("log");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO can be created");
    let reader = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&fifo);
    let reader = reader.expect("a non-blocking reader can be opened");
    let script = format!("exec \"$@\" >{}", fifo.display());
    let program = Program::start(&mut selvedge_serve_in_shell(tree, &script));
    // More than the capacity of a pipe.
    serve_many(&program, 5_000);
    wait_until("the pipe is full", || is_full(&fifo).then_some(()));
    // These lines wait in the queue behind the blocked write.
    serve_many(&program, 1_000);
    (program, fifo, reader)
}

#[test]
fn an_unread_access_log_does_not_block_requests() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let (program, _, reader) = serve_unread(&tree);
    program.stop();
    drop(reader);
}

#[test]
fn an_unread_access_log_does_not_block_the_error_log() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let (program, fifo, reader) = serve_unread(&tree);
    assert_eq!(program.error_lines(), [""; 0]);
    let mut client = program.connect();
    client.send("GET /a.txt HTTP/1.1\r\n\r\n");
    assert_eq!(client.receive("GET").unwrap().status, 400);
    let lines = wait_until("the refusal is written", || Some(program.error_lines()).filter(|lines| !lines.is_empty()));
    assert!(lines.len() == 1 && lines[0].contains(" HostMissing: 400 "), "{lines:?}");
    assert!(is_full(&fifo), "the access log was read");
    drop(reader);
}

/// Whether a write would block.
fn is_full(fifo: &Path) -> bool {
    let writer = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(fifo);
    let mut writer = writer.expect("the FIFO has a reader");
    let wrote = writer.write(&[b'\n'; 4_096]);
    wrote.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_malformed_chunk_is_logged_in_one_line() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    for method in ["POST", "GET"] {
        let program = Program::serve(&tree);
        let mut client = program.connect();
        client.send_request(method, "/a.txt", "Transfer-Encoding: chunked");
        client.send("zz\r\n\r\n");
        assert_eq!(client.receive(method).unwrap().status, 400, "{method}");
        // The program lingers until its client closes.
        drop(client);
        let exit = program.stop();
        let lines: Vec<_> = exit.err.lines().skip(1).collect();
        assert!(lines.len() == 1 && !lines[0].contains(" count="), "{method}: {}", exit.err);
        assert!(lines[0].contains(" ChunkSizeInvalid: ") && lines[0].contains(" peer="), "{method}: {}", exit.err);
        assert_eq!(exit.out.lines().count(), 1, "{method}: {}", exit.out);
    }
}

/// Parses `TIME LEVEL NAME: text … count=N` and returns the name and the count.
fn name_and_count(line: &str) -> (&str, u64) {
    let (_, rest) = line.split_once("Z ").expect(line);
    let (level, rest) = rest.split_once(' ').expect(line);
    assert!(["info", "warn", "error"].contains(&level), "{line}");
    let (name, rest) = rest.split_once(": ").expect(line);
    let count = rest.rsplit_once(" count=").map_or(1, |(_, count)| count.parse().expect(line));
    (name, count)
}

#[test]
fn many_bad_requests_are_coalesced_to_one_line_per_second() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let began = Instant::now();
    for number in 0..1_000 {
        let mut client = program.connect();
        // One in ten is malformed in another way.
        let host = if number % 10 == 0 { "Host: a/b\r\n" } else { "" };
        client.send(format!("GET /{number} HTTP/1.1\r\n{host}\r\n"));
        assert_eq!(client.receive("GET").unwrap().status, 400);
    }
    let good = program.connect().get("/a.txt").status;
    let exit = program.stop();
    let windows = began.elapsed().as_secs() + 1;
    assert_eq!((good, exit.out.lines().count()), (200, 1_001));
    let lines: Vec<_> = exit.err.lines().skip(1).map(name_and_count).collect();
    for (reason, expected) in [("HostMissing", 900), ("HostInvalid", 100)] {
        let own: Vec<u64> = lines.iter().filter(|(name, _)| *name == reason).map(|(_, count)| *count).collect();
        assert_eq!(own.iter().sum::<u64>(), expected, "{}", exit.err);
        // One line at once, then one for each second, and one at the end.
        assert!(own.len() as u64 <= windows + 2, "{} lines in {windows} s: {}", own.len(), exit.err);
    }
    assert!(lines.iter().all(|(name, _)| name.starts_with("Host")), "{}", exit.err);
}

#[test]
fn an_error_line_has_the_reason_and_the_peer() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let status_of = |bytes: &str| {
        let mut client = program.connect();
        client.send(bytes);
        client.receive("GET").unwrap().status
    };
    assert_eq!(status_of("POST /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
    assert_eq!(status_of("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status_of("GET /\"\x1b HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status_of(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000))), 414);
    // Not found is not logged as an error.
    assert_eq!(status_of("GET /missing HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
    let exit = program.stop();
    let lines: Vec<&str> = exit.err.lines().skip(1).collect();
    assert_eq!(lines.len(), 4, "{}", exit.err);
    for (expected, line) in [
        ("405 this method is not allowed here", "POST /a.txt HTTP/1.1"),
        ("400 the path has a percent sign without two hexadecimal digits", "GET /%zz HTTP/1.1"),
        ("TargetInvalid: 400 the request target is invalid", r#"GET /\"\x1b HTTP/1.1"#),
        ("RequestLineTooLong: 414 the request line is too long (bound: 8192 bytes)", "GET /xxxx"),
    ] {
        let found =
            lines.iter().find(|found| found.contains(expected)).unwrap_or_else(|| panic!("{expected}: {}", exit.err));
        assert!(found.contains(" peer=127.0.0.1:") && found.contains(&format!(" request=\"{line}")), "{found}");
        assert!(found.len() < 500, "{found}");
    }
}
