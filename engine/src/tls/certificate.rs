//! Certificates with their private keys, and sets of them that can change while the server runs.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureAlgorithm};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// A certificate chain with its private key.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<CertifiedKey>);

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// The text of the chain is not PEM.
    InvalidChain(String),
    /// The text of the chain has no certificate.
    NoCertificate,
    /// The text of the key has no private key, or is not PEM.
    NoKey,
    /// The private key is encrypted with a password.
    EncryptedKey,
    /// The key is of an unsupported type, or invalid.
    InvalidKey(String),
    /// The private key does not belong to the first certificate.
    KeyMismatch,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidChain(error) => write!(f, "the certificates are not valid PEM: {error}"),
            Self::NoCertificate => f.write_str("no certificate found: expected `-----BEGIN CERTIFICATE-----`"),
            Self::NoKey => f.write_str("no private key found: expected `-----BEGIN PRIVATE KEY-----`"),
            Self::EncryptedKey => f.write_str("the private key is encrypted with a password"),
            Self::InvalidKey(error) => write!(f, "the private key cannot be used: {error}"),
            Self::KeyMismatch => f.write_str("the private key does not belong to the first certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}

impl Certificate {
    /// Parses a chain, the server's certificate first, and its private key (PKCS #8, PKCS #1 or SEC 1). Both are PEM and
    /// may be one text.
    ///
    /// # Errors
    /// If a text is invalid, or the key does not belong to the certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let certified = parse(chain, key)?;
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Self(Arc::new(certified))),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(CertificateError::KeyMismatch),
            Err(error) => Err(CertificateError::InvalidChain(error.to_string())),
        }
    }

    /// Parses a certificate for a validation by a certificate authority (RFC 8737). It has an extension that the TLS library
    /// does not know, so whether the key belongs to it is not checked.
    ///
    /// # Errors
    /// If a text is invalid.
    pub fn for_acme_challenge(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        parse(chain, key).map(|certified| Self(Arc::new(certified)))
    }

    /// Reads a chain and its private key from PEM files, which may be one file.
    ///
    /// # Errors
    /// If a file cannot be read, or its content is invalid; the error names the file.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Self> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let read = |path: &Path| {
            fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        Self::from_pem(&read(chain)?, &read(key)?).map_err(|error| {
            let path = if error.is_about_key() { key } else { chain };
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
        })
    }

    /// Creates a certificate from values of the TLS library.
    pub fn from_rustls(certified: CertifiedKey) -> Self {
        Self(Arc::new(certified))
    }

    /// Returns the value of the TLS library.
    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        self.0.clone()
    }

    /// Returns the certificates of the chain in DER, the server's first.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.cert.iter().map(|certificate| &**certificate)
    }
}

impl CertificateError {
    /// Whether the private key is the cause.
    pub fn is_about_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::EncryptedKey | Self::InvalidKey(_) | Self::KeyMismatch)
    }
}

/// Parses a chain and its key.
fn parse(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = parse_chain(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| match has(key, b"ENCRYPTED") {
        true => CertificateError::EncryptedKey,
        false => CertificateError::NoKey,
    })?;
    let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key)
        .map_err(|error| CertificateError::InvalidKey(error.to_string()))?;
    Ok(CertifiedKey::new(chain, signer))
}

/// Parses the certificates of a PEM text.
pub(super) fn parse_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(CertificateError::NoCertificate),
        Ok(chain) => Ok(chain),
        Err(error) => Err(CertificateError::InvalidChain(error.to_string())),
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// The certificates of a host, for example one with an ECDSA key and one with an RSA key. They can be replaced while
/// the server runs; a handshake uses those of its start.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<RwLock<Arc<[Certificate]>>>);

impl Certificates {
    /// Creates a set. A client gets the first that it supports; those with ECDSA or Ed25519 keys precede the others.
    pub fn new(certificates: Vec<Certificate>) -> Self {
        Self(Arc::new(RwLock::new(ordered(certificates))))
    }

    /// Replaces the certificates.
    pub fn replace(&self, certificates: Vec<Certificate>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ordered(certificates);
    }

    /// Returns the current certificates.
    pub fn current(&self) -> Arc<[Certificate]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Certificates of several names, each with its own set.
pub(super) struct CertificatesByName {
    pub(super) sets: HashMap<String, Certificates>,
    /// For clients that send no name.
    pub(super) first: Option<Certificates>,
    /// Finds those of names that are not among the sets.
    pub(super) further: Option<FindCertificates>,
}

/// Finds the certificates of a name.
pub(super) type FindCertificates = Arc<dyn Fn(&str) -> Option<Certificates> + Send + Sync>;

impl CertificatesByName {
    fn find(&self, name: &str) -> Option<Certificates> {
        let wildcard = || self.sets.get(&format!("*.{}", name.split_once('.')?.1));
        let known = self.sets.get(name).or_else(wildcard).cloned();
        known.or_else(|| self.further.as_ref()?(name))
    }
}

impl fmt::Debug for CertificatesByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatesByName").field("sets", &self.sets).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let set = match hello.server_name() {
            Some(name) => self.find(name),
            None => self.first.clone(),
        };
        set?.resolve(hello)
    }
}

/// Moves the certificates with RSA keys behind the others, which cost less to sign with.
fn ordered(mut certificates: Vec<Certificate>) -> Arc<[Certificate]> {
    certificates.sort_by_key(|certificate| certificate.0.key.algorithm() == SignatureAlgorithm::RSA);
    certificates.into()
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let all = self.current();
        let is_supported = |key: &CertifiedKey| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let supported = all.iter().find(|certificate| is_supported(&certificate.0));
        supported.or(all.first()).map(|certificate| certificate.0.clone())
    }
}
