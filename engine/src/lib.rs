//! Selvedge: an HTTP server engine.
//!
//! One worker thread per core, one light task per connection, straight-line code. An
//! application is a [`Service`]: a function from a [`Request`] to a [`Response`]. Limits
//! and deadlines are on by default ([`Limits`]), a stop is graceful ([`Handle::stop`]),
//! files are sent by the kernel ([`Body::File`]).
//!
//! ```no_run
//! use selvedge::{Request, Response, Server, Status};
//!
//! # fn main() -> std::io::Result<()> {
//! let running = Server::bind("127.0.0.1:8080")?
//!     .serve(async |request: &mut Request| {
//!         Response::new(Status::OK).body(format!("You asked for {}\n", request.path()))
//!     })?;
//! println!("listening on http://{}", running.addresses()[0]);
//! running.join();
//! # Ok(())
//! # }
//! ```

mod buffer;
mod connection;
mod generation;
pub mod limits;
mod net;
mod server;
pub mod service;
pub mod tower;

pub use connection::Existing;
pub use generation::{Generation, Succession};
pub use limits::Limits;
pub use net::listen::{Endpoint, Listener};
pub use net::worker::offload;
pub use selvedge_proto as proto;
pub use selvedge_proto::{Reject, Status, method::Method};
pub use server::{Ending, Handle, Running, Server};
pub use service::{Body, HalfClosed, NoObserver, Observer, Request, Response, Service};
pub use tower::{Application, EarlyHints, IntoListener, SendFile, Serve, Upgrade, Upgraded, serve};
