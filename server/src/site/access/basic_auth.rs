//! Authenticates users by name and password (RFC 7617).

use super::password_cache::{Busy, CheckResult, LoginAttempt, Verifier};
use super::users::Users;
use super::{AccessDecision, DenialCounter, RuleMode};
use base64ct::{Base64, Encoding};
use selvedge::{Request, Response, StatusCode};
use std::fmt;
use std::sync::Arc;

/// Allows requests with the name and password of a user.
#[derive(Debug)]
pub(crate) struct BasicAuthenticator {
    users: Arc<Users>,
    challenge: Box<str>,
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
    pub(crate) fn new(realm: &str, users: Arc<Users>, mode: RuleMode) -> Result<Self, InvalidRealm> {
        if realm.bytes().any(|b| b.is_ascii_control()) {
            return Err(InvalidRealm);
        }
        //= RFC 9110 §5.6.4: a quote and a backslash are quoted by a backslash
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into();
        Ok(Self { users, challenge, mode, denials: DenialCounter::default() })
    }

    /// Returns the maximum memory of one password check in bytes.
    pub(super) fn check_bytes_max(&self) -> u64 {
        self.users.check_bytes_max()
    }

    /// Returns the number of denials if the rule is in dry-run mode.
    pub(super) fn dry_run_count(&self) -> Option<u64> {
        self.denials.dry_run_count(self.mode)
    }

    /// Returns the counter of denials, which includes requests without credentials.
    #[cfg(test)]
    pub(crate) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    pub(super) async fn check(&self, request: &mut Request, verifier: &Verifier) -> AccessDecision {
        let Some(credentials) = Credentials::from_request(request) else {
            // Every first visit is without credentials, so the log gets no reason.
            return self.deny("no credentials (dry run)", |response| response);
        };
        let Credentials { name, password } = &credentials;
        let (client, now) = (request.client(), request.received_at().since_worker_start);
        let attempt = LoginAttempt { name, password: password.as_bytes(), client, now };
        match verifier.check(&self.users, attempt).await {
            CheckResult::Valid => {
                request.set_user(name.as_str().into());
                AccessDecision::Allow
            }
            CheckResult::Invalid => self.deny("wrong user name or password (dry run)", |response| {
                response.log_reason("wrong user name or password")
            }),
            CheckResult::Busy(busy) => self.busy(busy),
        }
    }

    fn busy(&self, busy: Busy) -> AccessDecision {
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
        AccessDecision::denied(self.mode, &self.denials, dry_run_reason, || {
            Response::error(status).log_reason(reason).field("retry-after", "1")
        })
    }

    fn deny(&self, dry_run_reason: &'static str, add_reason: impl FnOnce(Response) -> Response) -> AccessDecision {
        AccessDecision::denied(self.mode, &self.denials, dry_run_reason, || {
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
        let users = Arc::new(Users::parse("a:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW").unwrap());
        let authenticator = |realm| BasicAuthenticator::new(realm, users.clone(), RuleMode::Enforce);
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
