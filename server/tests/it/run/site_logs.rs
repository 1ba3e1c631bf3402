//! Many sites with their own logs: threads, and a log that fails beside others.

use crate::support::backend::Backend;
use crate::support::configured::{Folder, get, request};
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Configures sites with an access log and an error log each.
fn sites(count: usize) -> String {
    (0..count).fold("log { access \"off\"; error \"error.log\"; }\n".to_owned(), |mut text, number| {
        let logs = format!("access \"logs/{number}\" format=\"%v %U\"; error \"logs/{number}.error\"");
        writeln!(text, "site \"s{number}\" {{ log {{ {logs}; }}; route \"/*\" {{ respond 200 \"content\"; }}; }}")
            .expect("writing to a String never fails");
        text
    })
}

fn start(text: &str) -> (Folder, Program) {
    let folder = Folder::new(text);
    folder.write("logs/unused", "");
    let program = folder.serve();
    (folder, program)
}

fn status(folder: &Folder) -> Value {
    let control = folder.path("selvedge.sock");
    let exit = run_to_exit(selvedge_command().args(["status", "--json", "--control"]).arg(control));
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    serde_json::from_str(&exit.out).expect("it is JSON")
}

/// Returns the number of threads of the serving process.
fn threads(folder: &Folder) -> usize {
    let tasks = format!("/proc/{}/task", status(folder)["process_id"]);
    fs::read_dir(tasks).expect("the process runs").count()
}

#[test]
fn the_number_of_threads_does_not_depend_on_the_number_of_logs() {
    let (few, _few_program) = start(&sites(1));
    let (many, _many_program) = start(&sites(200));
    // A thread that sends the status may still end.
    wait_until("both have equally many threads", || (threads(&few) == threads(&many)).then_some(()));
}

#[test]
fn each_line_is_in_its_log_while_other_logs_fail() {
    let failing = |name: &str, path: &str| {
        format!("site \"{name}\" {{ log {{ access \"{path}\"; }}; route \"/*\" {{ respond 200 \"content\"; }}; }}\n")
    };
    let text = sites(200) + &failing("full", "/dev/full") + &failing("moved", "moved/log");
    let folder = Folder::new(&text);
    ["logs/unused", "moved/unused"].iter().for_each(|name| folder.write(name, ""));
    let program = folder.serve();
    let mut client = program.connect();
    let mut expected = vec![String::new(); 200];
    let mut send_request = |number: usize, path: usize| {
        for host in [&format!("s{number}"), "full", "moved"] {
            assert_eq!(request(&mut client, host, &format!("GET /{path}"), &[]).status, 200);
        }
        writeln!(expected[number], "s{number} /{path}").expect("writing to a String never fails");
    };
    for path in 0..1_000 {
        send_request(path % 200, path);
    }
    // A log fails when its folder has another name. The other logs are on this file system, too.
    fs::rename(folder.path("moved"), folder.path("gone")).expect("the folder can be renamed");
    let mut path = 1_000;
    for log in ["/dev/full", "moved/log"] {
        let is_reported = |line: &String| line.contains("LogLinesLost: lines of the access log ") && line.contains(log);
        wait_until("the losses are reported", || {
            path += 1;
            send_request(path % 200, path);
            folder.lines("error.log").iter().any(is_reported).then_some(())
        });
    }
    let losses = status(&folder)["logs"].as_array().expect("logs are listed").clone();
    assert_eq!(losses.len(), 403);
    let with_losses = losses.iter().filter(|log| log["lines_lost"] != 0).map(|log| log["name"].to_string());
    let with_losses: Vec<String> = with_losses.collect();
    assert!(with_losses.len() == 2 && with_losses[0].contains("/dev/full") && with_losses[1].contains("moved/log"));
    program.stop();
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(folder.read(&format!("logs/{number}")), *expected);
    }
}

#[test]
fn routes_choose_which_requests_are_logged() {
    let folder = Folder::new(
        "log { access \"access.log\" format=\"%U %s\"; }
site \"*\" {
    root \"site\"
    route \"/health\" { log #false; respond 200 \"ok\"; }
    route \"/quiet/*\" { log #true status=\"400-599\"; files; }
}",
    );
    folder.write("site/quiet/a.txt", "a");
    folder.write("site/a.txt", "a");
    let program = folder.serve();
    for path in ["/health", "/quiet/a.txt", "/quiet/a.txt", "/quiet/none", "/a.txt"] {
        get(&program, "a", path);
    }
    program.stop();
    assert_eq!(folder.lines("access.log"), ["/quiet/none 404", "/a.txt 200"]);
}

#[test]
fn lines_of_all_workers_are_in_the_order_of_completion() {
    let folder = Folder::new(
        "log { access \"access.log\" format=\"%{end:usec}t %D %{begin:usec}t %{msec}t.%{usec_frac}t\"; }
site \"*\" { route \"/*\" { respond 200 \"ok\"; }; }",
    );
    let program = folder.serve();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // The kernel chooses a worker for each connection.
                    assert_eq!(get(&program, "a", "/").status, 200);
                }
            });
        }
    });
    program.stop();
    let lines = folder.lines("access.log");
    let ends: Vec<u64> = lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(ends.len(), 200);
    // Workers read the clock of the system at different times.
    assert!(ends.is_sorted_by(|a, b| *a <= b + 1_000), "{ends:?}");
    for line in lines {
        let numbers: Vec<u64> = line.split([' ', '.']).map(|number| number.parse().unwrap()).collect();
        let [end, elapsed, begin, millis, fraction] = numbers[..] else { panic!("{line}") };
        assert!((end - begin).abs_diff(elapsed) <= 1, "{line}");
        assert!(begin / 1000 == millis && begin % 1_000_000 == fraction, "{line}");
    }
}

#[test]
fn a_request_has_one_identifier_in_the_log_and_for_upstreams() {
    let backend = Backend::start();
    let folder = Folder::new(&format!(
        "trusted-proxies \"127.0.0.1\"
log {{ access \"access.log\" format=\"%U %L\"; }}
site \"a\" {{ route \"/*\" {{ proxy \"http://{}\"; }}; }}
site \"b\" {{ log {{ access \"b.log\" format=\"json\"; }}; route \"/*\" {{ proxy \"http://{}\"; }}; }}",
        backend.address(),
        backend.address()
    ));
    let program = folder.serve();
    let (mut client, mut sent) = (program.connect(), Vec::new());
    for (target, host, id) in [
        ("/made", "a", None),
        ("/taken", "a", Some("abc-123")),
        ("/bad", "a", Some("a b\"c")),
        ("/json", "b", Some("x.1")),
    ] {
        let lines: Vec<String> = id.iter().map(|id| format!("X-Request-Id: {id}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        // The application responds with the head that it received.
        let received = request(&mut client, host, &format!("GET {target}"), &lines);
        let ids = received.text().lines().filter_map(|line| line.strip_prefix("x-request-id: ")).map(str::to_owned);
        sent.extend(ids);
    }
    program.stop();
    let logged: Vec<String> =
        folder.lines("access.log").iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(logged, sent[..3]);
    assert!(sent[0].len() == 32 && sent[2].len() == 32 && sent[0] != sent[2], "{sent:?}");
    assert_eq!((&*sent[1], &*sent[3]), ("abc-123", "x.1"));
    let json: Value = serde_json::from_str(&folder.lines("b.log")[0]).unwrap();
    assert_eq!(json["request_id"], "x.1");
    let (ts, time) = (json["ts"].as_f64().unwrap(), json["time"].as_str().unwrap());
    assert!(ts > 1e9 && time.len() == "2000-10-10T13:55:36.125Z".len() && time.ends_with('Z'), "{json}");
    let millis = format!("{ts:.3}");
    assert_eq!(millis.rsplit_once('.').unwrap().1, &time[20..23], "{json}");
}
