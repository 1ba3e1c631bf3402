//! Clients that send, read or wait too long. They run at once, since each waits for a time limit of the server.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText};
use super::attack_connection::{AttackConnection, ReceiveOutcome, SendOutcome};
use super::received_responses::ReceivedResponses;
use super::tested_server::{SlowClientWait, TestedServer};
use std::io;
use std::time::{Duration, Instant};

/// Time between two bytes of a client that sends slowly.
const DRIP_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client that does not read waits until the server reads.
const SEND_STALL: Duration = Duration::from_secs(1);
/// Most requests that such a client sends, in bytes.
const UNREAD_REQUESTS_BYTES_MAX: usize = 4 << 20;
/// How long the end of a connection may take when its client reads at last.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// A slow client: what it sends at once, what it sends then, and which time limit ends it.
struct SlowClient {
    text: AttackText,
    limit: fn(&TestedServer) -> Option<Duration>,
    begin: fn(&TestedServer) -> io::Result<AttackConnection>,
    drip: Option<&'static [u8]>,
}

const CLIENTS: &[SlowClient] = &[
    SlowClient {
        text: AttackText { name: "silent", sends: "nothing", expects: "408 or close in time", limit: "header-timeout" },
        limit: |server| server.limits.header,
        begin: |server| server.target.connect(),
        drip: None,
    },
    SlowClient {
        text: AttackText {
            name: "slow-head",
            sends: "a byte of a head each second",
            expects: "408 or close in time",
            limit: "header-timeout",
        },
        limit: |server| server.limits.header,
        begin: |server| begin(server, "GET", "X: "),
        drip: Some(b"a"),
    },
    SlowClient {
        text: AttackText {
            name: "stalled-content",
            sends: "a part of the content that it announces, then nothing",
            expects: "408, another status, or close in time",
            limit: "body-timeout",
        },
        limit: |server| server.limits.content,
        begin: |server| begin(server, "POST", "Content-Length: 100000\r\n\r\nhello"),
        drip: None,
    },
    SlowClient {
        text: AttackText {
            name: "slow-content",
            sends: "a byte of content each second",
            expects: "408, another status, or close in time",
            limit: "body-min-rate, after body-timeout",
        },
        limit: |server| server.limits.content,
        begin: |server| begin(server, "POST", "Content-Length: 100000\r\n\r\n"),
        drip: Some(b"a"),
    },
];

/// Returns the attacks that every server gets.
pub(super) fn attacks() -> Vec<Attack> {
    let clients = CLIENTS.iter().map(|client| attack(client.text, move |server| wait_for_end(client, server)));
    let unread = AttackText {
        name: "unread-responses",
        sends: "requests, whose responses it never reads",
        expects: "close in time",
        limit: "send-timeout",
    };
    clients.chain([attack(unread, never_read)]).collect()
}

fn attack(text: AttackText, run: impl Fn(&TestedServer) -> AttackOutcome + Send + Sync + 'static) -> Attack {
    Attack { area: AttackArea::SlowClients, text, run: Box::new(run) }
}

/// Connects, and sends the beginning of a request.
fn begin(server: &TestedServer, method: &str, rest: &str) -> io::Result<AttackConnection> {
    let mut connection = server.target.connect()?;
    let (path, host) = (&server.target.url.path, &server.target.url.authority);
    connection.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{rest}").as_bytes());
    Ok(connection)
}

/// Sends slowly until the server ends the connection.
fn wait_for_end(client: &SlowClient, server: &TestedServer) -> AttackOutcome {
    let limit = (client.limit)(server);
    let deadline = match server.slow_client_wait(limit) {
        SlowClientWait::Until(deadline) => deadline,
        SlowClientWait::TooLong(limit) => return too_long(limit),
    };
    let began = Instant::now();
    match (client.begin)(server) {
        Ok(mut connection) => {
            drip_until_end(&mut connection, client.drip.unwrap_or_default(), deadline);
            outcome(&connection, began.elapsed(), limit)
        }
        Err(error) => AttackOutcome::unreachable(&error),
    }
}

/// Sends some bytes each second until the server ends the connection. Gives up at a deadline.
pub(super) fn drip_until_end(connection: &mut AttackConnection, drip: &[u8], deadline: Instant) {
    loop {
        let next = (Instant::now() + DRIP_INTERVAL).min(deadline);
        loop {
            match connection.receive(next) {
                ReceiveOutcome::Bytes => {}
                ReceiveOutcome::Ended => return,
                ReceiveOutcome::TimedOut => break,
            }
        }
        if Instant::now() >= deadline {
            return;
        }
        if !drip.is_empty() {
            connection.send(drip);
        }
    }
}

/// Returns the outcome for a connection that has ended, or has not.
pub(super) fn outcome(connection: &AttackConnection, time: Duration, limit: Option<Duration>) -> AttackOutcome {
    let status = ReceivedResponses::read(&connection.received).statuses.first().map(|status| format!("{status} and "));
    let (status, after) = (status.unwrap_or_default(), seconds(time));
    match (connection.has_ended(), limit) {
        (true, Some(limit)) => AttackOutcome::held(format!("{status}close after {after}, limit {}", seconds(limit))),
        (true, None) => AttackOutcome::held(format!("{status}close after {after}")),
        (false, Some(limit)) => AttackOutcome::failed(format!("still open after {after}, limit {}", seconds(limit))),
        (false, None) => AttackOutcome::failed(format!("still open after {after}")),
    }
}

/// Returns the outcome for a limit beyond the time of all attacks.
pub(super) fn too_long(limit: Duration) -> AttackOutcome {
    AttackOutcome::not_applicable(format!("the limit of {} is longer than this test; see --seconds", seconds(limit)))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Sends requests until the server stops to read, and never reads a response.
fn never_read(server: &TestedServer) -> AttackOutcome {
    let limit = server.limits.send;
    let deadline = match server.slow_client_wait(limit) {
        SlowClientWait::Until(deadline) => deadline,
        SlowClientWait::TooLong(limit) => return too_long(limit),
    };
    let began = Instant::now();
    let connection = server.target.connect().and_then(|connection| connection.with_small_buffers(SEND_STALL));
    let mut connection = match connection {
        Ok(connection) => connection,
        Err(error) => return AttackOutcome::unreachable(&error),
    };
    let (path, host) = (&server.target.url.path, &server.target.url.authority);
    let requests = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(64);
    let times = UNREAD_REQUESTS_BYTES_MAX / requests.len();
    // The rest of the time is for responses that are read at last.
    let unread_until = server.ends_at.checked_sub(DISCARD_TIMEOUT).map_or(deadline, |latest| latest.min(deadline));
    let is_read = || Instant::now() < unread_until && connection.send(requests.as_bytes()) == SendOutcome::All;
    let reads_all = std::iter::repeat_with(is_read).take(times).all(|is_read| is_read);
    if connection.wait_for_end_unread(unread_until) {
        return outcome(&connection, began.elapsed(), limit);
    }
    // The end is behind unread responses, unless the server has reset the connection.
    let has_ended = connection.discard_until_end(server.ends_at.min(Instant::now() + DISCARD_TIMEOUT));
    let ended = outcome(&connection, began.elapsed(), limit);
    if has_ended || !reads_all {
        return ended;
    }
    AttackOutcome::failed(format!("{}, and all requests were read", ended.seen))
}
