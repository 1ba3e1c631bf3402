//! Large files that change on their way: the answer keeps its length and its state, or it
//! is cut so that the client knows.
//!
//! The client stops reading after the first bytes. The file is larger than what the system
//! holds for a connection, so the change comes while most of it has yet to leave.

use super::client::{Client, Cut, Response};
use super::program::Program;
use super::tree::Tree;
use super::wait::until;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

const SIZE: usize = 32 << 20;

/// Begins a download, lets the file change, and goes on: what came.
fn download_while(fields: &str, change: impl FnOnce(&Tree)) -> (Result<Response, Cut>, Program) {
    let tree = Tree::new();
    tree.write("large", vec![b'A'; SIZE]);
    tree.settled("large");
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let mut client = program.connect();
    client.send_request("GET", "/large", fields);
    let mut answer = client.receive_head().expect("the answer begins");
    assert!(answer.length() >= SIZE);
    change(&tree);
    let received = client.receive_content(&mut answer).map(|()| answer);
    is_unharmed(&program, &mut client, &received);
    (received, program)
}

/// Others are served; and a connection that was cut carries nothing more.
fn is_unharmed(program: &Program, client: &mut Client, received: &Result<Response, Cut>) {
    assert_eq!(program.connect().get("/missing").status, 404);
    match received {
        Ok(_) => assert_eq!(client.get("/missing").status, 404),
        Err(_) => client.is_closed(),
    }
}

fn is_old(received: &Result<Response, Cut>) {
    let answer = received.as_ref().expect("the download is complete");
    assert_eq!(answer.content.len(), SIZE);
    assert!(answer.content.iter().all(|&byte| byte == b'A'), "a mix");
}

fn is_cut(received: &Result<Response, Cut>, program: &Program, reason: &str) {
    let cut = received.as_ref().expect_err("the download is cut");
    assert!(cut.content.len() < SIZE);
    until("the reason is in the log", || program.error_lines().iter().any(|line| line.contains(reason)).then_some(()));
    let line = until("the request is in the log", || {
        program.access_lines().into_iter().find(|line| line.contains("\"GET /large "))
    });
    let bytes = line.split(' ').nth(9).and_then(|bytes| bytes.parse::<usize>().ok()).expect("a count of bytes");
    assert!(bytes >= cut.content.len() && bytes < SIZE + 1_024, "{line}");
}

#[test]
fn a_replaced_file_is_sent_to_its_end() {
    let (received, _program) = download_while("", |tree| tree.replace("large", vec![b'B'; SIZE]));
    is_old(&received);
}

#[test]
fn a_deleted_file_is_sent_to_its_end() {
    let (received, _program) = download_while("", |tree| fs::remove_file(tree.path("large")).unwrap());
    is_old(&received);
}

#[test]
fn a_truncated_file_is_cut() {
    for length in [0, 1, 4_096, SIZE as u64 - 1] {
        let (received, program) = download_while("", |tree| {
            File::options().write(true).open(tree.path("large")).unwrap().set_len(length).unwrap();
        });
        is_cut(&received, &program, "FileChanged");
    }
}

#[test]
fn a_file_that_is_rewritten_in_place_is_cut() {
    let (received, program) = download_while("", |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().write_all_at(&vec![b'B'; SIZE], 0).unwrap();
    });
    is_cut(&received, &program, "FileChanged");
}

#[test]
fn a_file_that_grows_is_cut() {
    let (received, program) = download_while("", |tree| {
        File::options().append(true).open(tree.path("large")).unwrap().write_all(b"B").unwrap();
    });
    is_cut(&received, &program, "FileChanged");
}

/// All of the file in two parts.
fn two_parts() -> String {
    format!("Range: bytes=0-{},{}-", SIZE / 2 - 1, SIZE / 2)
}

#[test]
fn parts_of_a_file_that_changes_are_cut() {
    let (received, program) = download_while(&two_parts(), |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().set_len(4_096).unwrap();
    });
    is_cut(&received, &program, "StreamFailed");
    let (received, program) = download_while(&two_parts(), |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().write_all_at(&vec![b'B'; SIZE], 0).unwrap();
    });
    is_cut(&received, &program, "StreamFailed");
}

#[test]
fn parts_of_a_file_that_is_replaced_are_of_one_state() {
    let (received, _program) = download_while(&two_parts(), |tree| tree.replace("large", vec![b'B'; SIZE]));
    let answer = received.expect("the download is complete");
    assert_eq!(answer.content.iter().filter(|&&byte| byte == b'A').count(), SIZE);
    assert_eq!(answer.content.iter().filter(|&&byte| byte == b'B').count(), 0);
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let tree = Tree::new();
    tree.write("large", vec![b'A'; SIZE]);
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    for _ in 0..20 {
        let mut client = program.connect();
        client.send_request("GET", "/large", "");
        client.receive_head().expect("the answer begins");
    }
    until("each has its line", || (program.access_lines().len() == 20).then_some(()));
    // A stop finds nobody whom it would have to wait for.
    program.stop();
}
