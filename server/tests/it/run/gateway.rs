//! Routes with `php`, `fastcgi` and `scgi`, with a server that sends prepared bytes. Each response is sent whole, byte by
//! byte, and in parts of other lengths.

use crate::support::client::{Aborted, Response};
use crate::support::configured::Folder;
use crate::support::program::{Program, write_program};
use crate::support::script_server::{AfterResponse, Script, ScriptServer, record};
use crate::support::wait::wait_until;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

const OUTPUT: u8 = 6;
const ERROR: u8 = 7;
const END: u8 = 3;

fn end(status: u8) -> Vec<u8> {
    record(END, &[0, 0, 0, 0, status, 0, 0, 0], 0)
}

fn serve(server: &ScriptServer, route: &str) -> (Folder, Program) {
    let route = route.replace("ADDRESS", &server.address().to_string());
    let folder = Folder::new(&format!("log {{ error \"error.log\"; }}\nsite \"*\" {{\n    {route}\n}}\n"));
    let program = folder.serve();
    (folder, program)
}

/// Splits bytes into parts of these lengths, in turn.
fn split(bytes: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut rest, mut parts) = (bytes, Vec::new());
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, more) = rest.split_at(rest.len().min(*length));
        parts.push(part.to_vec());
        rest = more;
    }
    parts
}

/// Requests a path once for each way to split the response.
fn fetch_in_parts(program: &Program, server: &ScriptServer, bytes: &[u8]) -> Vec<Result<Response, Aborted>> {
    let ways: [&[usize]; 4] = [&[usize::MAX], &[1], &[7, 1, 13], &[9, 30]];
    let fetch = |lengths: &&[usize]| {
        server.respond(Script { pieces: split(bytes, lengths), after: AfterResponse::Close });
        let response = program.connect().try_request("GET", "/app/x", "Connection: close");
        server.request();
        response
    };
    ways.iter().map(fetch).collect()
}

const HEAD: &[u8] = b"Content-Type: text/plain\nContent-Length: 5\n\n";

#[test]
fn complete_responses_arrive_in_any_parts() {
    let server = ScriptServer::fastcgi();
    let (folder, program) = serve(&server, "route \"/app/*\" { fastcgi \"ADDRESS\"; }");
    let whole = [HEAD, b"hello"].concat();
    for records in [
        vec![record(OUTPUT, &whole, 0), end(0)],
        vec![record(OUTPUT, &whole, 3), record(OUTPUT, b"", 0), end(0)],
        vec![record(OUTPUT, &whole[..9], 0), record(OUTPUT, &whole[9..], 255), end(0)],
        vec![record(OUTPUT, HEAD, 0), record(ERROR, b"a warning\n", 6), record(OUTPUT, b"hello", 0), end(0)],
        whole.iter().map(|byte| record(OUTPUT, &[*byte], 1)).chain([end(0)]).collect(),
    ] {
        for response in fetch_in_parts(&program, &server, &records.concat()) {
            let response = response.expect("the response is complete");
            assert_eq!((response.status, response.text()), (200, "hello"));
            assert_eq!(response.field("content-type"), Some("text/plain"));
        }
    }
    let is_warning = |line: &&String| line.contains("error Script: a warning") && line.contains("GET /app/x");
    wait_until("the messages are logged", || {
        (folder.lines("error.log").iter().filter(is_warning).count() == 4).then_some(())
    });
    program.stop();
}

#[test]
fn a_rewrite_sets_the_query_of_a_script() {
    let server = ScriptServer::fastcgi();
    let routes = "route \"/product/{id}\" { rewrite \"/app/?product={id}\"; }
        route \"/app/*\" { when { query \"product\" \"a&b\"; }; fastcgi \"ADDRESS\"; }";
    let (folder, program) = serve(&server, routes);
    server.respond(Script {
        pieces: vec![[record(OUTPUT, HEAD, 0), record(OUTPUT, b"hello", 0), end(0)].concat()],
        after: AfterResponse::Close,
    });
    assert_eq!(program.connect().request("GET", "/product/a%26b?c=d", "").text(), "hello");
    let variables = server.request().variables;
    for (name, expected) in
        [("QUERY_STRING", "product=a%26b&c=d"), ("REQUEST_URI", "/product/a%26b?c=d"), ("PATH_INFO", "/")]
    {
        assert_eq!(variables.get(name).map(String::as_str), Some(expected), "{name}");
    }
    // The condition of the route compares the new query.
    assert_eq!(program.connect().request("GET", "/product/other?product=a%26b", "").status, 200);
    assert_eq!(server.request().variables["QUERY_STRING"], "product=other&product=a%26b");
    assert_eq!(program.connect().request("GET", "/product/other", "").status, 404);
    drop(folder);
    program.stop();
}

#[test]
fn responses_that_are_none_get_an_error_with_its_reason() {
    let server = ScriptServer::fastcgi();
    let (folder, program) = serve(&server, "route \"/app/*\" { fastcgi \"ADDRESS\"; }");
    let output = |text: &[u8]| [record(OUTPUT, text, 0), end(0)].concat();
    for (bytes, status, reason) in [
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), 502, "not one of FastCGI version 1"),
        (Vec::new(), 502, "closed the connection before the end of the response"),
        (record(OUTPUT, HEAD, 0)[..20].to_vec(), 502, "closed the connection before the end of the response"),
        (record(11, b"", 0), 502, "the type of the record is not one of a response"),
        (output(b""), 502, "the output ended before its head was complete"),
        (output(b"no head\n\n"), 502, "has a line that is not a field"),
        (output(b"Status: 200\nTransfer-Encoding: chunked\n\n"), 502, "has a Transfer-Encoding"),
        (output(b"Status: 200\nContent-Length: 1\nContent-Length: 2\n\n"), 502, "has a field twice"),
        (output(b"Status: 101\nUpgrade: x\n\n"), 502, "has an invalid Status"),
        (output(b"X-Own: no content type\n\n"), 502, "has no Content-Type, Location or Status"),
        (end(2), 503, "is overloaded"),
        (end(3), 502, "does not run scripts as a responder"),
        ([output(b"Status: 200\nContent-Length: 0\n\n"), vec![1]].concat(), 502, "bytes follow the end of the request"),
    ] {
        for response in fetch_in_parts(&program, &server, &bytes) {
            // The last byte may arrive after the end of the response, which is complete then.
            if reason.starts_with("bytes follow") && response.as_ref().is_ok_and(|response| response.status == 200) {
                continue;
            }
            assert_eq!(response.expect("the error is complete").status, status, "{}", bytes.escape_ascii());
        }
        let is_logged = |line: &String| line.contains(reason) && line.contains(&server.address().to_string());
        wait_until(reason, || folder.lines("error.log").iter().any(is_logged).then_some(()));
    }
    program.stop();
}

#[test]
fn a_response_that_breaks_off_is_not_complete_for_the_client() {
    let server = ScriptServer::fastcgi();
    let (_folder, program) = serve(&server, "route \"/app/*\" { fastcgi \"ADDRESS\"; }");
    let begun = record(OUTPUT, &[HEAD, b"hel"].concat(), 0);
    for rest in [Vec::new(), record(OUTPUT, b"lo", 0)[..9].to_vec(), end(0), record(99, b"", 0)] {
        for response in fetch_in_parts(&program, &server, &[begun.clone(), rest].concat()) {
            match response {
                Err(Aborted { content }) => assert!(b"hell".starts_with(&content)),
                // What is malformed was known before the head was sent.
                Ok(response) => assert_eq!(response.status, 502),
            }
        }
    }
    program.stop();
}

#[test]
fn content_and_variables_arrive_with_their_length() {
    for (server, action) in [(ScriptServer::fastcgi(), "fastcgi"), (ScriptServer::scgi(), "scgi")] {
        let (_folder, program) = serve(&server, &format!("route \"/app/*\" {{ {action} \"ADDRESS\"; }}"));
        let response = [HEAD, b"hello"].concat();
        let response = match action {
            "fastcgi" => [record(OUTPUT, &response, 0), end(0)].concat(),
            _ => response,
        };
        server.respond(Script { pieces: vec![response], after: AfterResponse::Close });
        let content: Vec<u8> = (0..200_000_u32).map(|index| (index % 251) as u8).collect();
        let chunked: Vec<u8> = content
            .chunks(70_000)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .chain(*b"0\r\n\r\n")
            .collect();
        let length = format!("Content-Length: {}", content.len());
        for (framing, sent) in [(&*length, &content), ("Transfer-Encoding: chunked", &chunked)] {
            let mut client = program.connect();
            let fields = format!("{framing}\nContent-Type: text/own\nX-A: 1\nX_A: 2\nProxy: p");
            client.send_request("POST", "/app/a%20b/?q=%20", &fields);
            client.send(sent);
            assert_eq!(client.receive("POST").expect("it is complete").text(), "hello");
            let request = server.request();
            assert!(request.content == content, "{action} with {framing}");
            let get = |name: &str| request.variables.get(name).map(String::as_str);
            assert_eq!(get("CONTENT_LENGTH"), Some("200000"));
            assert_eq!((get("SCRIPT_NAME"), get("PATH_INFO")), (Some("/app"), Some("/a b/")));
            assert_eq!((get("REQUEST_URI"), get("QUERY_STRING")), (Some("/app/a%20b/?q=%20"), Some("q=%20")));
            assert_eq!((get("HTTP_X_A"), get("HTTP_PROXY"), get("CONTENT_TYPE")), (Some("1"), None, Some("text/own")));
        }
        program.stop();
    }
}

#[test]
fn a_kept_connection_that_the_server_closes_costs_no_response() {
    let server = ScriptServer::fastcgi();
    let route = "route \"/app/*\" { fastcgi \"ADDRESS\" { idle-connections-max 4; }; }";
    let (_folder, program) = serve(&server, route);
    let response = [record(OUTPUT, &[HEAD, b"hello"].concat(), 0), end(0)].concat();
    let respond = |after| server.respond(Script { pieces: vec![response.clone()], after });
    let fetch = || {
        assert_eq!(program.connect().request("GET", "/app/", "Connection: close").text(), "hello");
        server.request().connection
    };
    respond(AfterResponse::KeepOpen);
    let mut connections: Vec<usize> = (0..8).map(|_| fetch()).collect();
    connections.sort_unstable();
    connections.dedup();
    assert!(connections.len() <= 2, "a connection for each worker at most: {connections:?}");
    respond(AfterResponse::CloseAfterNextRequest);
    for _ in 0..8 {
        fetch();
    }
    program.stop();
}

#[test]
fn a_path_of_php_leads_to_a_script_a_file_or_the_front_controller() {
    let server = ScriptServer::fastcgi();
    let route = "root \"site\"\n    route \"/*\" { php \"ADDRESS\" { root-there \"/there\"; }; }";
    let (folder, program) = {
        let route = route.replace("ADDRESS", &server.address().to_string());
        let folder = Folder::new(&format!("site \"*\" {{\n    {route}\n}}\n"));
        for name in [
            "index.php",
            "a.php",
            "deep/b.php",
            "deep/index.php",
            "style.css",
            "page/index.html",
            "copy.php.bak",
            "UPPER.PHP",
            ".hidden.php",
            "folder.php/c.php",
            "folder.php/d.txt",
        ] {
            folder.write(&format!("site/{name}"), name);
        }
        let program = folder.serve();
        (folder, program)
    };
    let response = [record(OUTPUT, &[HEAD, b"hello"].concat(), 0), end(0)].concat();
    server.respond(Script { pieces: vec![response], after: AfterResponse::Close });
    for (path, name, path_info) in [
        ("/a.php", "/a.php", None),
        ("/a.php/", "/a.php", Some("/")),
        ("/a.php/x%20y/../z", "/a.php", Some("/z")),
        ("/a.php/b.php", "/a.php", Some("/b.php")),
        ("/%61.php?x=/b.php", "/a.php", None),
        ("/deep/b.php/x", "/deep/b.php", Some("/x")),
        ("/deep/", "/deep/index.php", None),
        ("/folder.php/c.php/x", "/folder.php/c.php", Some("/x")),
        ("/", "/index.php", None),
        ("/none", "/index.php", None),
        ("/none.php/x", "/index.php", None),
        ("/style.css/a.php", "/index.php", None),
        ("/style.css/", "/index.php", None),
        ("/A.php", "/index.php", None),
        ("/UPPER.PHP", "/index.php", None),
        ("/copy.php.bak", "/index.php", None),
        ("/.hidden.php", "/index.php", None),
        ("/page/none", "/index.php", None),
        ("/a.php/x%2Fy", "/a.php", Some("/x/y")),
        ("/wiki/AC%2FDC", "/index.php", None),
        ("/index.php/AC%2FDC?x", "/index.php", Some("/AC/DC")),
    ] {
        assert_eq!(program.connect().request("GET", path, "Connection: close").text(), "hello", "{path}");
        let request = server.request();
        let get = |name: &str| request.variables.get(name).map(String::as_str);
        assert_eq!((get("SCRIPT_NAME"), get("PATH_INFO")), (Some(name), path_info), "{path}");
        assert_eq!(get("SCRIPT_FILENAME"), Some(&*format!("/there{name}")), "{path}");
        assert_eq!((get("DOCUMENT_ROOT"), get("REQUEST_URI")), (Some("/there"), Some(path)));
    }
    for (path, status, content) in [
        ("/style.css", 200, "style.css"),
        ("/page/", 200, "page/index.html"),
        ("/folder.php/d.txt", 200, "folder.php/d.txt"),
    ] {
        let response = program.connect().request("GET", path, "Connection: close");
        assert_eq!((response.status, response.text()), (status, content), "{path}");
    }
    for path in ["/deep", "/page"] {
        let response = program.connect().request("GET", path, "Connection: close");
        assert_eq!((response.status, response.field("location")), (301, Some(&*format!("{path}/"))));
    }
    for (path, status) in [("/..%2fa.php", 400), ("/a.php%00.css", 400), ("/../a.php", 400)] {
        assert_eq!(program.connect().request("GET", path, "Connection: close").status, status, "{path}");
    }
    program.stop();
    drop(folder);
}

#[test]
fn a_path_of_a_script_is_that_of_its_route_however_it_is_read() {
    let server = ScriptServer::fastcgi();
    let routes = "route \"/admin/*\" { deny; }\n    route \"/open/*\" { fastcgi \"ADDRESS\"; }\n    route \"/*\" { deny status=410; }";
    let (_folder, program) = serve(&server, routes);
    let get = |path: &str| program.connect().request("GET", path, "Connection: close").status;
    for path in ["/open/a%2Fb", "/open//a", "/open/a%5Cb"] {
        server.respond(Script {
            pieces: vec![[record(OUTPUT, &[HEAD, b"hello"].concat(), 0), end(0)].concat()],
            after: AfterResponse::Close,
        });
        assert_eq!(get(path), 200, "{path}");
        server.request();
    }
    // The server would read another path.
    for path in ["/open%5C..%5Cadmin/x", "/open/..%5Cadmin", "//open/x"] {
        assert_ne!(get(path), 200, "{path}");
    }
    assert_eq!((get("/open/..%5Cadmin"), get("//open/x"), get("/admin%2Fx")), (404, 404, 410));
    program.stop();
}

#[test]
fn a_trusted_proxy_names_the_client_and_its_scheme() {
    let server = ScriptServer::fastcgi();
    let response = [record(OUTPUT, &[HEAD, b"hello"].concat(), 0), end(0)].concat();
    server.respond(Script { pieces: vec![response], after: AfterResponse::Close });
    let fields = "X-Forwarded-For: 192.0.2.9\nX-Forwarded-Proto: https\nConnection: close";
    for (trusted, address, https) in [("127.0.0.1", "192.0.2.9", Some("on")), ("192.0.2.1", "127.0.0.1", None)] {
        let route = format!("route \"/*\" {{ fastcgi \"{}\"; }}", server.address());
        let folder = Folder::new(&format!("trusted-proxies \"{trusted}\"\nsite \"*\" {{\n    {route}\n}}\n"));
        let program = folder.serve();
        assert_eq!(program.connect().request("GET", "/", fields).text(), "hello");
        let request = server.request();
        let get = |name: &str| request.variables.get(name).map(String::as_str);
        assert_eq!((get("REMOTE_ADDR"), get("HTTPS")), (Some(address), https), "{trusted}");
        let port = program.address().port().to_string();
        assert_eq!((get("SERVER_ADDR"), get("SERVER_PORT")), (Some("127.0.0.1"), Some(&*port)), "of the connection");
        program.stop();
    }
}

#[test]
fn programs_can_be_started_after_one_has_ended_or_stopped_its_parent() {
    // Programs never run as root.
    let user = if rustix::process::geteuid().is_root() { " user=\"nobody\"" } else { "" };
    let folder = Folder::new(&format!("site \"*\" {{\n    route \"/cgi/*\" {{ cgi \"cgi\"{user}; }}\n}}\n"));
    for (name, text) in [
        ("end", "kill -9 $PPID; exec sleep 100"),
        ("stop", "kill -STOP $PPID; printf 'Content-Type: text/plain\\nContent-Length: 7\\n\\nstopped'"),
        ("work", "printf 'Content-Type: text/plain\\nContent-Length: 4\\n\\nwell'"),
    ] {
        folder.write("cgi/.keep", "");
        write_program(&folder.path(&format!("cgi/{name}")), format!("#!/bin/sh\n{text}\n").as_bytes());
    }
    let program = folder.serve();
    let get = |path: &str| program.connect().request("GET", path, "Connection: close");
    for _ in 0..2 {
        assert_eq!(get("/cgi/work").text(), "well");
        assert_eq!(get("/cgi/end").status, 502);
        assert_eq!(get("/cgi/stop").text(), "stopped");
    }
    assert_eq!(get("/cgi/work").text(), "well");
    let lines = || program.standard_error().matches("was killed by signal 9; it is started again").count();
    wait_until("both ends are reported", || (lines() == 2).then_some(()));
    let lines = || program.standard_error().matches("was stopped; it is continued").count();
    wait_until("both stops are reported", || (lines() == 2).then_some(()));
    program.stop();
}

#[test]
fn the_end_of_the_output_of_a_program_ends_the_response() {
    let user = if rustix::process::geteuid().is_root() { " user=\"nobody\"" } else { "" };
    let site = format!("site \"*\" {{\n    route \"/cgi/*\" {{ cgi \"cgi\"{user}; }}\n}}\n");
    let folder = Folder::new(&format!("log {{ error \"error.log\"; }}\n{site}"));
    let text = "printf 'Content-Type: text/plain\\n\\ndone'; exec 1>&- 2>&-; read -r line < gate; exit 3";
    folder.write("cgi/.keep", "");
    write_program(&folder.path("cgi/after"), format!("#!/bin/sh\n{text}\n").as_bytes());
    let gate = folder.path("cgi/gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().expect("it is a usual command").success());
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o666)).expect("it is a file of this test");
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("it is a flag of `open`");
    let program = folder.serve();
    for number in 1..=3 {
        // The end of the connection ends the content, whether its length was known or not.
        let mut client = program.connect();
        client.send("GET /cgi/after HTTP/1.0\r\nHost: a\r\n\r\n");
        client.receive_past("\r\n\r\ndone");
        client.assert_closed();
        // It can be opened for writing once the program, which goes on, has opened it for reading.
        let open = || std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(&gate).ok();
        wait_until("the program goes on", open).write_all(b"go on\n").expect("the program reads");
        let is_end = |line: &&String| line.contains("the program ended with code 3");
        wait_until("its end is logged", || {
            (folder.lines("error.log").iter().filter(is_end).count() == number).then_some(())
        });
    }
    program.stop();
}
