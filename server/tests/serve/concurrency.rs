//! Many clients at once while files change under them.

use super::client::Client;
use super::program::{Program, command_in_shell};
use super::tree::Tree;
use super::wait::until;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const VERSIONS: usize = 200;
/// In memory, at the edge of it, and sent from the file.
const FILES: [(&str, usize); 3] = [("small", 200), ("edge", 32_700), ("large", 200_000)];

/// A version of a file: its letter and its length tell which one it is.
fn version(number: usize, base: usize) -> Vec<u8> {
    vec![b'A' + (number % 26) as u8; base + number]
}

/// Which version some content is; a mix is none.
fn number_of(content: &[u8], base: usize) -> usize {
    let number = content.len().checked_sub(base).expect("no version is as short");
    let letter = b'A' + (number % 26) as u8;
    assert!(number <= VERSIONS && content.iter().all(|&byte| byte == letter), "a mix of {} bytes", content.len());
    number
}

#[test]
fn four_clients_see_whole_states_while_files_are_replaced() {
    let tree = Tree::new();
    for (name, base) in FILES {
        tree.write(name, version(0, base));
    }
    let program = Program::serve(&tree);
    let (answers, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    // What each entity tag stands for, whoever was told.
    let tags = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = program.connect();
                while !done.load(Ordering::Relaxed) {
                    for (name, base) in FILES {
                        let answer = client.get(&format!("/{name}"));
                        assert_eq!(answer.status, 200);
                        let number = number_of(&answer.content, base);
                        let mut tags = tags.lock().expect("nobody panics with it");
                        let known = *tags.entry(answer.etag().to_owned()).or_insert((name, number));
                        assert_eq!(known, (name, number), "one ETag for two states");
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // A scope waits for its threads, so they have to be told to end before a failure leaves it.
        let _tell = OnDrop(&done);
        for number in 1..=VERSIONS {
            for (name, base) in FILES {
                tree.replace(name, version(number, base));
            }
            let seen = answers.load(Ordering::Relaxed);
            until("answers between two changes", || (answers.load(Ordering::Relaxed) >= seen + CLIENTS).then_some(()));
        }
        let mut client = program.connect();
        for (name, base) in FILES {
            until("the last version", || {
                (number_of(&client.get(&format!("/{name}")).content, base) == VERSIONS).then_some(())
            });
        }
    });
    let answers = answers.load(Ordering::Relaxed);
    // Every one of them has its line.
    let exit = program.stop();
    let lines = exit.out.lines().filter(|line| line.contains(" 200 ")).count();
    assert!(lines > answers, "{lines} lines for {answers} answers and those of the last look");
    assert_eq!(exit.err.lines().count(), 1, "{}", exit.err);
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn more_clients_than_descriptors_take_turns() {
    let tree = Tree::new();
    tree.write("small", "content");
    tree.write("large", vec![b'A'; 200_000]);
    let program = Program::start(&mut command_in_shell(&tree, "ulimit -n 128; exec \"$@\" --workers 1"));
    // All stay, and whoever has been idle longest makes room.
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = program.connect();
        assert_eq!(client.get("/small").text(), "content");
        assert_eq!(client.get("/large").length(), 200_000);
        clients.push(client);
    }
    clients[0].is_closed();
    let last = clients.last_mut().expect("there are many");
    assert_eq!(last.get("/small").text(), "content");
    program.stop();
}

/// More than what it takes to ask another worker, less than what a connection may be idle at
/// the limit: who is answered within it did not have to wait for one to time out.
const ROOM_TIME: Duration = Duration::from_secs(3);

/// How many of them the program has not ended.
fn count_open(clients: &[Client]) -> usize {
    clients.iter().filter(|client| !client.has_ended()).count()
}

#[test]
fn whoever_is_idle_at_another_worker_makes_room() {
    let tree = Tree::new();
    tree.write("small", "content");
    // More than the system holds for a connection, so that who asks for it stays busy.
    tree.write("large", vec![b'A'; 32 << 20]);
    // Which worker has which connection is left to chance, and so is which of them runs out of
    // idle ones first; in some round one does while the other still has some.
    for round in 0..4 {
        let program = Program::start(&mut command_in_shell(&tree, "ulimit -n 100; exec \"$@\" --workers 2"));
        let mut idle = Vec::new();
        while count_open(&idle) == idle.len() {
            assert!(idle.len() < 100, "there are more connections than descriptors");
            let mut client = program.connect();
            assert_eq!(client.get("/small").text(), "content");
            idle.push(client);
        }
        // New ones that are not idle, until nearly all of those that were have made room.
        let mut busy = Vec::new();
        while count_open(&idle) > 1 {
            let began = Instant::now();
            let mut client = program.connect();
            client.send_request("GET", "/large", "");
            let head = client.receive_head().expect("the answer begins");
            let took = began.elapsed();
            assert_eq!(head.status, 200);
            assert!(took < ROOM_TIME, "round {round}: {took:?} for number {} of {}", busy.len(), idle.len());
            busy.push(client);
        }
        assert!(!busy.is_empty() && count_open(&busy) == busy.len(), "who is busy makes no room");
    }
}

#[test]
fn many_connections_at_once() {
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
    // A thousand behind each other on one, read only afterwards.
    let client = &mut clients[0];
    (0..1_000).for_each(|_| client.send_request("GET", "/a.txt", ""));
    (0..1_000).for_each(|_| assert_eq!(client.receive("GET").unwrap().text(), "content"));
}
