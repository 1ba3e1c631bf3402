//! Clients that ask for files beside the ordinary traffic. Cold ones are dropped from the page cache before
//! that is measured, since dropping holds up whoever does it, and here that is who measures.

use super::clients::{Arrivals, Clients, Close, Outcome};
use super::mix::{Afterwards, Message, request};
use super::open::Beside;
use anyhow::{Context, Result};
use rustix::fs::Advice;
use std::fs::File;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// So many clients wait for files at the same time.
const CONNECTIONS: usize = 8;

/// What becomes of a file before it is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temperature {
    /// It is not in the page cache.
    Cold,
    /// It stays there: what is seen beside these is what sending takes, here and at the server.
    Warm,
}

/// Clients that ask for one file after the other.
pub(crate) struct Files {
    clients: Clients,
    temperature: Temperature,
    files: Vec<(File, Rc<Message>)>,
    idle: Vec<usize>,
    began: Instant,
    rate: f64,
    asked: usize,
    /// Files that arrived.
    pub(crate) answered: u64,
}

impl Files {
    /// Will ask for these files, so many a second.
    pub(crate) fn connect(
        address: SocketAddr,
        files: Vec<(File, String)>,
        temperature: Temperature,
        rate: f64,
    ) -> Result<Self> {
        let mut clients = Clients::new(address, Arrivals::Unknown)?;
        let idle = (0..CONNECTIONS).map(|_| clients.connect()).collect::<Result<_, _>>()?;
        if temperature == Temperature::Cold {
            files.iter().try_for_each(|(file, _)| drop_from_cache(file))?;
        }
        let asking = |path: String| Rc::new(Message::plain(request(&path, Afterwards::KeepAlive)));
        let files = files.into_iter().map(|(file, path)| (file, asking(path))).collect();
        Ok(Self { clients, temperature, files, idle, began: Instant::now(), rate, asked: 0, answered: 0 })
    }
}

fn drop_from_cache(file: &File) -> Result<()> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).context("dropping a file from the page cache")
}

impl Beside for Files {
    fn step(&mut self) -> Result<()> {
        for number in 0..self.clients.wait(Duration::ZERO)? {
            let id = self.clients.ready(number);
            match self.clients.receive(id) {
                Outcome::Pending => {}
                Outcome::Answered(_) => {
                    self.answered += 1;
                    self.idle.push(id);
                }
                Outcome::Failed => {
                    self.clients.close(id, Close::Reset);
                    self.idle.push(self.clients.connect().context("a new connection for files")?);
                }
            }
        }
        let due = (self.began.elapsed().as_secs_f64() * self.rate) as usize;
        while self.asked < due {
            let Some(id) = self.idle.pop() else { break };
            let (file, message) = &self.files[self.asked % self.files.len()];
            if self.temperature == Temperature::Cold && self.asked >= self.files.len() {
                // There are fewer than are asked for.
                drop_from_cache(file)?;
            }
            self.asked += 1;
            let began = self.clients.now();
            if let Outcome::Failed = self.clients.ask(id, message, 1, began) {
                self.clients.close(id, Close::Reset);
                self.idle.push(self.clients.connect().context("a new connection for files")?);
            }
        }
        Ok(())
    }
}
