//! Shared code of the programs: their arguments, one listening socket and one current-thread runtime for each
//! worker, and the application.

pub mod application;
pub mod download;

use std::io;
use std::path::PathBuf;
use tokio::net::{TcpListener, TcpSocket};

/// The length of the accept queue, as in the other servers.
const BACKLOG: u32 = 4096;

/// The file of the applications, below the root.
pub const FILE: &str = "1m.html";
/// The data of the one event of `/events`.
pub const EVENT: &str = "first";

/// The command line: `PORT WORKERS ROOT [PORT_H2C]`.
pub struct Arguments {
    pub port: u16,
    pub workers: usize,
    pub root: PathBuf,
    /// The port for HTTP/2 without TLS, of a program that serves it.
    pub port_h2c: Option<u16>,
}

impl Arguments {
    /// Parses the command line.
    pub fn read() -> Self {
        let mut arguments = std::env::args().skip(1);
        let mut next = || arguments.next().expect("the arguments are PORT WORKERS ROOT");
        Self {
            port: next().parse().expect("PORT is a port number"),
            workers: next().parse().expect("WORKERS is a number"),
            root: next().into(),
            port_h2c: arguments.next().map(|port| port.parse().expect("PORT_H2C is a port number")),
        }
    }
}

/// Creates a listening socket for one worker. Its connections inherit TCP_NODELAY.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.set_nodelay(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(BACKLOG)
}

/// Runs `serve` on `workers` threads, each with a current-thread runtime, until the process is terminated.
pub fn on_each_worker<F: Future<Output = ()>>(workers: usize, serve: impl Fn() -> F + Clone + Send + 'static) {
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("cannot create a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, serve());
    };
    let threads: Vec<_> = (1..workers).map(|_| std::thread::spawn(run.clone())).collect();
    run();
    threads.into_iter().for_each(|thread| thread.join().expect("a worker panicked"));
}
