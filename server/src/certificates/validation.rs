//! The validation of a name by a certificate authority (RFC 8555 §8), and the checks before an order is sent.

use super::acme::{
    Authority, Issuing, NONCES_MAX, ReachCheck, ValidationMethod, describe, hash, is_kind, with_fresh_nonces,
};
use super::challenges::CHALLENGE_PATH;
use super::name_records::{PersistentRecord, split_wildcard};
use super::unix_now;
use instant_acme::{AuthorizationStatus, ChallengeHandle, ChallengeType, Order, OrderStatus, RetryPolicy};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for the validation of a name.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// The ports that validations use.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait until a record that was set can be seen, and the time between two look-ups.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
const RECORD_INTERVAL: Duration = Duration::from_secs(2);

/// What was set up for a validation, and has to be removed.
#[derive(Default)]
struct SetUp {
    tokens: Vec<String>,
    /// Names and values of records.
    records: Vec<(String, String)>,
}

impl Issuing<'_> {
    /// Checks that requests to a name reach this server.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn check_reach(&self, name: &str) -> Result<(), String> {
        if self.settings.reach_check == ReachCheck::Off {
            return Ok(());
        }
        match self.method {
            ValidationMethod::Http => self.check_http(name),
            ValidationMethod::Tls => match connect(name, HTTPS_PORT) {
                Ok(_) => Ok(()),
                Err(why) => Err(format!("https://{name}/ does not lead to this server: {why}")),
            },
            ValidationMethod::Dns(_) | ValidationMethod::DnsPersist => Ok(()),
        }
    }

    fn check_http(&self, name: &str) -> Result<(), String> {
        let token = format!("check-{:x}", hash(&(name, std::process::id(), std::time::SystemTime::now())));
        self.challenges.add_http(&token, &token);
        let path = format!("{CHALLENGE_PATH}{token}");
        let received =
            connect(name, HTTP_PORT).and_then(|stream| fetch(stream, name, &path).map_err(|error| error.to_string()));
        self.challenges.remove_http(&token);
        match received {
            Ok(text) if text.ends_with(&token) => Ok(()),
            Ok(_) => Err(format!("http://{name}/ leads to another server")),
            Err(why) => Err(format!("http://{name}/ does not lead to this server: {why}")),
        }
    }

    /// Checks that the records of a name allow a certificate of an authority.
    ///
    /// # Errors
    /// The record that is missing, or that forbids it.
    pub(super) async fn check_records(&self, authority: &Authority, name: &str) -> Result<(), String> {
        if name.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let issuer_names = authority.client.notes().issuer_names;
        let is_checked = self.settings.reach_check == ReachCheck::On;
        if self.method == ValidationMethod::DnsPersist {
            let Some(record) = PersistentRecord::new(name, &issuer_names, authority.account.id()) else {
                return Err("the certificate authority names no issuer for a dns-persist-01 record".to_owned());
            };
            let line = format!("{}. IN TXT \"{}\"", record.name, record.value);
            *self.wanted_record.borrow_mut() = Some(line.clone());
            if is_checked && !record.is_among(&self.name_records()?.texts(&record.name).await?, unix_now()) {
                return Err(format!("this record is missing: {line}"));
            }
        }
        match is_checked {
            true => self.name_records()?.check_caa(name, &issuer_names).await,
            false => Ok(()),
        }
    }

    /// Responds to the challenges of an order until the certificate authority has validated the name.
    pub(super) async fn validate(&self, order: &mut Order, name: &str) -> Result<(), String> {
        let mut set_up = SetUp::default();
        let validated = match self.respond(order, name, &mut set_up).await {
            Ok(()) => {
                let policy = RetryPolicy::new().timeout(READY_TIMEOUT);
                match with_fresh_nonces!(order.poll_ready(&policy)) {
                    Ok(OrderStatus::Ready | OrderStatus::Valid | OrderStatus::Processing) => Ok(()),
                    Ok(OrderStatus::Invalid | OrderStatus::Pending) => Err(failed_validation(order, name).await),
                    Err(error) => Err(describe(&error)),
                }
            }
            Err(why) => Err(why),
        };
        set_up.tokens.iter().for_each(|token| self.challenges.remove_http(token));
        if let ValidationMethod::Dns(program) = self.method {
            for (record, value) in set_up.records {
                // A record that stays harms nothing, and the result of the validation is known.
                let _ = self.run_hook(program, ["clear", &record, &value]).await;
            }
        }
        validated
    }

    /// Responds to the challenge of each authorization.
    async fn respond(&self, order: &mut Order, name: &str, set_up: &mut SetUp) -> Result<(), String> {
        let mut left = NONCES_MAX;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = match authorization {
                Err(error) if left > 0 && is_kind(&error, "badNonce") => {
                    left -= 1;
                    authorizations = order.authorizations();
                    continue;
                }
                authorization => authorization.map_err(|error| describe(&error))?,
            };
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => return Err(format!("the authorization of {name} is {other:?}")),
            }
            let kind = self.method.challenge_type();
            let Some(mut challenge) = authorization.challenge(kind.clone()) else {
                return Err(format!("the certificate authority does not validate {name} by {}", self.method.name()));
            };
            self.prepare(&challenge, name, set_up).await?;
            with_fresh_nonces!(challenge.set_ready()).map_err(|error| describe(&error))?;
        }
        Ok(())
    }

    /// Sets up the response to a challenge.
    async fn prepare(&self, challenge: &ChallengeHandle<'_>, name: &str, set_up: &mut SetUp) -> Result<(), String> {
        let response = challenge.key_authorization();
        match self.method {
            ValidationMethod::Http => {
                self.challenges.add_http(&challenge.token, response.as_str());
                set_up.tokens.push(challenge.token.clone());
            }
            ValidationMethod::Tls => {
                let added = self.challenges.add_tls(name, response.digest().as_ref());
                added.map_err(|error| format!("cannot prepare the validation: {error}"))?;
            }
            ValidationMethod::Dns(program) => {
                let record = format!("_acme-challenge.{}", split_wildcard(name).1);
                let value = response.dns_value();
                set_up.records.push((record.clone(), value.clone()));
                self.run_hook(program, ["set", &record, &value]).await?;
                self.wait_for_record(&record, &value).await;
            }
            // The record exists.
            ValidationMethod::DnsPersist => {}
        }
        Ok(())
    }

    async fn run_hook(&self, program: &Path, arguments: [&str; 3]) -> Result<(), String> {
        let Some(programs) = self.programs.clone() else {
            return Err("programs cannot be run here".to_owned());
        };
        let (program, arguments) = (program.to_owned(), arguments.map(str::to_owned));
        let run = tokio::task::spawn_blocking(move || programs.run(&program, &arguments));
        run.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Waits until a record can be seen. If it never can, the validation decides.
    async fn wait_for_record(&self, record: &str, value: &str) {
        let Ok(records) = self.name_records() else { return };
        let began = Instant::now();
        while self.settings.reach_check == ReachCheck::On && began.elapsed() < RECORD_TIMEOUT {
            if records.texts(record).await.is_ok_and(|texts| texts.iter().any(|text| text == value)) {
                return;
            }
            tokio::time::sleep(RECORD_INTERVAL).await;
        }
    }
}

impl ValidationMethod<'_> {
    /// Returns the name that the method has in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Tls => "tls-alpn-01",
            Self::Dns(_) => "dns-01",
            Self::DnsPersist => "dns-persist-01",
        }
    }

    fn challenge_type(self) -> ChallengeType {
        match self {
            Self::Http => ChallengeType::Http01,
            Self::Tls => ChallengeType::TlsAlpn01,
            Self::Dns(_) => ChallengeType::Dns01,
            Self::DnsPersist => ChallengeType::Unknown(self.name().to_owned()),
        }
    }
}

/// Returns why a validation failed, in the words of the certificate authority.
async fn failed_validation(order: &mut Order, name: &str) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        let errors = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        if let Some(detail) = errors.filter_map(|problem| problem.detail.clone()).next() {
            return format!("the certificate authority could not validate {name}: {detail}");
        }
    }
    format!("the certificate authority could not validate {name}")
}

/// Connects to a port of a name.
fn connect(name: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = (name, port).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CHECK_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Fetches a path by plain http.
fn fetch(mut stream: TcpStream, name: &str, path: &str) -> std::io::Result<String> {
    const BYTES_MAX: u64 = 4096;
    stream.set_read_timeout(Some(CHECK_TIMEOUT))?;
    stream.set_write_timeout(Some(CHECK_TIMEOUT))?;
    let host = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
