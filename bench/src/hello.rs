//! The program of the `hello` workload on the Selvedge library, and the check for io_uring.

use anyhow::{Result, bail};
use selvedge::service::ServerEvent;
use selvedge::{Driver, Observer, Request, Response, Server, StatusCode};
use std::io;
use std::sync::{Arc, OnceLock};

/// Serves until the process is terminated.
///
/// # Errors
/// If the port is in use.
pub(crate) fn serve(port: u16, workers: usize) -> io::Result<()> {
    let server = Server::bind_with_workers(("127.0.0.1", port), workers)?;
    server.serve(hello)?.join();
    Ok(())
}

async fn hello(_: &mut Request) -> Response {
    Response::new(StatusCode::OK).body(crate::site::HELLO)
}

/// Checks that a server with the `io_uring` driver can use it on this system.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn check_io_uring() -> Result<()> {
    let io_uring_error = IoUringError::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 1)?.driver(Driver::IoUring).observe(io_uring_error.clone());
    let running = server.serve(hello)?;
    running.handle().stop();
    running.join();
    match io_uring_error.0.get() {
        Some(reason) => bail!("io_uring is not available: {reason}"),
        None => Ok(()),
    }
}

#[derive(Clone, Default)]
struct IoUringError(Arc<OnceLock<String>>);

impl Observer for IoUringError {
    fn event(&self, incident: &ServerEvent) {
        if let ServerEvent::UringUnavailable { error } = incident {
            // Only the first error is reported.
            let _ = self.0.set(error.clone());
        }
    }
}
