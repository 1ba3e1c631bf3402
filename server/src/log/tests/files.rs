//! Log files: appended to, moved, truncated, full, removed, rotated.

use super::{Directory, until};
use crate::log::config::{Destination, Level, RotatedFormat, Rotation};
use crate::log::line_writer::LineWriter;
use crate::log::loss_counter::LossCounter;
use crate::log::rotate::Rotator;
use crate::log::sink::{self, LogSink, SinkContext};
use crate::process::connect;
use flate2::read::GzDecoder;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

fn sink(path: &Path, rotation: Option<Rotation>, loss_counter: &Arc<LossCounter>) -> Box<dyn LogSink> {
    let rotator = Rotator::default();
    let destination = Destination::File { path: path.to_owned(), rotation };
    sink::open(&destination, "access", loss_counter, SinkContext { connect, rotator: &rotator }).unwrap()
}

fn writer_with(path: &Path, rotation: Option<Rotation>) -> LineWriter {
    let loss_counter = Arc::new(LossCounter::new("the log".to_owned()));
    LineWriter::new(sink(path, rotation, &loss_counter), loss_counter)
}

fn writer(path: &Path) -> LineWriter {
    writer_with(path, None)
}

/// Writes after the interval in which the writer checks the path. Returns the number of lost lines.
fn write_later(writer: &mut LineWriter, line: &str) -> u64 {
    writer.write(line.as_bytes(), Level::Info, Instant::now() + Duration::from_secs(2))
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_file_is_made_for_its_owner_and_group_and_appended_to() {
    let directory = Directory::new();
    let path = directory.path("log");
    writer(&path).write(b"1\n", Level::Info, Instant::now());
    writer(&path).write(b"2\n", Level::Info, Instant::now());
    assert_eq!(text(&path), "1\n2\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
}

/// A group of this process that is not the one of its new files, if it has one.
fn another_group(own: u32) -> Option<u32> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    groups.into_iter().map(|group| group.as_raw()).chain(is_root.then_some(4)).find(|&group| group != own)
}

#[test]
fn a_new_file_has_the_mode_and_the_group_of_the_one_that_it_follows() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: Some(10), every: None, keep: 5, format: RotatedFormat::Gzip };
    let mut writer = writer_with(&path, Some(rotation));
    writer.write(b"1\n", Level::Info, Instant::now());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let own = fs::metadata(&path).unwrap().gid();
    let group = another_group(own).unwrap_or(own);
    std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
    writer.write(b"a line that is too long\n", Level::Info, Instant::now());
    let access = |path: &Path| fs::metadata(path).map(|facts| (facts.mode() & 0o777, facts.gid())).unwrap();
    assert_eq!(text(&path), "a line that is too long\n");
    assert_eq!(access(&path), (0o644, group), "after a rotation");
    fs::rename(&path, directory.path("moved")).unwrap();
    write_later(&mut writer, "2\n");
    assert_eq!((text(&path).as_str(), access(&path)), ("2\n", (0o644, group)), "after another program has moved it");
    let compressed = || directory.names().into_iter().find(|name| name.ends_with(".gz"));
    until(|| compressed().is_some());
    let compressed = directory.path(&compressed().unwrap());
    assert_eq!(access(&compressed), (0o644, group), "compressed");
}

#[test]
fn a_line_that_an_earlier_run_left_torn_is_ended_first() {
    let directory = Directory::new();
    let path = directory.path("log");
    fs::write(&path, "whole\nto").unwrap();
    writer(&path).write(b"next\n", Level::Info, Instant::now());
    assert_eq!(text(&path), "whole\nto\nnext\n");
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_new_one() {
    let directory = Directory::new();
    let (path, moved) = (directory.path("log"), directory.path("moved"));
    let mut writer = writer(&path);
    writer.write(b"1\n", Level::Info, Instant::now());
    fs::rename(&path, &moved).unwrap();
    // Noticed within one second, or after a reopen request.
    writer.write(b"2\n", Level::Info, Instant::now());
    assert_eq!(write_later(&mut writer, "3\n"), 0);
    assert_eq!((text(&path), text(&moved)), ("3\n".to_owned(), "1\n2\n".to_owned()));
    fs::rename(&path, &moved).unwrap();
    writer.reopen(Instant::now());
    assert_eq!(writer.write(b"4\n", Level::Info, Instant::now()), 0);
    assert_eq!((text(&path), text(&moved)), ("4\n".to_owned(), "3\n".to_owned()));
    fs::remove_file(&path).unwrap();
    assert_eq!(write_later(&mut writer, "5\n"), 0);
    assert_eq!(text(&path), "5\n");
}

#[test]
fn a_file_that_was_copied_and_truncated_starts_at_zero() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: Some(10), every: None, keep: 9, format: RotatedFormat::Plain };
    let mut writer = writer_with(&path, Some(rotation));
    writer.write(b"1234567\n", Level::Info, Instant::now());
    fs::copy(&path, directory.path("copy")).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    // The size is read again, so an old size does not cause a rotation.
    assert_eq!(write_later(&mut writer, "89\n"), 0);
    assert_eq!(text(&path), "89\n");
    assert_eq!(directory.names(), ["copy", "log"]);
}

#[test]
fn a_directory_that_vanished_is_waited_for() {
    let directory = Directory::new();
    let (inner, path) = (directory.path("inner"), directory.path("inner/log"));
    fs::create_dir(&inner).unwrap();
    let mut writer = writer(&path);
    fs::rename(&inner, directory.path("gone")).unwrap();
    assert_eq!(write_later(&mut writer, "1\n2\n"), 2);
    fs::create_dir(&inner).unwrap();
    assert_eq!(writer.write(b"3\n", Level::Info, Instant::now() + Duration::from_secs(9)), 0);
    assert_eq!(text(&path), "3\n");
    assert!(writer.loss_counter().next_event().unwrap().text.ends_with("lost: 2 lines"));
}

#[test]
fn a_full_device_loses_lines_and_they_are_counted() {
    let mut writer = writer(Path::new("/dev/full"));
    assert_eq!(writer.write(b"1\n2\n", Level::Info, Instant::now()), 2);
    writer.loss_counter().count_lost(2);
    let loss = writer.loss_counter().loss().unwrap();
    assert_eq!((loss.count, loss.name, loss.level), (2, "LogLinesLost", Level::Error));
    assert!(loss.text.starts_with("lines of the log were lost: No space left on device"), "{}", loss.text);
    writer.loss_counter().acknowledge(2);
    assert!(writer.loss_counter().loss().is_none());
}

#[test]
fn a_fifo_without_a_reader_does_not_block() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let directory = Directory::new();
    let path = directory.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut writer = writer(&path);
    let line = [b"x".repeat(999), b"\n".to_vec()].concat();
    let lost: u64 = (0..200).map(|_| writer.write(&line, Level::Info, Instant::now())).sum();
    assert!((1..200).contains(&lost), "{lost}");
}

/// Returns the contents of all rotated files and of the log, in order.
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
    let rotation = Rotation { bytes: Some(40), every: None, keep: 1000, format: RotatedFormat::Plain };
    let mut writer = writer_with(&path, Some(rotation));
    let mut expected = String::new();
    for number in 0..50 {
        let line = format!("line {number:03}\n");
        assert_eq!(writer.write(line.as_bytes(), Level::Info, Instant::now()), 0);
        expected.push_str(&line);
    }
    assert_eq!(everything(&directory), expected);
    assert_eq!(directory.names().len(), 13, "four lines in each: {:?}", directory.names());
    for name in directory.names() {
        assert!(fs::metadata(directory.path(&name)).unwrap().len() <= 40);
    }
    // A batch larger than the limit is written whole.
    writer.write(&b"a line of more bytes than a file may have\n".repeat(3), Level::Info, Instant::now());
    assert_eq!(text(&path).lines().count(), 3);
}

#[test]
fn a_file_is_put_aside_when_a_new_span_begins() {
    let directory = Directory::new();
    let path = directory.path("log");
    let rotation = Rotation { bytes: None, every: Some(DAY), keep: 9, format: RotatedFormat::Plain };
    fs::write(&path, "").unwrap();
    let past = |days| File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - DAY * days);
    past(3).unwrap();
    writer_with(&path, Some(rotation)).write(b"1\n", Level::Info, Instant::now());
    assert_eq!(directory.names(), ["log"], "an empty file is not worth it");
    past(1).unwrap();
    let mut writer = writer_with(&path, Some(rotation));
    writer.write(b"2\n", Level::Info, Instant::now());
    writer.write(b"3\n", Level::Info, Instant::now());
    assert_eq!(directory.names().len(), 2);
    assert_eq!((text(&path), everything(&directory)), ("2\n3\n".to_owned(), "1\n2\n3\n".to_owned()));
}

#[test]
fn what_was_put_aside_is_compressed_and_the_oldest_goes() {
    let directory = Directory::new();
    let path = directory.path("log");
    let old = |stamp: &str| directory.path(&format!("log.20200101T0000{stamp}Z"));
    // An earlier run was interrupted at every step.
    fs::write(old("01.000"), "too old\n").unwrap();
    fs::write(old("02.000"), "kept 2\n").unwrap();
    fs::write(directory.path("log.20200101T000002.000Z.gz.part"), "half").unwrap();
    fs::write(old("03.000"), "kept 3\n").unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"kept 3\n").unwrap();
    fs::write(directory.path("log.20200101T000003.000Z.gz"), packed.finish().unwrap()).unwrap();
    // Files with other names.
    let others =
        ["log.1", "log.20200101T000001Z", "log.20200101T000001.000Z.bak", "logs", "other.20200101T000001.000Z"];
    others.iter().for_each(|name| fs::write(directory.path(name), "other").unwrap());
    fs::write(&path, "now\n").unwrap();
    let rotation = Rotation { bytes: Some(1 << 20), every: None, keep: 2, format: RotatedFormat::Gzip };
    let _writer = writer_with(&path, Some(rotation));
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
    let rotation = Rotation { bytes: Some(2_000), every: None, keep: 1000, format: RotatedFormat::Gzip };
    let mut writer = writer_with(&path, Some(rotation));
    let mut expected = String::new();
    for number in 0..1000 {
        let line = format!("line {number:03}\n");
        assert_eq!(writer.write(line.as_bytes(), Level::Info, Instant::now()), 0);
        expected.push_str(&line);
    }
    until(|| directory.names().iter().all(|name| name == "log" || name.ends_with(".gz")));
    assert_eq!(everything(&directory), expected);
    assert!(writer.loss_counter().next_event().is_none());
}
