//! Large files that change during a download. The response keeps its length and its state, or the connection is
//! aborted, so that the client detects it.
//!
//! The client stops reading after the first bytes. The file is larger than the kernel's buffers for a connection,
//! so it changes while most of it is unsent.

use crate::support::client::{Aborted, Client, Response};
use crate::support::program::Program;
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

const SIZE: usize = 32 << 20;

/// Starts a download, changes the file, and continues. Returns the result of the download.
fn download_while(fields: &str, change: impl FnOnce(&Tree)) -> (Result<Response, Aborted>, Program) {
    let tree = Tree::new();
    tree.write("large", vec![b'A'; SIZE]);
    tree.wait_until_stable("large");
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let mut client = program.connect();
    client.send_request("GET", "/large", fields);
    let mut response = client.receive_head().expect("the response starts");
    assert!(response.length() >= SIZE);
    change(&tree);
    let received = client.receive_content(&mut response).map(|()| response);
    assert_server_still_serves(&program, &mut client, &received);
    (received, program)
}

/// Asserts that other clients are served, and that an aborted connection is closed without further bytes.
fn assert_server_still_serves(program: &Program, client: &mut Client, received: &Result<Response, Aborted>) {
    assert_eq!(program.connect().get("/missing").status, 404);
    match received {
        Ok(_) => assert_eq!(client.get("/missing").status, 404),
        Err(_) => client.assert_closed(),
    }
}

fn assert_old_content(received: &Result<Response, Aborted>) {
    let response = received.as_ref().expect("the download is complete");
    assert_eq!(response.content.len(), SIZE);
    assert!(response.content.iter().all(|&byte| byte == b'A'), "a mix");
}

fn assert_aborted(received: &Result<Response, Aborted>, program: &Program, reason: &str) {
    let aborted = received.as_ref().expect_err("the download is aborted");
    assert!(aborted.content.len() < SIZE);
    wait_until("the reason is in the log", || {
        program.error_lines().iter().any(|line| line.contains(reason)).then_some(())
    });
    let line = wait_until("the request is in the log", || {
        program.access_lines().into_iter().find(|line| line.contains("\"GET /large "))
    });
    let bytes = line.split(' ').nth(9).and_then(|bytes| bytes.parse::<usize>().ok()).expect("a count of bytes");
    assert!(bytes >= aborted.content.len() && bytes < SIZE + 1_024, "{line}");
}

#[test]
fn a_replaced_file_is_sent_completely() {
    let (received, _program) = download_while("", |tree| tree.replace("large", vec![b'B'; SIZE]));
    assert_old_content(&received);
}

#[test]
fn a_deleted_file_is_sent_completely() {
    let (received, _program) = download_while("", |tree| fs::remove_file(tree.path("large")).unwrap());
    assert_old_content(&received);
}

#[test]
fn a_download_of_a_truncated_file_is_aborted() {
    for length in [0, 1, 4_096, SIZE as u64 - 1] {
        let (received, program) = download_while("", |tree| {
            File::options().write(true).open(tree.path("large")).unwrap().set_len(length).unwrap();
        });
        assert_aborted(&received, &program, "FileChanged");
    }
}

#[test]
fn a_download_of_a_file_rewritten_in_place_is_aborted() {
    let (received, program) = download_while("", |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().write_all_at(&vec![b'B'; SIZE], 0).unwrap();
    });
    assert_aborted(&received, &program, "FileChanged");
}

#[test]
fn a_download_of_a_growing_file_is_aborted() {
    let (received, program) = download_while("", |tree| {
        File::options().append(true).open(tree.path("large")).unwrap().write_all(b"B").unwrap();
    });
    assert_aborted(&received, &program, "FileChanged");
}

/// Returns a Range field for the whole file in two parts.
fn two_parts() -> String {
    format!("Range: bytes=0-{},{}-", SIZE / 2 - 1, SIZE / 2)
}

#[test]
fn a_multipart_download_of_a_changed_file_is_aborted() {
    let (received, program) = download_while(&two_parts(), |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().set_len(4_096).unwrap();
    });
    assert_aborted(&received, &program, "StreamFailed");
    let (received, program) = download_while(&two_parts(), |tree| {
        File::options().write(true).open(tree.path("large")).unwrap().write_all_at(&vec![b'B'; SIZE], 0).unwrap();
    });
    assert_aborted(&received, &program, "StreamFailed");
}

#[test]
fn all_parts_of_a_replaced_file_are_of_one_state() {
    let (received, _program) = download_while(&two_parts(), |tree| tree.replace("large", vec![b'B'; SIZE]));
    let response = received.expect("the download is complete");
    assert_eq!(response.content.iter().filter(|&&byte| byte == b'A').count(), SIZE);
    assert_eq!(response.content.iter().filter(|&&byte| byte == b'B').count(), 0);
}

#[test]
fn a_client_that_disconnects_does_not_delay_the_shutdown() {
    let tree = Tree::new();
    tree.write("large", vec![b'A'; SIZE]);
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    for _ in 0..20 {
        let mut client = program.connect();
        client.send_request("GET", "/large", "");
        client.receive_head().expect("the response starts");
    }
    wait_until("each request is in the log", || (program.access_lines().len() == 20).then_some(()));
    // The shutdown has no connection to wait for.
    program.stop();
}
