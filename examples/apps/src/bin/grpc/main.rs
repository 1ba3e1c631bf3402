//! A gRPC service on tonic: readings of temperatures, with all four kinds of calls.
//!
//! ```text
//! cargo run -p selvedge-examples --bin grpc
//! ```
//!
//! `tonic`'s services run unchanged, because they are tower services. gRPC needs HTTP/2: clients know that beforehand at a
//! listener without TLS, so the server accepts it there. A stream has no end in advance, so the limit of content is
//! lifted; tonic limits each message.

mod messages;
mod service;
#[cfg(test)]
mod tests;

use selvedge::PlainHttp2;
use service::StationService;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, StationService::default()).plain_http2(PlainHttp2::Always).body_bytes_max(u64::MAX).await
}
