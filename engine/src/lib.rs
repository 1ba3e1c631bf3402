#![doc = include_str!("../README.md")]

mod buffer;
#[doc(hidden)]
pub mod cache;
pub mod client;
#[cfg(feature = "compression")]
mod coding;
mod connection;
mod connection_stats;
#[doc(hidden)]
pub mod detached;
mod file;
pub mod limits;
mod mailbox;
mod net;
mod peer;
mod proxy_headers;
mod replace_app;
mod response_lease;
mod server;
pub mod service;
mod splice_pipe;
#[cfg(feature = "tls")]
pub mod tls;
pub mod tower;
#[cfg(feature = "tracing")]
mod tracing_observer;

#[doc = include_str!("../docs/from-axum-serve.md")]
pub mod from_axum_serve {}

#[cfg(feature = "compression")]
pub use coding::{Authenticated, ContentCoder, EncodedFile};
pub use connection_stats::{ConnectionCount, ConnectionProtocol, ConnectionStats};
pub use limits::Limits;
pub use net::backend::Driver;
pub use net::listen::{Endpoint, Listener};
pub use net::runtime::spawn_blocking;
pub use net::stopping::{Stopping, stopping};
pub use net::stream_listener::StreamListener;
#[doc(hidden)]
pub use net::sys::shared_memory::SharedMemory;
pub use net::worker::Eviction;
pub use proxy_headers::ProxyHeaders;
pub use replace_app::{AppHandle, AppVersion, PlainHttp2};
pub use selvedge_proto as proto;
pub use selvedge_proto::{Reject, StatusCode, method::Method};
pub use server::{ExitCause, Handle, RunningServer, Server};
pub use service::{EngineError, HalfClosed, NoObserver, Observer, Request, Response, Service};
pub use tower::{
    Application, Body, EarlyHints, Embedded, IntoListener, SendFile, Serve, Upgrade, Upgraded, serve, serve_streams,
};
#[cfg(feature = "compression")]
pub use tower::{CompressedBody, Compression};
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;
