//! Many concurrent clients while files change.

use crate::support::client::Client;
use crate::support::program::{Program, selvedge_serve_in_shell};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const VERSIONS: usize = 200;
/// Names and sizes of a file cached in memory, one at the limit for that, and one sent from the open file.
const FILES: [(&str, usize); 3] = [("small", 200), ("edge", 32_700), ("large", 200_000)];

/// Returns the content of a version. Its letter and its length identify it.
fn version(number: usize, base: usize) -> Vec<u8> {
    vec![b'A' + (number % 26) as u8; base + number]
}

/// Returns the version of some content. Asserts that it is not a mix of versions.
fn number_of(content: &[u8], base: usize) -> usize {
    let number = content.len().checked_sub(base).expect("every version is longer");
    let expected_byte = b'A' + (number % 26) as u8;
    assert!(
        number <= VERSIONS && content.iter().all(|&byte| byte == expected_byte),
        "a mix of {} bytes",
        content.len()
    );
    number
}

#[test]
fn four_clients_see_complete_states_while_files_are_replaced() {
    let tree = Tree::new();
    for (name, base) in FILES {
        tree.write(name, version(0, base));
    }
    let program = Program::serve(&tree);
    let (responses, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    // The file and version of each entity tag, over all clients.
    let tags = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = program.connect();
                while !done.load(Ordering::Relaxed) {
                    for (name, base) in FILES {
                        let response = client.get(&format!("/{name}"));
                        assert_eq!(response.status, 200);
                        let number = number_of(&response.content, base);
                        let mut tags = tags.lock().expect("no thread panics while it has the lock");
                        let known = *tags.entry(response.etag().to_owned()).or_insert((name, number));
                        assert_eq!(known, (name, number), "one ETag for two states");
                        responses.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // A scope waits for its threads, so the guard stops them if an assertion fails.
        let _stop_clients = SetOnDrop(&done);
        for number in 1..=VERSIONS {
            for (name, base) in FILES {
                tree.replace(name, version(number, base));
            }
            let seen = responses.load(Ordering::Relaxed);
            wait_until("responses between two changes", || {
                (responses.load(Ordering::Relaxed) >= seen + CLIENTS).then_some(())
            });
        }
        let mut client = program.connect();
        for (name, base) in FILES {
            wait_until("the last version", || {
                (number_of(&client.get(&format!("/{name}")).content, base) == VERSIONS).then_some(())
            });
        }
    });
    let responses = responses.load(Ordering::Relaxed);
    // Every request is in the log.
    let exit = program.stop();
    let lines = exit.out.lines().filter(|line| line.contains(" 200 ")).count();
    assert!(lines > responses, "{lines} lines for {responses} responses and the final ones");
    assert_eq!(exit.err.lines().count(), 1, "{}", exit.err);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn more_clients_than_file_descriptors_are_served() {
    let tree = Tree::new();
    tree.write("small", "content");
    tree.write("large", vec![b'A'; 200_000]);
    let program = Program::start(&mut selvedge_serve_in_shell(&tree, "ulimit -n 128; exec \"$@\" --workers 1"));
    // All clients stay connected; the server evicts the idlest connection for a new one.
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = program.connect();
        assert_eq!(client.get("/small").text(), "content");
        assert_eq!(client.get("/large").length(), 200_000);
        clients.push(client);
    }
    clients[0].assert_closed();
    let last = clients.last_mut().expect("the list is not empty");
    assert_eq!(last.get("/small").text(), "content");
    program.stop();
}

/// The maximum time until a new connection is served by eviction. It is longer than a command to another worker takes,
/// and shorter than the idle timeout at the connection limit.
const EVICTION_TIME_MAX: Duration = Duration::from_secs(3);

/// Returns the number of connections that the program has not closed.
fn count_open(clients: &[Client]) -> usize {
    clients.iter().filter(|client| !client.was_closed()).count()
}

#[test]
fn idle_connection_on_another_worker_is_closed_to_make_room() {
    let tree = Tree::new();
    tree.write("small", "content");
    // More than the kernel buffers for a connection, so that a connection that requests it stays busy.
    tree.write("large", vec![b'A'; 32 << 20]);
    // The distribution of connections to workers is random. In some round, one worker has no idle connection while the
    // other still has some.
    for round in 0..4 {
        let program = Program::start(&mut selvedge_serve_in_shell(&tree, "ulimit -n 100; exec \"$@\" --workers 2"));
        let mut idle = Vec::new();
        while count_open(&idle) == idle.len() {
            assert!(idle.len() < 100, "more connections are open than file descriptors exist");
            let mut client = program.connect();
            assert_eq!(client.get("/small").text(), "content");
            idle.push(client);
        }
        // Open busy connections until nearly all idle ones are evicted.
        let mut busy = Vec::new();
        while count_open(&idle) > 1 {
            let began = Instant::now();
            let mut client = program.connect();
            client.send_request("GET", "/large", "");
            let head = client.receive_head().expect("the response starts");
            let took = began.elapsed();
            assert_eq!(head.status, 200);
            assert!(took < EVICTION_TIME_MAX, "round {round}: {took:?} for number {} of {}", busy.len(), idle.len());
            busy.push(client);
        }
        assert!(!busy.is_empty() && count_open(&busy) == busy.len(), "a busy connection was evicted");
    }
}

#[test]
fn many_concurrent_connections_are_served() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let mut clients: Vec<_> = (0..200).map(|_| program.connect()).collect();
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.send_request("GET", "/a.txt", ""));
        for client in &mut clients {
            assert_eq!(client.receive("GET").unwrap().text(), "content");
        }
    }
    // A thousand pipelined requests on one connection, whose responses are read afterwards.
    let client = &mut clients[0];
    (0..1_000).for_each(|_| client.send_request("GET", "/a.txt", ""));
    (0..1_000).for_each(|_| assert_eq!(client.receive("GET").unwrap().text(), "content"));
}
