//! Files as content, and files that change while they are sent.

use super::pipe::ClientEnd;
use super::scenario::{Client, Scenario, TestServer, advance, settle, with_virtual_time};
use super::test_app::content;
use crate::limits::{
    COPIED_SLICE_BYTES, FILE_COPIED_BYTES, FILE_SLICE_BYTES, LARGE_SEND_BUFFER_BYTES, LARGE_SEND_BUFFERS_MAX, Limits,
    SEND_BUFFER_BYTES,
};
use crate::service::{Body, CloseReason, FileContent, FileStamp, OpenFile, Phase, Request, Response, ResponseOutcome};
use selvedge_proto::StatusCode;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Creates an unnamed file that is removed when it is closed.
pub(super) fn temporary() -> File {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a temporary file");
    std::fs::remove_file(path).expect("it has just been made");
    file
}

/// Creates a file of `len` bytes, and a world that sends `length` bytes from `offset`.
fn server(len: usize, offset: u64, length: u64) -> (Rc<OpenFile>, TestServer) {
    let mut file = temporary();
    file.write_all(&content(len)).expect("a temporary file takes the bytes");
    let file = Rc::new(OpenFile::new(file));
    let sent = file.clone();
    let service = async move |_: &mut Request| {
        Response::new(StatusCode::OK)
            .body(Body::File(Box::new(FileContent::new(sent.clone(), offset, length).expect("it has facts"))))
    };
    (file, TestServer::serving(service, Limits::default()))
}

/// Returns a client that has read `bytes` of the response.
async fn client_after_reading(server: &TestServer, bytes: usize) -> Client<'_> {
    let client = server.connect();
    client.pipe.set_window(bytes);
    client.send(Scenario::get("/").bytes()).await;
    assert_eq!(client.phase(), Phase::Sending);
    client
}

/// Waits until a change of the file would show in its times, which follow the system's clock.
fn settle_times(file: &File) {
    while FileStamp::of(file).expect("it has a stamp").changed_recently(SystemTime::now()) {
        std::thread::yield_now();
    }
}

/// Overwrites bytes with others, at a time that differs from every earlier one.
fn overwrite(file: &File, at: u64) {
    file.write_all_at(b"changed", at).expect("it is open for writing");
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("it is ours");
}

fn assert_aborted(client: &Client<'_>, reason: CloseReason) {
    assert_eq!(client.closed(), Some(reason));
    assert!(!client.response().is_complete);
    assert_eq!(client.finished()[0].outcome, ResponseOutcome::Aborted);
    assert_eq!(client.finished()[0].content_bytes, client.response().content.len() as u64);
}

const SLICE: usize = FILE_SLICE_BYTES as usize;

#[test]
fn whole_files_and_parts_of_them() {
    with_virtual_time(async || {
        for (len, offset, length) in
            [(1, 0, 1), (5000, 0, 5000), (5000, 4999, 1), (3 * SLICE + 7, 0, 3 * SLICE + 7), (3 * SLICE, 5, 2 * SLICE)]
        {
            let (_, server) = server(len, offset as u64, length as u64);
            let client = server.connect();
            client.pipe.send_bytes_max.set(300_000);
            client.send(Scenario::get("/").bytes()).await;
            while client.finished().is_empty() {
                settle().await;
            }
            assert!(client.response().content == content(len)[offset..offset + length], "{len} {offset} {length}");
            assert_eq!(client.finished()[0].content_bytes, length as u64);
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}

#[test]
fn copied_parts_are_sent_in_short_slices() {
    with_virtual_time(async || {
        const HEAD_BYTES_MAX: usize = 512;
        let slice = COPIED_SLICE_BYTES as usize;
        let (_, server) = server(5 * slice, 0, 5 * COPIED_SLICE_BYTES);
        let client = Scenario::get("/").sent(&server).await;
        let sends = client.pipe.sends();
        assert!(client.response().is_complete && sends.iter().sum::<usize>() > 5 * slice);
        assert!(sends.iter().all(|&sent| sent <= slice + HEAD_BYTES_MAX), "{sends:?}");
    });
}

#[test]
fn large_send_buffers_are_limited_and_held_until_the_data_has_left() {
    const LONG: usize = 300_000;
    with_virtual_time(async || {
        let (_, server) = server(LONG, 0, LONG as u64);
        let get = async |client: &Client<'_>, notsent_bytes| {
            client.pipe.notsent_bytes.set(notsent_bytes);
            client.send(Scenario::get("/").bytes()).await;
            assert_eq!(client.phase(), Phase::Idle, "the kernel takes all of it");
            client.pipe.notsent_lowat.get()
        };
        let clients: Vec<_> = (0..LARGE_SEND_BUFFERS_MAX).map(|_| server.connect()).collect();
        for client in &clients {
            assert_eq!(get(client, LONG).await, Some(LARGE_SEND_BUFFER_BYTES));
        }
        let other = server.connect();
        assert_eq!((get(&other, LONG).await, server.worker.large_send_buffers.get()), (None, LARGE_SEND_BUFFERS_MAX));
        // A client that requests again has a large send buffer again, and releases it when all was sent.
        assert_eq!(get(&clients[0], LONG).await, Some(LARGE_SEND_BUFFER_BYTES));
        assert_eq!(
            (get(&clients[0], 0).await, server.worker.large_send_buffers.get()),
            (Some(SEND_BUFFER_BYTES), LARGE_SEND_BUFFERS_MAX - 1)
        );
        assert_eq!(get(&other, LONG).await, Some(LARGE_SEND_BUFFER_BYTES));
        clients[1].end(ClientEnd::Reset).await;
        assert_eq!(server.worker.large_send_buffers.get(), LARGE_SEND_BUFFERS_MAX - 1);
        // A closing connection keeps its permit for a while, because the kernel keeps unsent data.
        clients[4].end(ClientEnd::Ended).await;
        clients[5].end(ClientEnd::Ended).await;
        assert_eq!((clients[4].closed(), server.worker.large_send_buffers.get()), (None, LARGE_SEND_BUFFERS_MAX - 1));
        clients[4].pipe.notsent_bytes.set(0);
        advance(1).await;
        assert_eq!(
            (clients[4].closed(), server.worker.large_send_buffers.get()),
            (Some(CloseReason::ClientClosed), LARGE_SEND_BUFFERS_MAX - 2)
        );
        advance(31).await;
        assert_eq!(
            (clients[5].closed(), server.worker.large_send_buffers.get()),
            (Some(CloseReason::ClientClosed), LARGE_SEND_BUFFERS_MAX - 3)
        );
        // An idle connection keeps its permit while data is unsent, and is not parked.
        server.park().await;
        assert!(clients[0].pipe.is_parked() && !clients[2].pipe.is_parked());
        clients[2].pipe.notsent_bytes.set(SEND_BUFFER_BYTES as usize);
        server.park().await;
        assert!(clients[2].pipe.is_parked() && !clients[3].pipe.is_parked());
        assert_eq!(
            (clients[2].pipe.notsent_lowat.get(), server.worker.large_send_buffers.get()),
            (Some(SEND_BUFFER_BYTES), LARGE_SEND_BUFFERS_MAX - 4)
        );
    });
}

#[test]
fn a_file_shorter_than_announced_aborts_the_response() {
    with_virtual_time(async || {
        let (_, server) = server(50_000, 0, 90_000);
        let client = Scenario::get("/").sent(&server).await;
        assert_aborted(&client, CloseReason::FileChanged);
        assert_eq!(client.response().content.len(), 50_000);
    });
}

#[test]
fn a_file_truncated_while_it_is_sent_aborts_the_response() {
    with_virtual_time(async || {
        let (file, server) = server(50_000, 0, 50_000);
        let client = client_after_reading(&server, 10_000).await;
        file.set_len(20_000).expect("it is open for writing");
        client.read(1_000_000).await;
        assert_aborted(&client, CloseReason::FileChanged);
    });
}

#[test]
fn a_file_that_has_grown_is_sent_with_its_announced_length() {
    with_virtual_time(async || {
        let (file, server) = server(50_000, 0, 50_000);
        file.write_all_at(b"more", 50_000).expect("it is open for writing");
        let client = Scenario::get("/").sent(&server).await;
        assert!(client.response().is_complete && client.response().content == content(50_000));
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn a_small_file_that_changes_while_the_client_is_slow_aborts_the_response() {
    with_virtual_time(async || {
        let (file, server) = server(50_000, 0, 50_000);
        let client = client_after_reading(&server, 10_000).await;
        overwrite(&file, 40_000);
        client.read(1_000_000).await;
        assert_aborted(&client, CloseReason::FileChanged);
        assert!(content(50_000).starts_with(&client.response().content), "no byte of the other state is sent");
    });
}

#[test]
fn a_file_that_changes_between_its_slices_aborts_the_response() {
    with_virtual_time(async || {
        for taken in [1000, SLICE + 1000, 2 * SLICE + 1000] {
            let (file, server) = server(3 * SLICE, 0, 3 * SLICE as u64);
            let client = client_after_reading(&server, taken).await;
            overwrite(&file, taken as u64);
            client.read(usize::MAX).await;
            settle().await;
            assert_aborted(&client, CloseReason::FileChanged);
            assert!(content(3 * SLICE).starts_with(&client.response().content), "no byte of the other state is sent");
        }
    });
}

#[test]
fn a_file_that_changes_after_its_end_was_read_is_sent_unchanged() {
    with_virtual_time(async || {
        let (file, server) = server(3 * SLICE, 0, 3 * SLICE as u64);
        let client = client_after_reading(&server, 3 * SLICE - 1000).await;
        overwrite(&file, 3 * SLICE as u64 - 100);
        client.read(usize::MAX).await;
        settle().await;
        assert!(client.response().is_complete && client.response().content == content(3 * SLICE));
    });
}

#[test]
fn a_huge_file_is_sent_by_sendfile_and_its_end_by_copy() {
    with_virtual_time(async || {
        let len = FILE_COPIED_BYTES as usize + 2 * SLICE + 7;
        for changes in [false, true] {
            let (file, server) = server(len, 0, len as u64);
            let client = client_after_reading(&server, SLICE + 1000).await;
            if changes {
                overwrite(&file, len as u64 - 100);
            }
            client.read(usize::MAX).await;
            while client.finished().is_empty() {
                settle().await;
            }
            assert_eq!(client.response().is_complete, !changes);
            assert!(content(len).starts_with(&client.response().content));
        }
    });
}

#[test]
fn a_file_with_a_sealed_copy_is_sent_unchanged() {
    with_virtual_time(async || {
        let len = 3 * SLICE + 7;
        let (file, server) = server(len, 0, len as u64);
        settle_times(&file);
        file.shared().ensure_copied();
        let client = client_after_reading(&server, SLICE + 1000).await;
        overwrite(&file, 0);
        file.set_len(10).expect("it is open for writing");
        client.read(usize::MAX).await;
        while client.finished().is_empty() {
            settle().await;
        }
        assert!(client.response().is_complete && client.response().content == content(len));
        assert_eq!((client.phase(), client.closed()), (Phase::Idle, None), "the end of the file is not held back");
        // The next response describes the current file, which has no sealed copy.
        let client = Scenario::get("/").sent(&server).await;
        assert_aborted(&client, CloseReason::FileChanged);
    });
}

#[test]
fn a_file_requested_again_is_copied_while_it_is_sent() {
    with_virtual_time(async || {
        let (file, server) = server(SLICE, 0, SLICE as u64);
        settle_times(&file);
        let state = FileStamp::of(&**file).expect("it has a stamp");
        file.choose_source(&state, SLICE as u64, Instant::now() - Duration::from_secs(1));
        assert!(!file.is_copied(&state));
        for _ in 0..2 {
            let client = server.connect();
            client.send(Scenario::get("/").bytes()).await;
            while client.finished().is_empty() || !file.is_copied(&state) {
                settle().await;
            }
            assert!(client.response().content == content(SLICE));
        }
    });
}

#[test]
fn a_client_that_does_not_read_a_file_times_out() {
    with_virtual_time(async || {
        let (_, server) = server(50_000, 0, 50_000);
        let client = client_after_reading(&server, 10_000).await;
        assert_eq!(client.wait_closed().await.0, CloseReason::SendTooSlow);
        let at_head = client_after_reading(&server, 20).await;
        assert_eq!(at_head.wait_closed().await.0, CloseReason::SendTooSlow);
    });
}
