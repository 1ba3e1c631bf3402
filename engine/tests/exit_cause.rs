//! Tests the exit cause of a server in a process that cannot create another thread.
//!
//! The test is alone in its process, because the limit applies to the whole process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::{ExitCause, Request, Response, Server, StatusCode};
use std::thread;

/// Address space beyond the current use: enough to allocate a little, too little for the stack of a thread (2 MiB).
const SPARE_BYTES: u64 = 1 << 20;

/// Returns the address space that this process uses.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has this file");
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("the first field is a number");
    pages * rustix::param::page_size() as u64
}

#[test]
fn a_stopped_server_is_reported_as_stopped_when_no_thread_can_be_created() {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = server.serve(async |_: &mut Request| Response::new(StatusCode::OK)).expect("the server starts");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    let unlimited = getrlimit(Resource::As);
    let limited = Rlimit { current: Some(address_space() + SPARE_BYTES), ..unlimited };
    setrlimit(Resource::As, limited).expect("lowering the soft limit needs no privilege");
    let spawned = thread::Builder::new().spawn(|| {});
    running.handle().stop();
    let cause = runtime.block_on(running.ended());
    setrlimit(Resource::As, unlimited).expect("the hard limit is unchanged");
    assert!(spawned.is_err(), "the stack of a thread does not fit");
    assert_eq!(cause, ExitCause::Stopped);
}
