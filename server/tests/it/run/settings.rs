//! The effect of single settings on a client, and problems that only the machine can show.

use crate::support::configured::{Folder, get, request};
use crate::support::program::{run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use std::fs;

#[test]
fn all_problems_are_reported_and_nothing_is_served() {
    let folder = Folder::new("site \"a\" { root \"none\"; }\nsite \"b\" { rot \"x\"; }");
    for command in ["run", "check"] {
        let exit = folder.run(command);
        assert_eq!(exit.code, Some(1), "{exit:?}");
        assert!(
            exit.err.contains("`rot` is not known in `site`") && exit.err.ends_with("2 problems\n"),
            "{}",
            exit.err
        );
    }
    folder.write("users", "ann:plain\n");
    folder.configure("site \"a\" { root \"none\"; basic-auth file=\"users\"; }\nsite \"b\" { root \"nor-this\"; }");
    let exit = folder.run("run");
    assert!(exit.code == Some(1) && exit.err.contains("3 problems\n"), "{exit:?}");
    folder.configure("site \"b\" { root \"nor-this\"; }");
    let exit = folder.run("check");
    assert!(
        exit.err.contains("selvedge.kdl:3:17: cannot read ") && exit.err.contains("/nor-this: it does not exist"),
        "{exit:?}"
    );
    let none = folder.run("nonsense");
    assert_ne!(none.code, Some(0));
}

#[test]
fn an_address_in_use_is_reported_with_its_position() {
    let folder = Folder::new("site \"a\" { route \"/*\" { deny; }; }");
    let program = folder.serve();
    let other = Folder::new(&format!("listen \"{}\"\nsite \"a\" {{ route \"/*\" {{ deny; }}; }}", program.address()));
    let exit = other.run("run");
    assert!(exit.code == Some(1) && exit.err.contains("selvedge.kdl:3:8: cannot listen on 127.0.0.1:"), "{exit:?}");
}

#[test]
fn the_server_field_is_removed_or_replaced_for_every_status() {
    let folder = Folder::new(
        "site \"a\" {
    header-remove \"Server\"
    route \"/own\" { header \"Server\" \"mine\"; respond 200 \"in\"; }
    route \"/\" { respond 200 \"in\"; }
}
site \"b\" { route \"/*\" { respond 200 \"in\"; }; }",
    );
    let program = folder.serve();
    for (host, path, status, server) in [
        ("a", "/", 200, None),
        ("a", "/none", 404, None),
        ("a", "/own", 200, Some("mine")),
        ("b", "/", 200, Some("selvedge")),
    ] {
        let response = get(&program, host, path);
        assert_eq!((response.status, response.field("server")), (status, server), "{host} {path}");
        assert!(response.field("date").is_some());
    }
    program.stop();
}

#[test]
fn refusals_before_a_site_is_known_have_no_server_field_if_each_site_removes_it() {
    let site =
        |name: &str, fields: &str| format!("site \"{name}\" {{ {fields}; route \"/*\" {{ respond 200 \"in\"; }}; }}\n");
    let remove = "header-remove \"Server\"";
    let refused = [
        ("GET / HTTP/1.1\r\nHost: none\r\n\r\n".to_owned(), 421),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000)), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(17_000)), 431),
    ];
    for (sites, server) in [
        (site("a", remove) + &site("b", remove), None),
        (site("a", remove) + &site("b", "compress #true"), Some("selvedge")),
        (site("a", &format!("{remove} for=\"/x\"")), Some("selvedge")),
        (site("a", &format!("{remove}; header \"Server\" \"mine\"")), Some("selvedge")),
        (site("a", &format!("header \"Server\" \"mine\"; {remove}")), None),
    ] {
        let folder = Folder::new(&sites);
        let program = folder.serve();
        for (head, status) in &refused {
            let mut client = program.connect();
            client.send(head);
            let response = client.receive("GET").expect("a response");
            assert_eq!((response.status, response.field("server")), (*status, server), "{sites} {head:.40}");
            assert!(response.field("date").is_some());
        }
        program.stop();
    }
}

#[test]
fn the_first_matching_ip_rule_decides_and_a_routes_rules_replace_the_sites() {
    let folder = Folder::new(
        "site \"a\" {
    ip-access { deny \"127.0.0.1\"; allow \"127.0.0.0/8\"; }
    route \"/open\" { ip-access { allow \"127.0.0.1\"; }; respond 200 \"open\"; }
    route \"/shut\" { respond 200 \"shut\"; }
}",
    );
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/open").status, 200);
    assert_eq!(get(&program, "a", "/shut").status, 403);
    assert_eq!(get(&program, "a", "/none").status, 403, "paths without a route have the site's access rules");
}

#[test]
fn routes_have_their_own_patterns_statuses_pages_and_limits() {
    let folder = Folder::new(
        "site \"a\" {
    root \"site\"
    precompressed #false
    error-page 404 \"/site.html\"
    route \"/one\" \"/two/*\" { deny status=410; error-page 410 \"/gone.html\"; }
    route \"/none\" { deny status=404; error-page 404 \"/gone.html\"; }
    route \"/small\" { body-bytes-max \"10B\"; respond 200 \"small\"; }
    route \"/kept/*\" { cache-control \"*.txt\" \"no-cache\"; files { try-files \"*\" \"/fixed.txt\"; }; }
    cache-control \"*.txt\" \"max-age=1\"
}",
    );
    folder.write("site/site.html", "site");
    folder.write("site/gone.html", "gone");
    folder.write("site/fixed.txt", "fixed");
    folder.write("site/fixed.txt.gz", "packed");
    folder.write("site/kept/a.txt", "a");
    let program = folder.serve();
    for (target, status, text) in
        [("/one", 410, "gone"), ("/two/x", 410, "gone"), ("/none", 404, "gone"), ("/other", 404, "site")]
    {
        let response = get(&program, "a", target);
        assert_eq!((response.status, response.text()), (status, text), "{target}");
    }
    let mut client = program.connect();
    let plain = request(&mut client, "a", "GET /fixed.txt", &["Accept-Encoding: gzip"]);
    assert_eq!(
        (plain.text(), plain.field("content-encoding"), plain.field("cache-control")),
        ("fixed", None, Some("max-age=1"))
    );
    let kept = request(&mut client, "a", "GET /kept/a.txt", &[]);
    assert_eq!((kept.text(), kept.field("cache-control")), ("a", Some("no-cache")));
    assert_eq!(request(&mut client, "a", "GET /kept/none", &[]).text(), "fixed");
    assert_eq!(request(&mut client, "a", "POST /small", &["Content-Length: 0"]).status, 200);
    client.send("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n12345678901");
    assert_eq!(client.receive("POST").expect("a response").status, 413);
}

#[test]
fn a_site_can_have_its_own_error_log() {
    let folder = Folder::new(
        "log { access \"off\"; error \"error.log\"; }
site \"a\" { log { error \"a.log\" format=\"json\"; }; route \"/*\" { deny; }; }
site \"b\" { log { error \"off\"; }; route \"/*\" { deny; }; }
site \"c\" { route \"/*\" { deny; }; }",
    );
    let program = folder.serve();
    for host in ["a", "b", "c"] {
        assert_eq!(get(&program, host, &format!("/{host}")).status, 403);
    }
    assert_eq!(program.stop().out, "");
    let (own, servers) = (folder.lines("a.log"), folder.lines("error.log"));
    assert!(own.len() == 1 && own[0].starts_with('{') && own[0].contains("/a"), "{own:?}");
    assert!(servers.len() == 1 && servers[0].contains("GET /c"), "{servers:?}");
}

#[test]
fn logs_are_rotated_by_size_and_the_oldest_is_removed() {
    let folder = Folder::new(
        "log { access \"logs/access.log\" format=\"%r\" { rotate size=\"4KiB\" keep=2 compress=#false; }; }
site \"a\" { route \"/*\" { respond 200 \"in\" }; }",
    );
    fs::create_dir(folder.path("logs")).expect("the folder is ours");
    let program = folder.serve();
    let mut client = program.connect();
    let names = || -> Vec<String> {
        let entries = fs::read_dir(folder.path("logs")).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("it is there").file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect()
    };
    let long = "x".repeat(1000);
    let mut response = 0;
    // Lines are written in batches, so the server decides how many are in a file.
    wait_until("one file was rotated and one was removed", || {
        request(&mut client, "a", &format!("GET /{response}/{long}"), &[]);
        response += 1;
        let rotated: Vec<_> = names().into_iter().filter(|name| name.starts_with("access.log.")).collect();
        (response > 20 && rotated.len() == 2 && !folder.read(&format!("logs/{}", rotated[0])).contains("GET /0/"))
            .then_some(())
    });
    program.stop();
    // Rotated files sort by time; the newest lines are in the log itself.
    let (rotated, newest): (Vec<_>, Vec<_>) = names().into_iter().partition(|name| name != "access.log");
    let files = rotated.iter().chain(&newest);
    let lines: Vec<String> = files.flat_map(|name| folder.lines(&format!("logs/{name}"))).collect();
    let numbers: Vec<usize> = lines
        .iter()
        .map(|line| line.split('/').nth(1).and_then(|number| number.parse().ok()).expect("a whole line"))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&(response - 1)), "none is lost");
}

#[test]
fn descriptors_of_roots_and_logs_reduce_the_connection_limit() {
    let folder = Folder::new("");
    for name in ["one", "two", "three"] {
        folder.write(&format!("{name}/index.html"), name);
    }
    let connections = |text: &str| -> usize {
        folder.configure(text);
        let exit =
            run_to_exit(selvedge_command().args(["check", "--effective", "--config"]).arg(folder.path("selvedge.kdl")));
        let line = exit.out.lines().find(|line| line.contains(" connections of ")).expect("it is a term of the memory");
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.iter().position(|word| *word == "connections").expect("it is in the line");
        words[at - 1].parse().expect("a number")
    };
    let none = "log { access \"off\"; error \"stderr\"; }\n";
    let site = |name: &str, root: &str| format!("site \"{name}\" {{ root \"{root}\"; }}\n");
    let all = connections(&format!("{none}site \"a\" {{ route \"/*\" {{ deny; }}; }}"));
    let roots = format!("{}{}{}{}", site("a", "one"), site("b", "two"), site("c", "three"), site("d", "one"));
    assert_eq!(connections(&format!("{none}{roots}")), all - 3, "each root uses one descriptor for all its sites");
    // A reload that replaces logs has both open.
    assert_eq!(connections(&format!("log {{ access \"a.log\"; error \"e.log\"; }}\n{roots}")), all - 3 - 4);
    assert_eq!(connections(&format!("{none}limits {{ connections-max 7; }}\n{roots}")), 7, "the setting applies");
}
