//! `proxy` and `selvedge proxy` in front of an application: names, reloads, and the command.

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::configured::{Folder, get};
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::script_server::{AfterResponse, Script, ScriptServer, record};
use crate::support::wait::wait_until;
use rustix::process::Signal;

fn site(backend: &Backend, more: &str) -> String {
    format!("site \"*\" {{\n    route \"/*\" {{ proxy \"http://{}\"; }}\n{more}\n}}\n", backend.address())
}

fn reload(program: &Program) {
    let reloads = || program.error_lines().iter().filter(|line| line.contains("reloaded: ")).count();
    let before = reloads();
    program.signal(Signal::HUP);
    wait_until("the reload is over", || (reloads() > before).then_some(()));
    assert!(!program.standard_error().contains("not reloaded"), "{}", program.standard_error());
}

#[test]
fn the_command_forwards_to_an_application() {
    let backend = Backend::start();
    let port = backend.address().port();
    let mut command = selvedge_command();
    command.args(["proxy", "--from", "127.0.0.1:0", "--to", &format!(":{port}")]);
    let program = Program::start(&mut command);
    let response = get(&program, "a.example", "/hello?x=1");
    assert_eq!(response.status, 200);
    let head = response.text();
    assert!(head.starts_with("GET /hello?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: a.example\r\n") && head.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"), "{head}");
    let exit = program.stop();
    assert!(exit.err.contains(&format!("serving localhost:{port} on http://127.0.0.1:")), "{exit:?}");
    let exit = run_to_exit(selvedge_command().args(["proxy", "--to", "http://localhost:1/api"]));
    assert_eq!(exit.code, Some(2));
    assert!(exit.err.contains("the address of a server has no path"), "{exit:?}");
}

#[test]
fn a_name_that_is_not_found_stops_no_start() {
    let text = "site \"*\" {\n    route \"/*\" { proxy \"http://application.invalid:80\"; }\n}\n";
    let folder = Folder::new(&format!("log {{ error \"error.log\"; }}\n{text}"));
    let program = folder.serve();
    let response = get(&program, "a.example", "/");
    assert_eq!(response.status, 503);
    let is_reported = |line: &String| line.contains("cannot resolve application.invalid");
    wait_until("the look-up is reported", || folder.lines("error.log").iter().any(is_reported).then_some(()));
    program.stop();
}

#[test]
fn a_reload_keeps_the_connections_to_an_unchanged_upstream() {
    let backend = Backend::start();
    let folder = Folder::new(&site(&backend, ""));
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/").status, 200);
    for version in 0..6 {
        folder.configure(&site(&backend, &format!("    header \"X-Version\" \"{version}\"")));
        reload(&program);
        assert_eq!(get(&program, "a", "/").field("x-version"), Some(&*version.to_string()));
    }
    let connections = backend.connections();
    assert!(connections <= 2, "{connections} connections for two workers");
    program.stop();
}

#[test]
fn a_reload_closes_no_stream_of_a_route_that_did_not_change() {
    let backend = Backend::start();
    let limits = "limits { shutdown-timeout \"200ms\"; }\n";
    let with = |number: u32, route: &str| {
        let other = format!("    route \"/other\" {{ respond 200 \"{number}\"; }}");
        let proxied = format!("    route \"/*\" {{ proxy \"http://{}\"{route}; }}", backend.address());
        // The site gets a name with each reload.
        let names = (0..number).map(|name| format!(" \"{name}.test\"")).collect::<String>();
        format!("{limits}site \"*\"{names} {{\n{other}\n{proxied}\n}}\n")
    };
    let folder = Folder::new(&with(0, ""));
    let program = folder.serve();
    let mut events = program.connect();
    events.send_request("GET", "/events", "");
    events.receive_past("\r\n\r\n");
    let mut socket = program.connect();
    socket.send("GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    socket.receive_past("HTTP/1.1 101 Switching Protocols\r\n");
    socket.receive_past("\r\n\r\n");
    let work = |events: &mut Client, socket: &mut Client, text: &str| {
        backend.publish(text);
        events.receive_past(text);
        socket.send(text);
        socket.receive_past(text);
    };
    work(&mut events, &mut socket, "before");
    for number in 1..4 {
        // A connection with half of a head is aborted, which shows that the time of the earlier configuration has passed.
        let mut half = program.connect();
        half.request("GET", "/other", "");
        half.send("GET /other HTTP/1.1\r\n");
        folder.configure(&with(number, ""));
        reload(&program);
        half.assert_closed();
        work(&mut events, &mut socket, &format!("after {number}"));
    }
    folder.configure(&with(9, " { via #false; }"));
    reload(&program);
    socket.assert_closed();
    program.stop();
}

#[test]
fn a_loop_ends_when_a_request_returns() {
    let backend = Backend::start();
    let (first, second) = (Folder::new(&site(&backend, "")), Folder::new(&site(&backend, "")));
    let (first_program, second_program) = (first.serve(), second.serve());
    let to =
        |program: &Program| format!("site \"*\" {{ route \"/*\" {{ proxy \"http://{}\"; }}; }}\n", program.address());
    first.configure(&to(&second_program));
    reload(&first_program);
    let chain = get(&first_program, "a", "/");
    let head = chain.text();
    let names: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("via: 1.1 selvedge-")).collect();
    assert!(chain.status == 200 && names.len() == 2 && names[0] != names[1], "{head}");
    second.configure(&to(&first_program));
    reload(&second_program);
    // Connections that the first server keeps to the second have a last response of the earlier configuration.
    wait_until("the loop ends", || (get(&first_program, "a", "/").status == 508).then_some(()));
    let is_reported = |line: &String| line.contains("a loop: the request has passed this server before");
    wait_until("the loop is reported", || first_program.error_lines().iter().any(is_reported).then_some(()));
    assert!(!second_program.error_lines().iter().any(is_reported), "it was found in the first round");
    first_program.stop();
    second_program.stop();
}

#[test]
fn a_header_of_a_trusted_proxy_names_the_client() {
    let script = ScriptServer::fastcgi();
    let received = "Content-Type: text/plain\nContent-Length: 5\n\nhello";
    let response = [record(6, received.as_bytes(), 0), record(3, &[0; 8], 0)].concat();
    script.respond(Script { pieces: vec![response], after: AfterResponse::Close });
    let route = format!("route \"/script\" {{ fastcgi \"{}\"; }}", script.address());
    let respond = "route \"/*\" { respond 200 \"{client}\"; }";
    let text = format!("trusted-proxies \"127.0.0.1\"\nsite \"*\" {{\n    {route}\n    {respond}\n}}\n");
    let folder = Folder::new("");
    let listen = "listen \"127.0.0.1:0\" proxy-protocol=#true\n";
    folder.write("selvedge.kdl", &format!("{listen}{text}"));
    let program = folder.serve();
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = program.connect();
    client.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n{request}"));
    assert_eq!(client.receive("GET").expect("it is complete").text(), "192.0.2.7");
    client.send(request);
    assert_eq!(client.receive("GET").expect("it is complete").text(), "192.0.2.7", "for the whole connection");
    client.send("GET /script HTTP/1.1\r\nHost: a:1234\r\n\r\n");
    assert_eq!(client.receive("GET").expect("it is complete").text(), "hello");
    let variables = script.request().variables;
    let server = ["SERVER_ADDR", "SERVER_PORT"].map(|name| variables.get(name).map(String::as_str));
    assert_eq!(server, [Some("192.0.2.1"), Some("80")], "those of the header, whatever Host has");
    let mut without = program.connect();
    without.send(request);
    without.assert_closed();
    folder.write("selvedge.kdl", &format!("{listen}{}", text.replace("127.0.0.1", "192.0.2.1")));
    reload(&program);
    let mut stranger = program.connect();
    stranger.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n{request}"));
    stranger.assert_closed();
    program.stop();
}
