//! Expectations, and `selvedge check --diff`.

use super::explain::command;
use crate::support::configured::{Folder, get, request};
use crate::support::tls::Authority;
use serde_json::Value;

const EXPECTING: &str = "\
site \"a.example\" {
    route \"/old/*\" { redirect \"/new/*\" status=301; }
    route \"/*\" { respond 200 \"in\"; header \"X-A\" \"1\"; }
    expect \"GET /old/x\" status=301 location=\"/new/x\"
    expect \"/\" content-type=\"text/plain; charset=utf-8\" { header \"x-a\" \"1\"; }
}
";

#[test]
fn an_expectation_that_is_not_met_is_a_problem_with_its_explanation() {
    let folder = Folder::new(EXPECTING);
    assert_eq!(command(&folder, &["check"]).code, Some(0), "{:?}", command(&folder, &["check"]));
    folder.configure(&EXPECTING.replace("/new/*", "/other/*"));
    let refused = command(&folder, &["check"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for expected in [
        "selvedge.kdl:6:5: GET http://a.example/old/x: expected location \"/new/x\", and it is \"/other/x\"\n",
        "  GET http://a.example/old/x from 127.0.0.1\n",
        "  + action   redirect to /other/x with status 301 (selvedge.kdl:4)\n",
        "  = 301 Moved Permanently\n",
        "\n1 problem\n",
    ] {
        assert!(refused.err.contains(expected), "missing: {expected}\n{}", refused.err);
    }
    let json = command(&folder, &["check", "--json"]).out;
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json[0]["line"], 6);
    assert!(json[0]["details"].as_array().is_some_and(|lines| lines.len() > 3), "{json}");
}

#[test]
fn a_reload_that_does_not_meet_an_expectation_changes_nothing() {
    let folder = Folder::new(EXPECTING);
    let program = folder.serve();
    folder.configure(&EXPECTING.replace("status=301;", "status=302;"));
    let refused = command(&folder, &["reload"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let expected = "GET http://a.example/old/x: expected status 301, and it is 302";
    assert!(refused.err.contains(expected) && refused.err.contains("  + action   redirect to "), "{}", refused.err);
    let response = request(&mut program.connect(), "a.example", "GET /old/x", &[]);
    assert_eq!((response.status, response.field("location")), (301, Some("/new/x")));
    folder.configure(&EXPECTING.replace("respond 200 \"in\"", "respond 200 \"other\""));
    let done = command(&folder, &["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(get(&program, "a.example", "/").text(), "other");
    program.stop();
}

#[test]
fn a_reload_that_needs_a_new_process_meets_its_expectations_there() {
    let folder = Folder::new(EXPECTING);
    let program = folder.serve();
    let outside = Folder::new("");
    outside.write("root/page.txt", "outside");
    let root = format!(
        "site \"b.example\" {{ root \"{}\"; expect \"/page.txt\" status=200; }}\n",
        outside.path("root").display()
    );
    let unmet = EXPECTING.replace("status=301;", "status=302;");
    folder.configure(&format!("{unmet}{root}"));
    let refused = command(&folder, &["reload"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("expected status 301, and it is 302"), "{refused:?}");
    assert_eq!(request(&mut program.connect(), "a.example", "GET /old/x", &[]).status, 301);
    folder.configure(&format!("{EXPECTING}{root}"));
    let done = command(&folder, &["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(get(&program, "b.example", "/page.txt").text(), "outside");
    program.stop();
}

#[test]
fn clients_over_their_rate_do_not_decide_whether_a_reload_is_taken() {
    let folder = Folder::new(
        "site \"a\" { route \"/*\" { rate-limit 1 per=\"1h\"; respond 200; }; expect \"/x\" status=200; }\n",
    );
    let program = folder.serve();
    assert_eq!([0; 2].map(|_| get(&program, "a", "/x").status), [200, 429]);
    assert!(command(&folder, &["explain", "http://a/x", "--running"]).out.contains("\n= 429 "));
    let done = command(&folder, &["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    program.stop();
}

#[test]
fn an_expectation_at_a_listener_with_the_other_scheme_is_a_problem_and_reports_are_bounded() {
    let site = "site \"a\" { certificate \"a.pem\"; route \"/*\" { respond 200; }; }\n";
    let text = |expectations: &str| format!("listen \"127.0.0.1:4443\" tls=#true\n{expectations}{site}");
    let folder = Folder::new(&text(""));
    let (chain, key) = Authority::new().certificate(&["a"]);
    folder.write("a.pem", &(chain + &key));
    assert_eq!(command(&folder, &["check"]).code, Some(0), "{:?}", command(&folder, &["check"]));
    for (expectation, problem) in [
        ("http://a:4443/", "127.0.0.1:4443 has TLS, so a plain request gets 400"),
        ("GET / HTTP/1.1", "`/ HTTP/1.1` has a space"),
    ] {
        folder.configure(&text(&format!("expect \"{expectation}\" status=200\n")));
        let refused = command(&folder, &["check"]);
        assert!(refused.err.contains(problem), "{refused:?}");
    }
    folder.configure(&text(&"expect \"https://a:4443/\" status=201\n".repeat(300)));
    let refused = command(&folder, &["check"]).err;
    assert!(refused.contains("\n100 problems\n"), "{refused}");
    assert_eq!(refused.matches("  = 200 OK\n").count(), 10);
    for (words, expected) in [
        (&["explain", "http://a/", "--tls", "a"][..], "need a URL with https"),
        (&["explain", "http://a/", "--dump", "x"], "--dump"),
    ] {
        let refused = command(&folder, words);
        assert!(refused.code != Some(0) && refused.err.contains(expected), "{refused:?}");
    }
}

#[test]
fn changes_are_named_before_and_after_a_reload() {
    let folder = Folder::new(EXPECTING);
    let program = folder.serve();
    assert_eq!(command(&folder, &["check", "--diff"]).out, "the running server has these settings\n");
    folder.configure(&format!("limits {{ fields-max 50; }}\n{}", EXPECTING.replace("\"in\"", "\"other\"")));
    let differences = "\
changed: limits
changed: site a.example
  limits: now fields-max 50, before fields-max 100
  site a.example: route \"/*\": now respond 200 \"other\" content-type=\"text/plain; charset=utf-8\", \
before respond 200 \"in\" content-type=\"text/plain; charset=utf-8\"
";
    let compared = command(&folder, &["check", "--diff"]);
    assert_eq!((compared.code, compared.out.as_str()), (Some(0), differences), "{compared:?}");
    assert_eq!(get(&program, "a.example", "/").text(), "in", "nothing has changed");
    let reloaded = command(&folder, &["reload"]);
    let (_, changes) = reloaded.out.split_once('\n').expect("the first line has the number");
    assert_eq!(changes, differences);
    program.stop();
    let absent = command(&folder, &["check", "--diff"]);
    assert!(absent.code == Some(1) && absent.err.contains("cannot reach a server at "), "{absent:?}");
}

#[test]
fn settings_that_need_a_restart_are_compared_with_those_of_the_start() {
    let text = |server: &str| format!("{server}\n{EXPECTING}");
    let folder = Folder::new(&text(""));
    let program = folder.serve();
    let socket = folder.path("moved.sock");
    let changed = text(&format!(
        "supervision {{ restarts-max 7; }}\ncontrol \"{}\"\nlimits {{ connections-max 100; }}",
        socket.display()
    ));
    folder.configure(&changed);
    let unreachable = command(&folder, &["check", "--diff"]);
    assert!(unreachable.code == Some(1) && unreachable.err.contains("--control PATH"), "{unreachable:?}");
    let control = folder.path("selvedge.sock").display().to_string();
    let compare = || {
        let compared = command(&folder, &["check", "--diff", "--control", &control]);
        assert_eq!(compared.code, Some(0), "{compared:?}");
        compared.out
    };
    let before = compare();
    for expected in [
        "changes to control, supervision, connections-max take effect after a restart\n",
        "  supervision: now restarts-max 7, before restarts-max ",
        "  limits: new: connections-max 100\n",
        &format!("  now control \"{}\", before control ", socket.display()),
    ] {
        assert!(before.contains(expected), "missing: {expected}\n{before}");
    }
    let reload = || {
        let words = ["reload", "--control", &control];
        let reloaded = command(&folder, &words);
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
        reloaded.out
    };
    let notice = "changes to control, supervision, connections-max take effect after a restart\n";
    for _ in 0..2 {
        let reloaded = reload();
        assert!(reloaded.contains(notice), "{reloaded}");
        assert_eq!(compare(), before, "a reload does not change what a restart changes");
    }
    folder.configure(&text(""));
    assert_eq!(compare(), "the running server has these settings\n");
    assert!(reload().contains("the settings are unchanged"));
    program.stop();
}
