//! The closed loop: every connection asks again as soon as it has its answer. Measures capacity.

use super::clients::{Arrivals, Clients, Close, Outcome};
use super::mix::{Afterwards, Mix};
use super::window::Window;
use crate::interrupt;
use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::time::Duration;

/// A server that says nothing for so long has stalled.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// More failures than this, and the run means nothing.
const ERRORS_MAX: u64 = 20_000;
/// New connections are begun in batches of so many, so that no accept queue overflows.
const CONNECT_BATCH: usize = 64;

/// When a run is over.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// After so long.
    Elapsed(Duration),
    /// After so many requests, exactly.
    Requests(u64),
}

/// A closed loop of clients.
pub(crate) struct Closed {
    clients: Clients,
    mix: Mix,
    next: usize,
    /// Connections that wait for the next run.
    idle: Vec<usize>,
}

impl Closed {
    /// Connects so many clients; they ask nothing yet.
    pub(crate) fn connect(address: SocketAddr, mix: Mix, connections: usize) -> Result<Self> {
        let mut clients = Clients::new(address, Arrivals::Unknown)?;
        let mut idle = Vec::with_capacity(connections);
        for number in 0..connections {
            idle.push(clients.connect().with_context(|| format!("connection {number} of {connections}"))?);
            if number % CONNECT_BATCH == CONNECT_BATCH - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Self { clients, mix, next: 0, idle })
    }

    /// Runs; the connections live on for the next run.
    pub(crate) fn run(&mut self, until: Until) -> Result<Window> {
        let mut window = Window::new();
        let (began, busy) = (self.clients.now(), thread_cpu());
        let batch = self.mix.pipelined as u64;
        let (end, mut left) = match until {
            Until::Elapsed(duration) => (began + duration.as_nanos() as u64, u64::MAX),
            Until::Requests(count) => (u64::MAX, count / batch),
        };
        let wanted = left.saturating_mul(batch);
        for id in std::mem::take(&mut self.idle) {
            self.next_request(id, &mut left, &mut window)?;
        }
        loop {
            let now = self.clients.now();
            if now >= end || window.answered + window.errors >= wanted || interrupt::requested() {
                break;
            }
            let longest = Duration::from_nanos(end - now).min(SILENCE_MAX);
            let count = self.clients.wait(longest)?;
            ensure!(count > 0 || self.clients.now() >= end, "no answer for {SILENCE_MAX:?}: the server has stalled");
            for number in 0..count {
                let id = self.clients.ready(number);
                self.on_event(id, &mut left, &mut window)?;
            }
            if window.errors > ERRORS_MAX {
                bail!("more than {ERRORS_MAX} requests failed");
            }
        }
        window.elapsed = Duration::from_nanos(self.clients.now() - began);
        window.generator_busy = (thread_cpu() - busy).as_secs_f64() / window.elapsed.as_secs_f64();
        Ok(window)
    }

    fn on_event(&mut self, id: usize, left: &mut u64, window: &mut Window) -> Result<()> {
        match self.clients.receive(id) {
            Outcome::Pending => Ok(()),
            Outcome::Answered(answered) => {
                let refused = answered.refused as u64;
                window.took(self.clients.now().saturating_sub(answered.began));
                window.answered += answered.count as u64 - refused;
                window.errors += refused;
                match self.mix.afterwards {
                    Afterwards::KeepAlive if !answered.last => self.next_request(id, left, window),
                    _ => self.reconnect(id, left, window),
                }
            }
            Outcome::Failed => {
                window.errors += 1;
                self.reconnect(id, left, window)
            }
        }
    }

    fn reconnect(&mut self, id: usize, left: &mut u64, window: &mut Window) -> Result<()> {
        self.clients.close(id, Close::Politely);
        let id = self.clients.connect().context("a new connection")?;
        self.next_request(id, left, window)
    }

    fn next_request(&mut self, id: usize, left: &mut u64, window: &mut Window) -> Result<()> {
        if *left == 0 {
            self.idle.push(id);
            return Ok(());
        }
        *left -= 1;
        let began = self.clients.now();
        let message = self.mix.message(self.next);
        self.next += 1;
        if let Outcome::Failed = self.clients.ask(id, message, self.mix.pipelined, began) {
            window.errors += 1;
            self.clients.close(id, Close::Reset);
            self.idle.push(self.clients.connect().context("a new connection")?);
        }
        Ok(())
    }
}

/// The processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}
