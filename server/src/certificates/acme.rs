//! Orders a certificate from a certificate authority (RFC 8555).

use super::challenges::{CHALLENGE_PATH, Challenges};
use super::facts::{CertificateFacts, is_covered};
use super::folder::CertificateFolder;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use selvedge::tls::Certificate;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// How certificates are ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AcmeSettings {
    /// The directories of certificate authorities. If one fails, the next is tried.
    pub(crate) directories: Vec<String>,
    pub(crate) email: Option<String>,
    /// A file with the root of the authorities' own TLS; `None` for the system's.
    pub(crate) root: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) challenges: ChallengeChoice,
    pub(crate) reach_check: ReachCheck,
    /// Whether a listener without TLS exists, which validations by http need.
    pub(crate) has_plain_listener: bool,
}

/// Which validations are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChallengeChoice {
    /// By http, and in a TLS handshake after a failure.
    #[default]
    Any,
    Http,
    Tls,
}

/// Whether the server checks that a name leads to it before it orders a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReachCheck {
    #[default]
    On,
    Off,
}

/// The longest waits for the validation of a name and for a certificate.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// The port of http, which a validation uses.
const HTTP_PORT: u16 = 80;
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Most repetitions of a request whose nonce is refused. A certificate authority may forget nonces at any time.
const NONCES_MAX: u32 = 20;

/// Sends a request again while its nonce is refused.
macro_rules! with_fresh_nonces {
    ($request:expr) => {{
        let mut left = NONCES_MAX;
        loop {
            match $request.await {
                Err(error) if left > 0 && is_kind(&error, "badNonce") => left -= 1,
                result => break result,
            }
        }
    }};
}

/// What an order needs.
pub(super) struct Issuing<'a> {
    pub(super) settings: &'a AcmeSettings,
    pub(super) folder: &'a CertificateFolder,
    pub(super) challenges: &'a Challenges,
    /// Whether the certificate authority validates by http.
    pub(super) by_http: bool,
}

impl Issuing<'_> {
    /// Checks that requests to a name reach this server.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn check_reach(&self, name: &str) -> Result<(), String> {
        if self.settings.reach_check == ReachCheck::Off || !self.by_http {
            return Ok(());
        }
        let token = format!("check-{:x}", hash(&(name, std::process::id(), std::time::SystemTime::now())));
        self.challenges.add_http(&token, &token);
        let received = fetch(name, &format!("{CHALLENGE_PATH}{token}"));
        self.challenges.remove_http(&token);
        match received {
            Ok(text) if text.ends_with(&token) => Ok(()),
            Ok(_) => Err(format!("http://{name}/ leads to another server")),
            Err(why) => Err(format!("http://{name}/ does not lead to this server: {why}")),
        }
    }

    /// Orders a certificate from one directory. Returns its key and chain. `before_order` is called before the order is
    /// sent.
    ///
    /// # Errors
    /// Why no certificate was received.
    pub(super) async fn issue(
        &self,
        directory: &str,
        name: &str,
        before_order: impl Fn() -> Result<(), String>,
    ) -> Result<String, String> {
        let account = self.account(directory).await?;
        before_order()?;
        let identifiers = [identifier(name)];
        let mut request = NewOrder::new(&identifiers);
        if let Some(profile) = &self.settings.profile {
            request = request.profile(profile);
        }
        let mut order = match with_fresh_nonces!(account.new_order(&request)) {
            Ok(order) => order,
            Err(error) => {
                if is_kind(&error, "accountDoesNotExist") {
                    // The next attempt creates another account.
                    self.folder.remove(&account_file(directory));
                }
                return Err(describe(&error));
            }
        };
        let validated = self.validate(&mut order, name).await;
        self.challenges.remove_tls(name);
        validated?;
        receive(&mut order, name).await
    }

    /// Loads the account of a directory, or creates it.
    async fn account(&self, directory: &str) -> Result<Account, String> {
        let file = account_file(directory);
        if let Ok(Some(text)) = self.folder.read(&file)
            && let Ok(credentials) = serde_json::from_str::<AccountCredentials>(&text)
        {
            return self.builder()?.from_credentials(credentials).await.map_err(|error| describe(&error));
        }
        let contact = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let created = with_fresh_nonces!(self.builder()?.create(&new, directory.to_owned(), None));
        let (account, credentials) = created.map_err(|error| describe(&error))?;
        let text = serde_json::to_string(&credentials).map_err(|error| error.to_string())?;
        self.folder.write(&file, &text).map_err(|error| format!("cannot store the account: {error}"))?;
        Ok(account)
    }

    fn builder(&self) -> Result<AccountBuilder, String> {
        let builder = match &self.settings.root {
            Some(root) => Account::builder_with_root(root),
            None => Account::builder(),
        };
        builder.map_err(|error| describe(&error))
    }

    /// Responds to the challenges of an order until the certificate authority has validated the name.
    async fn validate(&self, order: &mut Order, name: &str) -> Result<(), String> {
        let mut tokens = Vec::new();
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
            let kind = if self.by_http { ChallengeType::Http01 } else { ChallengeType::TlsAlpn01 };
            let Some(mut challenge) = authorization.challenge(kind.clone()) else {
                return Err(format!("the certificate authority offers no validation of the kind {kind:?}"));
            };
            let response = challenge.key_authorization();
            if self.by_http {
                self.challenges.add_http(&challenge.token, response.as_str());
                tokens.push(challenge.token.clone());
            } else {
                let added = self.challenges.add_tls(name, response.digest().as_ref());
                added.map_err(|error| format!("cannot prepare the validation: {error}"))?;
            }
            with_fresh_nonces!(challenge.set_ready()).map_err(|error| describe(&error))?;
        }
        let status = with_fresh_nonces!(order.poll_ready(&RetryPolicy::new().timeout(READY_TIMEOUT)));
        tokens.iter().for_each(|token| self.challenges.remove_http(token));
        match status.map_err(|error| describe(&error))? {
            OrderStatus::Ready | OrderStatus::Valid | OrderStatus::Processing => Ok(()),
            OrderStatus::Invalid | OrderStatus::Pending => Err(failed_validation(order, name).await),
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

/// Sends a certificate request, and receives the certificate.
async fn receive(order: &mut Order, name: &str) -> Result<String, String> {
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|error| error.to_string())?;
    with_fresh_nonces!(order.finalize_csr(request.der())).map_err(|error| describe(&error))?;
    let policy = RetryPolicy::new().timeout(READY_TIMEOUT);
    let chain = with_fresh_nonces!(order.poll_certificate(&policy)).map_err(|error| describe(&error))?;
    let pem = key.serialize_pem() + &chain;
    let certificate = Certificate::from_pem(pem.as_bytes(), pem.as_bytes()).map_err(|error| error.to_string())?;
    match CertificateFacts::of(&certificate) {
        Some(facts) if is_covered(&facts.names, name) => Ok(pem),
        _ => Err(format!("the certificate that was received is not for {name}")),
    }
}

/// Returns the identifier of a name or an address.
fn identifier(name: &str) -> Identifier {
    match name.parse::<IpAddr>() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

/// Returns the file of the account at a directory.
fn account_file(directory: &str) -> String {
    format!("account-{:016x}.json", hash(&directory))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether an error is of a kind (RFC 8555 §6.7).
fn is_kind(error: &Error, kind: &str) -> bool {
    match error {
        Error::Api(problem) => {
            problem.r#type.as_deref().and_then(|name| name.rsplit(':').next()).is_some_and(|name| name == kind)
        }
        _ => false,
    }
}

/// Describes an error with its causes.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Fetches a path by plain http.
fn fetch(name: &str, path: &str) -> Result<String, String> {
    let addresses = (name, HTTP_PORT).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        let connected = TcpStream::connect_timeout(&address, CHECK_TIMEOUT);
        match connected.and_then(|stream| fetch_from(stream, name, path)) {
            Ok(text) => return Ok(text),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

fn fetch_from(mut stream: TcpStream, name: &str, path: &str) -> std::io::Result<String> {
    const BYTES_MAX: u64 = 4096;
    stream.set_read_timeout(Some(CHECK_TIMEOUT))?;
    stream.set_write_timeout(Some(CHECK_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
