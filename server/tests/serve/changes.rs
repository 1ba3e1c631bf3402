//! Files that change while they are asked for: every answer is one state, whole, and within
//! a second only the new one is served.
//!
//! A state is a run of one letter, so that a mix shows; and an entity tag stands for one
//! state alone.

use super::client::{Client, Response};
use super::program::Program;
use super::tree::Tree;
use super::wait::PATIENCE;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long an old state may be served, as it is promised.
const STALE_MAX: Duration = Duration::from_secs(1);

/// A state of a file: its content, or that it is not there.
type State = Option<Vec<u8>>;

/// What changes a file, by its name.
type Act = Box<dyn FnOnce(&Tree, &str) + Send>;

/// A change, and what may be seen of it.
struct Change {
    before: State,
    /// States that the change itself passes through.
    between: Vec<State>,
    after: State,
    act: Act,
}

fn of(letter: u8, length: usize) -> State {
    Some(vec![letter; length])
}

/// Sizes that are kept in memory, and sizes that are sent from the open file, to and fro.
const SMALL_TO_SMALL: (usize, usize) = (1_000, 700);
const SIZES: [(usize, usize); 5] =
    [SMALL_TO_SMALL, (32_768, 32_769), (32_769, 32_768), (300_000, 10), (200_000, 3_000_000)];

/// Asks for a file in a loop while it changes, and judges every answer.
fn check(program: &Program, tree: &Tree, name: &str, change: Change) {
    let Change { before, between, after, act } = change;
    if let Some(content) = &before {
        tree.write(name, content);
        tree.settled(name);
    }
    let target = format!("/{name}");
    let (start, started) = channel::<()>();
    let (changed, when_changed) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Ends without a change when the loop has failed before.
            if started.recv().is_ok() {
                act(tree, name);
                let _ = changed.send(Instant::now());
            }
        });
        let mut watch =
            Watch { program, client: program.connect(), tags: HashMap::new(), longest_gap: Duration::ZERO, cuts: 0 };
        for _ in 0..100 {
            assert!(watch.look(&target).1 == before, "{name}: not the state before the change");
        }
        start.send(()).expect("the other thread waits for it");
        let give_up = Instant::now() + PATIENCE;
        let mut changed_at = None;
        let mut after_seen = 0;
        // Until the new state has been seen for long enough to have been remembered.
        while changed_at.is_none_or(|at: Instant| at.elapsed() < STALE_MAX * 2) || after_seen < 100 {
            assert!(Instant::now() < give_up, "{name}: the new state is never served");
            changed_at = changed_at.or_else(|| when_changed.try_recv().ok());
            let (asked_at, seen) = watch.look(&target);
            if seen == after {
                after_seen += 1;
                continue;
            }
            let known = seen == before || between.contains(&seen);
            assert!(known, "{name}: a state that never was: {}", describe(&seen));
            assert_eq!(after_seen, 0, "{name}: an old state after the new one: {}", describe(&seen));
            // A machine that stood still for a while is no server that did.
            let allowed = STALE_MAX + watch.longest_gap;
            let late = changed_at.map(|at| asked_at.saturating_duration_since(at)).filter(|&late| late > allowed);
            assert_eq!(late, None, "{name}: an old state is still served: {}", describe(&seen));
        }
    });
}

/// Whoever asks in a loop.
struct Watch<'a> {
    program: &'a Program,
    client: Client,
    /// What each entity tag stood for.
    tags: HashMap<String, Vec<u8>>,
    longest_gap: Duration,
    /// Answers that ended before their end, as one does that was on its way during a change.
    cuts: usize,
}

impl Watch<'_> {
    /// Asks once: when, and the state that was seen.
    fn look(&mut self, target: &str) -> (Instant, State) {
        let asked_at = Instant::now();
        let answer = loop {
            match self.client.try_ask("GET", target, "") {
                Ok(answer) => break answer,
                Err(_) => self.cuts += 1,
            }
            assert_eq!(self.cuts, 1, "one change cuts one answer");
            self.client = self.program.connect();
        };
        self.longest_gap = self.longest_gap.max(asked_at.elapsed());
        (asked_at, self.judge(answer))
    }

    fn judge(&mut self, answer: Response) -> State {
        if answer.status == 404 {
            return None;
        }
        assert_eq!(answer.status, 200);
        let tag = answer.etag().to_owned();
        let known = self.tags.entry(tag).or_insert_with(|| answer.content.clone());
        assert!(*known == answer.content, "one ETag for two states: {} {:?}", answer.etag(), &answer.content.first());
        Some(answer.content)
    }
}

fn describe(state: &State) -> String {
    let Some(content) = state else { return "none".to_owned() };
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for &byte in content {
        match runs.last_mut() {
            Some((letter, count)) if *letter == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs.iter().take(8).map(|(letter, count)| format!("{:?}*{count} ", char::from(*letter))).collect()
}

/// Checks all these changes at once, each on its own file and connection.
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
        before: of(b'A', before),
        between: vec![],
        after: of(b'B', after),
        act: Box::new(move |tree, name| tree.replace(name, vec![b'B'; after])),
    };
    check_all(SIZES.map(change).into());
}

#[test]
fn replaced_by_one_of_the_same_size() {
    let change = |size| Change {
        before: of(b'A', size),
        between: vec![],
        after: of(b'B', size),
        act: Box::new(move |tree, name| tree.replace(name, vec![b'B'; size])),
    };
    check_all([1, 1_000, 32_768, 32_769, 1 << 20].map(change).into());
}

#[test]
fn rewritten_in_place() {
    // One page at the most: more than that no system writes in one step.
    let over = |size: usize| Change {
        before: of(b'A', size),
        between: vec![],
        after: of(b'B', size),
        act: Box::new(move |tree, name| overwrite(&tree.path(name), &vec![b'B'; size])),
    };
    let emptied_first = |(before, after)| Change {
        before: of(b'A', before),
        between: vec![of(b'B', 0)],
        after: of(b'B', after),
        act: Box::new(move |tree, name| fs::write(tree.path(name), vec![b'B'; after]).unwrap()),
    };
    check_all(vec![over(1), over(1_000), over(4_096), emptied_first(SMALL_TO_SMALL), emptied_first((4_096, 1))]);
}

fn overwrite(path: &Path, content: &[u8]) {
    let file = File::options().write(true).open(path).expect("the file is there");
    file.write_all_at(content, 0).expect("the file can be written");
}

#[test]
fn grown() {
    let change = |(before, more)| Change {
        before: of(b'A', before),
        between: vec![],
        after: Some([vec![b'A'; before], vec![b'B'; more]].concat()),
        act: Box::new(move |tree, name| {
            File::options().append(true).open(tree.path(name)).unwrap().write_all(&vec![b'B'; more]).unwrap();
        }),
    };
    check_all([(0, 1), (1_000, 1_000), (32_768, 1), (100_000, 4_000)].map(change).into());
}

#[test]
fn truncated() {
    let change = |(before, after): (usize, usize)| Change {
        before: of(b'A', before),
        between: vec![],
        after: of(b'A', after),
        act: Box::new(move |tree, name| {
            File::options().write(true).open(tree.path(name)).unwrap().set_len(after as u64).unwrap();
        }),
    };
    check_all([(1_000, 999), (1_000, 0), (32_768, 4_096)].map(change).into());
}

#[test]
fn deleted_and_made_anew() {
    let deleted = |size| Change {
        before: of(b'A', size),
        between: vec![],
        after: None,
        act: Box::new(|tree, name| fs::remove_file(tree.path(name)).unwrap()),
    };
    let made = |size| Change {
        before: None,
        between: vec![],
        after: of(b'B', size),
        act: Box::new(move |tree, name| tree.replace(name, vec![b'B'; size])),
    };
    let both = |size| Change {
        before: of(b'A', size),
        between: vec![None],
        after: of(b'B', size),
        act: Box::new(move |tree, name| {
            fs::remove_file(tree.path(name)).unwrap();
            tree.replace(name, vec![b'B'; size]);
        }),
    };
    check_all(vec![deleted(1_000), deleted(300_000), made(1_000), made(300_000), both(1_000), both(300_000)]);
}

#[test]
fn times_that_are_set_back_hide_nothing() {
    // The same size and the same time, as archivers restore them: the state is new all the same.
    let time = Duration::from_secs(784_111_777);
    let tree = Tree::new();
    tree.write("a", "AAAA");
    tree.modified("a", time);
    tree.settled("a");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/a").text(), "AAAA");
    }
    tree.write("a", "BBBB");
    tree.modified("a", time);
    super::wait::until("the new content", || (client.get("/a").text() == "BBBB").then_some(()));
}

#[test]
fn directories_change_too() {
    let tree = Tree::new();
    tree.write("dir/index.html", "index");
    tree.write("file/a.txt", "a");
    tree.settled("dir/index.html");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let mut becomes = |target: &str, status: u16, text: Option<&str>| {
        super::wait::until(target, || {
            let answer = client.get(target);
            (answer.status == status && text.is_none_or(|text| answer.text() == text)).then_some(())
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
    // A directory where a file was, and a file where a directory was.
    fs::rename(tree.path("moved/a.txt"), tree.path("file")).unwrap();
    becomes("/file", 200, Some("a"));
    fs::remove_file(tree.path("file")).unwrap();
    tree.dir("file");
    becomes("/file", 301, None);
}

#[test]
fn a_large_file_that_changes_in_place_while_the_client_stalls() {
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
        tree.settled(&name);
        let mut client = program.connect();
        client.send_request("GET", &format!("/{name}"), "");
        let mut response = client.receive_head().expect("the head comes at once");
        change(&tree.path(&name));
        // Complete, it has one state; cut, it is known to be worth nothing.
        if client.receive_content(&mut response).is_ok() {
            assert!(response.content == [b'A'; LENGTH], "{name}: {}", describe(&Some(response.content)));
        }
    }
}
