//! Requests to other servers: the client side of a gateway.
//!
//! A [`Client`] belongs to one worker and lives on its thread. It keeps pools of idle connections, and learns how long
//! each upstream keeps them. It never decides which server gets a request, and never repeats one: a [`ClientError`]
//! tells the caller what is safe.
//!
//! ```text
//! Client::send ──► an idle connection, or a new one ──► head and first content in one send ──► IncomingResponse
//!                                                         │ more content while the response is awaited
//! ResponseContent::poll_chunk ◄── content of the response and of the request, both at once ◄──┘
//!   its end returns the connection to the pool; dropping it before closes the connection
//! ```

mod byte_stream;
mod connection;
mod destination;
mod error;
mod group;
mod http1;
mod http2;
mod input;
mod learned_idle;
mod limits;
mod open;
mod outgoing_content;
mod program_pipes;
mod request;
mod response;
mod table;
#[cfg(test)]
mod tests;
mod tunnel;
mod tunnel_end;

pub use crate::net::client_session::ClientTls;
pub use crate::net::sys::command::{ProgramLimits, hide_inherited_descriptors, limit_program};
pub use byte_stream::ByteStream;
pub use destination::{Address, Destination, Protocol};
pub use error::{ClientError, ClientErrorKind, ClientPhase, ConnectionUse, RetrySafety};
pub use limits::{ClientLimits, ClientTimeouts};
pub use outgoing_content::OutgoingContent;
pub use program_pipes::{ProgramEnds, ProgramPipes};
pub use request::{OutgoingHead, ResponseUse, Scheme};
pub use response::{IncomingResponse, ResponseContent};
pub use tunnel::Tunnel;

use crate::net::client_session::ApplicationProtocol;
use request::Http2Form;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use std::fmt;
use std::rc::Rc;
use table::Table;

/// Receives the interim responses of an exchange.
type Interim<'a> = &'a mut dyn FnMut(StatusCode, &Fields);

/// Sends requests to upstreams, on the thread of one worker. Clones share their connections.
///
/// When the last clone is dropped, idle connections are closed. Responses that are being received continue.
#[derive(Clone)]
pub struct Client(Rc<Pool>);

/// Closes the idle connections when the last client is dropped.
struct Pool(Rc<Table>);

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Creates a client without connections. Call it within the runtime of a worker, where its task runs.
    pub fn new(limits: ClientLimits) -> Self {
        let table = Table::new(limits);
        table::spawn_sweep(&table);
        Self(Rc::new(Pool(table)))
    }

    /// Sends a request and awaits the head of its response. Content of the request is sent while the response is
    /// awaited; the rest is then sent while the content of the response is polled.
    ///
    /// `interim` receives the interim responses before the response, at most 8, without 100. On success, `content` is
    /// empty: the response owns the rest. After an error it can be sent again if [`OutgoingContent::rewind`] permits.
    ///
    /// # Errors
    /// See [`ClientError`]. Dropping the future closes the connection.
    #[expect(clippy::too_many_arguments, reason = "the caller keeps each part in another place and for another time")]
    pub async fn send(
        &self,
        to: &Destination,
        head: &OutgoingHead,
        content: &mut OutgoingContent,
        timeouts: &ClientTimeouts,
        interim: &mut dyn FnMut(StatusCode, &Fields),
    ) -> Result<IncomingResponse, ClientError> {
        let table = &self.0.0;
        match to.protocol {
            Protocol::Http1 => http1::send(table, to, head, content, (timeouts, interim)).await,
            Protocol::Http2 => Box::pin(self.send_http2(to, head, content, (timeouts, interim))).await,
        }
    }

    /// Sends a request to an upstream with HTTP/2, if possible also one that offers another protocol.
    async fn send_http2(
        &self,
        to: &Destination,
        head: &OutgoingHead,
        content: &mut OutgoingContent,
        (timeouts, interim): (&ClientTimeouts, Interim<'_>),
    ) -> Result<IncomingResponse, ClientError> {
        let table = &self.0.0;
        if head.upgrade.is_some() && content.is_empty() {
            let connect = (head, Http2Form::ExtendedConnect);
            let sent = if head.method == b"GET" {
                http2::send(table, to, connect, content, (timeouts, &mut *interim)).await
            } else {
                // Nothing in an extended CONNECT tells another method.
                Err(http2::UPGRADE_UNSUPPORTED)
            };
            match sent {
                Err(error) if error.kind != ClientErrorKind::UpgradeUnsupported => return Err(error),
                Err(_) if to.tls.is_some() => {
                    return http1::send(table, to, head, content, (timeouts, interim)).await;
                }
                Err(error) if head.is_websocket() => return Err(error),
                // The upstream may ignore an offer, so it need not get it.
                Err(_) => {}
                Ok(response) => return Ok(response),
            }
        }
        let request = (head, Http2Form::Request(content.length()));
        http2::send(table, to, request, content, (timeouts, interim)).await
    }

    /// Returns a connection for another protocol than HTTP: an idle one, or a new one.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn open(&self, to: &Destination, timeouts: &ClientTimeouts) -> Result<ByteStream, ClientError> {
        let table = &self.0.0;
        let group = table.group(to);
        if let Some(lease) = table.take_idle(&group) {
            return Ok(ByteStream::new(lease, timeouts.response));
        }
        let lease = open::open(table, &group, timeouts.connect, ApplicationProtocol::None).await?;
        Ok(ByteStream::new(lease, timeouts.response))
    }

    /// Returns the number of idle connections.
    pub fn idle_connections(&self) -> usize {
        self.0.0.idle_count()
    }

    /// Returns the number of connections, idle ones included.
    pub fn connections(&self) -> usize {
        self.0.0.connection_count()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({} connections, {} idle)", self.connections(), self.idle_connections())
    }
}
