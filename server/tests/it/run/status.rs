//! `selvedge status`: every number is compared with what was done.

use crate::support::configured::{Folder, get, request};
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

const SITE: &str = "log { access \"access.log\"; }\n\
    site \"a.example\" {\n    rate-limit 1 per=\"1h\" dry-run=#true\n    route \"/\" { respond 200 \"content\" }\n}\n";

fn status(folder: &Folder, more: &[&str]) -> String {
    let exit =
        run_to_exit(selvedge_command().arg("status").args(more).arg("--control").arg(folder.path("selvedge.sock")));
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    exit.out
}

fn json(folder: &Folder) -> Value {
    serde_json::from_str(&status(folder, &["--json"])).expect("it is JSON")
}

/// Repeats until a condition holds: a closed connection may not be closed at the server yet.
fn json_when(folder: &Folder, condition: impl Fn(&Value) -> bool) -> Value {
    wait_until("the status shows what was done", || Some(json(folder)).filter(&condition))
}

fn reload(folder: &Folder) {
    let exit = run_to_exit(selvedge_command().arg("reload").arg("--control").arg(folder.path("selvedge.sock")));
    assert_eq!(exit.code, Some(0), "{exit:?}");
}

/// Returns the rows of a text under a label.
fn rows<'t>(text: &'t str, label: &str) -> Vec<&'t str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(label));
    let first = lines.next().unwrap_or_else(|| panic!("no row {label}: {text}"));
    let rest = lines.take_while(|line| line.starts_with("    ")).map(str::trim);
    [first[label.len()..].trim()].into_iter().chain(rest).collect()
}

/// Sends a request that ends its connection. Returns the status, the bytes of the head, and the bytes of the content.
fn request_once(program: &Program, request: &str) -> (String, u64, u64) {
    let mut stream = TcpStream::connect(program.address()).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let response = std::io::read_to_string(stream).expect("it responds with text");
    let (head, content) = response.split_once("\r\n\r\n").expect("a head has an end");
    (head[9..12].to_owned(), head.len() as u64 + 4, content.len() as u64)
}

/// Sends five requests with status 200, two with 404, and a refused head. Returns the bytes of all heads and of all
/// content.
fn eight_responses(program: &Program) -> (u64, u64) {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let two_framings = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut sent = (0, 0);
    for (request, status, times) in
        [(get("/"), "200", 5), (get("/none"), "404", 2), (two_framings.to_owned(), "400", 1)]
    {
        for _ in 0..times {
            let (responded, head, content) = request_once(program, &request);
            assert_eq!(responded, status);
            sent = (sent.0 + head, sent.1 + content);
        }
    }
    sent
}

#[test]
fn every_number_of_the_status_is_correct() {
    let began = Instant::now();
    let folder = Folder::new(SITE);
    let program = folder.serve();
    let (head_bytes, content_bytes) = eight_responses(&program);
    let rows_first = json_when(&folder, |rows| rows["connections"]["open"] == 0);
    assert_eq!(rows_first["sent"], json!({"head_bytes": head_bytes, "content_bytes": content_bytes}));
    // One idle connection under the first configuration; two under the second, one of them with a partial head.
    let mut earlier = program.connect();
    let mut contents = vec![request(&mut earlier, "a.example", "GET /", &[]).content];
    folder.configure(&format!("{SITE}site \"b\" {{ route \"/*\" {{ deny; }}; }}"));
    reload(&folder);
    let [mut idle, mut begun] = [(); 2].map(|()| program.connect());
    for client in [&mut idle, &mut begun] {
        let denied = request(client, "b", "GET /", &[]);
        assert_eq!(denied.status, 403);
        contents.push(denied.content);
    }
    begun.send("GET / HTTP/1.1\r\n");
    let rows_then = json_when(&folder, |rows| {
        let connections = &rows["connections"];
        connections["open"] == 3
            && connections["states"]["receiving_head"] == 1
            && connections["closed"] != json!({})
            && rows["requests"]["total"] == 11
    });

    assert_eq!(rows_then["version"], env!("CARGO_PKG_VERSION"));
    assert_ne!(rows_then["process_id"], json!(program.pid().as_raw_nonzero().get()), "that is the supervisor");
    assert!(rows_then["uptime_seconds"].as_u64().expect("a number") <= began.elapsed().as_secs());
    assert_eq!(
        (&rows_then["restarts"], &rows_then["workers"], &rows_then["workers_unresponsive"]),
        (&json!(0), &json!(2), &json!(0))
    );
    let file = folder.path("selvedge.kdl").display().to_string();
    let in_force = json!({"file": file, "number": 2, "earlier": [{"number": 1, "connections": 1}]});
    assert_eq!(rows_then["configuration"], in_force);
    assert_eq!(rows_then["listeners"], json!([program.address().to_string()]));
    let limits = json!({"header_timeout_ms": 10_000, "body_timeout_ms": 30_000, "send_timeout_ms": 30_000,
        "http2_settings_timeout_ms": 10_000});
    assert_eq!(rows_then["limits"], limits);

    let connections = &rows_then["connections"];
    assert!(connections["limit"].as_u64().expect("a number") >= 3);
    assert_eq!(connections["accepted"], 11);
    let states = json!({"idle": 2, "receiving_head": 1, "receiving_content": 0, "processing": 0, "sending": 0,
        "lingering": 0, "unknown": 0});
    assert_eq!(connections["states"], states);
    assert_eq!(connections["closed"], json!({"CloseRequested": 7, "ContentLengthWithTransferEncoding": 1}));

    let requests = &rows_then["requests"];
    assert_eq!(requests["by_status"], json!({"1xx": 0, "2xx": 6, "3xx": 0, "4xx": 5, "5xx": 0}));
    assert_eq!((&requests["total"], &requests["aborted"]), (&json!(11), &json!(0)));
    assert_eq!(requests["refused"], json!({"ContentLengthWithTransferEncoding": 1}));
    let reasons = json!({"denied by a route": 2, "no route of the site matches": 2,
        "the client exceeds its rate limit (dry run)": 5});
    assert_eq!(requests["reasons"], reasons);
    let more: usize = contents.iter().map(Vec::len).sum();
    assert_eq!(rows_then["sent"]["content_bytes"], content_bytes + more as u64);

    let latency = |name: &str| rows_then["latency_ns"][name].as_u64().expect("a number");
    assert_eq!(latency("count"), 10, "the refused head has none");
    let times = ["p50", "p90", "p99", "p99_9", "max"].map(latency);
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
    assert!(u128::from(times[4]) < began.elapsed().as_nanos());
    let of_site = |name: Value| {
        let sites = rows_then["sites"].as_array().expect("a list");
        let site = sites.iter().find(|site| site["site"] == name).unwrap_or_else(|| panic!("{name}: {sites:?}"));
        (
            site["requests"].as_u64(),
            site["by_status"]["4xx"].as_u64(),
            site["content_bytes"].as_u64().expect("a number"),
        )
    };
    let of_sites = [json!("a.example"), json!("b"), Value::Null].map(of_site);
    assert_eq!(
        of_sites.map(|(requests, errors, _)| (requests, errors)),
        [(Some(8), Some(2)), (Some(2), Some(2)), (Some(1), Some(1))]
    );
    assert_eq!(json!(of_sites.iter().map(|(_, _, bytes)| bytes).sum::<u64>()), rows_then["sent"]["content_bytes"]);
    let (memory, descriptors) = (&rows_then["memory"], &rows_then["descriptors"]);
    assert!(memory["resident_bytes"].as_u64() > Some(1 << 20) && memory["peak_bytes"].as_u64() > Some(1 << 20));
    assert!(descriptors["open"].as_u64() > Some(3) && descriptors["open"].as_u64() < descriptors["limit"].as_u64());
    let rates = rows_then["rates"].as_array().expect("a list");
    assert!(rates.iter().all(|rates| rates["requests_per_second"].as_f64() <= Some(11.0)), "{rates:?}");
    assert_eq!(rows_then["events"], json!({}));
    assert_eq!(rows_then["dry_run"], json!([{"site": "a.example", "rule": "rate-limit", "count": 7}]));
    let logs: Vec<_> = rows_then["logs"].as_array().expect("a list").iter().collect();
    assert!(logs.len() == 2 && logs.iter().all(|log| log["lines_lost"] == 0), "{logs:?}");

    the_text_matches_the_json(&status(&folder, &[]), &rows_then);
    drop((earlier, idle, begun));
    program.stop();
}

fn the_text_matches_the_json(text: &str, json: &Value) {
    let beginning = format!("selvedge {}, process {}, up ", env!("CARGO_PKG_VERSION"), json["process_id"]);
    assert!(text.starts_with(&beginning), "{text}");
    assert!(text.lines().next().expect("a line").ends_with(", 2 workers, 0 restarts, 0 replacements"), "{text}");
    let file = json["configuration"]["file"].as_str().expect("a path");
    assert_eq!(rows(text, "configuration"), [format!("2 ({file}); 1 connection with 1")]);
    assert_eq!(rows(text, "listeners"), [json["listeners"][0].as_str().expect("an address")]);
    let connections = format!("3 of {}, 2 idle, 1 receiving a head", json["connections"]["limit"]);
    assert_eq!(
        rows(text, "connections"),
        [&*connections, "11 accepted, closed: 7 CloseRequested, 1 ContentLengthWithTransferEncoding"]
    );
    let requests = [
        "11: 6 2xx, 0 3xx, 5 4xx, 0 5xx",
        "refused: 1 ContentLengthWithTransferEncoding",
        "5 the client exceeds its rate limit (dry run)",
        "2 denied by a route",
        "2 no route of the site matches",
    ];
    assert_eq!(rows(text, "requests"), requests);
    assert!(rows(text, "sent")[0].contains(" of heads, "), "{text}");
    assert!(rows(text, "latency")[0].ends_with(", of 10 responses"), "{text}");
    let sites = rows(text, "sites");
    assert!(sites.len() == 3 && sites[0].starts_with("a.example: 8: 6 2xx, 0 3xx, 2 4xx, 0 5xx, "), "{sites:?}");
    assert!(rows(text, "memory")[0].contains("MiB resident, at most "), "{text}");
    assert!(rows(text, "descriptors")[0].contains(" of "), "{text}");
    assert!(rows(text, "rates")[0].contains(" requests/s, "), "{text}");
    assert_eq!(rows(text, "events"), ["none"]);
    assert_eq!(rows(text, "dry run"), ["7 by rate-limit of a.example"]);
    assert_eq!(rows(text, "lines lost").len(), 2, "{text}");
}

#[test]
fn restarts_and_replacements_are_counted_apart_and_other_counters_survive_them() {
    let folder = Folder::new(&format!("supervision {{ back-off-min \"10ms\"; }}\n{SITE}"));
    let program = folder.serve();
    assert_eq!(get(&program, "a.example", "/").status, 200);
    let before = json_when(&folder, |rows| rows["requests"]["total"] == 1);
    let serving = before["process_id"].as_i64().and_then(|id| i32::try_from(id).ok()).expect("a process");
    let serving = Pid::from_raw(serving).expect("a process");
    kill_process(serving, Signal::KILL).expect("it is ours");
    wait_until("it has ended", || test_kill_process(serving).is_err().then_some(()));
    assert_eq!(get(&program, "a.example", "/").status, 200);
    let after = json_when(&folder, |rows| rows["requests"]["total"] == 2);
    assert_ne!(after["process_id"], before["process_id"]);
    assert_eq!((&after["restarts"], &after["replacements"]), (&json!(1), &json!(0)));
    assert_eq!(after["configuration"]["number"], 2, "the next process has read the files again");
    // The replaced process counts until its last connection has ended.
    let mut kept = program.connect();
    assert_eq!(request(&mut kept, "a.example", "GET /", &[]).status, 200);
    let exit = run_to_exit(selvedge_command().arg("upgrade").arg("--control").arg(folder.path("selvedge.sock")));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    // An idle connection is not closed at once. The command may return before the process knows of its replacement.
    let mut last_requests = 0;
    wait_until("the replaced process announces the end of the connection", || {
        let last = request(&mut kept, "a.example", "GET /", &[]);
        last_requests += 1;
        assert_eq!(last.status, 200);
        (last.field("connection") == Some("close")).then_some(())
    });
    assert_eq!(get(&program, "a.example", "/").status, 200);
    let total = 4 + last_requests;
    let after = json_when(&folder, |rows| rows["requests"]["total"] == total);
    assert_eq!((&after["restarts"], &after["replacements"]), (&json!(1), &json!(1)));
    assert_eq!(after["configuration"]["number"], 3);
    let mut kept = program.connect();
    assert_eq!(request(&mut kept, "a.example", "GET /", &[]).status, 200);
    let exit = run_to_exit(selvedge_command().arg("reload").arg("--control").arg(folder.path("selvedge.sock")));
    assert!(exit.out.starts_with("configuration 4, 1 earlier with connections\n"), "{exit:?}");
    let earlier = json!([{ "number": 3, "connections": 1 }]);
    json_when(&folder, |rows| rows["configuration"]["number"] == 4 && rows["configuration"]["earlier"] == earlier);
    assert_eq!((&after["latency_ns"]["count"], &after["sites"][0]["requests"]), (&json!(total), &json!(total)));
    assert_eq!(after["dry_run"][0]["count"], json!(1 + last_requests), "each process has its own limiter: {after}");
    program.stop();
}
