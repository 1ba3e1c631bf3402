//! How it stops: TERM lets what runs finish, a second TERM and INT do not.

use super::client::Client;
use super::program::Program;
use super::tree::{Tree, pattern};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// More than the system holds for a connection, so that it cannot be sent unread.
const LARGE: usize = 32 << 20;
/// A stop that waits for somebody would take the 30 s that are allowed for it.
const AT_ONCE: Duration = Duration::from_secs(15);

fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    tree.write("large", pattern(LARGE));
    tree
}

/// A download that has begun and goes no further until somebody reads.
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
        let mut answer = download.receive_head().expect("the answer begins");
        program.signal(signal);
        program.refuses_connections();
        // Nobody waits for a connection that is between requests.
        idle.is_closed();
        download.receive_content(&mut answer).expect("the download is complete");
        assert!(answer.content == pattern(LARGE));
        download.is_closed();
        let exit = program.exit();
        assert_eq!(exit.code, Some(0), "{exit:?}");
        // What was said last is in the log.
        assert!(exit.out.contains(&format!("\"GET /large HTTP/1.1\" 200 {LARGE} ")), "{exit:?}");
        assert_eq!(exit.err.lines().count(), 1, "{exit:?}");
    }
}

#[test]
fn a_request_that_has_begun_is_answered_and_is_the_last() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut begun = program.connect();
    begun.send("GET /a.txt HTTP/1.1\r\n");
    // Its first bytes have been seen once a later connection to each worker was answered, but
    // nothing shows that; a stop has to leave it its time in either case.
    let mut behind = stalled(&program);
    let mut answer = behind.receive_head().expect("the answer begins");
    behind.send_request("GET", "/a.txt", "");
    program.signal(Signal::TERM);
    program.refuses_connections();
    begun.send("Host: a\r\n\r\n");
    let last = begun.receive("GET").expect("it is answered");
    assert_eq!((last.text(), last.field("connection")), ("content", Some("close")));
    begun.is_closed();
    behind.receive_content(&mut answer).expect("the download is complete");
    // A request behind the one that ran is answered, or it is not; never by half.
    if let Ok(next) = behind.receive("GET") {
        assert_eq!((next.text(), next.field("connection")), ("content", Some("close")));
    }
    assert_eq!(program.exit().code, Some(0));
}

#[test]
fn term_ends_an_idle_program() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut clients: Vec<_> = (0..10).map(|_| program.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/a.txt").status, 200));
    let began = Instant::now();
    let exit = program.stop();
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(exit.out.lines().count(), 10);
    clients.iter_mut().for_each(Client::is_closed);
}

#[test]
fn a_second_term_ends_at_once() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut download = stalled(&program);
    let mut answer = download.receive_head().expect("the answer begins");
    program.signal(Signal::TERM);
    program.refuses_connections();
    let began = Instant::now();
    program.signal(Signal::TERM);
    ends_at_once(program, began);
    download.receive_content(&mut answer).expect_err("the download is cut");
}

#[test]
fn int_ends_at_once() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut download = stalled(&program);
    let mut answer = download.receive_head().expect("the answer begins");
    let began = Instant::now();
    program.signal(Signal::INT);
    ends_at_once(program, began);
    download.receive_content(&mut answer).expect_err("the download is cut");
}

fn ends_at_once(program: Program, began: Instant) {
    let exit = program.exit();
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert_eq!(exit.code, Some(0), "{exit:?}");
    // Whoever was cut is in the log.
    assert!(exit.err.contains("the server was stopped at once"), "{exit:?}");
    assert!(exit.out.contains("\"GET /large HTTP/1.1\" 200 "), "{exit:?}");
}
