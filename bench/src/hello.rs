//! The dynamic workload's program on the Selvedge library, and what the library has here.

use anyhow::{Result, bail};
use selvedge::service::Incident;
use selvedge::{Driver, Observer, Request, Response, Server, Status};
use std::io;
use std::sync::{Arc, OnceLock};

/// Serves until the process is ended.
///
/// # Errors
/// When the port is taken.
pub(crate) fn serve(port: u16, workers: usize) -> io::Result<()> {
    let server = Server::bind_with_workers(("127.0.0.1", port), workers)?;
    server.serve(answer)?.join();
    Ok(())
}

async fn answer(_: &mut Request) -> Response {
    Response::new(Status::OK).body(crate::site::HELLO)
}

/// Whether a server that is to have its sockets in a ring would have them there.
///
/// # Errors
/// Why not.
pub(crate) fn ask_for_ring() -> Result<()> {
    let refusal = Refusal::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 1)?.driver(Driver::IoUring).observe(refusal.clone());
    let running = server.serve(answer)?;
    running.handle().stop();
    running.join();
    match refusal.0.get() {
        Some(why) => bail!("no io_uring here: {why}"),
        None => Ok(()),
    }
}

#[derive(Clone, Default)]
struct Refusal(Arc<OnceLock<String>>);

impl Observer for Refusal {
    fn incident(&self, incident: &Incident) {
        if let Incident::DriverRefused { error } = incident {
            // Said once.
            let _ = self.0.set(error.clone());
        }
    }
}
