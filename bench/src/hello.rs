//! The dynamic workload's program on the Selvedge library.

use selvedge::{Request, Response, Server, Status};
use std::io;

/// Serves until the process is ended.
///
/// # Errors
/// When the port is taken.
pub(crate) fn serve(port: u16, workers: usize) -> io::Result<()> {
    let server = Server::bind_with_workers(("127.0.0.1", port), workers)?;
    server.serve(async |_: &mut Request| Response::new(Status::OK).body(crate::site::HELLO))?.join();
    Ok(())
}
