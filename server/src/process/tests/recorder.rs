//! The flight recorder of a serving process, which the supervisor dumps.

use super::program::{TestProgram, folder, get, until};
use crate::log::config::{Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig};
use crate::log::{CounterLabels, Counters, LogObserver, Logs};
use crate::process::{PanicWatch, ServingProcess, connect, hand_over_recorder};
use crate::recorder::{LastQuery, Recorder, read_dump, select};
use selvedge::Limits;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often the program looks for panics.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the observer of a program with a flight recorder, and watches its panics as a server does.
pub(super) fn recording_observer(serving: &Arc<ServingProcess>, workers: usize) -> LogObserver {
    let recorder = Arc::new(Recorder::new(workers).expect("the system has memory"));
    hand_over_recorder(serving, recorder.as_fd());
    let (counters, labels) = (Arc::<Counters>::default(), Arc::new(CounterLabels::new(Vec::new())));
    let error = ErrorLogConfig { destination: Destination::Discard, format: ErrorFormat::Text, level: Level::Error };
    let config = LogConfig { access: Vec::new(), sites: Vec::new(), error, site_errors: Vec::new() };
    let logs = Logs::start(&config, connect).unwrap_or_else(|problem| panic!("{problem}"));
    let observer = LogObserver::new(&logs, &Limits::default()).with_counters(&counters, &labels);
    let (serving, mut panics) = (serving.clone(), PanicWatch::default());
    thread::spawn(move || {
        // The log has no thread without it.
        let _logs = logs;
        loop {
            panics.observe(counters.totals().panics(), &serving);
            thread::sleep(LOOK_INTERVAL);
        }
    });
    observer.with_recorder(&recorder, &labels, &[Box::default()])
}

/// Returns the dumps in a folder.
fn dumps(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("selvedge-last-")).collect()
}

#[test]
fn a_request_that_panics_is_dumped_once() {
    let folder = folder();
    fs::write(folder.join("selvedge.recorded"), "").unwrap();
    let program = TestProgram::with(&folder, "listen \"127.0.0.1:0\"", &std::env::current_exe().unwrap());
    let ready = program.ready();
    let address = ready.address.unwrap();
    assert_eq!(get(address, "/before"), ready.pid.to_string());
    assert_eq!(dumps(&folder), [] as [PathBuf; 0]);
    get(address, "/panic");
    let report = format!("selvedge: a request of process {} panicked; its last requests are in ", ready.pid);
    until("the dump is written", || program.errors().contains(&report).then_some(()));
    // The next one is within ten minutes.
    get(address, "/panic");
    assert_eq!(get(address, "/after"), ready.pid.to_string(), "the process continues");
    let [dump] = &dumps(&folder)[..] else { panic!("one dump: {:?}", dumps(&folder)) };
    let records = select(&read_dump(dump).unwrap(), &LastQuery { count_max: 9, ..LastQuery::default() });
    let targets: Vec<_> = records.iter().map(|record| (record.status, record.target.as_str())).collect();
    let [panicked @ .., before] = &targets[..] else { panic!("the request before is recorded") };
    // The dump may begin before the response of the panicked request is sent.
    assert!(*before == (200, "/before") && panicked.iter().all(|target| *target == (500, "/panic")), "{targets:?}");
}
