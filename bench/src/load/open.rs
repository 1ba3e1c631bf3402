//! The open loop: requests leave on a fixed schedule, whatever the server does.
//!
//! Times count from the moment a request was *meant* to leave. So a server that stalls is charged
//! for everybody who would have waited (no coordinated omission). When the generator itself is
//! late although a connection was free, that is kept apart and reported: then the generator, not
//! the server, was the limit.

use super::clients::{Clients, Close, Outcome};
use super::mix::{Afterwards, Mix};
use super::window::Window;
use crate::interrupt;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The generator is the limit when one request in a hundred leaves later than this…
const LATE_US_MAX: f64 = 1_000.0;
/// …or when less than this part of the schedule left at all.
const SENT_PART_MIN: f64 = 0.99;
/// So many requests leave without a look at the answers.
const BURST_MAX: usize = 64;
/// How often the traffic beside the measured one has its turn.
const BESIDE_EVERY_NS: u64 = 200_000;

/// A schedule.
#[derive(Clone, Copy)]
pub(crate) struct Schedule {
    /// Requests a second.
    pub(crate) rate: f64,
    /// How long requests leave.
    pub(crate) duration: Duration,
    /// How long the client waits for an answer.
    pub(crate) timeout: Duration,
    /// How many connections there may be.
    pub(crate) connections_max: usize,
}

/// Traffic beside the measured one, made by the same thread in small steps.
pub(crate) trait Beside {
    /// Does what is due.
    ///
    /// # Errors
    /// When it cannot go on at all.
    fn step(&mut self) -> Result<()>;
}

/// Nothing beside.
pub(crate) struct Alone;

impl Beside for Alone {
    fn step(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What an open loop saw.
pub(crate) struct Seen {
    pub(crate) window: Window,
    /// The generator, not the server, was the limit.
    pub(crate) generator_limited: bool,
}

struct Open<'a> {
    clients: Clients,
    mix: &'a Mix,
    schedule: Schedule,
    window: Window,
    /// Connections that wait for work, the longest idle first.
    idle: VecDeque<usize>,
    /// Requests that wait for a connection: when they were meant to leave.
    waiting: VecDeque<u64>,
    /// When an answer must be here, and which asking it is about, in order.
    deadlines: VecDeque<(u64, usize, u64)>,
    /// For each connection, the asking it is busy with; 0 when none.
    askings: Vec<u64>,
    asked: u64,
    outstanding: usize,
}

/// Runs one schedule against one server.
pub(crate) fn run(address: SocketAddr, mix: &Mix, schedule: Schedule, beside: &mut dyn Beside) -> Result<Seen> {
    let mut open = Open::connect(address, mix, schedule)?;
    let step = 1e9 / schedule.rate;
    let planned = (schedule.rate * schedule.duration.as_secs_f64()) as u64;
    let began = open.clients.now();
    let due_at = |number: u64| began + (number as f64 * step) as u64;
    let (mut sent, mut busy, mut beside_at) = (0, 0, began);
    while sent < planned && !interrupt::requested() {
        let turn_began = open.clients.now();
        let mut now = turn_began;
        let mut burst = 0;
        while sent < planned && due_at(sent) <= now && burst < BURST_MAX {
            open.leave(due_at(sent))?;
            sent += 1;
            burst += 1;
            now = open.clients.now();
        }
        let events = open.turn(Duration::ZERO)?;
        open.expire();
        if now >= beside_at {
            beside.step()?;
            beside_at = now + BESIDE_EVERY_NS;
        }
        if events > 0 || burst > 0 {
            busy += open.clients.now() - turn_began;
        }
    }
    let left = open.clients.now();
    open.window.elapsed = Duration::from_nanos(left - began);
    open.window.generator_busy = busy as f64 / (left - began).max(1) as f64;
    let answered_in_time = open.window.answered;
    let patience = left + schedule.timeout.as_nanos() as u64;
    while open.outstanding + open.waiting.len() > 0 && open.clients.now() < patience && !interrupt::requested() {
        open.turn(Duration::from_millis(1))?;
        open.expire();
        beside.step()?;
    }
    open.window.timeouts += (open.outstanding + open.waiting.len()) as u64;
    Ok(open.judge(planned, answered_in_time, left - began))
}

impl<'a> Open<'a> {
    fn connect(address: SocketAddr, mix: &'a Mix, schedule: Schedule) -> Result<Self> {
        let mut clients = Clients::new(address)?;
        let mut idle = VecDeque::new();
        if mix.afterwards == Afterwards::KeepAlive {
            for number in 0..schedule.connections_max {
                idle.push_back(clients.connect().context("a connection for the open loop")?);
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Ok(Self {
            clients,
            mix,
            schedule,
            window: Window::new(),
            idle,
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            askings: vec![0; schedule.connections_max],
            asked: 0,
            outstanding: 0,
        })
    }

    /// A request is due: it leaves, or waits for a connection.
    fn leave(&mut self, due: u64) -> Result<()> {
        match self.mix.afterwards {
            Afterwards::KeepAlive => match self.idle.pop_front() {
                Some(id) => {
                    self.window.was_late(self.clients.now().saturating_sub(due));
                    self.ask(id, due)?;
                }
                None => self.waiting.push_back(due),
            },
            Afterwards::Close if self.clients.open_count() < self.schedule.connections_max => {
                self.window.was_late(self.clients.now().saturating_sub(due));
                match self.clients.connect() {
                    Ok(id) => self.ask(id, due)?,
                    Err(_) => self.window.errors += 1,
                }
            }
            Afterwards::Close => self.window.unsent += 1,
        }
        Ok(())
    }

    fn ask(&mut self, id: usize, due: u64) -> Result<()> {
        self.asked += 1;
        self.outstanding += 1;
        if self.askings.len() <= id {
            self.askings.resize(id + 1, 0);
        }
        self.askings[id] = self.asked;
        self.deadlines.push_back((due + self.schedule.timeout.as_nanos() as u64, id, self.asked));
        let number = usize::try_from(self.asked).expect("fewer requests than addresses");
        if let Outcome::Failed = self.clients.ask(id, self.mix.message(number), 1, due) {
            self.failed(id)?;
        }
        Ok(())
    }

    fn turn(&mut self, longest: Duration) -> Result<usize> {
        let count = self.clients.wait(longest)?;
        for number in 0..count {
            let id = self.clients.ready(number);
            match self.clients.receive(id) {
                Outcome::Pending => {}
                Outcome::Failed => self.failed(id)?,
                Outcome::Answered(answered) => {
                    self.window.took(self.clients.now().saturating_sub(answered.began));
                    self.window.answered += (answered.count - answered.refused) as u64;
                    self.window.errors += answered.refused as u64;
                    self.free(id);
                    match self.mix.afterwards {
                        Afterwards::KeepAlive if !answered.last => self.give_work(id)?,
                        Afterwards::KeepAlive => self.drop_connection(id)?,
                        Afterwards::Close => self.clients.close(id, Close::Politely),
                    }
                }
            }
        }
        Ok(count)
    }

    fn free(&mut self, id: usize) {
        if std::mem::take(&mut self.askings[id]) > 0 {
            self.outstanding -= 1;
        }
    }

    fn give_work(&mut self, id: usize) -> Result<()> {
        match self.waiting.pop_front() {
            Some(due) => self.ask(id, due),
            None => {
                self.idle.push_back(id);
                Ok(())
            }
        }
    }

    /// A connection broke. One that was idle did no harm; the server may end those.
    fn failed(&mut self, id: usize) -> Result<()> {
        self.window.errors += u64::from(self.askings[id] > 0);
        self.drop_connection(id)
    }

    fn drop_connection(&mut self, id: usize) -> Result<()> {
        self.free(id);
        self.clients.close(id, Close::Reset);
        if self.mix.afterwards == Afterwards::KeepAlive {
            self.idle.retain(|idle| *idle != id);
            let fresh = self.clients.connect().context("a new connection for the open loop")?;
            self.idle.push_back(fresh);
        }
        Ok(())
    }

    /// Gives up on what took too long; it counts with the time it was waited for.
    fn expire(&mut self) {
        let now = self.clients.now();
        while let Some(&(deadline, id, asking)) = self.deadlines.front()
            && deadline <= now
        {
            self.deadlines.pop_front();
            if self.askings[id] == asking {
                self.window.gave_up(self.schedule.timeout.as_nanos() as u64);
                if self.drop_connection(id).is_err() {
                    self.window.errors += 1;
                }
            }
        }
    }

    fn judge(mut self, planned: u64, answered_in_time: u64, took: u64) -> Seen {
        let sent_in_time = planned.saturating_sub(self.window.unsent) as f64 * self.schedule.duration.as_nanos() as f64
            / (took as f64).max(self.schedule.duration.as_nanos() as f64);
        let generator_limited =
            sent_in_time < SENT_PART_MIN * planned as f64 || self.window.late_us(0.99) > LATE_US_MAX;
        // The reply rate is about the time in which requests left, not about the wait for the last.
        self.window.answered = answered_in_time;
        Seen { window: self.window, generator_limited }
    }
}
