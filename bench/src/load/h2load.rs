//! Load by the program h2load of nghttp2: HTTP/2 with and without TLS, and HTTP/1.1 with TLS.
//!
//! Every client uses TLS 1.3 with one cipher suite and one group, so that all servers do equal work.

use crate::interrupt;
use crate::load::window::Window;
use crate::process::server_process::{Ports, stop};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the program.
pub(crate) const H2LOAD: &str = "h2load";
const CIPHER_SUITE: &str = "TLS_AES_128_GCM_SHA256";
const GROUP: &str = "X25519";
/// How long a run may take.
const RUN_MAX: Duration = Duration::from_secs(120);
/// The requests per second of a client that stays idle after its first request.
const IDLE_RATE: &str = "0.001";

/// The protocol of the clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/2 without TLS.
    H2c,
    /// HTTP/2 over TLS.
    Http2OverTls,
    /// HTTP/1.1 over TLS.
    Http1OverTls,
}

impl Protocol {
    /// Returns the port of a server for this protocol.
    pub(crate) fn port(self, ports: Ports) -> u16 {
        match self {
            Self::H2c => ports.h2c,
            Self::Http2OverTls | Self::Http1OverTls => ports.tls,
        }
    }

    /// Returns the name that h2load prints when it has negotiated the protocol.
    fn negotiated_name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::Http2OverTls => "h2",
            Self::Http1OverTls => "http/1.1",
        }
    }
}

/// The clients, and the file that they request.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) protocol: Protocol,
    pub(crate) path: String,
    /// The length of the file.
    pub(crate) file_bytes: usize,
    pub(crate) connections: usize,
    /// The number of concurrent requests on each connection.
    pub(crate) streams: usize,
}

impl Clients {
    /// Returns the fewest requests of a measurement: two for each stream.
    pub(crate) fn fewest_requests(&self) -> u64 {
        2 * (self.connections * self.streams) as u64
    }

    /// Sends this number of requests over new connections. Returns how long it took, without latencies.
    ///
    /// # Errors
    /// If h2load fails, if not all requests get the file with a 2xx response, or if the server chooses another protocol.
    pub(crate) fn run(&self, ports: Ports, requests: u64) -> Result<Window> {
        let cpu_before = children_cpu()?;
        let mut child = self.command(ports, requests).spawn().context("cannot start h2load")?;
        let output = wait(&mut child)?;
        let mut window = self.parse(&output, requests)?;
        let busy = children_cpu()?.saturating_sub(cpu_before);
        window.generator_busy = busy.as_secs_f64() / window.elapsed.as_secs_f64();
        Ok(window)
    }

    /// Opens the connections, sends one request over each, and keeps them open without a further request.
    ///
    /// # Errors
    /// If h2load fails, or if not all requests get a response in time.
    pub(crate) fn open_idle(&self, ports: Ports) -> Result<IdleClients> {
        // The second request of a connection is due after the measurement, so one half of all requests is sent.
        let mut command = self.command(ports, 2 * self.connections as u64);
        let mut child = command.arg(format!("--rps={IDLE_RATE}")).spawn().context("cannot start h2load")?;
        let output = child.stdout.take().context("h2load has no output")?;
        let mut clients = IdleClients { child, output: BufReader::new(output) };
        clients.wait_for_line("progress: 50% done")?;
        Ok(clients)
    }

    fn command(&self, ports: Ports, requests: u64) -> Command {
        let scheme = if self.protocol == Protocol::H2c { "http" } else { "https" };
        let mut command = Command::new(H2LOAD);
        command.args(["-n", &requests.to_string(), "-c", &self.connections.to_string()]);
        command.args(["-m", &self.streams.to_string()]);
        command.args([format!("--tls13-ciphers={CIPHER_SUITE}"), format!("--groups={GROUP}")]);
        if self.protocol == Protocol::Http1OverTls {
            command.arg("--h1");
        }
        command.arg(format!("{scheme}://127.0.0.1:{}{}", self.protocol.port(ports), self.path));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Reads the figures from the output of h2load.
    fn parse(&self, output: &str, requests: u64) -> Result<Window> {
        let value = |name: &str| output.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let count = |name: &str, after: &str| -> Option<u64> {
            value(name)?.split(", ").find_map(|part| part.strip_suffix(after))?.trim().parse().ok()
        };
        let succeeded = count("requests:", "succeeded").context("the output of h2load has no count of requests")?;
        let ok = count("status codes:", "2xx").context("the output of h2load has no status codes")?;
        ensure!(succeeded == requests && ok == requests, "{} of {requests} requests succeeded", ok.min(succeeded));
        let content = value("traffic:").and_then(content_bytes).context("the output of h2load has no traffic")?;
        ensure!(content == requests * self.file_bytes as u64, "{requests} responses had {content} bytes of content");
        let chosen = value("Application protocol:").unwrap_or("none");
        ensure!(chosen == self.protocol.negotiated_name(), "the server chose the protocol {chosen}");
        if self.protocol != Protocol::H2c {
            let (version, cipher) = (value("TLS Protocol:").unwrap_or("none"), value("Cipher:").unwrap_or("none"));
            ensure!(version == "TLSv1.3" && cipher == CIPHER_SUITE, "the server chose {version} with {cipher}");
        }
        let finished = value("finished in").and_then(|line| duration(line.split(',').next()?));
        let mut window = Window::new();
        window.completed = succeeded;
        window.elapsed = finished.context("the output of h2load has no duration of a known unit")?;
        Ok(window)
    }
}

/// Connections without a request in progress. They are closed when the value is dropped.
pub(crate) struct IdleClients {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl IdleClients {
    fn wait_for_line(&mut self, wanted: &str) -> Result<()> {
        let mut line = String::new();
        while self.output.read_line(&mut line).context("cannot read the output of h2load")? > 0 {
            if line.trim_end() == wanted {
                return Ok(());
            }
            ensure!(!line.starts_with("finished"), "h2load could not open all connections");
            line.clear();
        }
        bail!("h2load ended before it printed {wanted:?}")
    }
}

impl Drop for IdleClients {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Waits until h2load exits, and returns its output. Its few lines fit into the pipe.
fn wait(child: &mut Child) -> Result<String> {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt::is_requested() || began.elapsed() > RUN_MAX {
            stop(child);
            bail!("h2load was stopped after {:?}", began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut output = String::new();
    child.stdout.take().context("h2load has no output")?.read_to_string(&mut output)?;
    ensure!(status.success(), "h2load failed ({status})");
    Ok(output)
}

/// Returns the processor time of all child processes that have ended.
fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.unsigned_abs()))
}

/// Returns the bytes of content: the number in parentheses before `data`, as in `2.88MB (3020000) data`.
fn content_bytes(traffic: &str) -> Option<u64> {
    traffic.strip_suffix(") data")?.rsplit_once('(')?.1.parse().ok()
}

/// Parses a duration of h2load, such as `1.23s`, `115.29ms` or `815us`; from a minute on `1m23s`.
fn duration(text: &str) -> Option<Duration> {
    let seconds = |number: &str, unit: f64| number.parse::<f64>().ok().map(|value| value * unit);
    let (minutes, rest) = match text.split_once('m') {
        Some((minutes, rest)) if rest != "s" => (seconds(minutes, 60.0)?, rest),
        _ => (0.0, text),
    };
    let rest = if let Some(number) = rest.strip_suffix("us") {
        seconds(number, 1e-6)?
    } else if let Some(number) = rest.strip_suffix("ms") {
        seconds(number, 1e-3)?
    } else {
        seconds(rest.strip_suffix('s')?, 1.0)?
    };
    Duration::try_from_secs_f64(minutes + rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...\n\
        TLS Protocol: TLSv1.3\n\
        Cipher: TLS_AES_128_GCM_SHA256\n\
        Application protocol: h2\n\
        progress: 100% done\n\n\
        finished in 410.95ms, 48668.19 req/s, 8.26MB/s\n\
        requests: 200 total, 200 started, 200 done, 200 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 200 2xx, 0 3xx, 0 4xx, 0 5xx\n\
        traffic: 33.01KB (33800) total, 1.76KB (1800) headers (space savings 95.00%), 29.49KB (30200) data\n";

    fn parse(output: &str) -> Result<Window> {
        let protocol = Protocol::Http2OverTls;
        Clients { protocol, path: "/".to_owned(), file_bytes: 151, connections: 1, streams: 1 }.parse(output, 200)
    }

    #[test]
    fn output_of_a_complete_run_is_accepted() {
        let window = parse(OUTPUT).unwrap();
        assert_eq!((window.completed, window.elapsed), (200, Duration::from_micros(410_950)));
    }

    #[test]
    fn failed_requests_and_other_protocols_are_errors() {
        let cases = [
            ("200 succeeded", "199 succeeded", "199 of 200 requests succeeded"),
            ("200 2xx, 0 3xx, 0 4xx", "198 2xx, 0 3xx, 2 4xx", "198 of 200 requests succeeded"),
            ("protocol: h2", "protocol: http/1.1", "the server chose the protocol http/1.1"),
            ("TLSv1.3", "TLSv1.2", "the server chose TLSv1.2 with TLS_AES_128_GCM_SHA256"),
            ("410.95ms", "410.95 days", "the output of h2load has no duration of a known unit"),
            ("(30200) data", "(30198) data", "200 responses had 30198 bytes of content"),
        ];
        for (from, to, expected) in cases {
            let error = parse(&OUTPUT.replace(from, to)).err().unwrap();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn durations_have_microseconds_to_minutes() {
        let cases = [("815us", 815), ("115.29ms", 115_290), ("1.23s", 1_230_000), ("1m23s", 83_000_000)];
        for (text, us) in cases {
            assert_eq!(duration(text), Some(Duration::from_micros(us)), "{text}");
        }
        assert_eq!(duration("12"), None);
    }
}
