//! Applications of the ecosystem's own type: a tower [`Service`](tower_service::Service) over
//! [`http`] types, as axum's `Router` is, and asynchronous functions over the same types.
//!
//! This is the only place that names those types: a request is made one of theirs on its way
//! to the application, and an answer one of the engine's on its way back.

mod application;
mod body;
mod call;
#[cfg(feature = "compression")]
mod compression;
mod convert;
mod current;
mod embedded;
mod held;
mod hints;
mod noted;
mod opened;
#[cfg(feature = "hyper-upgrade")]
mod puppet;
mod reason;
mod send_file;
mod serve;
mod table;
mod trailers;
mod upgrade;

pub use application::{Application, Manners, kind};
pub use body::Body;
#[cfg(feature = "compression")]
pub use compression::{Authenticated, Compress, CompressedBody, Compressing, Compression};
pub use embedded::{Answering, Embedded, EmbeddedBody};
pub use hints::EarlyHints;
pub use reason::Reason;
pub use send_file::SendFile;
pub use serve::{IntoListener, Serve, serve};
pub use upgrade::{Upgrade, Upgraded};

/// Any error, as middleware passes it on.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
