//! Symbolic links, FIFOs, sockets, devices and unreadable files below the root. None that leads outside or is
//! not a regular file is served, and none blocks a worker.

use crate::support::program::{Program, selvedge_command};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The user ID and group ID of `nobody`.
const UNPRIVILEGED_ID: u32 = 65_534;

#[test]
fn links_are_followed_only_below_the_root() {
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
        // It leads outside and back in.
        ("../site/real/a.txt", "out-and-in", 200),
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
        tree.symlink(text, name);
    }
    tree.symlink(tree.path("real/a.txt"), "absolute-inside");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (_, name, status) in rows {
        let response = client.get(&format!("/{name}"));
        assert_eq!(response.status, *status, "{name}");
        assert_eq!(response.text() == "a", *status == 200, "{name}");
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
        ("/absolute-inside", 200),
    ] {
        assert_eq!(client.get(target).status, status, "{target}");
    }
}

#[test]
fn a_link_swapped_during_resolution_never_leads_outside() {
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
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                symlink(targets[round % 2], &spare).unwrap();
                fs::rename(&spare, tree.path("swapped")).unwrap();
            }
        });
        let mut client = program.connect();
        let mut served = 0;
        // Alternating spellings, so that each request resolves the path again.
        for round in 0..2_000 {
            let target = ["/swapped/a.txt", "/swapped/%61.txt", "/swapped/./a.txt"][round % 3];
            let response = client.get(target);
            match response.status {
                200 => assert_eq!(response.text(), "inside"),
                status => assert_eq!(status, 404),
            }
            served += usize::from(response.status == 200);
        }
        done.store(true, Ordering::Relaxed);
        assert!(served > 0, "the link never led inside");
    });
}

#[test]
fn special_files_are_not_found_and_do_not_block() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    tree.write("with-fifo.txt", "b");
    tree.create_dir("dir");
    tree.fifo("fifo");
    tree.fifo("dir/index.html");
    tree.fifo("with-fifo.txt.gz");
    tree.symlink("fifo", "link-to-fifo");
    let _socket = UnixListener::bind(tree.path("socket")).unwrap();
    // Creating a device needs privileges that the test may lack.
    let device = mknodat(CWD, tree.path("zero"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)).is_ok();
    // With one worker, a blocked request would block all.
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let (mut client, mut other) = (program.connect(), program.connect());
    let names = ["/fifo", "/link-to-fifo", "/socket", "/dir/", "/dir/index.html", "/fifo/", "/socket/x"];
    for target in names.iter().chain(device.then_some(&"/zero")) {
        client.send_request("GET", target, "");
        assert_eq!(other.get("/a.txt").text(), "a", "{target}");
        assert_eq!(client.receive("GET").unwrap().status, 404, "{target}");
        assert_eq!(client.request("HEAD", target, "").status, 404, "{target}");
    }
    let response = client.get_with("/with-fifo.txt", "Accept-Encoding: gzip");
    assert_eq!((response.text(), response.field("content-encoding"), response.field("vary")), ("b", None, None));
}

/// Returns a command that serves a tree as a user without privileges, or `None` if that is not possible.
fn serve_without_rights(tree: &Tree) -> Option<Command> {
    let mut serve = selvedge_command();
    serve.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    if rustix::process::getuid().is_root() {
        // Permissions do not restrict root, so serve as another user if that user can execute the program.
        selvedge_command()
            .arg("--version")
            .stdout(Stdio::null())
            .uid(UNPRIVILEGED_ID)
            .gid(UNPRIVILEGED_ID)
            .status()
            .ok()?;
        serve.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
    }
    Some(serve)
}

#[test]
fn an_unreadable_but_searchable_directory_serves_its_index() {
    if !rustix::process::getuid().is_root() {
        return; // The directory must belong to another user.
    }
    let tree = Tree::new();
    tree.write("xonly/index.html", "index");
    tree.write("xonly/a.txt", "a");
    tree.write("xonly-locked/index.html", "secret");
    tree.create_dir("xonly-empty");
    for (name, mode) in
        [("xonly", 0o711), ("xonly-empty", 0o711), ("xonly-locked", 0o711), ("xonly-locked/index.html", 0o600)]
    {
        fs::set_permissions(tree.path(name), Permissions::from_mode(mode)).unwrap();
    }
    let Some(mut serve) = serve_without_rights(&tree) else { return };
    let program = Program::start(serve.arg("--listing"));
    let mut client = program.connect();
    // Twice, because the second response may be from the cache.
    for _ in 0..2 {
        for (target, content) in [("/xonly/", "index"), ("/xonly/index.html", "index"), ("/xonly/a.txt", "a")] {
            let response = client.get(target);
            assert_eq!((response.status, response.text()), (200, content), "{target}");
        }
        // Neither the listing nor the existence of an index is revealed.
        for target in ["/xonly-empty/", "/xonly-locked/"] {
            assert_eq!(client.get(target).status, 403, "{target}");
        }
    }
    assert_eq!(client.request("HEAD", "/xonly/", "").status, 200);
}

#[test]
fn unreadable_files_are_forbidden() {
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
        let response = client.get(target);
        assert_eq!(response.status, 403, "{target}");
        assert!(!response.text().contains("secret"));
    }
    assert_eq!(client.get("/a.txt").text(), "a");
    // An unreadable precompressed file is ignored.
    assert_eq!(client.get_with("/plain.txt", "Accept-Encoding: gzip").text(), "plain");
    let exit = program.stop();
    assert!(exit.err.contains("403 the server has no permission to read the file"), "{}", exit.err);
    fs::set_permissions(tree.path("locked"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_served_directory_may_be_a_link_that_is_swapped() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    symlink(tree.site(), tree.outside("link")).unwrap();
    let program =
        Program::start(selvedge_command().arg("serve").arg(tree.outside("link")).args(["--listen", "127.0.0.1:0"]));
    assert_eq!(program.connect().get("/a.txt").text(), "a");
    // A common deployment: a new directory, and a link swapped to it.
    fs::create_dir(tree.outside("next")).unwrap();
    fs::write(tree.outside("next/a.txt"), "next").unwrap();
    symlink(tree.outside("next"), tree.outside("next-link")).unwrap();
    fs::rename(tree.outside("next-link"), tree.outside("link")).unwrap();
    let mut client = program.connect();
    wait_until("the next directory is served", || (client.get("/a.txt").text() == "next").then_some(()));
    // While the link is missing, the opened directory is still served.
    fs::remove_file(tree.outside("link")).unwrap();
    fs::write(tree.outside("next/b.txt"), "b").unwrap();
    assert_eq!(client.get("/b.txt").text(), "b");
}
