//! Clients of HTTP/2 that wait too long.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText};
use super::http2_attacks::open;
use super::http2_client::{END_STREAM, Http2Client, SETTINGS_INITIAL_WINDOW_SIZE, SettingsReply};
use super::slow_clients::too_long;
use super::tested_server::{SlowClientWait, TestedServer};
use std::time::{Duration, Instant};

/// A client: its settings, what it sends, and what ends its wait.
struct WaitingClient {
    text: AttackText,
    limit: fn(&TestedServer) -> Option<Duration>,
    settings: &'static [(u16, u32)],
    reply: SettingsReply,
    write: fn(&mut Http2Client),
    is_over: fn(&Http2Client) -> bool,
}

const CLIENTS: &[WaitingClient] = &[
    WaitingClient {
        text: AttackText {
            name: "http2-without-request",
            sends: "a connection of HTTP/2 without a request",
            expects: "GOAWAY or close in time",
            limit: "header-timeout",
        },
        limit: |server| server.limits.header,
        settings: &[],
        reply: SettingsReply::Acknowledged,
        write: |_| {},
        is_over: |client| client.goaway.is_some(),
    },
    WaitingClient {
        text: AttackText {
            name: "http2-settings",
            sends: "a request, and no acknowledgement of the settings",
            expects: "GOAWAY SETTINGS_TIMEOUT in time",
            limit: "http2-settings-timeout",
        },
        limit: |server| server.limits.settings,
        settings: &[],
        reply: SettingsReply::Missing,
        write: |client| client.head("GET", END_STREAM, 1, &[]),
        is_over: |client| client.goaway.is_some(),
    },
    WaitingClient {
        text: AttackText {
            name: "http2-closed-window",
            sends: "a request, whose window it never opens",
            expects: "reset of the stream, GOAWAY or close in time",
            limit: "send-timeout",
        },
        limit: |server| server.limits.send,
        settings: &[(SETTINGS_INITIAL_WINDOW_SIZE, 0)],
        reply: SettingsReply::Acknowledged,
        write: |client| client.head("GET", END_STREAM, 1, &[]),
        is_over: |client| client.goaway.is_some() || client.streams.get(&1).is_some_and(|stream| stream.has_ended),
    },
];

/// Returns the attacks.
pub(super) fn attacks() -> Vec<Attack> {
    let attack = |client: &'static WaitingClient| Attack {
        area: AttackArea::SlowClients,
        text: client.text,
        run: Box::new(move |server| client.run(server)),
    };
    CLIENTS.iter().map(attack).collect()
}

impl WaitingClient {
    fn run(&self, server: &TestedServer) -> AttackOutcome {
        let limit = (self.limit)(server);
        let deadline = match server.slow_client_wait(limit) {
            SlowClientWait::Until(deadline) => deadline,
            SlowClientWait::TooLong(limit) => return too_long(limit),
        };
        let mut client = match open(server, self.settings, self.reply) {
            Ok(client) => client,
            Err(outcome) => return outcome,
        };
        let began = Instant::now();
        (self.write)(&mut client);
        client.flush();
        client.receive_until(deadline, self.is_over);
        let after = format!("after {:.1} s", began.elapsed().as_secs_f64());
        let stream = client.streams.get(&1);
        match (client.goaway, stream.and_then(|stream| stream.reset)) {
            (Some(code), _) => AttackOutcome::held(format!("GOAWAY {code} {after}")),
            (None, Some(code)) => AttackOutcome::held(format!("RST_STREAM {code} {after}")),
            (None, None) if client.has_ended => AttackOutcome::held(format!("close {after}")),
            (None, None) if stream.is_some_and(|stream| stream.has_ended) => {
                AttackOutcome::not_applicable("the response has no content, so no window is needed")
            }
            (None, None) => AttackOutcome::failed(format!("still open {after}")),
        }
    }
}
