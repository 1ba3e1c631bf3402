//! What is kept, how it is bounded, and that it is never of another state of the file.

use super::*;
use crate::tower::compression::encoder::tests::decoded;
use crate::tower::send_file::{self, SendFile};
use std::path::{Path, PathBuf};

/// A file of the test's own, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    /// A file that was changed long ago, as far as its content goes.
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("selvedge-kept-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let scratch = Self(path);
        scratch.settle();
        scratch
    }

    /// Waits for what the file's times need to show its next change.
    fn settle(&self) {
        let file = File::open(&self.0).unwrap();
        while !Key::of(&file, Coding::Gzip).unwrap().is_settled() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn facts(path: &Path) -> FileFacts {
    let body = SendFile::of(File::open(path).unwrap()).unwrap();
    send_file::find(&body).1.expect("it is a file")
}

fn text(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| format!("line {}\n", number * number % 977).into_bytes()).take(length).collect()
}

/// What comes of a file that is not kept.
async fn make(kept: &Kept, path: &Path, coding: Coding) -> Option<Made> {
    match kept.find(&facts(path), coding, Otherwise::Make) {
        Found::Making(making) => making.await,
        Found::Made(_) => panic!("it is kept already"),
        Found::Nothing => panic!("it is not for keeping"),
    }
}

fn look(kept: &Kept, path: &Path, coding: Coding) -> Option<Made> {
    match kept.find(&facts(path), coding, Otherwise::Leave) {
        Found::Made(made) => Some(made),
        Found::Making(_) | Found::Nothing => None,
    }
}

#[test]
fn a_file_is_coded_once_and_gets_smaller_later() {
    let content = text(200_000);
    let file = Scratch::new("once", &content);
    // One thread, which is held until all have asked.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let _inside = runtime.enter();
    for coding in Coding::ALL {
        let kept = Kept::new(Bounds::default());
        assert_eq!(look(&kept, &file.0, coding), None);
        let (go, held) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || held.recv());
        let waiting = [(); 3].map(|()| match kept.find(&facts(&file.0), coding, Otherwise::Make) {
            Found::Making(making) => making,
            Found::Made(_) | Found::Nothing => panic!("it is being made"),
        });
        drop(go);
        let mut made = Vec::new();
        for making in waiting {
            let Some(Made::Smaller(bytes)) = runtime.block_on(making) else { panic!("it gets smaller") };
            made.push(bytes);
        }
        // The same bytes and not only equal ones: it was coded once.
        assert!(made.iter().all(|bytes| bytes.as_ptr() == made[0].as_ptr()));
        assert_eq!(decoded(coding, &made[0]), content);
        kept.rest();
        let Some(Made::Smaller(best)) = look(&kept, &file.0, coding) else { panic!("it is kept") };
        assert!(best.len() < made[0].len(), "{coding:?}: {} and then {}", made[0].len(), best.len());
        assert_eq!(decoded(coding, &best), content);
        assert_eq!(kept.room.shelf().bytes, ENTRY_BYTES + best.len());
    }
}

#[tokio::test]
async fn a_file_that_changed_is_another() {
    let file = Scratch::new("changed", &text(10_000));
    let kept = Kept::new(Bounds::default());
    let opened = facts(&file.0);
    assert!(matches!(make(&kept, &file.0, Coding::Gzip).await, Some(Made::Smaller(_))));
    let mut other = text(10_000);
    other.reverse();
    std::fs::write(&file.0, &other).unwrap();
    assert_eq!(look(&kept, &file.0, Coding::Gzip), None);
    assert!(matches!(kept.find(&opened, Coding::Gzip, Otherwise::Make), Found::Nothing));
    let Some(Made::Smaller(bytes)) = make(&kept, &file.0, Coding::Gzip).await else { panic!("it gets smaller") };
    assert_eq!(decoded(Coding::Gzip, &bytes), other);
}

#[tokio::test]
async fn what_does_not_get_smaller_is_remembered() {
    let mut seed = 1_u64;
    let noise: Vec<u8> = (0..5000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect();
    let file = Scratch::new("noise", &noise);
    let kept = Kept::new(Bounds::default());
    assert_eq!(make(&kept, &file.0, Coding::Zstd).await, Some(Made::NoSmaller));
    assert_eq!(look(&kept, &file.0, Coding::Zstd), Some(Made::NoSmaller));
}

#[tokio::test]
async fn parts_and_large_files_are_not_for_keeping() {
    let file = Scratch::new("parts", &text(5000));
    let find = |bounds, range: std::ops::Range<u64>| {
        let body = SendFile::of(File::open(&file.0).unwrap()).unwrap().range(range);
        let facts = send_file::find(&body).1.expect("it is a file");
        matches!(Kept::new(bounds).find(&facts, Coding::Gzip, Otherwise::Make), Found::Making(_))
    };
    assert!(find(Bounds::default(), 0..5000));
    assert!(!find(Bounds::default(), 0..4999));
    assert!(!find(Bounds::default(), 1..5000));
    assert!(!find(Bounds { file_bytes_max: 4999, ..Bounds::default() }, 0..5000));
    assert!(!find(Bounds { bytes_max: 0, ..Bounds::default() }, 0..5000));
}

#[test]
fn what_was_not_used_longest_goes_first() {
    let key = |inode| Key { device: 1, inode, length: 1000, modified: (0, 0), changed: (0, 0), coding: Coding::Gzip };
    let made = |length: usize| Made::Smaller(vec![0; length].into());
    let bytes_max = 3 * (ENTRY_BYTES + 100);
    let mut shelf = Shelf::default();
    for inode in 1..=3 {
        shelf.put(key(inode), made(100), bytes_max);
    }
    assert!(shelf.get(&key(1)).is_some());
    shelf.put(key(4), made(100), bytes_max);
    let there = |shelf: &Shelf| (1..=5).filter(|&inode| shelf.entries.contains_key(&key(inode))).collect::<Vec<_>>();
    assert_eq!(there(&shelf), [1, 3, 4]);
    // Another form of the same takes the place of the first.
    shelf.put(key(3), made(50), bytes_max);
    assert_eq!((there(&shelf), shelf.bytes), (vec![1, 3, 4], bytes_max - 50));
    // What does not fit at all drives nothing out.
    shelf.put(key(5), made(bytes_max), bytes_max);
    assert_eq!(there(&shelf), [1, 3, 4]);
    shelf.put(key(5), made(2 * ENTRY_BYTES + 200), bytes_max);
    assert_eq!(there(&shelf), [5]);
    assert_eq!((shelf.by_use.len(), shelf.bytes), (1, 3 * ENTRY_BYTES + 200));
}
