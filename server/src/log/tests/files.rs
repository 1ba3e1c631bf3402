//! Log files: appended to, moved away, truncated, full, gone, put aside.

use super::{Directory, until};
use crate::log::health::Health;
use crate::log::outlet::{self, Means, Outlet};
use crate::log::pen::Pen;
use crate::log::plan::{Destination, Level, Packing, Rotation};
use crate::log::rotate::Housekeeper;
use crate::process::connect;
use flate2::read::GzDecoder;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

fn outlet(path: &Path, rotation: Option<Rotation>, health: &Arc<Health>) -> Box<dyn Outlet> {
    let housekeeper = Housekeeper::default();
    let destination = Destination::File { path: path.to_owned(), rotation };
    outlet::open(&destination, "access", health, Means { connect, housekeeper: &housekeeper }).unwrap()
}

fn pen_with(path: &Path, rotation: Option<Rotation>) -> Pen {
    let health = Arc::new(Health::new("the log".to_owned()));
    Pen::new(outlet(path, rotation, &health), health)
}

fn pen(path: &Path) -> Pen {
    pen_with(path, None)
}

/// Writes when the pen looks whether its file has moved; how many lines were lost.
fn write_later(pen: &mut Pen, line: &str) -> u64 {
    pen.write(line.as_bytes(), Level::Info, Instant::now() + Duration::from_secs(2))
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_file_is_made_for_its_owner_and_group_and_appended_to() {
    let directory = Directory::new();
    let path = directory.path("log");
    pen(&path).write(b"1\n", Level::Info, Instant::now());
    pen(&path).write(b"2\n", Level::Info, Instant::now());
    assert_eq!(text(&path), "1\n2\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
}

#[test]
fn a_line_that_an_earlier_run_left_torn_is_ended_first() {
    let directory = Directory::new();
    let path = directory.path("log");
    fs::write(&path, "whole\nto").unwrap();
    pen(&path).write(b"next\n", Level::Info, Instant::now());
    assert_eq!(text(&path), "whole\nto\nnext\n");
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_new_one() {
    let directory = Directory::new();
    let (path, moved) = (directory.path("log"), directory.path("moved"));
    let mut pen = pen(&path);
    pen.write(b"1\n", Level::Info, Instant::now());
    fs::rename(&path, &moved).unwrap();
    // Within the second, or until it is told.
    pen.write(b"2\n", Level::Info, Instant::now());
    assert_eq!(write_later(&mut pen, "3\n"), 0);
    assert_eq!((text(&path), text(&moved)), ("3\n".to_owned(), "1\n2\n".to_owned()));
    fs::rename(&path, &moved).unwrap();
    pen.reopen(Instant::now());
    assert_eq!(pen.write(b"4\n", Level::Info, Instant::now()), 0);
    assert_eq!((text(&path), text(&moved)), ("4\n".to_owned(), "3\n".to_owned()));
    fs::remove_file(&path).unwrap();
    assert_eq!(write_later(&mut pen, "5\n"), 0);
    assert_eq!(text(&path), "5\n");
}

#[test]
fn a_file_that_was_copied_and_truncated_begins_anew() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: Some(10), every: None, keep: 9, packing: Packing::Plain };
    let mut pen = pen_with(&path, Some(rotation));
    pen.write(b"1234567\n", Level::Info, Instant::now());
    fs::copy(&path, directory.path("copy")).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    // Its size is seen again, so it is not put aside for what it was.
    assert_eq!(write_later(&mut pen, "89\n"), 0);
    assert_eq!(text(&path), "89\n");
    assert_eq!(directory.names(), ["copy", "log"]);
}

#[test]
fn a_directory_that_vanished_is_waited_for() {
    let directory = Directory::new();
    let (inner, path) = (directory.path("inner"), directory.path("inner/log"));
    fs::create_dir(&inner).unwrap();
    let mut pen = pen(&path);
    fs::rename(&inner, directory.path("gone")).unwrap();
    assert_eq!(write_later(&mut pen, "1\n2\n"), 2);
    fs::create_dir(&inner).unwrap();
    assert_eq!(pen.write(b"3\n", Level::Info, Instant::now() + Duration::from_secs(9)), 0);
    assert_eq!(text(&path), "3\n");
    assert!(pen.health().next_note().unwrap().text.ends_with("lost: 2 lines"));
}

#[test]
fn a_full_device_loses_lines_and_they_are_counted() {
    let mut pen = pen(Path::new("/dev/full"));
    assert_eq!(pen.write(b"1\n2\n", Level::Info, Instant::now()), 2);
    pen.health().lose(2);
    let loss = pen.health().loss().unwrap();
    assert_eq!((loss.count, loss.name, loss.level), (2, "LogLinesLost", Level::Error));
    assert!(loss.text.starts_with("lines of the log were lost: No space left on device"), "{}", loss.text);
    pen.health().said(2);
    assert!(pen.health().loss().is_none());
}

#[test]
fn a_fifo_that_nobody_reads_holds_nobody_up() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let directory = Directory::new();
    let path = directory.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut pen = pen(&path);
    let line = [b"x".repeat(999), b"\n".to_vec()].concat();
    let lost: u64 = (0..200).map(|_| pen.write(&line, Level::Info, Instant::now())).sum();
    assert!((1..200).contains(&lost), "{lost}");
}

/// The contents of all files that were put aside and of the log, in order.
fn everything(directory: &Directory) -> String {
    let mut names = directory.names();
    // The log itself has the shortest name, and is the newest.
    names.rotate_left(1);
    let mut all = String::new();
    for name in names {
        let file = File::open(directory.path(&name)).unwrap();
        match name.ends_with(".gz") {
            true => GzDecoder::new(file).read_to_string(&mut all).unwrap(),
            false => { file }.read_to_string(&mut all).unwrap(),
        };
    }
    all
}

#[test]
fn a_file_is_put_aside_before_it_is_too_large() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: Some(40), every: None, keep: 1000, packing: Packing::Plain };
    let mut pen = pen_with(&path, Some(rotation));
    let mut expected = String::new();
    for number in 0..50 {
        let line = format!("line {number:03}\n");
        assert_eq!(pen.write(line.as_bytes(), Level::Info, Instant::now()), 0);
        expected.push_str(&line);
    }
    assert_eq!(everything(&directory), expected);
    assert_eq!(directory.names().len(), 13, "four lines in each: {:?}", directory.names());
    for name in directory.names() {
        assert!(fs::metadata(directory.path(&name)).unwrap().len() <= 40);
    }
    // A batch that is larger than the bound is written whole.
    pen.write(&b"a line of more bytes than a file may have\n".repeat(3), Level::Info, Instant::now());
    assert_eq!(text(&path).lines().count(), 3);
}

#[test]
fn a_file_is_put_aside_when_a_new_span_begins() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: None, every: Some(DAY), keep: 9, packing: Packing::Plain };
    fs::write(&path, "").unwrap();
    let past = |days| File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - DAY * days);
    past(3).unwrap();
    pen_with(&path, Some(rotation)).write(b"1\n", Level::Info, Instant::now());
    assert_eq!(directory.names(), ["log"], "an empty file is not worth it");
    past(1).unwrap();
    let mut pen = pen_with(&path, Some(rotation));
    pen.write(b"2\n", Level::Info, Instant::now());
    pen.write(b"3\n", Level::Info, Instant::now());
    assert_eq!(directory.names().len(), 2);
    assert_eq!((text(&path), everything(&directory)), ("2\n3\n".to_owned(), "1\n2\n3\n".to_owned()));
}

#[test]
fn what_was_put_aside_is_compressed_and_the_oldest_goes() {
    let directory = Directory::new();
    let path = directory.path("log");
    let old = |stamp: &str| directory.path(&format!("log.20200101T0000{stamp}Z"));
    // An earlier run was interrupted in the middle of everything.
    fs::write(old("01.000"), "too old\n").unwrap();
    fs::write(old("02.000"), "kept 2\n").unwrap();
    fs::write(directory.path("log.20200101T000002.000Z.gz.part"), "half").unwrap();
    fs::write(old("03.000"), "kept 3\n").unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"kept 3\n").unwrap();
    fs::write(directory.path("log.20200101T000003.000Z.gz"), packed.finish().unwrap()).unwrap();
    // None of ours.
    let others =
        ["log.1", "log.20200101T000001Z", "log.20200101T000001.000Z.bak", "logs", "other.20200101T000001.000Z"];
    others.iter().for_each(|name| fs::write(directory.path(name), "other").unwrap());
    fs::write(&path, "now\n").unwrap();
    let rotation = Rotation { bytes: Some(1 << 20), every: None, keep: 2, packing: Packing::Gzip };
    let _pen = pen_with(&path, Some(rotation));
    let expected = ["log.20200101T000002.000Z.gz", "log.20200101T000003.000Z.gz"];
    until(|| {
        let mut ours = directory.names();
        ours.retain(|name| name != "log" && !others.contains(&name.as_str()));
        ours == expected
    });
    others.iter().for_each(|name| fs::remove_file(directory.path(name)).unwrap());
    assert_eq!(everything(&directory), "kept 2\nkept 3\nnow\n");
}

#[test]
fn a_log_that_goes_on_while_files_are_compressed_loses_nothing() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: Some(2_000), every: None, keep: 1000, packing: Packing::Gzip };
    let mut pen = pen_with(&path, Some(rotation));
    let mut expected = String::new();
    for number in 0..1000 {
        let line = format!("line {number:03}\n");
        assert_eq!(pen.write(line.as_bytes(), Level::Info, Instant::now()), 0);
        expected.push_str(&line);
    }
    until(|| directory.names().iter().all(|name| name == "log" || name.ends_with(".gz")));
    assert_eq!(everything(&directory), expected);
    assert!(pen.health().next_note().is_none());
}
