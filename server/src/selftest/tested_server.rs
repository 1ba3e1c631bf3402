//! The server during the attacks: its usual response, its time limits, and how long to wait for it.

use super::attack_connection::ReceiveOutcome;
use super::received_responses::{ReceivedResponses, UnreadRest};
use super::running_server::TimeLimits;
use super::target::AttackTarget;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of a response to a usual request, and of a refusal. A server that is busy for longer is not calm.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
/// Time before a usual request is repeated.
const REPETITION_DELAY: Duration = Duration::from_millis(100);
/// How much later than its time limit the end of a slow client may be noticed.
const LIMIT_GRACE: Duration = Duration::from_secs(5);
/// Most content of a usual response that is read.
const USUAL_BYTES_MAX: usize = 1 << 20;

/// The server that is tested.
#[derive(Clone, Debug)]
pub(super) struct TestedServer {
    pub(super) target: AttackTarget,
    pub(super) usual: UsualResponse,
    pub(super) limits: TimeLimits,
    pub(super) http2: Http2Support,
    /// When the attacks have to be over.
    pub(super) ends_at: Instant,
}

/// The response to a usual GET request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsualResponse {
    pub(super) status: u16,
    /// Bytes of content, as far as they were read.
    pub(super) content_bytes: u64,
}

/// Whether the server accepts HTTP/2 at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2Support {
    Accepted,
    Missing,
}

/// How long the end of a slow client is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlowClientWait {
    Until(Instant),
    /// The limit is longer than the time of the attacks.
    TooLong(Duration),
}

impl TestedServer {
    /// Returns the end of the wait for a response that is due at once.
    pub(super) fn response_deadline(&self) -> Instant {
        self.ends_at.min(Instant::now() + RESPONSE_TIME_MAX)
    }

    /// Returns how long a slow client waits for a time limit. If the limit is not known, until all attacks are over.
    pub(super) fn slow_client_wait(&self, limit: Option<Duration>) -> SlowClientWait {
        let latest = limit.map_or(self.ends_at, |limit| Instant::now() + limit + LIMIT_GRACE);
        match limit {
            Some(limit) if latest > self.ends_at => SlowClientWait::TooLong(limit),
            _ => SlowClientWait::Until(latest),
        }
    }

    /// Sends a usual request, which has to get its usual status within [`RESPONSE_TIME_MAX`]. One with another status is
    /// repeated meanwhile: an upstream may be out, or places be taken, for a moment.
    ///
    /// # Errors
    /// If it does not, in words.
    pub(super) fn check_usual_request(&self) -> Result<(), String> {
        let deadline = Instant::now() + RESPONSE_TIME_MAX;
        let mut times = 0;
        loop {
            let UsualResponse { status, .. } = request_until(&self.target, deadline)?;
            if status == self.usual.status {
                return Ok(());
            }
            times += 1;
            if Instant::now() + REPETITION_DELAY >= deadline {
                let usual = self.usual.status;
                return Err(format!(
                    "usual requests for {RESPONSE_TIME_MAX:?} got {status} in place of {usual}, {times} times"
                ));
            }
            thread::sleep(REPETITION_DELAY);
        }
    }
}

/// Sends a usual GET request on a connection of its own.
///
/// # Errors
/// If no valid response arrives in time, in words.
pub(super) fn request_usually(target: &AttackTarget) -> Result<UsualResponse, String> {
    request_until(target, Instant::now() + RESPONSE_TIME_MAX)
}

/// Sends a usual GET request whose response has to arrive until a deadline.
///
/// # Errors
/// If no valid response arrives in time, in words.
fn request_until(target: &AttackTarget, deadline: Instant) -> Result<UsualResponse, String> {
    let failed = |why: &str| format!("a usual request {why}");
    let deadline = target.ends_at().map_or(deadline, |ends_at| ends_at.min(deadline));
    let mut connection = target.connect().map_err(|error| failed(&format!("cannot connect: {error}")))?;
    let (path, host) = (&target.url.path, &target.url.authority);
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
    loop {
        let outcome = connection.receive(deadline);
        let responses = ReceivedResponses::read(&connection.received);
        let is_complete = responses.rest == UnreadRest::Nothing && !responses.statuses.is_empty();
        let is_enough = outcome == ReceiveOutcome::Ended || connection.received.len() > USUAL_BYTES_MAX;
        match (responses.rest, responses.statuses.first()) {
            (UnreadRest::Invalid | UnreadRest::Http2, _) => {
                return Err(failed("got bytes that are no response of HTTP/1.1"));
            }
            (_, Some(&status)) if is_complete || is_enough => {
                return Ok(UsualResponse { status, content_bytes: responses.content_bytes });
            }
            _ if outcome == ReceiveOutcome::Ended => return Err(failed("got no response: the connection was closed")),
            _ if outcome == ReceiveOutcome::TimedOut => {
                return Err(failed(&format!("got no whole response within {RESPONSE_TIME_MAX:?}")));
            }
            _ => {}
        }
    }
}
