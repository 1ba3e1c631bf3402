#![doc = include_str!("../README.md")]

mod buffer;
mod census;
mod connection;
mod generation;
pub mod limits;
mod net;
mod server;
pub mod service;
pub mod tower;

#[doc = include_str!("../docs/from-axum-serve.md")]
pub mod from_axum_serve {}

pub use census::{Census, Group};
pub use connection::Existing;
pub use generation::{Generation, Succession};
pub use limits::Limits;
pub use net::driver::Driver;
pub use net::listen::{Endpoint, Listener};
pub use net::worker::offload;
pub use selvedge_proto as proto;
pub use selvedge_proto::{Reject, Status, method::Method};
pub use server::{Ending, Handle, Running, Server};
pub use service::{HalfClosed, NoObserver, Observer, Request, Response, Service};
pub use tower::{Application, Body, EarlyHints, Embedded, IntoListener, SendFile, Serve, Upgrade, Upgraded, serve};
#[cfg(feature = "compression")]
pub use tower::{Authenticated, CompressedBody, Compression};
