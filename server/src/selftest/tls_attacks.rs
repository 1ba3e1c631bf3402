//! Handshakes that a server has to refuse: old versions, weak ciphers, foreign names, other protocols, long messages.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText};
use super::attack_connection::{AttackConnection, ReceiveOutcome};
use super::client_hello::{ClientHello, HANDSHAKE_RECORD};
use super::received_responses::ReceivedResponses;
use super::slow_clients::{drip_until_end, outcome, too_long};
use super::target::UrlScheme;
use super::tested_server::{SlowClientWait, TestedServer};
use std::io;
use std::time::Instant;

/// Record type of an alert.
const ALERT_RECORD: u8 = 21;
/// A name of no server (RFC 6761).
const UNKNOWN_NAME: &str = "selftest.invalid";
/// An application protocol of no server.
const UNKNOWN_PROTOCOL: &[u8] = b"selftest";
/// Cipher suites with forward secrecy, as of old clients.
const USUAL_CIPHERS: &[u16] = &[0xc02f, 0xc02b, 0xc030, 0xc02c, 0xc014, 0xc013, 0xc00a, 0xc009, 0x0035, 0x002f];
/// Cipher suites without encryption, for export, with RC4, with 3DES, and without forward secrecy.
const WEAK_CIPHERS: &[u16] = &[0x0000, 0x0003, 0x0004, 0x0005, 0x000a, 0x002f, 0x0035, 0x009c, 0xc011, 0xc012];

/// Returns the attacks that are sent one after the other.
pub(super) fn attacks() -> Vec<Attack> {
    const NO_HANDSHAKE: &str = "an alert or close, and no handshake";
    let texts_and_runs: [(AttackText, fn(&TestedServer) -> AttackOutcome); 6] = [
        (text("plain-request", "a request without TLS", "400 or close", "RFC 9110 section 4.2.2"), plain_request),
        (text("old-versions", "handshakes of TLS 1.0 and 1.1", NO_HANDSHAKE, "RFC 8996"), |server| {
            let server_name = server.target.url.server_name();
            let hellos = [0x0301, 0x0302].map(|version| ClientHello { version, ciphers: USUAL_CIPHERS, server_name });
            refused_hellos(server, &hellos.map(|hello| hello.record()))
        }),
        (text("weak-ciphers", "a handshake with weak ciphers only", NO_HANDSHAKE, "RFC 9325 section 4.2"), |server| {
            let server_name = server.target.url.server_name();
            let hello = ClientHello { version: 0x0303, ciphers: WEAK_CIPHERS, server_name };
            refused_hellos(server, &[hello.record()])
        }),
        (text("invalid-records", "records that are no handshake", NO_HANDSHAKE, "RFC 8446 section 5.1"), |server| {
            refused_hellos(server, &invalid_records())
        }),
        (
            text("unknown-name", "a handshake for an unknown name", "an alert, or 421", "RFC 6066 section 3"),
            unknown_name,
        ),
        (
            text("unknown-protocol", "a handshake for an unknown protocol", "an alert", "RFC 7301 section 3.2"),
            unknown_protocol,
        ),
    ];
    let attack = |(text, run): (AttackText, fn(&TestedServer) -> AttackOutcome)| attack(AttackArea::Tls, text, run);
    texts_and_runs.into_iter().map(attack).collect()
}

/// Returns the attacks of slow clients.
pub(super) fn slow_attacks() -> Vec<Attack> {
    let silent = AttackText {
        name: "tls-without-hello",
        sends: "a connection without a handshake",
        expects: "close in time",
        limit: "header-timeout",
    };
    let half = AttackText { name: "tls-half-hello", sends: "the first half of a handshake's first message", ..silent };
    let attack = |text, bytes: Vec<u8>| {
        attack(AttackArea::SlowClients, text, move |server: &TestedServer| wait_for_end(server, &bytes))
    };
    let hello = ClientHello { version: 0x0303, ciphers: USUAL_CIPHERS, server_name: "" }.record();
    vec![attack(silent, Vec::new()), attack(half, hello[..hello.len() / 2].to_vec())]
}

const fn text(name: &'static str, sends: &'static str, expects: &'static str, limit: &'static str) -> AttackText {
    AttackText { name, sends, expects, limit }
}

/// Makes an attack that applies to TLS only.
fn attack(
    area: AttackArea,
    text: AttackText,
    run: impl Fn(&TestedServer) -> AttackOutcome + Send + Sync + 'static,
) -> Attack {
    let run = move |server: &TestedServer| match server.target.url.scheme {
        UrlScheme::Https => run(server),
        UrlScheme::Http => AttackOutcome::not_applicable("the URL has no TLS"),
    };
    Attack { area, text, run: Box::new(run) }
}

fn invalid_records() -> Vec<Vec<u8>> {
    // The length of a handshake message has three bytes: here 16 MB, in records of 16 KB.
    let begin_of_long = [&[HANDSHAKE_RECORD, 3, 1, 0x40, 0][..], &[1, 255, 255, 255], &[0; 0x4000 - 4]].concat();
    let rest_of_long = [&[HANDSHAKE_RECORD, 3, 3, 0x40, 0][..], &[0; 0x4000]].concat().repeat(8);
    vec![
        [begin_of_long, rest_of_long].concat(),
        vec![HANDSHAKE_RECORD, 3, 1, 255, 255, 1, 0, 0, 0],
        [&[23, 3, 3, 0, 64][..], &[0; 64]].concat(),
        vec![0; 64],
    ]
}

/// Sends a request without TLS.
fn plain_request(server: &TestedServer) -> AttackOutcome {
    let mut connection = match server.target.connect_below_tls() {
        Ok(connection) => connection,
        Err(error) => return AttackOutcome::unreachable(&error),
    };
    let (path, host) = (&server.target.url.path, &server.target.url.authority);
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    let has_ended = receive_all(&mut connection, server);
    match (ReceivedResponses::read(&connection.received).statuses.first().copied(), has_ended) {
        (Some(status @ ..400), _) => AttackOutcome::failed(format!("status {status}")),
        (Some(status), true) => AttackOutcome::held(format!("{status} and close")),
        (None, true) => AttackOutcome::held("close"),
        (_, false) => AttackOutcome::failed("the connection stays open"),
    }
}

/// Receives until the server ends the connection. Returns whether it does so in time.
fn receive_all(connection: &mut AttackConnection, server: &TestedServer) -> bool {
    let deadline = server.response_deadline();
    loop {
        match connection.receive(deadline) {
            ReceiveOutcome::Bytes => {}
            ReceiveOutcome::Ended => return true,
            ReceiveOutcome::TimedOut => return false,
        }
    }
}

/// Sends first messages of handshakes, each on a connection of its own. All have to be refused.
fn refused_hellos(server: &TestedServer, hellos: &[Vec<u8>]) -> AttackOutcome {
    let mut seen = Vec::new();
    for hello in hellos {
        let mut connection = match server.target.connect_below_tls() {
            Ok(connection) => connection,
            Err(error) => return AttackOutcome::unreachable(&error),
        };
        connection.send(hello);
        let has_ended = receive_all(&mut connection, server);
        let how = match (&*connection.received, has_ended) {
            ([HANDSHAKE_RECORD, ..], _) => return AttackOutcome::failed("the server begins a handshake"),
            (_, false) => return AttackOutcome::failed("the connection stays open"),
            ([ALERT_RECORD, _, _, _, _, _, alert, ..], true) => format!("alert {alert} and close"),
            (_, true) => "close".to_owned(),
        };
        if !seen.contains(&how) {
            seen.push(how);
        }
    }
    AttackOutcome::held(seen.join("; "))
}

/// Makes a handshake for a name that no site should have, and sends a request for it.
fn unknown_name(server: &TestedServer) -> AttackOutcome {
    let mut connection = match server.target.connect_for_name(UNKNOWN_NAME) {
        Ok(connection) => connection,
        Err(error) => return refused_handshake(&error),
    };
    connection.send(format!("GET / HTTP/1.1\r\nHost: {UNKNOWN_NAME}\r\nConnection: close\r\n\r\n").as_bytes());
    receive_all(&mut connection, server);
    match ReceivedResponses::read(&connection.received).statuses.first().copied() {
        Some(421) => AttackOutcome::held("421"),
        Some(status @ ..400) => {
            AttackOutcome::not_applicable(format!("status {status}: the server has a site for every name"))
        }
        Some(status) => AttackOutcome::held(status.to_string()),
        None => AttackOutcome::held("close"),
    }
}

fn unknown_protocol(server: &TestedServer) -> AttackOutcome {
    match server.target.connect_for(UNKNOWN_PROTOCOL) {
        Ok(connection) => match connection.protocol() {
            Some(_) => AttackOutcome::failed("the server accepts the protocol"),
            None => AttackOutcome::failed("the server completes the handshake without a protocol"),
        },
        Err(error) => refused_handshake(&error),
    }
}

/// Returns the outcome of a handshake that has failed, as it has to.
fn refused_handshake(error: &io::Error) -> AttackOutcome {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AttackOutcome::failed("no end of the handshake in time"),
        io::ErrorKind::ConnectionRefused => AttackOutcome::unreachable(error),
        _ => AttackOutcome::held(error.to_string()),
    }
}

/// Sends a part of a handshake, and waits until the server ends the connection.
fn wait_for_end(server: &TestedServer, bytes: &[u8]) -> AttackOutcome {
    let limit = server.limits.header;
    let deadline = match server.slow_client_wait(limit) {
        SlowClientWait::Until(deadline) => deadline,
        SlowClientWait::TooLong(limit) => return too_long(limit),
    };
    let began = Instant::now();
    let mut connection = match server.target.connect_below_tls() {
        Ok(connection) => connection,
        Err(error) => return AttackOutcome::unreachable(&error),
    };
    connection.send(bytes);
    let has_ended = drip_until_end(&mut connection, &[], deadline);
    outcome(&connection, has_ended, began.elapsed(), limit)
}
