//! What is no regular file beneath the root: links, FIFOs, sockets, devices, what may not
//! be read. None of it is served, and none of it holds a worker up.

use super::program::{Program, command};
use super::tree::Tree;
use super::wait::until;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

#[test]
fn links_are_followed_only_beneath_the_root() {
    let tree = Tree::new();
    tree.write("real/a.txt", "a");
    tree.write("real/index.html", "index");
    fs::write(tree.outside("secret.txt"), "secret").unwrap();
    fs::create_dir(tree.outside("elsewhere")).unwrap();
    fs::write(tree.outside("elsewhere/index.html"), "secret").unwrap();
    let rows: &[(&str, &str, u16)] = &[
        ("real/a.txt", "inside", 200),
        ("./real/../real/a.txt", "inside-with-dots", 200),
        ("inside", "chain", 200),
        ("real", "dir", 301),
        ("../secret.txt", "outside", 404),
        // It comes back in, but only after it has left.
        ("../site/real/a.txt", "out-and-in", 404),
        ("real/../../secret.txt", "outside-with-dots", 404),
        ("outside", "chain-outside", 404),
        ("../elsewhere", "dir-outside", 404),
        ("/etc/passwd", "absolute", 404),
        ("/", "slash", 404),
        ("/proc/self/exe", "magic", 404),
        ("missing", "dangling", 404),
        ("loop-b", "loop-a", 404),
        ("loop-a", "loop-b", 404),
        ("self", "self", 404),
    ];
    for (text, name, _) in rows {
        tree.link(text, name);
    }
    tree.link(tree.path("real/a.txt"), "absolute-inside");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (_, name, status) in rows {
        let answer = client.get(&format!("/{name}"));
        assert_eq!(answer.status, *status, "{name}");
        assert_eq!(answer.text() == "a", *status == 200, "{name}");
    }
    for (target, status) in [
        ("/dir/a.txt", 200),
        ("/dir/", 200),
        ("/dir-outside/", 404),
        ("/dir-outside/index.html", 404),
        ("/slash/etc/passwd", 404),
        ("/slash/", 404),
        ("/loop-a/", 404),
        ("/dangling/x", 404),
        // An absolute link starts outside, wherever it ends.
        ("/absolute-inside", 404),
    ] {
        assert_eq!(client.get(target).status, status, "{target}");
    }
}

#[test]
fn a_link_that_is_swapped_while_it_is_followed_leads_nowhere_else() {
    let tree = Tree::new();
    tree.write("real/a.txt", "inside");
    fs::create_dir(tree.outside("elsewhere")).unwrap();
    fs::write(tree.outside("elsewhere/a.txt"), "secret").unwrap();
    let program = Program::serve(&tree);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let spare = tree.outside("spare");
            let targets = ["real", "../elsewhere"];
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                symlink(targets[turn % 2], &spare).unwrap();
                fs::rename(&spare, tree.path("swapped")).unwrap();
            }
        });
        let mut client = program.connect();
        let mut served = 0;
        // Different ways to write it, so that each is looked up anew.
        for turn in 0..2_000 {
            let target = ["/swapped/a.txt", "/swapped/%61.txt", "/swapped/./a.txt"][turn % 3];
            let answer = client.get(target);
            match answer.status {
                200 => assert_eq!(answer.text(), "inside"),
                status => assert_eq!(status, 404),
            }
            served += usize::from(answer.status == 200);
        }
        done.store(true, Ordering::Relaxed);
        assert!(served > 0, "the link led inside some of the time");
    });
}

#[test]
fn special_files_are_not_there_and_hold_nobody_up() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    tree.write("with-fifo.txt", "b");
    tree.dir("dir");
    tree.fifo("fifo");
    tree.fifo("dir/index.html");
    tree.fifo("with-fifo.txt.gz");
    tree.link("fifo", "link-to-fifo");
    let _socket = UnixListener::bind(tree.path("socket")).unwrap();
    // Making a device takes rights that few have.
    let device = mknodat(CWD, tree.path("zero"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)).is_ok();
    // With one worker, whoever waits makes everybody wait.
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let (mut client, mut other) = (program.connect(), program.connect());
    let names = ["/fifo", "/link-to-fifo", "/socket", "/dir/", "/dir/index.html", "/fifo/", "/socket/x"];
    for target in names.iter().chain(device.then_some(&"/zero")) {
        client.send_request("GET", target, "");
        assert_eq!(other.get("/a.txt").text(), "a", "{target}");
        assert_eq!(client.receive("GET").unwrap().status, 404, "{target}");
        assert_eq!(client.ask("HEAD", target, "").status, 404, "{target}");
    }
    let answer = client.get_with("/with-fifo.txt", "Accept-Encoding: gzip");
    assert_eq!((answer.text(), answer.field("content-encoding"), answer.field("vary")), ("b", None, None));
}

/// Serves a tree as somebody whom permissions bind. `None` where that cannot be.
fn serve_without_rights(tree: &Tree) -> Option<Command> {
    let mut serve = command();
    serve.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    if rustix::process::getuid().is_root() {
        // Nothing is locked to root, so somebody else has to serve, if the program lies where
        // somebody else may go.
        command().arg("--version").stdout(Stdio::null()).uid(NOBODY).gid(NOBODY).status().ok()?;
        serve.uid(NOBODY).gid(NOBODY);
    }
    Some(serve)
}

#[test]
fn a_directory_that_may_be_entered_but_not_read_has_its_index() {
    if !rustix::process::getuid().is_root() {
        return; // The directory is to be somebody else's.
    }
    let tree = Tree::new();
    tree.write("xonly/index.html", "index");
    tree.write("xonly/a.txt", "a");
    tree.write("xonly-locked/index.html", "secret");
    tree.dir("xonly-empty");
    for (name, mode) in
        [("xonly", 0o711), ("xonly-empty", 0o711), ("xonly-locked", 0o711), ("xonly-locked/index.html", 0o600)]
    {
        fs::set_permissions(tree.path(name), Permissions::from_mode(mode)).unwrap();
    }
    let Some(mut serve) = serve_without_rights(&tree) else { return };
    let program = Program::start(serve.arg("--listing"));
    let mut client = program.connect();
    // Twice, since the second may come from what is remembered of the first.
    for _ in 0..2 {
        for (target, content) in [("/xonly/", "index"), ("/xonly/index.html", "index"), ("/xonly/a.txt", "a")] {
            let answer = client.get(target);
            assert_eq!((answer.status, answer.text()), (200, content), "{target}");
        }
        // What is in it is nobody's business, and whether there is an index neither.
        for target in ["/xonly-empty/", "/xonly-locked/"] {
            assert_eq!(client.get(target).status, 403, "{target}");
        }
    }
    assert_eq!(client.ask("HEAD", "/xonly/", "").status, 200);
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    tree.write("locked.txt", "secret");
    tree.write("locked/a.txt", "secret");
    tree.write("dir/index.html", "secret");
    tree.write("plain.txt", "plain");
    tree.write("plain.txt.gz", "secret");
    for name in ["locked.txt", "locked", "dir/index.html", "plain.txt.gz"] {
        fs::set_permissions(tree.path(name), Permissions::from_mode(0o000)).unwrap();
    }
    let Some(mut serve) = serve_without_rights(&tree) else { return };
    let program = Program::start(&mut serve);
    let mut client = program.connect();
    for target in ["/locked.txt", "/locked/", "/locked", "/locked/a.txt", "/dir/", "/dir/index.html"] {
        let answer = client.get(target);
        assert_eq!(answer.status, 403, "{target}");
        assert!(!answer.text().contains("secret"));
    }
    assert_eq!(client.get("/a.txt").text(), "a");
    // A sidecar that cannot be had is none.
    assert_eq!(client.get_with("/plain.txt", "Accept-Encoding: gzip").text(), "plain");
    let exit = program.stop();
    assert!(exit.err.contains("403 the file may not be read by the server"), "{}", exit.err);
    fs::set_permissions(tree.path("locked"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_served_directory_may_be_a_link_that_is_swapped() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    symlink(tree.site(), tree.outside("link")).unwrap();
    let program = Program::start(command().arg("serve").arg(tree.outside("link")).args(["--listen", "127.0.0.1:0"]));
    assert_eq!(program.connect().get("/a.txt").text(), "a");
    // The way many sites are put in place: a new directory, and a link swapped to it.
    fs::create_dir(tree.outside("next")).unwrap();
    fs::write(tree.outside("next/a.txt"), "next").unwrap();
    symlink(tree.outside("next"), tree.outside("next-link")).unwrap();
    fs::rename(tree.outside("next-link"), tree.outside("link")).unwrap();
    let mut client = program.connect();
    until("the next directory is served", || (client.get("/a.txt").text() == "next").then_some(()));
    // While the name leads nowhere, what was opened is served on.
    fs::remove_file(tree.outside("link")).unwrap();
    fs::write(tree.outside("next/b.txt"), "b").unwrap();
    assert_eq!(client.get("/b.txt").text(), "b");
}
