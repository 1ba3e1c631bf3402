//! Runs the tests of this binary again: with the other driver, and those of a served folder over TLS.

use std::env;
use std::process::Command;

/// The variable that selects the driver of programs and servers that do not choose one.
const DRIVER: &str = "SELVEDGE_DRIVER";

#[test]
fn all_tests_pass_with_epoll() {
    if env::var_os(DRIVER).is_some() {
        println!("not run: {DRIVER} selects one driver for this run");
        return;
    }
    run_again("with epoll", Command::new(this()).env(DRIVER, "epoll"));
}

/// The variable that gives the programs that serve a folder TLS.
#[cfg(feature = "program")]
const OVER_TLS: &str = "SELVEDGE_TEST_OVER_TLS";

/// Whether this run is over TLS.
#[cfg(feature = "program")]
pub(crate) fn is_over_tls() -> bool {
    env::var_os(OVER_TLS).is_some()
}

#[cfg(feature = "program")]
#[test]
fn tests_of_a_served_folder_pass_over_tls() {
    run_again("over TLS", Command::new(this()).arg("serve::").env(OVER_TLS, "1"));
}

fn this() -> std::path::PathBuf {
    env::current_exe().expect("the binary has a path")
}

fn run_again(how: &str, command: &mut Command) {
    let output = command.output().expect("the binary can be started");
    assert!(
        output.status.success(),
        "{how}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
