//! The closed loop: every connection sends the next request as soon as its response is complete. Measures
//! capacity.

use super::clients::{Clients, Close, ConnectionOutcome, ReceiveTimestamps};
use super::mix::{Mix, Persistence};
use super::window::Window;
use crate::interrupt;
use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::time::Duration;

/// A server that sends nothing for this long has stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// A run with more failures than this is aborted, because its figures are useless.
const ERRORS_MAX: u64 = 20_000;
/// The number of connections that are opened without a pause, so that no accept queue overflows.
const CONNECT_BATCH: usize = 64;

/// When a run ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After exactly this number of requests.
    Requests(u64),
}

/// A closed loop of clients.
pub(crate) struct ClosedLoop {
    clients: Clients,
    mix: Mix,
    next: usize,
    /// Connections without a request, for the next run.
    idle: Vec<usize>,
}

impl ClosedLoop {
    /// Opens this number of connections without sending a request.
    pub(crate) fn connect(address: SocketAddr, mix: Mix, connections: usize) -> Result<Self> {
        let mut clients = Clients::new(address, ReceiveTimestamps::Off)?;
        let mut idle = Vec::with_capacity(connections);
        for number in 0..connections {
            idle.push(clients.connect().with_context(|| format!("cannot open connection {number} of {connections}"))?);
            if number % CONNECT_BATCH == CONNECT_BATCH - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Self { clients, mix, next: 0, idle })
    }

    /// Sends requests until the end of the run. The connections stay open for the next run.
    pub(crate) fn run(&mut self, until: Until) -> Result<Window> {
        let mut window = Window::new();
        let (began, busy) = (self.clients.now(), thread_cpu());
        let batch = self.mix.pipelined as u64;
        let (end, mut remaining) = match until {
            Until::Elapsed(duration) => (began + duration.as_nanos() as u64, u64::MAX),
            Until::Requests(count) => (u64::MAX, count / batch),
        };
        let wanted = remaining.saturating_mul(batch);
        for id in std::mem::take(&mut self.idle) {
            self.next_request(id, &mut remaining, &mut window)?;
        }
        loop {
            let now = self.clients.now();
            if now >= end || window.completed + window.errors >= wanted || interrupt::is_requested() {
                break;
            }
            let longest = Duration::from_nanos(end - now).min(STALL_TIMEOUT);
            let count = self.clients.wait(longest)?;
            ensure!(
                count > 0 || self.clients.now() >= end,
                "no response for {STALL_TIMEOUT:?}: the server has stalled"
            );
            for number in 0..count {
                let id = self.clients.ready_connection(number);
                self.on_event(id, &mut remaining, &mut window)?;
            }
            if window.errors > ERRORS_MAX {
                bail!("more than {ERRORS_MAX} requests failed");
            }
        }
        window.elapsed = Duration::from_nanos(self.clients.now() - began);
        window.generator_busy = (thread_cpu() - busy).as_secs_f64() / window.elapsed.as_secs_f64();
        Ok(window)
    }

    fn on_event(&mut self, id: usize, remaining: &mut u64, window: &mut Window) -> Result<()> {
        match self.clients.receive(id) {
            ConnectionOutcome::Pending => Ok(()),
            ConnectionOutcome::Completed(completed) => {
                let refused = completed.failed as u64;
                window.record_response(self.clients.now().saturating_sub(completed.started_at));
                window.completed += completed.requests as u64 - refused;
                window.errors += refused;
                match self.mix.persistence {
                    Persistence::KeepAlive if !completed.closes => self.next_request(id, remaining, window),
                    _ => self.reconnect(id, remaining, window),
                }
            }
            ConnectionOutcome::Failed => {
                window.errors += 1;
                self.reconnect(id, remaining, window)
            }
        }
    }

    fn reconnect(&mut self, id: usize, remaining: &mut u64, window: &mut Window) -> Result<()> {
        self.clients.close(id, Close::Fin);
        let id = self.clients.connect().context("cannot open a new connection")?;
        self.next_request(id, remaining, window)
    }

    fn next_request(&mut self, id: usize, remaining: &mut u64, window: &mut Window) -> Result<()> {
        if *remaining == 0 {
            self.idle.push(id);
            return Ok(());
        }
        *remaining -= 1;
        let began = self.clients.now();
        let message = self.mix.message(self.next);
        self.next += 1;
        if let ConnectionOutcome::Failed = self.clients.send_requests(id, message, self.mix.pipelined, began) {
            window.errors += 1;
            self.clients.close(id, Close::Reset);
            self.idle.push(self.clients.connect().context("cannot open a new connection")?);
        }
        Ok(())
    }
}

/// Returns the processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}
