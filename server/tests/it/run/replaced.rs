//! A replaced serving process: what outlives the replacement, and what ends it.

use super::process::serving;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use rustix::process::{Signal, kill_process};

/// The time after which a stream ends that nothing keeps.
const LIMITS: &str = "limits { shutdown-timeout \"200ms\"; }\n";

/// An event stream and an upgraded connection, each on a connection of its own.
struct Streams<'b> {
    backend: &'b Backend,
    events: Client,
    socket: Client,
}

impl<'b> Streams<'b> {
    fn open(program: &Program, backend: &'b Backend) -> Self {
        let mut events = program.connect();
        events.send_request("GET", "/events", "");
        events.receive_past("\r\n\r\n");
        Self { backend, events, socket: open_socket(program, "/socket") }
    }

    /// Checks that both directions work.
    fn exchange(&mut self, text: &str) {
        self.backend.publish(text);
        self.events.receive_past(text);
        self.socket.send(text);
        self.socket.receive_past(text);
    }

    fn assert_closed(mut self) {
        self.socket.assert_closed();
        self.events.assert_closed();
    }
}

fn open_socket(program: &Program, target: &str) -> Client {
    let mut socket = program.connect();
    socket.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"));
    socket.receive_past("HTTP/1.1 101 Switching Protocols\r\n");
    socket.receive_past("\r\n\r\n");
    socket
}

/// Waits until the time of a replacement has passed, which aborts a connection with half of a head.
fn begin_wait(program: &Program) -> impl FnOnce() + use<> {
    let mut half = program.connect();
    half.request("GET", "/text", "");
    half.send("GET /text HTTP/1.1\r\n");
    move || half.assert_closed()
}

#[test]
fn streams_of_unchanged_routes_outlive_a_reload_that_replaces_the_process() {
    let (backend, elsewhere) = (Backend::start(), Folder::new(""));
    elsewhere.write("new/site/index.html", "new");
    let text = |changed: &str, new: &str| {
        let upstream = backend.address();
        let changed = format!("    route \"/changed\" {{ proxy \"http://{upstream}\"{changed}; }}\n");
        let kept = format!("    route \"/*\" {{ proxy \"http://{upstream}\"; }}\n");
        format!("{LIMITS}site \"*\" {{\n{changed}    route \"/new/*\" {{ {new}; }}\n{kept}}}\n")
    };
    let folder = Folder::new(&text("", "deny"));
    let program = folder.serve();
    let mut streams = Streams::open(&program, &backend);
    let mut changed = open_socket(&program, "/changed");
    streams.exchange("before");
    let wait = begin_wait(&program);
    let root = format!("files root=\"{}\"", elsewhere.path("new/site").display());
    folder.configure(&text(" { via #false; }", &root));
    let reloaded = folder.run("reload");
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    changed.assert_closed();
    wait();
    assert_eq!(get(&program, "a", "/new/").text(), "new");
    streams.exchange("after the reload");
    // A process that was replaced is out of reach of the next reload.
    folder.configure(&text("", &root));
    assert_eq!(folder.run("reload").code, Some(0));
    streams.exchange("after the next reload");
    program.signal(Signal::TERM);
    streams.assert_closed();
    assert_eq!(program.exit().code, Some(0));
}

#[test]
fn streams_outlive_upgrades_and_end_at_a_stop() {
    let backend = Backend::start();
    let folder =
        Folder::new(&format!("{LIMITS}site \"*\" {{ route \"/*\" {{ proxy \"http://{}\"; }}; }}\n", backend.address()));
    let program = folder.serve();
    let mut first = Streams::open(&program, &backend);
    for number in 0..2 {
        let wait = begin_wait(&program);
        let upgraded = folder.run("upgrade");
        assert!(upgraded.code == Some(0) && upgraded.out.contains("has taken over"), "{upgraded:?}");
        wait();
        first.exchange(&format!("after {number}"));
    }
    let mut second = Streams::open(&program, &backend);
    first.exchange("with a later process");
    // `exchange` publishes to both.
    second.events.receive_past("with a later process");
    second.exchange("of a later process");
    first.events.receive_past("of a later process");
    let stopped = folder.run("stop");
    assert_eq!((stopped.code, stopped.out.as_str()), (Some(0), "stopped\n"));
    first.assert_closed();
    second.assert_closed();
    assert_eq!(program.exit().code, Some(0));
}

#[test]
fn a_client_stays_at_its_server_when_the_process_changes() {
    let backends = [Backend::start(), Backend::start()];
    let servers: String = backends.iter().map(|backend| format!("server \"http://{}\"; ", backend.address())).collect();
    let upstream = format!("upstream \"app\" {{ {servers} balance \"sticky\" cookie=\"node\"; }}\n");
    let folder = Folder::new(&format!("{upstream}site \"*\" {{ route \"/*\" {{ proxy \"app\"; }}; }}\n"));
    let program = folder.serve();
    let first = get(&program, "a", "/");
    let cookie = first.field("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a new client gets one");
    let line = format!("Cookie: {cookie}");
    let stays = || request(&mut program.connect(), "a", "GET /", &[&line]).field("set-cookie").is_none();
    assert!(stays());
    let invented = request(&mut program.connect(), "a", "GET /", &["Cookie: node=x"]);
    assert!(invented.field("set-cookie").is_some(), "only a cookie of the server counts");
    let upgraded = folder.run("upgrade");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    assert!(stays(), "after an upgrade");
    let killed = serving(&program);
    kill_process(killed, Signal::KILL).expect("it is ours");
    wait_until("another process serves", || (serving(&program) != killed).then_some(()));
    assert!(stays(), "after a crash");
    program.stop();
}
