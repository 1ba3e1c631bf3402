//! Resumed handshakes by `openssl s_time`. It resumes sessions of TLS 1.2 only.

use crate::interrupt;
use crate::process::server_process::stop;
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How much longer than its window the program may take.
const MARGIN: Duration = Duration::from_secs(20);

/// Resumes a session again and again, one connection at a time, for about this time. Returns the number of resumed
/// handshakes.
///
/// # Errors
/// If the program fails, or if the server does not resume the session.
pub(crate) fn resume(port: u16, seconds: u64) -> Result<u64> {
    let mut child = Command::new("openssl")
        .args(["s_time", "-reuse", "-tls1_2", "-connect", &format!("127.0.0.1:{port}"), "-time", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run openssl (install it with: apt-get install openssl)")?;
    let output = read(&mut child, Duration::from_secs(seconds) + MARGIN)?;
    count(&output)
}

/// Reads the output until the program exits. Each handshake prints one character, so the pipe is read meanwhile.
fn read(child: &mut Child, longest: Duration) -> Result<String> {
    let mut pipe = child.stdout.take().context("openssl has no output")?;
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        pipe.read_to_string(&mut output).map(|_| output)
    });
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if interrupt::is_requested() || began.elapsed() > longest {
            stop(child);
            bail!("openssl s_time was stopped after {:?}", began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(child.wait()?.success(), "openssl s_time failed");
    Ok(reader.join().expect("reading a pipe does not panic")?)
}

/// Counts the marks of resumed handshakes, and checks that no other handshake was measured.
fn count(output: &str) -> Result<u64> {
    let (_, measured) = output.split_once("reuse.").context("the output of openssl s_time is unknown")?;
    // The line after "starting".
    let marks = measured.lines().nth(2).unwrap_or("");
    let resumed = marks.bytes().filter(|mark| *mark == b'r').count();
    ensure!(resumed > 0 && resumed == marks.len(), "the server resumed {resumed} of {} sessions", marks.len());
    Ok(resumed as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_resumed_handshakes_count() {
        let output =
            |marks: &str| format!("\n\nNow timing with session id reuse.\nstarting\n{marks}\n\n3 connections in 0s\n");
        assert_eq!(super::count(&output("rrr")).unwrap(), 3);
        let error = super::count(&output("rtr")).unwrap_err();
        assert_eq!(error.to_string(), "the server resumed 2 of 3 sessions");
        assert!(super::count("ERROR\n").is_err());
    }
}
