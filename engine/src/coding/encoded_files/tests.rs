//! Tests that files are encoded once, that the cache is limited, and that changed files are misses.

use super::*;
use crate::coding::encoder::tests::decode;
use std::path::{Path, PathBuf};

/// A temporary file, removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    /// Creates a file that counts as unchanged.
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("selvedge-cache-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let file = Self(path);
        file.wait_until_stable();
        file
    }

    /// Waits until the next change of the file will change its times.
    fn wait_until_stable(&self) {
        let file = File::open(&self.0).unwrap();
        while FileStamp::of(&file).unwrap().changed_recently(SystemTime::now()) {
            std::thread::yield_now();
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file_range(path: &Path) -> FileRange {
    let file = SharedFile::new(File::open(path).unwrap());
    let stamp = FileStamp::of(&**file).unwrap();
    FileRange { file, stamp, offset: 0, length: stamp.length }
}

fn text(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| format!("line {}\n", number * number % 977).into_bytes()).take(length).collect()
}

/// Encodes a file that is not cached.
async fn encode(cache: &EncodedFiles, path: &Path, coding: Coding) -> Option<EncodedFile> {
    match cache.find(&file_range(path), coding, OnMiss::Encode) {
        CacheLookup::Pending(pending) => pending.await,
        CacheLookup::Hit(_) => panic!("the file is already cached"),
        CacheLookup::Bypass => panic!("the cache bypasses the file"),
    }
}

fn lookup(cache: &EncodedFiles, path: &Path, coding: Coding) -> Option<EncodedFile> {
    match cache.find(&file_range(path), coding, OnMiss::Skip) {
        CacheLookup::Hit(encoded) => Some(encoded),
        CacheLookup::Pending(_) | CacheLookup::Bypass => None,
    }
}

#[test]
fn file_is_encoded_once_for_all_waiters_and_recompressed_later() {
    let content = text(200_000);
    let file = TempFile::new("once", &content);
    // One blocking thread, occupied until all requests are waiting.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let _inside = runtime.enter();
    for coding in Coding::ALL {
        let cache = EncodedFiles::new(CacheBounds::default());
        assert_eq!(lookup(&cache, &file.0, coding), None);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || blocked.recv());
        let waiting = [(); 3].map(|()| match cache.find(&file_range(&file.0), coding, OnMiss::Encode) {
            CacheLookup::Pending(pending) => pending,
            CacheLookup::Hit(_) | CacheLookup::Bypass => panic!("the file is not being encoded"),
        });
        drop(release);
        let mut results = Vec::new();
        for pending in waiting {
            let Some(EncodedFile::Smaller(bytes)) = runtime.block_on(pending) else {
                panic!("the encoded file is not smaller")
            };
            results.push(bytes);
        }
        // All results share one buffer, so the file was encoded once.
        assert!(results.iter().all(|bytes| bytes.as_ptr() == results[0].as_ptr()));
        assert_eq!(decode(coding, &results[0]), content);
        cache.wait_for_recompression();
        let Some(EncodedFile::Smaller(best)) = lookup(&cache, &file.0, coding) else {
            panic!("the file is not cached")
        };
        assert!(best.len() < results[0].len(), "{coding:?}: {} bytes, then {}", results[0].len(), best.len());
        assert_eq!(decode(coding, &best), content);
        assert_eq!(cache.inner.lock_state().entries.weight(), ENTRY_BYTES + best.len());
    }
}

#[tokio::test]
async fn changed_file_is_encoded_again() {
    let file = TempFile::new("changed", &text(10_000));
    let cache = EncodedFiles::new(CacheBounds::default());
    let opened = file_range(&file.0);
    assert!(matches!(encode(&cache, &file.0, Coding::Gzip).await, Some(EncodedFile::Smaller(_))));
    let mut other = text(10_000);
    other.reverse();
    std::fs::write(&file.0, &other).unwrap();
    assert_eq!(lookup(&cache, &file.0, Coding::Gzip), None);
    assert!(matches!(cache.find(&opened, Coding::Gzip, OnMiss::Encode), CacheLookup::Bypass));
    let Some(EncodedFile::Smaller(bytes)) = encode(&cache, &file.0, Coding::Gzip).await else {
        panic!("the encoded file is not smaller")
    };
    assert_eq!(decode(Coding::Gzip, &bytes), other);
}

#[tokio::test]
async fn incompressible_file_is_cached_as_not_smaller() {
    let mut seed = 1_u64;
    let noise: Vec<u8> = (0..5000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect();
    let file = TempFile::new("noise", &noise);
    let cache = EncodedFiles::new(CacheBounds::default());
    assert_eq!(encode(&cache, &file.0, Coding::Zstd).await, Some(EncodedFile::NotSmaller));
    assert_eq!(lookup(&cache, &file.0, Coding::Zstd), Some(EncodedFile::NotSmaller));
}

#[tokio::test]
async fn ranges_and_large_files_bypass_the_cache() {
    let file = TempFile::new("parts", &text(5000));
    let find = |bounds, range: std::ops::Range<u64>| {
        let part = FileRange { offset: range.start, length: range.end - range.start, ..file_range(&file.0) };
        matches!(EncodedFiles::new(bounds).find(&part, Coding::Gzip, OnMiss::Encode), CacheLookup::Pending(_))
    };
    assert!(find(CacheBounds::default(), 0..5000));
    assert!(!find(CacheBounds::default(), 0..4999));
    assert!(!find(CacheBounds::default(), 1..5000));
    assert!(!find(CacheBounds { file_bytes_max: 4999, ..CacheBounds::default() }, 0..5000));
    assert!(!find(CacheBounds { bytes_max: 0, ..CacheBounds::default() }, 0..5000));
}

#[tokio::test]
async fn encoded_files_are_limited_in_bytes() {
    let files = ["first", "second"].map(|name| TempFile::new(name, &text(10_000)));
    let Some(encoded) = encode(&EncodedFiles::new(CacheBounds::default()), &files[0].0, Coding::Gzip).await else {
        panic!("the file is not encoded")
    };
    let bytes_max = encoded.entry_bytes() + ENTRY_BYTES;
    let cache = EncodedFiles::new(CacheBounds { bytes_max, ..CacheBounds::default() });
    for file in &files {
        assert!(encode(&cache, &file.0, Coding::Gzip).await.is_some());
        assert!(lookup(&cache, &file.0, Coding::Gzip).is_some());
    }
    assert_eq!(lookup(&cache, &files[0].0, Coding::Gzip), None);
    assert!(cache.inner.lock_state().entries.weight() <= bytes_max);
}
