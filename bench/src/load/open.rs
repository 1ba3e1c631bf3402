//! The open loop: requests leave on a fixed schedule, whatever the server does.
//!
//! Times count from the moment a request was *meant* to leave, so a server that stalls is charged for everybody
//! who would have waited (no coordinated omission), to the moment at which the kernel had the answer.
//!
//! What the generator does to itself is kept apart. A request that leaves late although a connection
//! was free counts from when it left. When the generator does not come to its schedule for a while, because the system
//! has something else to do on its core, or long content or the traffic beside has to be seen to, the schedule goes on as
//! much later: else a server would be charged for a rush that nobody meant. Where that is much, the generator, not the
//! server, was the limit, and the report says so.

use super::clients::{Arrivals, Clients, Close, Outcome};
use super::mix::{Afterwards, Mix};
use super::window::Window;
use crate::interrupt;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The generator is the limit when one request in a hundred leaves later than this…
const LATE_US_MAX: f64 = 1_000.0;
/// …or when less than this part of the schedule left at all…
const SENT_PART_MIN: f64 = 0.99;
/// …or when it did not come to its schedule for more than this part of the time.
const HELD_UP_PART_MAX: f64 = 0.1;
/// No step between two looks at the clock takes the generator this long, if it is about short content.
const HELD_UP_NS_MIN: u64 = 100_000;
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
    /// Whether there are rests in it.
    pub(crate) rests: Rests,
}

/// Whether nobody asks for a while, again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rests {
    /// Requests leave all the time.
    None,
    /// Five milliseconds after each forty. A virtual machine may have as much processor time as its cores have, and what
    /// its host does for its disk counts: whoever keeps all cores busy is then stopped for milliseconds, ten times
    /// a second, where files are read. Cores that only wait for tens of microseconds count as busy, too.
    Regular,
}

/// How long requests leave between two rests.
const ASKING_NS: u64 = 40_000_000;
/// How long a rest is.
const REST_NS: u64 = 5_000_000;

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

/// Clients that ask by a schedule, once or again and again.
pub(crate) struct Open<'a> {
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
    /// The last look at the clock.
    looked: u64,
    /// How long the generator did not come to its schedule, all in all.
    held_up: u64,
    /// How long it rested.
    rested: u64,
}

/// Runs one schedule against one server.
pub(crate) fn run(address: SocketAddr, mix: &Mix, schedule: Schedule, beside: &mut dyn Beside) -> Result<Seen> {
    Open::connect(address, mix, schedule)?.run(beside)
}

impl<'a> Open<'a> {
    /// Connects them, where connections live longer than a request.
    pub(crate) fn connect(address: SocketAddr, mix: &'a Mix, schedule: Schedule) -> Result<Self> {
        let mut open = Self {
            clients: Clients::new(address, Arrivals::Kernel)?,
            mix,
            schedule,
            window: Window::new(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            askings: vec![0; schedule.connections_max],
            asked: 0,
            outstanding: 0,
            looked: 0,
            held_up: 0,
            rested: 0,
        };
        open.have_connections()?;
        Ok(open)
    }

    /// Connects as many as there may be, where connections live longer than a request.
    fn have_connections(&mut self) -> Result<()> {
        while self.mix.afterwards == Afterwards::KeepAlive && self.idle.len() < self.schedule.connections_max {
            self.idle.push_back(self.clients.connect().context("a connection for the open loop")?);
            if self.idle.len().is_multiple_of(64) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Asks for as long as the schedule says; the connections live on for the next time.
    pub(crate) fn run(&mut self, beside: &mut dyn Beside) -> Result<Seen> {
        self.have_connections()?;
        let step = 1e9 / self.schedule.rate;
        let planned = (self.schedule.rate * self.schedule.duration.as_secs_f64()) as u64;
        let began = self.clients.now();
        (self.looked, self.held_up, self.rested) = (began, 0, 0);
        let due_at = |number: u64, later: u64| began + (number as f64 * step) as u64 + later;
        let (mut sent, mut busy, mut beside_at) = (0, 0, began);
        let mut rest_at = if self.schedule.rests == Rests::Regular { began + ASKING_NS } else { u64::MAX };
        while sent < planned && !interrupt::requested() {
            let turn_began = self.look();
            if turn_began >= rest_at && self.waiting.is_empty() {
                self.rest(beside)?;
                rest_at = self.looked + ASKING_NS;
                continue;
            }
            let mut now = turn_began;
            let mut burst = 0;
            while sent < planned && due_at(sent, self.held_up + self.rested) <= now && burst < BURST_MAX {
                self.leave(due_at(sent, self.held_up + self.rested), now)?;
                sent += 1;
                burst += 1;
                now = self.look();
            }
            let events = self.turn(Duration::ZERO)?;
            self.expire();
            if now >= beside_at {
                beside.step()?;
                beside_at = now + BESIDE_EVERY_NS;
            }
            if events > 0 || burst > 0 {
                busy += self.look() - turn_began;
            }
        }
        let left = self.clients.now();
        self.window.elapsed = Duration::from_nanos(left - began - self.rested);
        self.window.held_up = Duration::from_nanos(self.held_up);
        self.window.generator_busy = busy as f64 / (left - began).max(1) as f64;
        let answered_in_time = self.window.answered;
        let patience = left + self.schedule.timeout.as_nanos() as u64;
        while self.outstanding + self.waiting.len() > 0 && self.clients.now() < patience && !interrupt::requested() {
            self.turn(Duration::from_millis(1))?;
            self.expire();
            beside.step()?;
        }
        self.give_up();
        Ok(self.judge(planned, answered_in_time))
    }

    /// Asks nothing for a while; what comes is taken.
    fn rest(&mut self, beside: &mut dyn Beside) -> Result<()> {
        let (began, held_up) = (self.looked, self.held_up);
        while self.clients.now() < began + REST_NS {
            self.turn(Duration::from_millis(1))?;
            beside.step()?;
        }
        (self.looked, self.held_up) = (self.clients.now(), held_up);
        self.rested += self.looked - began;
        Ok(())
    }

    /// Ends what still waits for an answer; it counts with the time it was waited for.
    fn give_up(&mut self) {
        for _ in 0..self.outstanding + self.waiting.len() {
            self.window.gave_up(self.schedule.timeout.as_nanos() as u64);
        }
        self.waiting.clear();
        self.deadlines.clear();
        for id in 0..self.askings.len() {
            if self.askings[id] > 0 {
                self.free(id);
                self.clients.close(id, Close::Reset);
            }
        }
    }

    /// Looks at the clock, and puts the schedule off by the time in which this thread did not come to it.
    fn look(&mut self) -> u64 {
        let now = self.clients.now();
        let since = now - self.looked;
        if since >= HELD_UP_NS_MIN {
            self.held_up += since;
        }
        self.looked = now;
        now
    }

    /// A request is due: it leaves, or waits for a connection.
    fn leave(&mut self, due: u64, now: u64) -> Result<()> {
        match self.mix.afterwards {
            Afterwards::KeepAlive => match self.idle.pop_front() {
                Some(id) => {
                    self.window.was_late(now.saturating_sub(due));
                    self.ask(id, now)?;
                }
                None => self.waiting.push_back(due),
            },
            Afterwards::Close if self.clients.open_count() < self.schedule.connections_max => {
                self.window.was_late(now.saturating_sub(due));
                match self.clients.connect() {
                    Ok(id) => self.ask(id, now)?,
                    Err(_) => self.window.errors += 1,
                }
            }
            Afterwards::Close => self.window.unsent += 1,
        }
        Ok(())
    }

    /// Sends a request whose time counts from `began`.
    fn ask(&mut self, id: usize, began: u64) -> Result<()> {
        self.asked += 1;
        self.outstanding += 1;
        if self.askings.len() <= id {
            self.askings.resize(id + 1, 0);
        }
        self.askings[id] = self.asked;
        self.deadlines.push_back((began + self.schedule.timeout.as_nanos() as u64, id, self.asked));
        let number = usize::try_from(self.asked).expect("fewer requests than addresses");
        if let Outcome::Failed = self.clients.ask(id, self.mix.message(number), 1, began) {
            self.failed(id)?;
        }
        Ok(())
    }

    fn turn(&mut self, longest: Duration) -> Result<usize> {
        let count = self.clients.wait(longest)?;
        for number in 0..count {
            let id = self.clients.ready(number);
            self.look();
            match self.clients.receive(id) {
                Outcome::Pending => {}
                Outcome::Failed => self.failed(id)?,
                Outcome::Answered(answered) => {
                    self.window.took(answered.arrived.saturating_sub(answered.began));
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
        // Who waits for a connection comes before who has not asked yet, also where it is a new one.
        while !self.waiting.is_empty()
            && let Some(id) = self.idle.pop_front()
        {
            if self.give_work(id).is_err() {
                self.window.errors += 1;
            }
        }
    }

    fn judge(&mut self, planned: u64, answered_in_time: u64) -> Seen {
        let mut window = std::mem::replace(&mut self.window, Window::new());
        let meant = self.schedule.duration.as_secs_f64();
        let took = (window.elapsed - window.held_up).as_secs_f64();
        let sent_in_time = planned.saturating_sub(window.unsent) as f64 * meant / took.max(meant);
        let generator_limited = sent_in_time < SENT_PART_MIN * planned as f64
            || window.late_us(0.99) > LATE_US_MAX
            || window.held_up.as_secs_f64() > HELD_UP_PART_MAX * window.elapsed.as_secs_f64();
        // The reply rate is about the time in which requests left, not about the wait for the last.
        window.answered = answered_in_time;
        Seen { window, generator_limited }
    }
}
