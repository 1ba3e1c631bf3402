//! Metrics of the real program: at a listener of its own, and as the action of a route.

use crate::support::backend::Backend;
use crate::support::client::{Client, Response};
use crate::support::configured::{Folder, get, request};
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use std::net::{SocketAddr, TcpListener};

const OPENMETRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// Returns the address of the listener of metrics.
fn metrics_address(program: &Program) -> SocketAddr {
    wait_until("the listener of metrics is reported", || {
        let text = program.standard_error();
        let line = text.lines().find_map(|line| line.strip_prefix("serving metrics on "))?;
        line.parse().ok()
    })
}

fn scrape(address: SocketAddr, lines: &[&str]) -> Response {
    request(&mut Client::connect(address), "a", "GET /metrics", lines)
}

/// Returns the value of a metric with its labels as they are written; 0 if it is absent.
fn value(text: &str, metric: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of).unwrap_or_default()
}

/// Scrapes until a metric has a value: a response is counted after it was sent.
fn scrape_when(address: SocketAddr, metric: &str, expected: f64) -> String {
    wait_until(&format!("{metric} is {expected}"), || {
        let text = scrape(address, &[]).text().to_owned();
        (value(&text, metric) == expected).then_some(text)
    })
}

#[test]
fn requests_are_counted_by_site_route_and_status() {
    let text = "metrics \"127.0.0.2:0\"\nlog { error \"error.log\"; }\n\
        site \"a.example\" \"b.example\" {\n    rate-limit 1 per=\"1h\" dry-run=#true\n\
        route \"/\" \"/index\" { name \"home\"; respond 200 \"content\"; }\n    route \"/x/*\" { deny; }\n}\n";
    let folder = Folder::new(text);
    let program = folder.serve();
    let address = metrics_address(&program);
    for (host, path, status, times) in
        [("a.example", "/", 200, 3), ("b.example", "/index", 200, 2), ("a.example", "/x/1", 403, 2), ("c", "/", 421, 1)]
    {
        for _ in 0..times {
            assert_eq!(get(&program, host, path).status, status);
        }
    }
    let denied = r#"selvedge_requests_total{site="a.example",route="/x/*",status="4xx"}"#;
    let text = scrape_when(address, r#"selvedge_requests_total{site="",route="",status="4xx"}"#, 1.0);
    for (metric, expected) in [
        (denied, 2.0),
        (r#"selvedge_requests_total{site="a.example",route="home",status="2xx"}"#, 5.0),
        (r#"selvedge_response_content_bytes_total{site="a.example",route="home"}"#, 35.0),
        (r#"selvedge_request_duration_seconds_count{site="a.example",route="home"}"#, 5.0),
        (r#"selvedge_request_duration_seconds_bucket{site="a.example",route="home",le="+Inf"}"#, 5.0),
        (r#"selvedge_dry_run_refusals_total{site="a.example",rule="rate-limit"}"#, 6.0),
        (r#"selvedge_protocol_requests_total{protocol="HTTP/1.1"}"#, 8.0),
        (r#"selvedge_connections_accepted_total"#, 8.0),
        (r#"selvedge_request_errors_total{reason="denied by a route"}"#, 2.0),
        (r#"selvedge_configuration_number"#, 1.0),
    ] {
        assert_eq!(value(&text, metric), expected, "{metric}\n{text}");
    }
    for metric in [r#"selvedge_worker_busy_seconds_total{worker="1"}"#, "process_resident_memory_bytes"] {
        assert!(value(&text, metric) > 0.0, "{metric}\n{text}");
    }
    assert!(value(&text, "process_start_time_seconds") > 1.7e9, "{text}");
    let build = format!("selvedge_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&build) && !text.contains("EOF"), "{text}");
    let lost =
        format!("selvedge_log_lines_lost_total{{log=\"the error log {}\"}} 0\n", folder.path("error.log").display());
    assert!(text.contains(&lost), "{text}");

    // Counts outlive a reload, also those of a removed route.
    folder.configure("metrics \"127.0.0.2:0\"\nsite \"a.example\" { route \"/*\" { respond 204; }; }\n");
    assert_eq!(folder.run("reload").code, Some(0));
    assert_eq!(get(&program, "a.example", "/").status, 204);
    let text = scrape_when(address, r#"selvedge_requests_total{site="a.example",route="/*",status="2xx"}"#, 1.0);
    assert_eq!((value(&text, denied), value(&text, "selvedge_configuration_number")), (2.0, 2.0), "{text}");
    program.stop();
}

#[test]
fn a_client_chooses_the_format() {
    let folder = Folder::new("metrics \"127.0.0.2:0\"\nsite \"a\" { route \"/*\" { respond 200; }; }\n");
    let program = folder.serve();
    let address = metrics_address(&program);
    let plain = scrape(address, &[]);
    let plain_type = plain.field("content-type").expect("it has a type").to_owned();
    assert_eq!((plain.status, plain_type.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.text().contains("\n# TYPE selvedge_connections_accepted_total counter\n"), "{}", plain.text());
    let open = scrape(address, &[OPENMETRICS]);
    let open_type = open.field("content-type").expect("it has a type");
    assert_eq!(open_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text().contains("\n# TYPE selvedge_connections_accepted counter\n"), "{}", open.text());
    assert!(open.text().ends_with("\n# EOF\n"), "{}", open.text());
    let refused = request(&mut Client::connect(address), "a", "POST /metrics", &["Content-Length: 0"]);
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    // Two scrapes are on one connection of Prometheus.
    let mut client = Client::connect(address);
    for _ in 0..2 {
        assert_eq!(request(&mut client, "a", "GET /metrics", &[OPENMETRICS]).status, 200);
    }
    program.stop();
}

#[test]
fn clients_that_send_no_request_do_not_keep_scrapers_away() {
    let text = "metrics \"127.0.0.2:0\"\nlog { error \"error.log\"; }\nsite \"a\" { route \"/*\" { respond 200; }; }\n";
    let folder = Folder::new(text);
    let program = folder.serve();
    let address = metrics_address(&program);
    let half_sent = |_| {
        let mut client = Client::connect(address);
        client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n");
        client
    };
    let mut clients: Vec<Client> = Vec::new();
    wait_until("the log reports that connections were closed for new ones", || {
        // More than the listener serves at once.
        clients.extend((0..40).map(half_sent));
        assert_eq!(scrape(address, &[]).status, 200);
        let log = std::fs::read_to_string(folder.path("error.log")).unwrap_or_default();
        log.contains(" warn MetricsConnectionsEvicted: clients have all 32 connections").then_some(())
    });
    program.stop();
}

#[test]
fn the_action_of_a_route_has_its_access_rules() {
    let backend = Backend::start();
    let folder = Folder::new(&format!(
        "site \"a\" {{\n    route \"/open\" {{ metrics; }}\n    route \"/closed\" {{ ip-access {{ allow \"192.0.2.1\"; }}; \
         metrics; }}\n    route \"/*\" {{ proxy \"http://{}\"; }}\n}}\n",
        backend.address()
    ));
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/closed").status, 403);
    assert_eq!(get(&program, "a", "/application").status, 200);
    let server = format!("{{upstream=\"http://{0}\",server=\"http://{0}\"}}", backend.address());
    let text = wait_until("the request is counted", || {
        let response = get(&program, "a", "/open");
        assert_eq!(response.status, 200);
        let text = response.text().to_owned();
        (value(&text, r#"selvedge_requests_total{site="a",route="/*",status="2xx"}"#) == 1.0).then_some(text)
    });
    for (metric, expected) in [
        (format!("selvedge_upstream_healthy{server}"), 1.0),
        (format!("selvedge_upstream_tries_total{server}"), 1.0),
        (format!("selvedge_upstream_failures_total{server}"), 0.0),
        (format!("selvedge_upstream_response_seconds_count{server}"), 1.0),
        (r#"selvedge_request_phase_seconds_count{phase="first_byte"}"#.to_owned(), 1.0),
        (r#"selvedge_request_phase_seconds_count{phase="connect"}"#.to_owned(), 1.0),
    ] {
        assert_eq!(value(&text, &metric), expected, "{metric}\n{text}");
    }
    program.stop();
}

#[test]
fn requests_at_once_beyond_a_limit_in_dry_run_mode_are_counted_and_served() {
    let text = "site \"a\" {\n    route \"/metrics\" { metrics; }\n    \
        route \"/slow/*\" { requests-at-once-max 1 dry-run=#true; respond 200 \"ok\"; }\n}\n";
    let folder = Folder::new(text);
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/slow/alone").status, 200);
    let counted = r#"selvedge_dry_run_refusals_total{site="a",rule="requests-at-once-max"}"#;
    assert_eq!(value(get(&program, "a", "/metrics").text(), counted), 0.0);
    // The content of these requests never ends, so they stay in progress.
    let mut in_progress = Vec::new();
    wait_until("a request beside another one is counted", || {
        let mut client = program.connect();
        client.send("POST /slow/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx");
        in_progress.push(client);
        assert_eq!(get(&program, "a", "/slow/b").status, 200, "nothing is refused");
        (value(get(&program, "a", "/metrics").text(), counted) > 0.0).then_some(())
    });
    let last = || {
        let reason = "too many requests of this client at once (dry run)";
        let control = folder.path("selvedge.sock");
        run_to_exit(selvedge_command().args(["last", "--reason", reason, "--control"]).arg(control)).out
    };
    let shown = wait_until("the flight recorder shows a request that was served", || {
        assert_eq!(get(&program, "a", "/slow/b").status, 200, "nothing is refused");
        Some(last()).filter(|text| text.contains(" 200 "))
    });
    assert!(shown.contains(" GET /slow/b ") && !shown.contains("/slow/alone"), "{shown}");
    drop(in_progress);
    program.stop();
}

#[test]
fn requests_beyond_an_observed_adaptive_limit_are_counted_and_forwarded() {
    let backend = Backend::start();
    let server = format!("http://{}", backend.address());
    let folder = Folder::new(&format!(
        "upstream \"u\" {{ server \"{server}\"; adaptive \"observe\"; }}\n\
         site \"a\" {{\n    route \"/metrics\" {{ metrics; }}\n    route \"/*\" {{ proxy \"u\"; }}\n}}\n"
    ));
    let program = folder.serve();
    let counted = format!("selvedge_upstream_dry_run_refusals_total{{upstream=\"u\",server=\"{server}\"}}");
    assert_eq!(get(&program, "a", "/one").status, 200);
    assert_eq!(value(get(&program, "a", "/metrics").text(), &counted), 0.0);
    let mut at_work = Vec::new();
    wait_until("a request beyond the limit is counted", || {
        // The first limit is 32.
        for _ in 0..40 {
            let mut client = program.connect();
            client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.receive_head().map(|response| response.status), Some(200), "nothing is refused");
            at_work.push(client);
        }
        (value(get(&program, "a", "/metrics").text(), &counted) > 0.0).then_some(())
    });
    drop(at_work);
    program.stop();
}

#[test]
fn an_address_in_use_is_reported_at_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let folder = Folder::new(&format!("metrics \"{address}\"\nsite \"a\" {{ route \"/*\" {{ respond 200; }}; }}\n"));
    let exit = folder.run("run");
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.contains("selvedge.kdl:3:9: cannot listen on ") && exit.err.contains("in use"), "{exit:?}");
    let names =
        std::fs::read_dir(folder.path(".")).expect("the folder is there").map(|entry| entry.expect("it is read"));
    let dumps = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("selvedge-last-"));
    assert_eq!(dumps.count(), 0, "a process that was never ready has no requests");
}

#[test]
fn counts_of_dry_runs_and_upstreams_outlive_changed_settings() {
    let backend = Backend::start();
    let text = |period: &str, network: &str, weight: u32| {
        format!(
            "metrics \"127.0.0.2:0\"\nlog {{ error \"error.log\"; }}\nupstream \"app\" {{ server \"http://{}\" weight={weight}; }}\n\
             site \"a.example\" {{\n    rate-limit 1 per=\"{period}\" dry-run=#true\n    ip-access dry-run=#true {{ allow \"{network}\"; }}\n    \
             body-bytes-max \"1B\" dry-run=#true\n    route \"/deny\" {{ deny dry-run=#true; }}\n    route \"/*\" {{ proxy \"app\"; }}\n}}\n",
            backend.address()
        )
    };
    let folder = Folder::new(&text("1h", "10.0.0.0/8", 1));
    let program = folder.serve();
    let address = metrics_address(&program);
    let send = || {
        let mut client = program.connect();
        client.send("POST /deny HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.receive("POST").expect("it is complete").status, 200);
    };
    let server = format!("upstream=\"app\",server=\"http://{}\"", backend.address());
    let count_of = |rule: &str| format!("selvedge_dry_run_refusals_total{{site=\"a.example\",rule=\"{rule}\"}}");
    let tries = format!("selvedge_upstream_tries_total{{{server}}}");
    let times = format!("selvedge_upstream_response_seconds_count{{{server}}}");
    (0..3).for_each(|_| send());
    for number in [3.0, 4.0] {
        for rule in ["ip-access", "deny", "body-bytes-max"] {
            scrape_when(address, &count_of(rule), number);
        }
        scrape_when(address, &tries, number);
        scrape_when(address, &times, number);
        // The first request of each limit is within the rate.
        scrape_when(address, &count_of("rate-limit"), 2.0);
        folder.configure(&text("2h", "10.0.0.0/9", 2));
        assert_eq!(folder.run("reload").code, Some(0));
        if number < 4.0 {
            send();
        }
    }
}
