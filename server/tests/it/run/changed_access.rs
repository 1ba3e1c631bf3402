//! Access rules whose files change while the program serves: users and lists of networks.

use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use std::fs;

/// The hash of `U*U`.
const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
/// `ann:U*U`
const ANN: &str = "Authorization: Basic YW5uOlUqVQ==";
/// `bob:U*U`
const BOB: &str = "Authorization: Basic Ym9iOlUqVQ==";
/// `ann:wrong`
const WRONG: &str = "Authorization: Basic YW5uOndyb25n";

const LOG: &str = "log { access \"off\"; error \"error.log\" level=\"info\"; }\n";

fn status(program: &Program, line: &str) -> u16 {
    request(&mut program.connect(), "a", "GET /", &[line]).status
}

/// Waits until the error log has a line with these texts, and returns the line.
fn wait_for_line(folder: &Folder, texts: &[&str]) -> String {
    wait_until(texts[0], || {
        folder.lines("error.log").into_iter().find(|line| texts.iter().all(|text| line.contains(text)))
    })
}

/// Waits until this number of reloads is reported. Without it, a response of a worker that has an earlier configuration yet
/// could count as one of a later configuration.
fn wait_for_reloads(folder: &Folder, number: usize) {
    wait_until("a reload is reported", || {
        let lines = folder.lines("error.log");
        (lines.iter().filter(|line| line.contains(" Reloaded: ")).count() >= number).then_some(())
    });
}

#[test]
fn a_removed_user_has_no_access_whatever_the_rest_of_the_file_is() {
    let folder = Folder::new(&format!(
        "{LOG}site \"*\" {{ basic-auth file=\"users\" wrong-max=10000; route \"/*\" {{ respond 200 \"in\"; }}; }}"
    ));
    folder.write("users", &format!("ann:{HASH}\nbob:{HASH}\n"));
    let program = folder.serve();
    assert_eq!((status(&program, ANN), status(&program, BOB)), (200, 200));
    // Ann is removed, and another program adds a line with a hash that is not accepted.
    folder.write("users", &format!("bob:{HASH}\neve:$apr1$salt$hash\n"));
    wait_for_line(&folder, &["UsersRefused", "users: line 2: ", "selvedge hash-password"]);
    assert_eq!((status(&program, ANN), status(&program, BOB)), (401, 200));
    // `check` and a start refuse the line, a reload does not.
    let checked = folder.run("check");
    assert!(checked.code == Some(1) && checked.err.contains("line 2 of "), "{checked:?}");
    assert_eq!(folder.run("reload").code, Some(0));
    assert_eq!((status(&program, ANN), status(&program, BOB)), (401, 200));
    // The last user is removed.
    folder.write("users", "");
    wait_until("no user has access", || (status(&program, BOB) == 401).then_some(()));
    assert_eq!(folder.run("check").code, Some(0), "a file without users is valid");
    folder.write("users", &format!("bob:{HASH}\n"));
    wait_until("the user has access again", || (status(&program, BOB) == 200).then_some(()));
    fs::remove_file(folder.path("users")).unwrap();
    wait_for_line(&folder, &["UsersRefused", "the file has no users now: cannot read ", "users: "]);
    assert_eq!(status(&program, BOB), 401);
    assert_eq!((folder.run("reload").code, status(&program, BOB)), (Some(0), 401));
    program.stop();
}

#[test]
fn a_dry_run_of_basic_auth_logs_what_it_would_refuse() {
    let folder = Folder::new(&format!(
        "{LOG}site \"*\" {{ basic-auth wrong-max=2 dry-run=#true {{ user \"ann\" \"{HASH}\"; }}; \
         route \"/*\" {{ respond 200 \"in\"; }}; }}"
    ));
    let program = folder.serve();
    assert_eq!([WRONG, WRONG, WRONG, WRONG, ANN].map(|line| status(&program, line)), [401, 401, 401, 401, 200]);
    program.stop();
    let lines = folder.lines("error.log");
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count(": 401 wrong user name or password peer="), 2, "{lines:?}");
    let dry_run = "401 wrong user name or password, after too many of this client or for this user (dry run) peer=";
    assert_eq!(count(dry_run), 2, "{lines:?}");
    assert_eq!(count(": 200 too many wrong passwords of this client or for this user (dry run) peer="), 1, "{lines:?}");
}

#[test]
fn an_error_line_names_the_client_behind_a_trusted_proxy() {
    let folder = Folder::new(&format!(
        "trusted-proxies \"127.0.0.1\"\n{LOG}site \"a\" {{\n\
         route \"/auth\" {{ basic-auth wrong-max=1 {{ user \"ann\" \"{HASH}\"; }}; respond 200; }}\n\
         route \"/no\" {{ deny status=403; }}\n\
         route \"/rate\" {{ rate-limit 1 per=\"1h\"; respond 200; }}\n}}"
    ));
    let program = folder.serve();
    let mut client = program.connect();
    for (host, path, expected) in [
        ("a", "/auth", 401),
        ("a", "/auth", 429),
        ("a", "/no", 403),
        ("a", "/rate", 200),
        ("a", "/rate", 429),
        ("b", "/x", 421),
    ] {
        let lines = ["X-Forwarded-For: ::ffff:203.0.113.50", WRONG];
        assert_eq!(request(&mut client, host, &format!("GET {path}"), &lines).status, expected, "{path}");
    }
    assert_eq!(request(&mut client, "a", "GET /direct", &[]).status, 404);
    program.stop();
    let lines = folder.lines("error.log");
    for (text, request) in [
        ("401 wrong user name or password", "/auth"),
        ("429 too many wrong passwords of this client or for this user", "/auth"),
        ("403 ", "/no"),
        ("429 the client exceeds its rate limit", "/rate"),
        ("421 no site has this host name", "/x"),
    ] {
        let end = format!(" client=203.0.113.50 request=\"GET {request} HTTP/1.1\"");
        let found =
            lines.iter().any(|line| line.contains(text) && line.contains(" peer=127.0.0.1:") && line.ends_with(&end));
        assert!(found, "{text}: {lines:?}");
    }
    let direct = lines.iter().find(|line| line.contains("/direct")).unwrap();
    assert!(!direct.contains("client="), "{direct}");
}

#[test]
fn a_list_may_become_empty_and_its_removal_is_logged() {
    let folder = Folder::new(&format!(
        "{LOG}site \"a\" {{ ip-access {{ include \"list.kdl\"; }}; route \"/*\" {{ respond 200 \"in\"; }}; }}\n\
         site \"b\" {{\n\
         route \"/*\" {{ when {{ include \"bots.kdl\"; }}; deny status=403; }}\n\
         route \"/*\" {{ when {{ include \"others*.kdl\"; }}; deny status=403; }}\n\
         route \"/*\" {{ when {{ not {{ include \"bots.kdl\"; }}; }}; respond 200 \"in\"; }}\n}}"
    ));
    for list in ["bots.kdl", "others.kdl"] {
        folder.write(list, "client \"127.0.0.1\"\n");
    }
    folder.write("list.kdl", "deny \"127.0.0.1\"\n");
    let program = folder.serve();
    let status = |host: &str| get(&program, host, "/").status;
    assert_eq!((status("a"), status("b")), (403, 403));
    folder.write("list.kdl", "// no bans\n");
    folder.write("bots.kdl", "");
    folder.write("others.kdl", "");
    wait_until("the lists are empty", || ((status("a"), status("b")) == (200, 200)).then_some(()));
    let checked = folder.run("check");
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
    folder.write("list.kdl", "deny \"127.0.0.1\"\n");
    folder.write("others.kdl", "client \"127.0.0.1\"\n");
    wait_until("the lists are in force", || ((status("a"), status("b")) == (403, 403)).then_some(()));
    // A list of a pattern ends with its file, and one with a plain name stays. Other lists change meanwhile.
    fs::remove_file(folder.path("others.kdl")).unwrap();
    fs::remove_file(folder.path("list.kdl")).unwrap();
    wait_for_line(&folder, &["error ListRemoved", "list.kdl was removed"]);
    wait_for_line(&folder, &["error ListRemoved", "others.kdl was removed"]);
    wait_until("the list of the pattern has ended", || ((status("a"), status("b")) == (403, 200)).then_some(()));
    folder.write("bots.kdl", "client \"127.0.0.1\"\n");
    wait_until("another list is in force", || ((status("a"), status("b")) == (403, 403)).then_some(()));
    folder.write("list.kdl", "");
    wait_until("the list is back", || (status("a") == 200).then_some(()));
    program.stop();
}

#[test]
fn a_new_list_is_in_force_beside_a_mistake_elsewhere() {
    let text = |more: &str| {
        format!(
            "{LOG}site \"*\" {{ ip-access {{ include \"list.kdl\"; }}; route \"/*\" {{ respond 200 \"old\"; }}; }}\n{more}"
        )
    };
    let folder = Folder::new(&text(""));
    folder.write("list.kdl", "");
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/").status, 200);
    folder.configure(&text("nonsense"));
    folder.write("list.kdl", "deny \"127.0.0.1\"\n");
    wait_for_reloads(&folder, 1);
    wait_until("the client is banned", || (get(&program, "a", "/").status == 403).then_some(()));
    // A change that waits for a reload is not put into force by a list.
    folder.configure(&text("").replace("old", "new"));
    folder.write("list.kdl", "");
    wait_for_reloads(&folder, 2);
    let page = wait_until("the client is admitted", || {
        Some(get(&program, "a", "/")).filter(|response| response.status == 200)
    });
    assert_eq!(page.text(), "old");
    // A mistake in the list leaves its earlier entries in force.
    folder.write("list.kdl", "deny \"127.0.0.256\"\n");
    wait_for_line(&folder, &["ReloadRefused", "127.0.0.256"]);
    assert_eq!((get(&program, "a", "/").status, folder.run("reload").code), (200, Some(1)));
    folder.write("list.kdl", "deny \"192.0.2.1\"\n");
    wait_until("a reload is accepted", || (folder.run("reload").code == Some(0)).then_some(()));
    assert_eq!(get(&program, "a", "/").text(), "new");
    program.stop();
}

#[test]
fn a_list_of_allowed_clients_that_becomes_empty_opens_nothing_with_a_line_for_the_others() {
    let folder = Folder::new(&format!(
        "{LOG}site \"*\" {{\n    ip-access {{\n        include \"operators.kdl\"\n        deny \"0.0.0.0/0\" \"::/0\"\n    }}\n    \
         route \"/*\" {{ respond 200 \"in\"; }}\n}}"
    ));
    folder.write("operators.kdl", "allow \"127.0.0.0/8\"\n");
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/").status, 200);
    folder.write("operators.kdl", "// none at present\n");
    wait_until("no client has access", || (get(&program, "a", "/").status == 403).then_some(()));
    assert_eq!(folder.run("reload").code, Some(0));
    assert_eq!(get(&program, "a", "/").status, 403);
    folder.write("operators.kdl", "allow \"127.0.0.1\"\n");
    wait_until("the client has access again", || (get(&program, "a", "/").status == 200).then_some(()));
    program.stop();
}
