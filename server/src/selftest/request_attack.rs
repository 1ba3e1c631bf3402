//! Attacks that are requests of HTTP/1.1: each input is sent on a connection of its own, and the responses are judged.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText, AttackVerdict};
use super::attack_connection::ReceiveOutcome;
use super::received_responses::{ReceivedResponses, UnreadRest, find};
use super::target::TargetUrl;
use super::tested_server::TestedServer;
use std::collections::BTreeMap;

/// Attacks of one kind.
pub(super) struct RequestAttack {
    pub(super) text: AttackText,
    pub(super) inputs: &'static [RequestInput],
    pub(super) expected: ExpectedResponses,
}

/// Bytes to send, in which `%HOST%` and `%PATH%` stand for those of the URL.
pub(super) enum RequestInput {
    /// Lines of fields in the head of a POST. Five bytes, the end of chunked content, and another request follow.
    Fields(&'static [u8]),
    /// Chunked content of a POST. Another request follows.
    Chunks(&'static [u8]),
    /// Whole requests.
    Whole(&'static [u8]),
    /// A beginning, a piece, how often it is repeated, and an end.
    Repeated(&'static [u8], &'static [u8], usize, &'static [u8]),
}

/// What has to be received.
#[derive(Clone, Copy)]
pub(super) enum ExpectedResponses {
    /// One response with one of these statuses, then the end of the connection.
    Refusal(&'static [u16]),
    /// At most this many responses, then the end of the connection. For invalid content it is one with any status,
    /// because an application may have responded before it read the content.
    AtMost(usize),
    /// Content without the first line of a file of passwords.
    NoPasswords,
}

/// Whether more can be received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Open,
    Ended,
    TimedOut,
}

/// A request behind others. It must not be served if one of them is refused.
const NEXT_REQUEST: &[u8] = b"GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\n\r\n";
const POST: &[u8] = b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\n";
/// Most bytes of an input in a report.
const EXCERPT_BYTES_MAX: usize = 60;

impl RequestAttack {
    pub(super) fn attack(&'static self, area: AttackArea) -> Attack {
        Attack { area, text: self.text, run: Box::new(move |server| self.run(server)) }
    }

    fn run(&self, server: &TestedServer) -> AttackOutcome {
        let mut seen = BTreeMap::<String, usize>::new();
        for input in self.inputs {
            let outcome = match exchange(server, &input.bytes(server), self.expected) {
                Ok(outcome) => outcome,
                Err(error) => AttackOutcome::unreachable(&error),
            };
            match outcome.verdict {
                AttackVerdict::Held => *seen.entry(outcome.seen).or_default() += 1,
                _ if self.inputs.len() == 1 => return outcome,
                verdict => {
                    return AttackOutcome { verdict, seen: format!("{}, for {}", outcome.seen, input.excerpt(server)) };
                }
            }
        }
        let counted = |(seen, count): (&String, &usize)| match count {
            1 => seen.clone(),
            count => format!("{count} times {seen}"),
        };
        AttackOutcome::held(seen.iter().map(counted).collect::<Vec<_>>().join("; "))
    }
}

impl RequestInput {
    /// Returns the bytes for a server.
    fn bytes(&self, server: &TestedServer) -> Vec<u8> {
        let template = match self {
            Self::Fields(lines) => [POST, *lines, b"\r\n\r\n0\r\n\r\n", NEXT_REQUEST].concat(),
            Self::Chunks(content) => {
                [POST, b"Transfer-Encoding: chunked\r\n\r\n", *content, b"\r\n\r\n", NEXT_REQUEST].concat()
            }
            Self::Whole(bytes) => bytes.to_vec(),
            Self::Repeated(begin, piece, times, end) => [*begin, &*piece.repeat(*times), *end].concat(),
        };
        for_url(template, &server.target.url)
    }

    /// Returns the bytes that distinguish the input, for a report.
    fn excerpt(&self, server: &TestedServer) -> String {
        let (Self::Fields(bytes) | Self::Chunks(bytes) | Self::Whole(bytes) | Self::Repeated(bytes, ..)) = self;
        let bytes = for_url(bytes.to_vec(), &server.target.url);
        let excerpt = bytes[..bytes.len().min(EXCERPT_BYTES_MAX)].escape_ascii();
        let more = if bytes.len() > EXCERPT_BYTES_MAX { "…" } else { "" };
        format!("\"{excerpt}{more}\"")
    }
}

/// Puts host and path of a URL into bytes to send.
fn for_url(template: Vec<u8>, url: &TargetUrl) -> Vec<u8> {
    replaced(replaced(template, b"%HOST%", &url.authority), b"%PATH%", &url.path)
}

/// Replaces each occurrence of a name.
fn replaced(mut bytes: Vec<u8>, name: &[u8], value: &str) -> Vec<u8> {
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], name) {
        bytes.splice(from + at..from + at + name.len(), value.bytes());
        from += at + value.len();
    }
    bytes
}

/// Sends an input, and judges what is received.
fn exchange(server: &TestedServer, bytes: &[u8], expected: ExpectedResponses) -> std::io::Result<AttackOutcome> {
    let mut connection = server.target.connect()?;
    connection.send(bytes);
    let deadline = server.response_deadline();
    loop {
        let state = match connection.receive(deadline) {
            ReceiveOutcome::Bytes => ConnectionState::Open,
            ReceiveOutcome::Ended => ConnectionState::Ended,
            ReceiveOutcome::TimedOut => ConnectionState::TimedOut,
        };
        let responses = ReceivedResponses::read(&connection.received);
        if matches!(expected, ExpectedResponses::NoPasswords) && find(&connection.received, b"root:").is_some() {
            return Ok(AttackOutcome::failed("the content of /etc/passwd"));
        }
        if let Some(outcome) = expected.judge(&responses, state) {
            return Ok(outcome);
        }
    }
}

impl ExpectedResponses {
    /// Returns the outcome, or `None` if it is not clear yet.
    fn judge(self, responses: &ReceivedResponses, state: ConnectionState) -> Option<AttackOutcome> {
        let statuses = &*responses.statuses;
        let list = || statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
        if responses.rest == UnreadRest::Invalid {
            return Some(AttackOutcome::failed("bytes that are no response of HTTP/1.1"));
        }
        let is_refused = |wanted: &[u16]| statuses.first().is_none_or(|status| wanted.contains(status));
        let most = match self {
            Self::Refusal(wanted) if !is_refused(wanted) => return Some(AttackOutcome::failed(list())),
            Self::Refusal(_) => 1,
            Self::AtMost(most) => most,
            Self::NoPasswords => usize::MAX,
        };
        if statuses.len() > most {
            return Some(AttackOutcome::failed(format!("{}: bytes behind the refused ones were served", list())));
        }
        match (state, statuses) {
            (ConnectionState::Open, _) => None,
            (ConnectionState::Ended, []) if responses.rest == UnreadRest::Http2 => {
                Some(AttackOutcome::held("frames of HTTP/2 and close"))
            }
            (ConnectionState::Ended, []) => Some(AttackOutcome::held("close without a response")),
            (ConnectionState::Ended, _) => Some(AttackOutcome::held(format!("{} and close", list()))),
            (ConnectionState::TimedOut, []) => Some(AttackOutcome::failed("neither a response nor a close")),
            (ConnectionState::TimedOut, _) => {
                Some(AttackOutcome::failed(format!("{}, and the connection stays open", list())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(expected: ExpectedResponses, text: &str, state: ConnectionState) -> Option<AttackOutcome> {
        expected.judge(&ReceivedResponses::read(text.as_bytes()), state)
    }

    #[test]
    fn a_refusal_is_one_response_and_a_close() {
        let expected = ExpectedResponses::Refusal(&[400]);
        let (refused, ok) =
            ("HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n");
        let (open, ended, timed_out) = (ConnectionState::Open, ConnectionState::Ended, ConnectionState::TimedOut);
        assert_eq!(judge(expected, refused, open), None);
        assert_eq!(judge(expected, refused, ended), Some(AttackOutcome::held("400 and close")));
        assert_eq!(judge(expected, "", ended), Some(AttackOutcome::held("close without a response")));
        let failed = |expected: ExpectedResponses, text: &str, state| {
            judge(expected, text, state).is_some_and(|outcome| outcome.verdict == AttackVerdict::Failed)
        };
        assert!(failed(expected, refused, timed_out) && failed(expected, "", timed_out));
        assert!(failed(expected, ok, open));
        assert!(failed(expected, &format!("{refused}{ok}"), ended));
        assert!(failed(expected, "\x15\x03", open));
        let content = ExpectedResponses::AtMost(1);
        assert_eq!(judge(content, ok, open), None);
        assert_eq!(judge(content, ok, ended), Some(AttackOutcome::held("200 and close")));
        assert!(failed(content, ok, timed_out) && failed(content, &format!("{ok}{refused}"), ended));
    }

    #[test]
    fn placeholders_are_replaced_once_each() {
        let bytes = replaced(b"a %HOST% b %HOST%".to_vec(), b"%HOST%", "%HOST%x");
        assert_eq!(bytes, b"a %HOST%x b %HOST%x");
    }
}
