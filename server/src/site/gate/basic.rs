//! Users with a name and a password (RFC 7617).

use super::users::Users;
use super::verified::{Attempt, Checked, NotNow, Verifier};
use super::{Mode, Tally, Verdict};
use base64ct::{Base64, Encoding};
use selvedge::{Request, Response, Status};
use std::fmt;
use std::sync::Arc;

/// Lets users pass who know their password.
#[derive(Debug)]
pub(crate) struct BasicGate {
    users: Arc<Users>,
    challenge: Box<str>,
    mode: Mode,
    tally: Tally,
}

/// A realm has a control octet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRealm;

impl fmt::Display for InvalidRealm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a realm has no control octet")
    }
}

impl std::error::Error for InvalidRealm {}

/// A longer value of Authorization is nobody's.
const CREDENTIALS_BYTES_MAX: usize = 1024;

impl BasicGate {
    /// A gate for these users. The realm is what a browser shows when it asks for a password.
    pub(crate) fn new(realm: &str, users: Arc<Users>, mode: Mode) -> Result<Self, InvalidRealm> {
        if realm.bytes().any(|b| b.is_ascii_control()) {
            return Err(InvalidRealm);
        }
        //= RFC 9110 §5.6.4: a quote and a backslash are quoted by a backslash
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into();
        Ok(Self { users, challenge, mode, tally: Tally::default() })
    }

    /// The most memory that checking a password takes.
    pub(super) fn bytes_of_check_max(&self) -> u64 {
        self.users.bytes_of_check_max()
    }

    /// How many requests it was against, where it only observes.
    pub(super) fn observed(&self) -> Option<u64> {
        self.tally.observed(self.mode)
    }

    /// How many requests it was against, those that came without a password included.
    #[cfg(test)]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) async fn admit(&self, request: &mut Request, verifier: &Verifier) -> Verdict {
        let Some(credentials) = Credentials::of(request) else {
            // Every first visit is one of these, so it is no matter for the log.
            return self.refuse("no user (only observed)", |refusal| refusal);
        };
        let Credentials { name, password } = &credentials;
        let (client, now) = (request.client(), request.moment().since_start);
        let attempt = Attempt { name, password: password.as_bytes(), client, now };
        match verifier.check(&self.users, attempt).await {
            Checked::Right => {
                request.set_user(name.as_str().into());
                Verdict::Pass
            }
            Checked::Wrong => self.refuse("the user name or the password is wrong (only observed)", |refusal| {
                refusal.because("the user name or the password is wrong")
            }),
            Checked::NotNow(why) => self.put_off(why),
        }
    }

    fn put_off(&self, why: NotNow) -> Verdict {
        let (status, reason, observed) = match why {
            NotNow::Crowded => (
                Status::SERVICE_UNAVAILABLE,
                "too many passwords wait to be checked",
                "too many passwords wait to be checked (only observed)",
            ),
            NotNow::ShareTaken => (
                Status::TOO_MANY_REQUESTS,
                "too many passwords of this client wait to be checked",
                "too many passwords of this client wait to be checked (only observed)",
            ),
        };
        Verdict::against(self.mode, &self.tally, observed, || {
            Response::error(status).because(reason).field("retry-after", "1")
        })
    }

    fn refuse(&self, observed: &'static str, explain: impl FnOnce(Response) -> Response) -> Verdict {
        Verdict::against(self.mode, &self.tally, observed, || {
            explain(Response::error(Status::UNAUTHORIZED).field("www-authenticate", &*self.challenge))
        })
    }
}

/// What a client says who it is.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    name: String,
    password: String,
}

impl Credentials {
    /// The credentials of a request that has some, once.
    fn of(request: &Request) -> Option<Self> {
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
    fn a_realm_is_quoted() {
        let users = Arc::new(Users::parse("a:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW").unwrap());
        let gate = |realm| BasicGate::new(realm, users.clone(), Mode::Enforce);
        let quoted = r#"Basic realm="the \"big\" \\ house", charset="UTF-8""#;
        assert_eq!(&*gate(r#"the "big" \ house"#).unwrap().challenge, quoted);
        assert_eq!(gate("a\nb").err(), Some(InvalidRealm));
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
            // A control octet, and octets that are no UTF-8.
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
