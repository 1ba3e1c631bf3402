//! Runs the tests of this binary again with the other driver.

use std::env;
use std::process::Command;

/// The variable that selects the driver of servers that do not choose one.
const DRIVER: &str = "SELVEDGE_DRIVER";

#[test]
fn all_tests_pass_with_epoll() {
    if env::var_os(DRIVER).is_some() {
        println!("not run: {DRIVER} selects one driver for this run");
        return;
    }
    let this = env::current_exe().expect("the binary has a path");
    let output = Command::new(this).env(DRIVER, "epoll").output().expect("the binary can be started");
    assert!(
        output.status.success(),
        "with epoll:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
