//! `selvedge last`: the flight recorder of the real program, while it serves and after it was killed.

use crate::support::backend::Backend;
use crate::support::configured::{Folder, get, request};
use crate::support::program::{Exit, Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

fn last(folder: &Folder, more: &[&str]) -> Exit {
    run_to_exit(selvedge_command().arg("last").args(more).arg("--control").arg(folder.path("selvedge.sock")))
}

/// Returns the records that options select, the newest one first.
fn records(folder: &Folder, more: &[&str]) -> Vec<Value> {
    let exit = last(folder, &[&["--json"], more].concat());
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    exit.out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Waits for a number of records: a response is recorded after it was sent.
fn records_when(folder: &Folder, more: &[&str], count: usize) -> Vec<Value> {
    wait_until(&format!("{count} requests are recorded"), || {
        Some(records(folder, more)).filter(|records| records.len() == count)
    })
}

fn targets(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["target"].as_str().expect("a text")).collect()
}

fn site(backend: &Backend) -> String {
    format!(
        "site \"a.example\" {{\n    route \"/*\" {{ name \"all\"; respond 200 \"content\"; }}\n}}\n\
         site \"b.example\" {{\n    route \"/app/*\" {{ proxy \"http://{}\"; }}\n    route \"/x\" {{ deny; }}\n}}\n",
        backend.address()
    )
}

#[test]
fn the_last_requests_are_shown_and_selected() {
    let backend = Backend::start();
    let folder = Folder::new(&site(&backend));
    let program = folder.serve();
    let long = format!("/{}", "é".repeat(9).replace('é', "%C3%A9").repeat(2));
    for (host, target, status) in
        [("a.example", "/1?secret=2", 200), ("b.example", "/x", 403), ("b.example", "/app/3", 200), ("c", &long, 421)]
    {
        assert_eq!(get(&program, host, target).status, status, "{target}");
    }
    let all = records_when(&folder, &[], 4);
    // The host, which is no name of a site, is before the path.
    let begin = &long[..71];
    assert_eq!(targets(&all), [begin, "/app/3", "/x", "/1"], "the newest one is first, without a query");
    let [cut, forwarded, denied, plain] = &all[..] else { panic!("four are recorded") };
    assert_eq!((&cut["target_cut"], &cut["site"], &cut["route"]), (&Value::Bool(true), &"".into(), &"".into()));
    assert_eq!((&cut["host"], &denied["host"]), (&"c".into(), &"b.example".into()));
    assert_eq!(
        (&denied["reason"], &denied["route"], &denied["status"]),
        (&"denied by a route".into(), &"/x".into(), &403.into())
    );
    for (name, expected) in [
        ("client", Value::from("127.0.0.1")),
        ("method", "GET".into()),
        ("host", "a.example".into()),
        ("protocol", "HTTP/1.1".into()),
        ("tls", false.into()),
        ("site", "a.example".into()),
        ("route", "all".into()),
        ("reason", "".into()),
        ("aborted", false.into()),
        ("content_bytes", 7.into()),
        ("connection_requests", 1.into()),
        ("upstream", Value::Null),
    ] {
        assert_eq!(plain[name], expected, "{name}: {plain}");
    }
    assert!(plain["phases_us"]["accept"].as_u64().is_some_and(|time| time > 0), "{plain}");
    assert_eq!(forwarded["upstream"], format!("http://{0} {0}", backend.address()));
    assert_eq!((&forwarded["upstream_status"], &forwarded["tries"]), (&200.into(), &1.into()));
    let time = |name: &str| forwarded["phases_us"][name].as_u64().unwrap_or_default();
    assert!(time("connect") > 0 && time("first_byte") > 0, "{forwarded}");
    assert!(time("application") >= time("connect") + time("first_byte"), "{forwarded}");
    assert!(forwarded["elapsed_us"].as_u64() >= Some(time("application")), "{forwarded}");

    for (options, expected) in [
        (&["--status", "4xx"][..], &[begin, "/x"][..]),
        (&["--status", "403"], &["/x"]),
        (&["--site", "b.example"], &["/app/3", "/x"]),
        (&["--route", "all"], &["/1"]),
        (&["--route", "/*"], &["/1"]),
        (&["--client", "127.0.0.0/8", "-n", "1"], &[begin]),
        (&["--client", "::1"], &[]),
        (&["--reason", "denied", "--status", "400-499"], &["/x"]),
        (&["--slower", "1h"], &[]),
    ] {
        if options == ["--slower", "1h"] {
            assert_eq!(last(&folder, options).code, Some(2), "hours are no unit");
            continue;
        }
        assert_eq!(targets(&records(&folder, options)), expected, "{options:?}");
    }
    assert_eq!(records(&folder, &["--slower", "70m"]).len(), 0);
    let text = last(&folder, &["--route", "/app/*"]).out;
    let expected = format!(", b.example /app/*, upstream http://{0} {0} 200", backend.address());
    assert!(
        text.contains(" GET /app/3 127.0.0.1") && text.contains(&expected) && text.contains(", first byte "),
        "{text}"
    );
    let mistaken = run_to_exit(selvedge_command().args(["last", "5xx"]));
    assert!(mistaken.code == Some(1) && mistaken.err.contains("`--status 5xx` selects by status"), "{mistaken:?}");
    assert_eq!(last(&folder, &["--client", "::1"]).out, "no request is recorded that fits\n");
    program.stop();
}

#[test]
fn requests_that_rules_would_refuse_are_found_even_if_they_fail() {
    // Closed at the end of the statement.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    let folder = Folder::new(&format!(
        "site \"a\" {{\n    route \"/app/*\" {{ ip-access dry-run=#true {{ allow \"10.0.0.0/8\"; }}; proxy \"http://{closed}\"; }}\n    \
         route \"/rate\" {{ ip-access dry-run=#true {{ allow \"10.0.0.0/8\"; }}; rate-limit 1 per=\"1h\"; respond 200; }}\n    \
         route \"/x\" {{ deny dry-run=#true; }}\n    route \"/*\" {{ respond 200; }}\n}}\n"
    ));
    let program = folder.serve();
    for (target, status) in [("/app/1", 502), ("/rate", 200), ("/rate?2", 429), ("/x", 200), ("/y", 200)] {
        assert_eq!(get(&program, "a", target).status, status, "{target}");
    }
    let all = records_when(&folder, &[], 5);
    let refused: Vec<_> = all.iter().map(|record| record["dry_run"] == true).collect();
    assert_eq!(refused, [false, true, true, true, true], "{all:?}");
    let selected = records(&folder, &["--dry-run"]);
    assert_eq!(targets(&selected), ["/x", "/rate", "/rate", "/app/1"]);
    assert_eq!(selected[1]["reason"], "the client exceeds its rate limit", "that of the rule that refuses it");
    let text = last(&folder, &["--dry-run"]).out;
    let ends = ["denied by a route (dry run)", "the client exceeds its rate limit, dry run"];
    assert!(text.lines().zip(ends).all(|(line, end)| line.contains(end)), "{text}");
    assert_eq!(text.matches("dry run").count(), 4, "once on a line: {text}");
    program.stop();
}

#[test]
fn names_stay_right_after_a_reload_and_the_head_of_a_refused_request_is_shown() {
    let backend = Backend::start();
    let folder = Folder::new(&site(&backend));
    let program = folder.serve();
    assert_eq!(get(&program, "a.example", "/1").status, 200);
    folder.configure("site \"new.example\" {\n    route \"/*\" { respond 200; }\n}\n");
    assert_eq!(folder.run("reload").code, Some(0));
    assert_eq!(get(&program, "new.example", "/2").status, 200);
    let mut client = program.connect();
    client.send("GET /3 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(client.receive("GET").expect("it is refused").status, 400);
    let all = records_when(&folder, &[], 3);
    let names: Vec<_> = all.iter().map(|record| (record["site"].as_str(), record["route"].as_str())).collect();
    assert_eq!(names, [(Some(""), Some("")), (Some("new.example"), Some("/*")), (Some("a.example"), Some("all"))]);
    assert_eq!((&all[0]["target"], &all[0]["protocol"]), (&"GET /3 HTTP/1.1".into(), &Value::Null));
    assert_eq!(all[0]["reason"], "HostRepeated");
    program.stop();
}

/// Returns the dumps in the folder.
fn dumps(folder: &Folder) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder.path(".")).expect("the folder is there").map(|entry| entry.expect("it is read").path());
    entries.filter(|path| path.to_string_lossy().contains("selvedge-last-")).collect()
}

fn serving_pid(folder: &Folder) -> Pid {
    let exit =
        run_to_exit(selvedge_command().args(["status", "--json", "--control"]).arg(folder.path("selvedge.sock")));
    let status: Value = serde_json::from_str(&exit.out).expect("it is JSON");
    let pid = status["process_id"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a process has a number")
}

fn get_again(program: &Program) -> bool {
    request(&mut program.connect(), "a.example", "GET /after", &[]).status == 200
}

/// Returns the records of the only dump.
fn dumped(folder: &Folder) -> Vec<Value> {
    let [dump] = &dumps(folder)[..] else { panic!("one dump: {:?}", dumps(folder)) };
    let mode = fs::metadata(dump).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let exit = run_to_exit(selvedge_command().args(["last", "--json", "--dump"]).arg(dump));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    exit.out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn a_process_without_heartbeats_is_dumped_before_the_service_manager_acts() {
    let folder = Folder::new(&site(&Backend::start()));
    let _manager = UnixDatagram::bind(folder.path("notify")).expect("a socket can be created");
    let mut command = selvedge_command();
    command.arg("run").arg("--config").arg(folder.path("selvedge.kdl"));
    let program = Program::start(command.env("NOTIFY_SOCKET", folder.path("notify")).env("WATCHDOG_USEC", "4000000"));
    assert_eq!(get(&program, "a.example", "/before").status, 200);
    records_when(&folder, &[], 1);
    let serving = serving_pid(&folder);
    kill_process(serving, Signal::STOP).expect("it serves");
    let is_reported =
        || program.standard_error().contains("sends no heartbeat; its last requests are in ").then_some(());
    wait_until("the dump is written", is_reported);
    assert_eq!(targets(&dumped(&folder)), ["/before"]);
    kill_process(serving, Signal::CONT).expect("it was stopped");
    assert!(get_again(&program));
    program.stop();
    assert_eq!(dumps(&folder).len(), 1, "it is written once");
}

#[test]
fn the_supervisor_dumps_the_requests_of_a_killed_process() {
    let backend = Backend::start();
    let folder = Folder::new(&site(&backend));
    let program = folder.serve();
    assert_eq!(get(&program, "a.example", "/before").status, 200);
    records_when(&folder, &[], 1);
    assert!(dumps(&folder).is_empty());
    kill_process(serving_pid(&folder), Signal::KILL).expect("it serves");
    let is_reported = || program.standard_error().contains("its last requests are in ").then_some(());
    wait_until("the dump is written", is_reported);
    let records = dumped(&folder);
    assert_eq!(targets(&records), ["/before"]);
    assert_eq!((&records[0]["site"], &records[0]["route"]), (&"a.example".into(), &"all".into()));
    // The next process begins with an empty recorder.
    assert!(get_again(&program));
    assert_eq!(targets(&records_when(&folder, &[], 1)), ["/after"]);
    program.stop();
    assert_eq!(dumps(&folder).len(), 1, "a graceful stop writes none");
    let exit = run_to_exit(selvedge_command().args(["last", "--dump"]).arg(folder.path("selvedge.kdl")));
    assert_eq!(exit.code, Some(1), "{exit:?}");
}
