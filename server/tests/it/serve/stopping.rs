//! Stopping: TERM shuts down gracefully, a second TERM and INT stop immediately.

use crate::support::client::Client;
use crate::support::program::Program;
use crate::support::tree::{Tree, pattern};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// More than the kernel buffers for a connection, so that an unread response is not sent completely.
const LARGE: usize = 32 << 20;
/// The maximum time of an immediate stop. A graceful one that waits for a client takes its limit of 30 s.
const IMMEDIATE_STOP_MAX: Duration = Duration::from_secs(15);

fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    tree.write("large", pattern(LARGE));
    tree
}

/// Starts a download that stalls until the client reads.
fn stalled(program: &Program) -> Client {
    let mut client = program.connect();
    client.send_request("GET", "/large", "");
    client
}

#[test]
fn term_lets_a_download_finish() {
    for signal in [Signal::TERM, Signal::QUIT] {
        let tree = tree();
        let program = Program::serve(&tree);
        let mut idle = program.connect();
        assert_eq!(idle.get("/a.txt").status, 200);
        let mut download = stalled(&program);
        let mut response = download.receive_head().expect("the response starts");
        program.signal(signal);
        program.wait_until_connections_are_refused();
        // An idle connection has a moment for a last request, and is then closed.
        idle.assert_closed();
        download.receive_content(&mut response).expect("the download is complete");
        assert!(response.content == pattern(LARGE));
        download.assert_closed();
        let exit = program.exit();
        assert_eq!(exit.code, Some(0), "{exit:?}");
        // The last log lines are written.
        assert!(exit.out.contains(&format!("\"GET /large HTTP/1.1\" 200 {LARGE} ")), "{exit:?}");
        // Over TLS, the connections that find the listener open are logged.
        let lines = exit.err.lines().filter(|line| !line.contains(" HandshakeIncomplete: "));
        assert_eq!(lines.count(), 1, "{exit:?}");
    }
}

#[test]
fn a_started_request_gets_a_response_and_is_the_last_one() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut begun = program.connect();
    begun.send("GET /a.txt HTTP/1.1\r\n");
    // A shutdown must wait for this request, whether or not the server has received its first bytes.
    let mut behind = stalled(&program);
    let mut response = behind.receive_head().expect("the response starts");
    behind.send_request("GET", "/a.txt", "");
    program.signal(Signal::TERM);
    program.wait_until_connections_are_refused();
    begun.send("Host: a\r\n\r\n");
    let last = begun.receive("GET").expect("the started request gets a response");
    assert_eq!((last.text(), last.field("connection")), ("content", Some("close")));
    begun.assert_closed();
    behind.receive_content(&mut response).expect("the download is complete");
    // A pipelined request behind the download gets a complete response or none.
    if let Ok(next) = behind.receive("GET") {
        assert_eq!((next.text(), next.field("connection")), ("content", Some("close")));
    }
    assert_eq!(program.exit().code, Some(0));
}

#[test]
fn term_stops_an_idle_program() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut clients: Vec<_> = (0..10).map(|_| program.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/a.txt").status, 200));
    let began = Instant::now();
    let exit = program.stop();
    assert!(began.elapsed() < IMMEDIATE_STOP_MAX);
    assert_eq!(exit.out.lines().count(), 10);
    clients.iter_mut().for_each(Client::assert_closed);
}

#[test]
fn a_second_term_stops_immediately() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut download = stalled(&program);
    let mut response = download.receive_head().expect("the response starts");
    program.signal(Signal::TERM);
    program.wait_until_connections_are_refused();
    let began = Instant::now();
    program.signal(Signal::TERM);
    assert_stops_immediately(program, began);
    download.receive_content(&mut response).expect_err("the download is aborted");
}

#[test]
fn int_stops_immediately() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut download = stalled(&program);
    let mut response = download.receive_head().expect("the response starts");
    let began = Instant::now();
    program.signal(Signal::INT);
    assert_stops_immediately(program, began);
    download.receive_content(&mut response).expect_err("the download is aborted");
}

fn assert_stops_immediately(program: Program, began: Instant) {
    let exit = program.exit();
    assert!(began.elapsed() < IMMEDIATE_STOP_MAX, "{:?}", began.elapsed());
    assert_eq!(exit.code, Some(0), "{exit:?}");
    // The aborted request is in the log.
    assert!(exit.err.contains("the server was stopped immediately"), "{exit:?}");
    assert!(exit.out.contains("\"GET /large HTTP/1.1\" 200 "), "{exit:?}");
}
