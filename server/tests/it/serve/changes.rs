//! Files that change while they are requested. Every response is one complete state of the file, and within one
//! second only the new state is served.
//!
//! A state is a run of one letter, so that a mix of states is detected. An entity tag identifies exactly one state.

use crate::support::client::{Client, Response};
use crate::support::program::Program;
use crate::support::tree::Tree;
use crate::support::wait::WAIT_TIMEOUT;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time for which an old state may be served.
const STALE_MAX: Duration = Duration::from_secs(1);

/// The content of a file, or `None` if it does not exist.
type FileState = Option<Vec<u8>>;

/// Changes the file with this name.
type Action = Box<dyn FnOnce(&Tree, &str) + Send>;

/// A change of a file, and the states that a client may see.
struct Change {
    before: FileState,
    /// Intermediate states of the change.
    between: Vec<FileState>,
    after: FileState,
    action: Action,
}

fn state_of(byte_value: u8, length: usize) -> FileState {
    Some(vec![byte_value; length])
}

/// Sizes before and after a change, of files cached in memory and files sent from the open file.
const SMALL_TO_SMALL: (usize, usize) = (1_000, 700);
const SIZES: [(usize, usize); 5] =
    [SMALL_TO_SMALL, (32_768, 32_769), (32_769, 32_768), (300_000, 10), (200_000, 3_000_000)];

/// Requests a file in a loop while it changes, and checks every response.
fn check(program: &Program, tree: &Tree, name: &str, change: Change) {
    let Change { before, between, after, action } = change;
    if let Some(content) = &before {
        tree.write(name, content);
        tree.wait_until_stable(name);
    }
    let target = format!("/{name}");
    let (start, started) = channel::<()>();
    let (changed, change_time) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The channel is closed if the loop has failed; then the file is not changed.
            if started.recv().is_ok() {
                action(tree, name);
                let _ = changed.send(Instant::now());
            }
        });
        let mut poller = Poller {
            program,
            client: program.connect(),
            tags: HashMap::new(),
            longest_gap: Duration::ZERO,
            aborted: 0,
        };
        for _ in 0..100 {
            assert!(poller.poll(&target).1 == before, "{name}: not the state before the change");
        }
        start.send(()).expect("the other thread waits for the start");
        let give_up = Instant::now() + WAIT_TIMEOUT;
        let mut changed_at = None;
        let mut after_seen = 0;
        // Continue until the new state was served for long enough to be cached.
        while changed_at.is_none_or(|at: Instant| at.elapsed() < STALE_MAX * 2) || after_seen < 100 {
            assert!(Instant::now() < give_up, "{name}: the new state is never served");
            changed_at = changed_at.or_else(|| change_time.try_recv().ok());
            let (requested_at, seen) = poller.poll(&target);
            if seen == after {
                after_seen += 1;
                continue;
            }
            let known = seen == before || between.contains(&seen);
            assert!(known, "{name}: not a state of the file: {}", describe(&seen));
            assert_eq!(after_seen, 0, "{name}: an old state after the new one: {}", describe(&seen));
            // A pause of the machine is not a delay of the server.
            let allowed = STALE_MAX + poller.longest_gap;
            let late = changed_at.map(|at| requested_at.saturating_duration_since(at)).filter(|&late| late > allowed);
            assert_eq!(late, None, "{name}: an old state is still served: {}", describe(&seen));
        }
    });
}

/// A client that requests a file in a loop.
struct Poller<'a> {
    program: &'a Program,
    client: Client,
    /// The content of each entity tag.
    tags: HashMap<String, Vec<u8>>,
    longest_gap: Duration,
    /// The number of responses that were aborted because the file changed during the transfer.
    aborted: usize,
}

impl Poller<'_> {
    /// Sends one request. Returns its time and the state in the response.
    fn poll(&mut self, target: &str) -> (Instant, FileState) {
        let requested_at = Instant::now();
        let response = loop {
            match self.client.try_request("GET", target, "") {
                Ok(response) => break response,
                Err(_) => self.aborted += 1,
            }
            assert_eq!(self.aborted, 1, "one change aborts at most one response");
            self.client = self.program.connect();
        };
        self.longest_gap = self.longest_gap.max(requested_at.elapsed());
        (requested_at, self.check_response(response))
    }

    fn check_response(&mut self, response: Response) -> FileState {
        if response.status == 404 {
            return None;
        }
        assert_eq!(response.status, 200);
        let tag = response.etag().to_owned();
        let known = self.tags.entry(tag).or_insert_with(|| response.content.clone());
        assert!(
            *known == response.content,
            "one ETag for two states: {} {:?}",
            response.etag(),
            &response.content.first()
        );
        Some(response.content)
    }
}

fn describe(state: &FileState) -> String {
    let Some(content) = state else { return "none".to_owned() };
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for &byte in content {
        match runs.last_mut() {
            Some((byte_value, count)) if *byte_value == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs.iter().take(8).map(|(byte_value, count)| format!("{:?}*{count} ", char::from(*byte_value))).collect()
}

/// Checks all these changes concurrently, each on its own file and connection.
fn check_all(changes: Vec<Change>) {
    let tree = Tree::new();
    let program = Program::serve(&tree);
    thread::scope(|scope| {
        for (number, change) in changes.into_iter().enumerate() {
            let (program, tree) = (&program, &tree);
            scope.spawn(move || check(program, tree, &format!("file-{number}"), change));
        }
    });
}

#[test]
fn replaced_by_rename() {
    let change = |(before, after)| Change {
        before: state_of(b'A', before),
        between: vec![],
        after: state_of(b'B', after),
        action: Box::new(move |tree, name| tree.replace(name, vec![b'B'; after])),
    };
    check_all(SIZES.map(change).into());
}

#[test]
fn replaced_by_a_file_of_equal_size() {
    let change = |size| Change {
        before: state_of(b'A', size),
        between: vec![],
        after: state_of(b'B', size),
        action: Box::new(move |tree, name| tree.replace(name, vec![b'B'; size])),
    };
    check_all([1, 1_000, 32_768, 32_769, 1 << 20].map(change).into());
}

#[test]
fn rewritten_in_place() {
    // At most one page: a longer write is not atomic.
    let over = |size: usize| Change {
        before: state_of(b'A', size),
        between: vec![],
        after: state_of(b'B', size),
        action: Box::new(move |tree, name| overwrite(&tree.path(name), &vec![b'B'; size])),
    };
    let emptied_first = |(before, after)| Change {
        before: state_of(b'A', before),
        between: vec![state_of(b'B', 0)],
        after: state_of(b'B', after),
        action: Box::new(move |tree, name| fs::write(tree.path(name), vec![b'B'; after]).unwrap()),
    };
    check_all(vec![over(1), over(1_000), over(4_096), emptied_first(SMALL_TO_SMALL), emptied_first((4_096, 1))]);
}

fn overwrite(path: &Path, content: &[u8]) {
    let file = File::options().write(true).open(path).expect("the file exists");
    file.write_all_at(content, 0).expect("the file is writable");
}

#[test]
fn grown() {
    let change = |(before, more)| Change {
        before: state_of(b'A', before),
        between: vec![],
        after: Some([vec![b'A'; before], vec![b'B'; more]].concat()),
        action: Box::new(move |tree, name| {
            File::options().append(true).open(tree.path(name)).unwrap().write_all(&vec![b'B'; more]).unwrap();
        }),
    };
    check_all([(0, 1), (1_000, 1_000), (32_768, 1), (100_000, 4_000)].map(change).into());
}

#[test]
fn truncated() {
    let change = |(before, after): (usize, usize)| Change {
        before: state_of(b'A', before),
        between: vec![],
        after: state_of(b'A', after),
        action: Box::new(move |tree, name| {
            File::options().write(true).open(tree.path(name)).unwrap().set_len(after as u64).unwrap();
        }),
    };
    check_all([(1_000, 999), (1_000, 0), (32_768, 4_096)].map(change).into());
}

#[test]
fn deleted_and_recreated() {
    let deleted = |size| Change {
        before: state_of(b'A', size),
        between: vec![],
        after: None,
        action: Box::new(|tree, name| fs::remove_file(tree.path(name)).unwrap()),
    };
    let made = |size| Change {
        before: None,
        between: vec![],
        after: state_of(b'B', size),
        action: Box::new(move |tree, name| tree.replace(name, vec![b'B'; size])),
    };
    let both = |size| Change {
        before: state_of(b'A', size),
        between: vec![None],
        after: state_of(b'B', size),
        action: Box::new(move |tree, name| {
            fs::remove_file(tree.path(name)).unwrap();
            tree.replace(name, vec![b'B'; size]);
        }),
    };
    check_all(vec![deleted(1_000), deleted(300_000), made(1_000), made(300_000), both(1_000), both(300_000)]);
}

#[test]
fn a_change_is_detected_when_the_modification_time_is_reset() {
    // An archiver may restore a file with unchanged size and modification time.
    let time = Duration::from_secs(784_111_777);
    let tree = Tree::new();
    tree.write("a", "AAAA");
    tree.set_modified("a", time);
    tree.wait_until_stable("a");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/a").text(), "AAAA");
    }
    tree.write("a", "BBBB");
    tree.set_modified("a", time);
    crate::support::wait::wait_until("the new content", || (client.get("/a").text() == "BBBB").then_some(()));
}

#[test]
fn changes_of_directories_are_detected() {
    let tree = Tree::new();
    tree.write("dir/index.html", "index");
    tree.write("file/a.txt", "a");
    tree.wait_until_stable("dir/index.html");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let mut becomes = |target: &str, status: u16, text: Option<&str>| {
        crate::support::wait::wait_until(target, || {
            let response = client.get(target);
            (response.status == status && text.is_none_or(|text| response.text() == text)).then_some(())
        });
    };
    becomes("/dir/", 200, Some("index"));
    fs::remove_file(tree.path("dir/index.html")).unwrap();
    becomes("/dir/", 404, None);
    tree.write("dir/index.html", "again");
    becomes("/dir/", 200, Some("again"));
    becomes("/file/a.txt", 200, Some("a"));
    fs::rename(tree.path("file"), tree.path("moved")).unwrap();
    becomes("/file/a.txt", 404, None);
    becomes("/moved/a.txt", 200, Some("a"));
    // A file replaces a directory, then a directory replaces a file.
    fs::rename(tree.path("moved/a.txt"), tree.path("file")).unwrap();
    becomes("/file", 200, Some("a"));
    fs::remove_file(tree.path("file")).unwrap();
    tree.create_dir("file");
    becomes("/file", 301, None);
}

#[test]
fn a_large_file_changes_in_place_while_the_client_stalls() {
    const LENGTH: usize = 200_000;
    let changes: [fn(&Path); 3] = [
        |path| overwrite(path, &[b'B'; LENGTH]),
        |path| File::options().write(true).open(path).unwrap().set_len(10).unwrap(),
        |path| fs::write(path, vec![b'B'; LENGTH]).unwrap(),
    ];
    let tree = Tree::new();
    let program = Program::serve(&tree);
    for (number, change) in changes.into_iter().enumerate() {
        let name = format!("file-{number}");
        tree.write(&name, [b'A'; LENGTH]);
        tree.wait_until_stable(&name);
        let mut client = program.connect();
        client.send_request("GET", &format!("/{name}"), "");
        let mut response = client.receive_head().expect("the head is sent at once");
        change(&tree.path(&name));
        // A complete response has one state. An aborted response is known to be invalid.
        if client.receive_content(&mut response).is_ok() {
            assert!(response.content == [b'A'; LENGTH], "{name}: {}", describe(&Some(response.content)));
        }
    }
}
