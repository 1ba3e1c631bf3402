//! Orders a certificate from a certificate authority (RFC 8555).

use super::approval::RunProgram;
use super::authority_client::AuthorityClient;
use super::challenges::Challenges;
use super::facts::{CertificateFacts, is_covered};
use super::folder::CertificateFolder;
use super::name_records::NameRecords;
use super::private_files::read_file;
use instant_acme::{
    Account, AccountCredentials, CertificateIdentifier, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder,
    Order, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use selvedge::tls::Certificate;
use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    pub(crate) external_account: Option<ExternalAccount>,
    pub(crate) challenges: ChallengeChoice,
    pub(crate) reach_check: ReachCheck,
    /// Whether a listener without TLS exists, which validations by http need.
    pub(crate) has_plain_listener: bool,
    /// The name server for checks; `None` for the system's.
    pub(crate) name_server: Option<SocketAddr>,
}

/// An account that a certificate authority has for its customer (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExternalAccount {
    pub(crate) key_id: String,
    /// A file with the key, encoded as the certificate authority gives it.
    pub(crate) key_file: PathBuf,
}

/// Which validations are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChallengeChoice {
    /// By http, and in a TLS handshake after a failure.
    #[default]
    Any,
    Http,
    Tls,
    /// By a record that this program sets.
    Dns(PathBuf),
    /// By a record that the owner of the name has set once.
    DnsPersist,
}

/// The validation of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationMethod<'a> {
    Http,
    Tls,
    Dns(&'a Path),
    DnsPersist,
}

/// Whether the server checks that a name leads to it before it orders a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReachCheck {
    #[default]
    On,
    Off,
}

/// Why no certificate was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IssueError {
    /// A check failed, and nothing was ordered.
    NotReady(String),
    /// An order may have been sent.
    Failed {
        why: String,
        /// The time in Unix seconds before which the certificate authority wants no request.
        not_before: Option<i64>,
    },
}

impl From<String> for IssueError {
    fn from(why: String) -> Self {
        Self::Failed { why, not_before: None }
    }
}

/// The longest wait for a certificate.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// The profile with which authorities issue certificates for addresses.
const ADDRESS_PROFILE: &str = "shortlived";

/// Most repetitions of a request whose nonce is refused. A certificate authority may forget nonces at any time.
pub(super) const NONCES_MAX: u32 = 20;

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
pub(super) use with_fresh_nonces;

/// What an order needs.
pub(super) struct Issuing<'a> {
    pub(super) settings: &'a AcmeSettings,
    pub(super) folder: &'a CertificateFolder,
    pub(super) challenges: &'a Challenges,
    pub(super) method: ValidationMethod<'a>,
    pub(super) programs: Option<Arc<dyn RunProgram>>,
    /// The record that the owner of the name has to set, once it is known.
    pub(super) wanted_record: RefCell<Option<String>>,
}

/// An account at a certificate authority.
pub(super) struct Authority {
    pub(super) account: Account,
    pub(super) client: AuthorityClient,
}

impl Authority {
    fn failed(&self, why: String) -> IssueError {
        IssueError::Failed { why, not_before: self.client.notes().not_before }
    }

    /// Returns when a certificate should be renewed (RFC 9773): first and last second, and the seconds until the next
    /// query.
    ///
    /// # Errors
    /// If the certificate authority does not tell.
    pub(super) async fn renewal_window(&self, id: &CertificateIdentifier<'_>) -> Result<((i64, i64), i64), String> {
        let (info, delay) = self.account.renewal_info(id).await.map_err(|error| describe(&error))?;
        let window = info.suggested_window;
        let window = (window.start.unix_timestamp(), window.end.unix_timestamp());
        Ok((window, i64::try_from(delay.as_secs()).unwrap_or(i64::MAX)))
    }
}

impl Issuing<'_> {
    /// Orders a certificate from one directory. Returns its key and chain. `before_order` is called before the order is
    /// sent. `replaced` is the certificate that it replaces, if the authority has issued it.
    ///
    /// # Errors
    /// Why no certificate was received.
    pub(super) async fn issue(
        &self,
        directory: &str,
        (name, replaced): (&str, Option<CertificateIdentifier<'static>>),
        before_order: impl Fn() -> Result<(), String>,
    ) -> Result<String, IssueError> {
        let authority = self.authority(directory).await?;
        self.check_records(&authority, name).await.map_err(IssueError::NotReady)?;
        before_order()?;
        let mut order = self.order(directory, &authority, (name, replaced)).await?;
        let validated = self.validate(&mut order, name).await;
        self.challenges.remove_tls(name);
        validated.map_err(|why| authority.failed(why))?;
        receive(&mut order, name).await.map_err(|why| authority.failed(why))
    }

    /// Sends an order.
    async fn order(
        &self,
        directory: &str,
        authority: &Authority,
        (name, replaced): (&str, Option<CertificateIdentifier<'static>>),
    ) -> Result<Order, IssueError> {
        let account = &authority.account;
        let identifiers = [identifier(name)];
        let has_short = account.profiles().any(|profile| profile.name == ADDRESS_PROFILE);
        let of_address = matches!(identifiers[0], Identifier::Ip(_)) && has_short;
        let profile = self.settings.profile.as_deref().or(of_address.then_some(ADDRESS_PROFILE));
        let mut replaced = replaced;
        loop {
            let mut request = NewOrder::new(&identifiers);
            if let Some(profile) = profile {
                request = request.profile(profile);
            }
            let is_replacing = replaced.is_some();
            if let Some(id) = replaced.take() {
                request = request.replaces(id);
            }
            match with_fresh_nonces!(account.new_order(&request)) {
                Ok(order) => return Ok(order),
                // Nothing was ordered: another server has replaced it, or the authority has forgotten it.
                Err(error) if is_replacing && is_about_replacement(&error) => {}
                Err(error) => {
                    if is_kind(&error, "accountDoesNotExist") {
                        // The next attempt creates another account.
                        self.folder.remove(&account_file(directory));
                    }
                    return Err(authority.failed(describe(&error)));
                }
            }
        }
    }

    /// Loads the account of a directory. `None` before its first order.
    pub(super) async fn known_authority(&self, directory: &str) -> Option<Authority> {
        let client = AuthorityClient::new(self.settings.root.as_deref()).ok()?;
        let account = self.stored_account(directory, &client).await?.ok()?;
        Some(Authority { account, client })
    }

    async fn stored_account(&self, directory: &str, client: &AuthorityClient) -> Option<Result<Account, Error>> {
        let text = self.folder.read(&account_file(directory)).ok()??;
        let credentials = serde_json::from_str::<AccountCredentials>(&text).ok()?;
        let builder = Account::builder_with_http(Box::new(client.clone()));
        Some(builder.from_credentials(credentials).await)
    }

    /// Loads the account of a directory, or creates it.
    async fn authority(&self, directory: &str) -> Result<Authority, IssueError> {
        let client = AuthorityClient::new(self.settings.root.as_deref()).map_err(IssueError::NotReady)?;
        let failed = |why: String| IssueError::Failed { why, not_before: client.notes().not_before };
        if let Some(stored) = self.stored_account(directory, &client).await {
            let account = stored.map_err(|error| failed(describe(&error)))?;
            return Ok(Authority { account, client });
        }
        let contact = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let external = match &self.settings.external_account {
            Some(external) => Some(external.read().map_err(IssueError::NotReady)?),
            None => None,
        };
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        let created = with_fresh_nonces!(builder().create(&new, directory.to_owned(), external.as_ref()));
        let (account, credentials) = created.map_err(|error| failed(describe(&error)))?;
        let text = serde_json::to_string(&credentials).map_err(|error| error.to_string())?;
        self.folder
            .write(&account_file(directory), &text)
            .map_err(|error| IssueError::NotReady(format!("cannot store the account: {error}")))?;
        Ok(Authority { account, client })
    }

    /// Returns what looks up records of names.
    pub(super) fn name_records(&self) -> Result<NameRecords, String> {
        NameRecords::new(self.settings.name_server)
    }
}

impl ExternalAccount {
    /// Reads the key: base64, as certificate authorities show it.
    fn read(&self) -> Result<ExternalAccountKey, String> {
        use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding};
        let file = self.key_file.display();
        let text = read_file(&self.key_file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let text = String::from_utf8(text).map_err(|_| format!("{file} is not text"))?;
        let text = text.trim();
        let decoded =
            [Base64UrlUnpadded::decode_vec, Base64Url::decode_vec, Base64Unpadded::decode_vec, Base64::decode_vec]
                .into_iter()
                .find_map(|decode| decode(text).ok());
        match decoded {
            Some(key) if !key.is_empty() => Ok(ExternalAccountKey::new(self.key_id.clone(), &key)),
            _ => Err(format!("{file} has no key in base64")),
        }
    }
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

pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether an error is of a kind (RFC 8555 §6.7).
pub(super) fn is_kind(error: &Error, kind: &str) -> bool {
    match error {
        Error::Api(problem) => {
            problem.r#type.as_deref().and_then(|name| name.rsplit(':').next()).is_some_and(|name| name == kind)
        }
        _ => false,
    }
}

/// Whether an order was refused because of the certificate that it replaces (RFC 9773 §5).
fn is_about_replacement(error: &Error) -> bool {
    let names_it = |problem: &instant_acme::Problem| {
        problem.detail.as_deref().is_some_and(|detail| detail.to_ascii_lowercase().contains("replace"))
    };
    is_kind(error, "alreadyReplaced") || matches!(error, Error::Api(problem) if names_it(problem))
}

/// Describes an error with its causes.
pub(super) fn describe(error: &Error) -> String {
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
