//! What the programs share: their arguments, one listening socket for each worker, one
//! current-thread runtime for each worker, and the application that is served.

pub mod application;
pub mod download;

use std::io;
use std::path::PathBuf;
use tokio::net::{TcpListener, TcpSocket};

/// As deep as the other peers' queues.
const BACKLOG: u32 = 4096;

/// The file of the applications, under the root.
pub const FILE: &str = "1m.html";
/// What the one event of `/events` says.
pub const EVENT: &str = "first";

/// `PORT WORKERS ROOT`
pub struct Arguments {
    pub port: u16,
    pub workers: usize,
    pub root: PathBuf,
}

impl Arguments {
    /// Reads the command line.
    pub fn read() -> Self {
        let mut words = std::env::args().skip(1);
        let mut word = || words.next().expect("PORT WORKERS ROOT");
        Self {
            port: word().parse().expect("a port"),
            workers: word().parse().expect("a number of workers"),
            root: word().into(),
        }
    }
}

/// A listening socket of its own for each worker; the connections inherit TCP_NODELAY.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.set_nodelay(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(BACKLOG)
}

/// Runs `serve` on so many threads, each with a current-thread runtime, until the process ends.
pub fn on_each_worker<F: Future<Output = ()>>(workers: usize, serve: impl Fn() -> F + Clone + Send + 'static) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, serve());
    };
    let others: Vec<_> = (1..workers).map(|_| std::thread::spawn(run.clone())).collect();
    run();
    others.into_iter().for_each(|thread| thread.join().expect("a worker"));
}
