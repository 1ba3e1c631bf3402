//! Many sites with their own logs: threads, and a log that fails beside others.

use crate::support::configured::{Folder, request};
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
