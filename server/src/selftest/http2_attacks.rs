//! Floods and violations of HTTP/2, and clients of HTTP/2 that wait too long.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText, AttackVerdict};
use super::http2_client::{Http2Client, SETTINGS_INITIAL_WINDOW_SIZE, SettingsReply};
use super::tested_server::{Http2Support, TestedServer};
use selvedge::proto::http2::ErrorCode;
use std::collections::BTreeSet;

/// Frames between two looks at what the server has sent.
const FRAMES_PER_LOOK: u32 = 50;

/// An attack: its inputs, each on a connection of its own.
pub(super) struct Http2Attack {
    pub(super) text: AttackText,
    /// SETTINGS of the client.
    pub(super) settings: &'static [(u16, u32)],
    pub(super) inputs: &'static [Http2Input],
    pub(super) expected: ExpectedEnd,
}

/// Frames to send.
pub(super) struct Http2Input {
    pub(super) name: &'static str,
    /// How often `write` is called. The first call has number 0.
    pub(super) times: u32,
    pub(super) write: fn(&mut Http2Client, u32),
}

/// What has to be received.
#[derive(Clone, Copy)]
pub(super) enum ExpectedEnd {
    /// GOAWAY with one of these codes.
    Connection(&'static [ErrorCode]),
    /// A reset of stream 1, a refusing status, or the end of the connection by an error. A status that arrives before
    /// invalid content was sent, such as that of a redirect, does not depend on it.
    Stream,
}

impl Http2Attack {
    pub(super) fn attack(&'static self) -> Attack {
        attack(self.text, move |server| self.run(server))
    }

    fn run(&self, server: &TestedServer) -> AttackOutcome {
        let mut seen = BTreeSet::new();
        for input in self.inputs {
            let AttackOutcome { verdict, seen: of_input } = self.run_input(input, server);
            match verdict {
                AttackVerdict::Held => seen.insert(of_input),
                AttackVerdict::NotApplicable => return AttackOutcome::not_applicable(of_input),
                verdict => return AttackOutcome { verdict, seen: format!("{of_input}, for {}", input.name) },
            };
        }
        AttackOutcome::held(seen.into_iter().collect::<Vec<_>>().join("; "))
    }

    fn run_input(&self, input: &Http2Input, server: &TestedServer) -> AttackOutcome {
        let mut client = match open(server, self.settings, SettingsReply::Acknowledged) {
            Ok(client) => client,
            Err(outcome) => return outcome,
        };
        for number in 0..input.times {
            (input.write)(&mut client, number);
            if number % FRAMES_PER_LOOK == FRAMES_PER_LOOK - 1 {
                client.flush();
                client.receive_available();
                if client.is_over() {
                    break;
                }
            }
        }
        client.flush();
        client.receive_until(server.response_deadline(), |client| self.expected.is_decided(client));
        self.expected.judge(&client)
    }
}

/// Opens a connection of HTTP/2.
///
/// # Errors
/// The outcome of the attack, if the server does not accept it.
pub(super) fn open(
    server: &TestedServer,
    settings: &[(u16, u32)],
    reply: SettingsReply,
) -> Result<Http2Client, AttackOutcome> {
    if server.http2 == Http2Support::Missing {
        return Err(AttackOutcome::not_applicable("the server does not accept HTTP/2 at this address"));
    }
    if settings.contains(&(SETTINGS_INITIAL_WINDOW_SIZE, 0)) && server.usual.content_bytes == 0 {
        return Err(AttackOutcome::not_applicable("the usual response has no content, so its stream ends at once"));
    }
    match Http2Client::open(&server.target, settings, reply) {
        Ok(Some(client)) => Ok(client),
        Ok(None) => Err(AttackOutcome::failed("no SETTINGS of the server")),
        Err(error) => Err(AttackOutcome::unreachable(&error)),
    }
}

impl ExpectedEnd {
    fn is_decided(self, client: &Http2Client) -> bool {
        let stream = client.streams.get(&1);
        let is_stream_decided = stream.is_some_and(|stream| stream.status.is_some() || stream.reset.is_some());
        client.is_over() || (matches!(self, Self::Stream) && is_stream_decided)
    }

    fn judge(self, client: &Http2Client) -> AttackOutcome {
        let stream = client.streams.get(&1).cloned().unwrap_or_default();
        match (client.goaway.filter(|code| *code != ErrorCode::NO_ERROR), self) {
            (Some(code), Self::Connection(codes)) if !codes.contains(&code) => {
                let codes: Vec<_> = codes.iter().map(ToString::to_string).collect();
                AttackOutcome::failed(format!("GOAWAY {code} in place of {}", codes.join(" or ")))
            }
            (Some(code), _) => AttackOutcome::held(format!("GOAWAY {code}")),
            (None, Self::Stream) => match (stream.status, stream.reset) {
                (Some(status), _) if stream.has_early_status => {
                    AttackOutcome::held(format!("status {status} before the content"))
                }
                (Some(status), _) if status < 400 => AttackOutcome::failed(format!("status {status}")),
                (Some(status), _) => AttackOutcome::held(format!("status {status}")),
                (None, Some(code)) => AttackOutcome::held(format!("RST_STREAM {code}")),
                (None, None) if client.has_ended => AttackOutcome::held("close without GOAWAY"),
                (None, None) => AttackOutcome::failed("the stream stays open"),
            },
            (None, Self::Connection(_)) if client.has_ended => AttackOutcome::held("close without GOAWAY"),
            (None, Self::Connection(_)) => AttackOutcome::failed("the connection stays open"),
        }
    }
}

/// Makes an attack over HTTP/2.
pub(super) fn attack(text: AttackText, run: impl Fn(&TestedServer) -> AttackOutcome + Send + Sync + 'static) -> Attack {
    Attack { area: AttackArea::Http2, text, run: Box::new(run) }
}
