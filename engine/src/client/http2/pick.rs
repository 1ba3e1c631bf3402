//! Chooses the connection of a request: an open one with room, or a new one. Requests that arrive while a connection is
//! being opened wait for it.

use super::connection::SharedConnection;
use super::guard::OpeningGuard;
use super::task::Http2Task;
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use crate::client::group::Group;
use crate::client::limits::HTTP2_CONNECTIONS_MAX;
use crate::client::open::open;
use crate::client::table::Table;
use crate::net::client_session::ApplicationProtocol;
use std::rc::Rc;
use std::time::Duration;

/// Returns a connection with room for a stream.
pub(super) async fn pick(
    table: &Rc<Table>,
    group: &Rc<Group>,
    timeout: Duration,
) -> Result<Rc<SharedConnection>, ClientError> {
    loop {
        if let Some(connection) = usable(group) {
            return Ok(connection);
        }
        let opening = group.opening.borrow().clone();
        if let Some(opening) = opening {
            opening.wait().await?;
            continue;
        }
        if group.shared_connections.borrow().len() >= HTTP2_CONNECTIONS_MAX {
            let kind = ClientErrorKind::ConnectionsTooMany;
            return Err(ClientError::new(ClientPhase::Connect, kind, RetrySafety::NotSent));
        }
        let mut guard = OpeningGuard::new(group.clone());
        let lease = match open(table, group, timeout, ApplicationProtocol::Http2).await {
            Ok(lease) => lease,
            Err(error) => {
                guard.fail(error);
                return Err(error);
            }
        };
        let connection = SharedConnection::new(&table.limits, &table.clock);
        // A connection that carries the first bytes of one client serves one request.
        if group.destination.first_bytes.is_none() {
            group.shared_connections.borrow_mut().push(connection.clone());
        }
        Http2Task::spawn(lease, connection.clone(), guard);
        return Ok(connection);
    }
}

/// Returns the usable connection with the fewest streams: one that fills last.
fn usable(group: &Group) -> Option<Rc<SharedConnection>> {
    let connections = group.shared_connections.borrow();
    let usable = connections.iter().filter(|connection| connection.is_usable());
    usable.min_by_key(|connection| connection.open_streams()).cloned()
}
