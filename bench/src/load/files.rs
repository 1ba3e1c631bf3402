//! Clients that request files beside the ordinary traffic. Cold files are dropped from the page cache before
//! the measurement, because dropping them blocks the thread that measures.

use super::clients::{Clients, Close, ConnectionOutcome, ReceiveTimestamps};
use super::mix::{Persistence, RequestBatch, request};
use super::open::BackgroundLoad;
use anyhow::{Context, Result};
use rustix::fs::Advice;
use std::fs::File;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The maximum number of concurrent file requests.
const CONNECTIONS: usize = 8;

/// The state of the files in the page cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheState {
    /// The files are not in the page cache.
    Cold,
    /// The files stay in the page cache. This shows the cost of sending alone, for the client and the server.
    Warm,
}

/// Clients that request one file after the other.
pub(crate) struct FileClients {
    clients: Clients,
    cache_state: CacheState,
    files: Vec<(File, Rc<RequestBatch>)>,
    idle: Vec<usize>,
    began: Instant,
    rate: f64,
    requested: usize,
    /// The number of received files.
    pub(crate) received: u64,
}

impl FileClients {
    /// Connects clients that request these files at this rate (per second).
    pub(crate) fn connect(
        address: SocketAddr,
        files: Vec<(File, String)>,
        cache_state: CacheState,
        rate: f64,
    ) -> Result<Self> {
        let mut clients = Clients::new(address, ReceiveTimestamps::Off)?;
        let idle = (0..CONNECTIONS).map(|_| clients.connect()).collect::<Result<_, _>>()?;
        if cache_state == CacheState::Cold {
            files.iter().try_for_each(|(file, _)| drop_from_cache(file))?;
        }
        let message_for = |path: String| Rc::new(RequestBatch::plain(request(&path, Persistence::KeepAlive)));
        let files = files.into_iter().map(|(file, path)| (file, message_for(path))).collect();
        Ok(Self { clients, cache_state, files, idle, began: Instant::now(), rate, requested: 0, received: 0 })
    }
}

fn drop_from_cache(file: &File) -> Result<()> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).context("cannot drop a file from the page cache")
}

impl BackgroundLoad for FileClients {
    fn step(&mut self) -> Result<()> {
        for number in 0..self.clients.wait(Duration::ZERO)? {
            let id = self.clients.ready_connection(number);
            match self.clients.receive(id) {
                ConnectionOutcome::Pending => {}
                ConnectionOutcome::Completed(_) => {
                    self.received += 1;
                    self.idle.push(id);
                }
                ConnectionOutcome::Failed => {
                    self.clients.close(id, Close::Reset);
                    self.idle.push(self.clients.connect().context("cannot open a new connection for files")?);
                }
            }
        }
        let due = (self.began.elapsed().as_secs_f64() * self.rate) as usize;
        while self.requested < due {
            let Some(id) = self.idle.pop() else { break };
            let (file, message) = &self.files[self.requested % self.files.len()];
            if self.cache_state == CacheState::Cold && self.requested >= self.files.len() {
                // All files were requested before, so they may be in the page cache.
                drop_from_cache(file)?;
            }
            self.requested += 1;
            let began = self.clients.now();
            if let ConnectionOutcome::Failed = self.clients.send_requests(id, message, 1, began) {
                self.clients.close(id, Close::Reset);
                self.idle.push(self.clients.connect().context("cannot open a new connection for files")?);
            }
        }
        Ok(())
    }
}
