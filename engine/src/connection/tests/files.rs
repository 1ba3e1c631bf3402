//! Files as content, and files that change while they are sent.

use super::pipe::Ending;
use super::scenario::{Client, Scenario, World, pass, settle, virtually};
use super::site::content;
use crate::limits::{
    COPIED_SLICE_BYTES, FILE_COPIED_BYTES, FILE_SLICE_BYTES, Limits, ROOMY_MAX, UNSENT_BYTES_MAX,
    UNSENT_BYTES_MAX_OF_ROOMY,
};
use crate::service::{
    Body, CloseReason, FileContent, FileFacts, FileState, OpenFile, Outcome, Phase, Request, Response,
};
use selvedge_proto::Status;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A file that nobody else has, and that is gone when it is closed.
pub(super) fn temporary() -> File {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a temporary file");
    std::fs::remove_file(path).expect("it has just been made");
    file
}

/// A file of so many bytes, and a world that sends so many of them from an offset on.
fn world(len: usize, offset: u64, length: u64) -> (Rc<OpenFile>, World) {
    let mut file = temporary();
    file.write_all(&content(len)).expect("a temporary file takes the bytes");
    let file = Rc::new(OpenFile::new(file));
    let sent = file.clone();
    let service = async move |_: &mut Request| {
        Response::new(Status::OK)
            .body(Body::File(FileContent::new(sent.clone(), offset, length).expect("it has facts")))
    };
    (file, World::serving(service, Limits::default()))
}

/// A client that has taken so much of the answer.
async fn having_taken(world: &World, bytes: usize) -> Client<'_> {
    let client = world.connect();
    client.pipe.set_room(bytes);
    client.send(Scenario::get("/").bytes()).await;
    assert_eq!(client.phase(), Phase::Sending);
    client
}

/// Waits until a file's times would show its next change, which is the system's clock and no
/// runtime's.
fn settle_times(file: &File) {
    while !FileFacts::from(&file.metadata().expect("it has facts")).is_settled() {
        std::thread::yield_now();
    }
}

/// Writes other bytes of the same length, at a time that no clock can take for the same.
fn overwrite(file: &File, at: u64) {
    file.write_all_at(b"changed", at).expect("it is open for writing");
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("it is ours");
}

fn assert_cut(client: &Client<'_>, reason: CloseReason) {
    assert_eq!(client.closed(), Some(reason));
    assert!(!client.reply().is_complete);
    assert_eq!(client.finished()[0].outcome, Outcome::Cut);
    assert_eq!(client.finished()[0].content_bytes, client.reply().content.len() as u64);
}

const SLICE: usize = FILE_SLICE_BYTES as usize;

#[test]
fn whole_files_and_parts_of_them() {
    virtually(async {
        for (len, offset, length) in
            [(1, 0, 1), (5000, 0, 5000), (5000, 4999, 1), (3 * SLICE + 7, 0, 3 * SLICE + 7), (3 * SLICE, 5, 2 * SLICE)]
        {
            let (_, world) = world(len, offset as u64, length as u64);
            let client = world.connect();
            client.pipe.send_bytes_max.set(300_000);
            client.send(Scenario::get("/").bytes()).await;
            while client.finished().is_empty() {
                settle().await;
            }
            assert!(client.reply().content == content(len)[offset..offset + length], "{len} {offset} {length}");
            assert_eq!(client.finished()[0].content_bytes, length as u64);
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}

#[test]
fn what_is_copied_leaves_in_short_slices() {
    virtually(async {
        const HEAD_BYTES_MAX: usize = 512;
        let slice = COPIED_SLICE_BYTES as usize;
        let (_, world) = world(5 * slice, 0, 5 * COPIED_SLICE_BYTES);
        let client = Scenario::get("/").sent(&world).await;
        let sends = client.pipe.sends();
        assert!(client.reply().is_complete && sends.iter().sum::<usize>() > 5 * slice);
        assert!(sends.iter().all(|&sent| sent <= slice + HEAD_BYTES_MAX), "{sends:?}");
    });
}

#[test]
fn more_room_is_had_by_few_and_until_what_was_sent_has_left() {
    const LONG: usize = 300_000;
    virtually(async {
        let (_, world) = world(LONG, 0, LONG as u64);
        let get = async |client: &Client<'_>, unsent| {
            client.pipe.unsent.set(unsent);
            client.send(Scenario::get("/").bytes()).await;
            assert_eq!(client.phase(), Phase::Idle, "the kernel takes all of it");
            client.pipe.unsent_max.get()
        };
        let roomy: Vec<_> = (0..ROOMY_MAX).map(|_| world.connect()).collect();
        for client in &roomy {
            assert_eq!(get(client, LONG).await, Some(UNSENT_BYTES_MAX_OF_ROOMY));
        }
        let other = world.connect();
        assert_eq!((get(&other, LONG).await, world.worker.roomy.get()), (None, ROOMY_MAX));
        // One that asks again has what it had, and gives it back when all has left.
        assert_eq!(get(&roomy[0], LONG).await, Some(UNSENT_BYTES_MAX_OF_ROOMY));
        assert_eq!((get(&roomy[0], 0).await, world.worker.roomy.get()), (Some(UNSENT_BYTES_MAX), ROOMY_MAX - 1));
        assert_eq!(get(&other, LONG).await, Some(UNSENT_BYTES_MAX_OF_ROOMY));
        roomy[1].end(Ending::Reset).await;
        assert_eq!(world.worker.roomy.get(), ROOMY_MAX - 1);
        // Who closes keeps it, too, since the kernel keeps what was not sent; but not for ever.
        roomy[4].end(Ending::Ended).await;
        roomy[5].end(Ending::Ended).await;
        assert_eq!((roomy[4].closed(), world.worker.roomy.get()), (None, ROOMY_MAX - 1));
        roomy[4].pipe.unsent.set(0);
        pass(1).await;
        assert_eq!((roomy[4].closed(), world.worker.roomy.get()), (Some(CloseReason::ClientDone), ROOMY_MAX - 2));
        pass(31).await;
        assert_eq!((roomy[5].closed(), world.worker.roomy.get()), (Some(CloseReason::ClientDone), ROOMY_MAX - 3));
        // Who is idle keeps it while it is in use, and is not parked.
        world.park().await;
        assert!(roomy[0].pipe.is_parked() && !roomy[2].pipe.is_parked());
        roomy[2].pipe.unsent.set(UNSENT_BYTES_MAX as usize);
        world.park().await;
        assert!(roomy[2].pipe.is_parked() && !roomy[3].pipe.is_parked());
        assert_eq!((roomy[2].pipe.unsent_max.get(), world.worker.roomy.get()), (Some(UNSENT_BYTES_MAX), ROOMY_MAX - 4));
    });
}

#[test]
fn a_file_shorter_than_announced_is_cut() {
    virtually(async {
        let (_, world) = world(50_000, 0, 90_000);
        let client = Scenario::get("/").sent(&world).await;
        assert_cut(&client, CloseReason::FileChanged);
        assert_eq!(client.reply().content.len(), 50_000);
    });
}

#[test]
fn a_file_truncated_while_it_is_sent_is_cut() {
    virtually(async {
        let (file, world) = world(50_000, 0, 50_000);
        let client = having_taken(&world, 10_000).await;
        file.set_len(20_000).expect("it is open for writing");
        client.take(1_000_000).await;
        assert_cut(&client, CloseReason::FileChanged);
    });
}

#[test]
fn a_file_that_has_grown_is_sent_as_long_as_it_was() {
    virtually(async {
        let (file, world) = world(50_000, 0, 50_000);
        file.write_all_at(b"more", 50_000).expect("it is open for writing");
        let client = Scenario::get("/").sent(&world).await;
        assert!(client.reply().is_complete && client.reply().content == content(50_000));
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn a_small_file_that_changes_while_the_client_is_slow_is_cut() {
    virtually(async {
        let (file, world) = world(50_000, 0, 50_000);
        let client = having_taken(&world, 10_000).await;
        overwrite(&file, 40_000);
        client.take(1_000_000).await;
        assert_cut(&client, CloseReason::FileChanged);
        assert!(content(50_000).starts_with(&client.reply().content), "no byte of the other state is sent");
    });
}

#[test]
fn a_file_that_changes_between_its_slices_is_cut() {
    virtually(async {
        for taken in [1000, SLICE + 1000, 2 * SLICE + 1000] {
            let (file, world) = world(3 * SLICE, 0, 3 * SLICE as u64);
            let client = having_taken(&world, taken).await;
            overwrite(&file, taken as u64);
            client.take(usize::MAX).await;
            settle().await;
            assert_cut(&client, CloseReason::FileChanged);
            assert!(content(3 * SLICE).starts_with(&client.reply().content), "no byte of the other state is sent");
        }
    });
}

#[test]
fn a_file_that_changes_when_its_end_is_on_its_way_is_sent_as_it_was() {
    virtually(async {
        let (file, world) = world(3 * SLICE, 0, 3 * SLICE as u64);
        let client = having_taken(&world, 3 * SLICE - 1000).await;
        overwrite(&file, 3 * SLICE as u64 - 100);
        client.take(usize::MAX).await;
        settle().await;
        assert!(client.reply().is_complete && client.reply().content == content(3 * SLICE));
    });
}

#[test]
fn a_huge_file_goes_first_by_its_pages_and_then_by_copies() {
    virtually(async {
        let len = FILE_COPIED_BYTES as usize + 2 * SLICE + 7;
        for changes in [false, true] {
            let (file, world) = world(len, 0, len as u64);
            let client = having_taken(&world, SLICE + 1000).await;
            if changes {
                overwrite(&file, len as u64 - 100);
            }
            client.take(usize::MAX).await;
            while client.finished().is_empty() {
                settle().await;
            }
            assert_eq!(client.reply().is_complete, !changes);
            assert!(content(len).starts_with(&client.reply().content));
        }
    });
}

#[test]
fn from_a_copy_in_memory_a_file_is_sent_as_it_was_whatever_becomes_of_it() {
    virtually(async {
        let len = 3 * SLICE + 7;
        let (file, world) = world(len, 0, len as u64);
        settle_times(&file);
        file.shared().have_copied();
        let client = having_taken(&world, SLICE + 1000).await;
        overwrite(&file, 0);
        file.set_len(10).expect("it is open for writing");
        client.take(usize::MAX).await;
        while client.finished().is_empty() {
            settle().await;
        }
        assert!(client.reply().is_complete && client.reply().content == content(len));
        // The next answer speaks of the file as it is now, and of that there is no copy.
        let client = Scenario::get("/").sent(&world).await;
        assert_cut(&client, CloseReason::FileChanged);
    });
}

#[test]
fn a_file_that_is_asked_for_again_is_copied_while_it_is_sent() {
    virtually(async {
        let (file, world) = world(SLICE, 0, SLICE as u64);
        settle_times(&file);
        let state = FileState::of(&file).expect("it has a state");
        file.source(&state, SLICE as u64, Instant::now() - Duration::from_secs(1));
        assert!(!file.is_copied(&state));
        for _ in 0..2 {
            let client = world.connect();
            client.send(Scenario::get("/").bytes()).await;
            while client.finished().is_empty() || !file.is_copied(&state) {
                settle().await;
            }
            assert!(client.reply().content == content(SLICE));
        }
    });
}

#[test]
fn a_client_that_does_not_take_a_file_ends() {
    virtually(async {
        let (_, world) = world(50_000, 0, 50_000);
        let client = having_taken(&world, 10_000).await;
        assert_eq!(client.ends().await.0, CloseReason::SendTooSlow);
        let at_head = having_taken(&world, 20).await;
        assert_eq!(at_head.ends().await.0, CloseReason::SendTooSlow);
    });
}
