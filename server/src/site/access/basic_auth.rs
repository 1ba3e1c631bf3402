//! Authenticates users by name and password (RFC 7617).

use super::guess_limiter::GuessLimiter;
use super::live_users::LiveUsers;
use super::password_cache::{Busy, CheckResult, LoginAttempt, Verifier};
use super::{AccessDecision, DenialCounter, RuleMode};
use crate::reasons::{TOO_MANY_WRONG_PASSWORDS, WRONG_PASSWORD, WRONG_PASSWORD_DRY_RUN};
use crate::site::step_recorder::StepRecorder;
use base64ct::{Base64, Encoding};
use selvedge::{Request, Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Allows requests with the name and password of a user.
#[derive(Debug)]
pub(crate) struct BasicAuthenticator {
    users: Arc<LiveUsers>,
    challenge: Box<str>,
    guesses: Arc<GuessLimiter>,
    mode: RuleMode,
    denials: DenialCounter,
}

/// The realm contains a control character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRealm;

impl fmt::Display for InvalidRealm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a realm must not contain control characters")
    }
}

impl std::error::Error for InvalidRealm {}

/// The maximum length of an Authorization value in bytes. A longer one is invalid.
const CREDENTIALS_BYTES_MAX: usize = 1024;

impl BasicAuthenticator {
    /// Creates an authenticator for these users. The browser shows the realm when it prompts for a password.
    pub(crate) fn new(
        realm: &str,
        users: Arc<LiveUsers>,
        guesses: Arc<GuessLimiter>,
        mode: RuleMode,
    ) -> Result<Self, InvalidRealm> {
        if realm.bytes().any(|b| b.is_ascii_control()) {
            return Err(InvalidRealm);
        }
        //= RFC 9110 §5.6.4: a quote and a backslash are quoted by a backslash
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into();
        Ok(Self { users, challenge, guesses, mode, denials: DenialCounter::default() })
    }

    /// Returns the maximum memory of one password check in bytes.
    pub(super) fn check_bytes_max(&self) -> u64 {
        self.users.current().check_bytes_max()
    }

    /// Returns the counter of denials if the limit of wrong passwords is in dry-run mode.
    pub(super) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        self.guesses.dry_run_counter()
    }

    /// Returns the counter of denials, which includes requests without credentials.
    #[cfg(test)]
    pub(crate) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    /// Checks the credentials of a request. For an explanation, the password is checked, too, and counts nothing.
    pub(super) async fn check(
        &self,
        request: &mut Request,
        verifier: &Verifier,
        recorder: Option<&StepRecorder>,
    ) -> AccessDecision {
        let decision = self.check_credentials(request, verifier, recorder).await;
        decision.record(recorder, "basic-auth", || match request.user() {
            Some(user) => format!("the password of {} is right", user.escape_debug()),
            None => "no credentials".to_owned(),
        });
        decision
    }

    async fn check_credentials(
        &self,
        request: &mut Request,
        verifier: &Verifier,
        recorder: Option<&StepRecorder>,
    ) -> AccessDecision {
        let denials = self.denials.unless_recorded(recorder);
        let Some(credentials) = Credentials::from_request(request) else {
            // Every first visit is without credentials, so the log gets no reason.
            return self.deny(denials, "no credentials (dry run)", |response| response);
        };
        let Credentials { name, password } = &credentials;
        let (client, now) = (request.client(), request.received_at().since_worker_start);
        let attempt = LoginAttempt { name, password: password.as_bytes(), client, now };
        let users = self.users.current();
        let wait = self.guesses.time_to_wait(client, name).filter(|_| !verifier.is_verified(&users, attempt));
        let slowed_down = wait.map_or(AccessDecision::Allow, |wait| self.slow_down(wait, recorder));
        if matches!(slowed_down, AccessDecision::Deny(_)) {
            return slowed_down;
        }
        let decision = match verifier.check(&users, attempt).await {
            CheckResult::Valid => {
                request.set_user(name.as_str().into());
                AccessDecision::Allow
            }
            CheckResult::Invalid => {
                if recorder.is_none() {
                    self.guesses.count_wrong(client, name);
                }
                // A response has one reason, so that of the wrong password names the dry run.
                let reason = match slowed_down {
                    AccessDecision::Allow => WRONG_PASSWORD,
                    _ => WRONG_PASSWORD_DRY_RUN,
                };
                self.deny(denials, "wrong user name or password (dry run)", |response| response.log_reason(reason))
            }
            CheckResult::Busy(busy) => self.busy(busy, denials),
        };
        match decision {
            AccessDecision::Allow => slowed_down,
            other => other,
        }
    }

    /// Refuses an attempt of a client that has to wait.
    fn slow_down(&self, wait: Duration, recorder: Option<&StepRecorder>) -> AccessDecision {
        const DRY_RUN_REASON: &str = "too many wrong passwords of this client or for this user (dry run)";
        let denials = self.guesses.denials().unless_recorded(recorder);
        AccessDecision::denied(self.guesses.mode(), denials, DRY_RUN_REASON, || {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let response = Response::error(StatusCode::TOO_MANY_REQUESTS).log_reason(TOO_MANY_WRONG_PASSWORDS);
            response.field("retry-after", seconds.to_string())
        })
    }

    fn busy(&self, busy: Busy, denials: Option<&DenialCounter>) -> AccessDecision {
        let (status, reason, dry_run_reason) = match busy {
            Busy::QueueFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many password checks are waiting",
                "too many password checks are waiting (dry run)",
            ),
            Busy::ClientShareFull => (
                StatusCode::TOO_MANY_REQUESTS,
                "too many password checks of this client are waiting",
                "too many password checks of this client are waiting (dry run)",
            ),
        };
        AccessDecision::denied(self.mode, denials, dry_run_reason, || {
            Response::error(status).log_reason(reason).field("retry-after", "1")
        })
    }

    fn deny(
        &self,
        denials: Option<&DenialCounter>,
        dry_run_reason: &'static str,
        add_reason: impl FnOnce(Response) -> Response,
    ) -> AccessDecision {
        AccessDecision::denied(self.mode, denials, dry_run_reason, || {
            add_reason(Response::error(StatusCode::UNAUTHORIZED).field("www-authenticate", &*self.challenge))
        })
    }
}

/// The credentials of a request.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    name: String,
    password: String,
}

impl Credentials {
    /// Returns the credentials of a request with exactly one Authorization line.
    fn from_request(request: &Request) -> Option<Self> {
        let mut lines = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
        match (lines.next(), lines.next()) {
            (Some((_, value)), None) => Self::parse(value),
            _ => None,
        }
    }

    //= RFC 7617 §2: the user name has no colon, and neither has control characters
    fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok().filter(|value| value.len() <= CREDENTIALS_BYTES_MAX)?;
        let (scheme, encoded) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = Base64::decode_vec(encoded.trim_matches(' ')).ok()?;
        let decoded = String::from_utf8(decoded).ok()?;
        if decoded.chars().any(char::is_control) {
            return None;
        }
        let (name, password) = decoded.split_once(':')?;
        Some(Self { name: name.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realm_is_quoted() {
        let line = "a:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW".to_owned();
        let users = Arc::new(LiveUsers::parse(None, line).unwrap());
        let guesses = Arc::new(GuessLimiter::new(10, Duration::from_secs(60), RuleMode::Enforce).unwrap());
        let authenticator = |realm| BasicAuthenticator::new(realm, users.clone(), guesses.clone(), RuleMode::Enforce);
        let quoted = r#"Basic realm="the \"big\" \\ house", charset="UTF-8""#;
        assert_eq!(&*authenticator(r#"the "big" \ house"#).unwrap().challenge, quoted);
        assert_eq!(authenticator("a\nb").err(), Some(InvalidRealm));
    }

    #[test]
    fn credentials() {
        for (value, expected) in [
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some(("Aladdin", "open sesame"))),
            ("bAsIc  QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some(("Aladdin", "open sesame"))),
            ("Basic dGVzdDoxMjPCow==", Some(("test", "123£"))),
            ("Basic YTpiOmM=", Some(("a", "b:c"))),
            ("Basic Og==", Some(("", ""))),
            ("Basic YQ==", None),
            ("Basic", None),
            ("Basic ", None),
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ", None),
            ("Basic !!!!", None),
            ("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", None),
            // A control character, and bytes that are not UTF-8.
            ("Basic YToKYg==", None),
            ("Basic YTr/", None),
        ] {
            let got = Credentials::parse(value.as_bytes());
            let got = got.as_ref().map(|credentials| (&*credentials.name, &*credentials.password));
            assert_eq!(got, expected, "{value}");
        }
        let long = format!("Basic {}", "QUFB".repeat(300));
        assert_eq!(Credentials::parse(long.as_bytes()), None);
    }
}
