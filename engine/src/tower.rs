//! Support for tower [`Service`](tower_service::Service)s over [`http`] types, such as axum's
//! `Router`, and for asynchronous functions over those types.
//!
//! Only this module uses the ecosystem's types. It converts an engine request to an
//! `http::Request` and an `http::Response` to an engine response.

mod application;
mod body;
mod call;
#[cfg(feature = "compression")]
mod compression;
mod connection_info;
mod convert;
mod early_hints;
mod embedded;
mod header_map;
#[cfg(feature = "hyper-upgrade")]
mod hyper_upgrade;
mod into_listener;
mod log_info;
mod log_reason;
mod open_file_cache;
mod remote_body;
mod request_context;
mod request_target;
mod response_content;
mod send_file;
mod serve;
mod slab;
mod upgrade;

pub use application::{Application, kind};
pub use body::Body;
pub use call::ServiceOptions;
#[cfg(feature = "compression")]
pub use compression::{Compress, CompressFuture, CompressedBody, Compression};
pub use connection_info::{ConnectionInfo, WithConnection};
pub use early_hints::EarlyHints;
pub use embedded::{Embedded, EmbeddedBody, EmbeddedFuture};
pub use into_listener::IntoListener;
pub use log_reason::LogReason;
pub use send_file::SendFile;
pub use serve::{Serve, serve, serve_streams};
pub use upgrade::{Upgrade, Upgraded};

/// Any error, as in tower middleware.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
