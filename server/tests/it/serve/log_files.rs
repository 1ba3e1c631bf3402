//! Log files and formats: moved files are reopened, and a full disk recovers.

use crate::support::program::{Program, run_to_exit, selvedge_command, selvedge_serve_in_shell};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use std::fs;
use std::path::Path;

/// Returns the complete lines of a file, or none if it does not exist.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[test]
fn each_format_has_one_line_for_each_request() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    for (format, begins, ends) in [
        ("common", "127.0.0.1 - - [", "] \"GET /a.txt?b HTTP/1.1\" 200 7"),
        ("combined", "127.0.0.1 - - [", "] \"GET /a.txt?b HTTP/1.1\" 200 7 \"-\" \"agent \\\"\""),
        ("%m|%U%q|%>s|%B|%{User-Agent}i|%{ETag}o|%X%k", "GET|/a.txt?b|200|7|agent \\\"|\\\"", "\\\"|+0"),
        ("json", "{\"ts\":", "\"size\":7,\"status\":200,\"outcome\":\"complete\"}"),
    ] {
        let program = Program::serve_with(&tree, &["--log", format]);
        assert_eq!(program.connect().get_with("/a.txt?b", "User-Agent: agent \"").status, 200);
        let exit = program.stop();
        let lines: Vec<&str> = exit.out.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with(begins) && lines[0].ends_with(ends), "{format}: {lines:?}");
        if format == "json" {
            let line: serde_json::Value = serde_json::from_str(lines[0]).expect("the line is JSON");
            assert_eq!(line["request"]["headers"]["User-Agent"][0], "agent \"");
            assert!(line["duration"].as_f64().is_some_and(|duration| duration > 0.0), "{line}");
        }
    }
}

#[test]
fn an_invalid_format_or_file_is_refused_with_the_reason() {
    let tree = Tree::new();
    for (arguments, expected) in [
        (&["--log", "nonsense"][..], "is no format of an access log (at byte 1); write common, combined, json, or"),
        (&["--log", "%h %Q"], "the directive %Q is not known (at byte 4)"),
        (&["--access-log", "/nonsense/file"], "cannot open the access log /nonsense/file: No such file"),
        (&["--error-log", "/"], "cannot open the error log /: Is a directory"),
        (
            &["--error-log", "/dev/null", "--access-log", "/dev/null"],
            "two logs with different settings are written to /dev/null",
        ),
    ] {
        let exit = run_to_exit(
            selvedge_command().arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]).args(arguments),
        );
        assert!(exit.code != Some(0) && exit.err.contains(expected), "{arguments:?}: {exit:?}");
    }
}

#[test]
fn moved_files_are_reopened() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let (access, error) = (tree.outside("access"), tree.outside("error"));
    let program = Program::serve_with(&tree, &["--access-log", path_text(&access), "--error-log", path_text(&error)]);
    let mut client = program.connect();
    let mut send_requests = |number: usize| {
        client.get(&format!("/a.txt?{number}"));
        client.request("POST", "/a.txt", "");
    };
    send_requests(1);
    wait_until("the first lines are written", || {
        (lines(&access).len() == 2 && !lines(&error).is_empty()).then_some(())
    });
    let moved = [(&access, tree.outside("access.1")), (&error, tree.outside("error.1"))];
    for (path, to) in &moved {
        fs::rename(path, to).expect("the file can be moved");
    }
    // Immediately after the signal, even without a line to write.
    program.signal(Signal::USR1);
    wait_until("both files exist again", || (access.exists() && error.exists()).then_some(()));
    send_requests(2);
    wait_until("the next lines are written", || (lines(&access).len() == 2).then_some(()));
    // Within one second without a signal.
    fs::remove_file(&access).expect("the file can be removed");
    let mut number = 2;
    wait_until("the file exists again", || {
        number += 1;
        send_requests(number);
        access.exists().then_some(())
    });
    let exit = program.stop();
    assert_eq!((exit.out.as_str(), exit.err.lines().count()), ("", 1), "{exit:?}");
    assert!(lines(&moved[0].1).iter().all(|line| line.contains("a.txt?1 ") || line.contains("POST")));
    let last = lines(&access);
    assert!(last.len() >= 2 && last[last.len() - 2].contains(&format!("a.txt?{number} ")), "{last:?}");
    assert!(lines(&error).iter().any(|line| line.contains("405")), "{:?}", lines(&error));
}

#[test]
fn lines_lost_on_a_full_disk_are_counted() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let access = tree.outside("access");
    // A write beyond the file size limit fails as on a full disk, in the middle of a line.
    let script = format!("trap '' XFSZ; ulimit -S -f 16; exec \"$@\" --access-log {}", access.display());
    let program = Program::start(&mut selvedge_serve_in_shell(&tree, &script));
    let mut client = program.connect();
    let mut number = 0;
    let mut request_until = |what: &str, condition: &mut dyn FnMut() -> bool| {
        wait_until(what, || {
            for _ in 0..50 {
                number += 1;
                assert_eq!(client.get(&format!("/a.txt?{number}")).status, 200);
            }
            condition().then_some(())
        });
        number
    };
    let has_event = |name: &str| program.error_lines().iter().any(|line| line.contains(name));
    request_until("lines are lost", &mut || has_event(" LogLinesLost: "));
    let unlimited = Rlimit { current: None, maximum: None };
    prlimit(Some(program.pid()), Resource::Fsize, unlimited).expect("the process is a child of the test");
    let requests_sent = request_until("the log is written again", &mut || has_event(" LogRecovered: "));
    let exit = program.stop();
    let numbers: Vec<usize> = lines(&access)
        .iter()
        .map(|line| {
            let (_, rest) = line.split_once("\"GET /a.txt?").unwrap_or_else(|| panic!("{line}"));
            let (number, rest) = rest.split_once(' ').expect(line);
            assert_eq!(rest, "HTTP/1.1\" 200 7 \"-\" \"-\"");
            number.parse().expect(line)
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "each line is complete and unique");
    assert_eq!(numbers.last(), Some(&requests_sent));
    let lost = exit.err.lines().filter(|line| line.contains(" LogLinesLost: "));
    let lost: usize =
        lost.map(|line| line.rsplit_once(" count=").map_or(1, |(_, count)| count.parse().expect(line))).sum();
    assert_eq!(numbers.len() + lost, requests_sent, "{}", exit.err);
    assert!(exit.err.contains(&format!("lost: {lost} lines\n")), "{}", exit.err);
}
