//! Chooses the connection of a request: an open one with room, or a new one. Requests that arrive while a connection is
//! being opened wait for it, and those that find all connections full wait for a stream.

use super::connection::SharedConnection;
use super::guard::OpeningGuard;
use super::stream_queue::{Turn, WaitEnd};
use super::task::Http2Task;
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use crate::client::group::Group;
use crate::client::limits::{HTTP2_CONNECTIONS_MAX, HTTP2_WAITING_MAX};
use crate::client::open::open;
use crate::client::table::Table;
use crate::net::client_session::ApplicationProtocol;
use std::rc::Rc;
use std::time::Duration;

/// Returns a connection with room for a stream. While all connections are full, requests wait in order of arrival, at most
/// for `timeout`.
pub(super) async fn pick(
    table: &Rc<Table>,
    group: &Rc<Group>,
    timeout: Duration,
) -> Result<Rc<SharedConnection>, ClientError> {
    if group.waiting.is_empty()
        && let Some(found) = find_or_open(table, group, timeout).await?
    {
        return Ok(found);
    }
    let timer = table.add();
    let mut turn = Turn::First;
    loop {
        if turn == Turn::First && group.waiting.len() >= HTTP2_WAITING_MAX {
            return Err(STREAMS_EXHAUSTED);
        }
        let called = match group.waiting.join(turn).wait(|cx| timer.wait(timeout, cx)).await {
            WaitEnd::Called(called) => called,
            WaitEnd::TimedOut => return Err(STREAMS_EXHAUSTED),
        };
        if let Some(found) = find_or_open(table, group, timeout).await? {
            return Ok(found);
        }
        called.end();
        turn = Turn::Again;
    }
}

/// Whether an open connection has room for a stream, and no request waits for one.
pub(super) fn has_room(group: &Group) -> bool {
    group.waiting.is_empty() && usable(group).is_some()
}

/// All streams are in use, and stayed so.
const STREAMS_EXHAUSTED: ClientError =
    ClientError::new(ClientPhase::Connect, ClientErrorKind::StreamsExhausted, RetrySafety::NotSent);

/// Returns a connection with room for a stream, or a new one; `None` if as many as permitted are full.
async fn find_or_open(
    table: &Rc<Table>,
    group: &Rc<Group>,
    timeout: Duration,
) -> Result<Option<Rc<SharedConnection>>, ClientError> {
    loop {
        if let Some(connection) = usable(group) {
            return Ok(Some(connection));
        }
        let opening = group.opening.borrow().clone();
        if let Some(opening) = opening {
            opening.wait().await?;
            continue;
        }
        if group.shared_connections.borrow().len() >= HTTP2_CONNECTIONS_MAX {
            return Ok(None);
        }
        let mut guard = OpeningGuard::new(group.clone());
        let lease = match open(table, group, timeout, ApplicationProtocol::Http2).await {
            Ok(lease) => lease,
            Err(error) => {
                guard.fail(error);
                return Err(error);
            }
        };
        let connection = SharedConnection::new(&table.limits, &table.clock, group.waiting.clone());
        // A connection that carries the first bytes of one client serves one request.
        if group.destination.first_bytes.is_none() {
            group.shared_connections.borrow_mut().push(connection.clone());
        }
        Http2Task::spawn(lease, connection.clone(), guard);
        return Ok(Some(connection));
    }
}

/// Waits until the settings of the upstream have arrived on a connection that was picked.
pub(super) async fn await_settings(group: &Group, connection: &SharedConnection) -> Result<(), ClientError> {
    while !connection.has_settings() {
        let Some(opening) = group.opening.borrow().clone() else {
            return Err(ClientError::new(ClientPhase::Connect, ClientErrorKind::Closed, RetrySafety::NotSent));
        };
        opening.wait().await?;
    }
    Ok(())
}

/// Returns the usable connection with the fewest streams: one that fills last.
fn usable(group: &Group) -> Option<Rc<SharedConnection>> {
    let connections = group.shared_connections.borrow();
    let usable = connections.iter().filter(|connection| connection.is_usable());
    usable.min_by_key(|connection| connection.open_streams()).cloned()
}
