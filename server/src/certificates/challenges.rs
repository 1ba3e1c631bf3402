//! Responses to the validations of a certificate authority: by http (RFC 8555 §8.3) and in a TLS handshake (RFC 8737).

use super::folder::CertificateFolder;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use selvedge::tls::{Certificate, Certificates, TlsHost};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The path of a response by http, before the token.
pub(crate) const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// The challenges that this process responds to.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    /// Responses by token.
    http: Mutex<HashMap<String, String>>,
    /// Hosts by name.
    tls: Mutex<HashMap<String, Arc<TlsHost>>>,
    folder: Mutex<Option<CertificateFolder>>,
}

/// Longest token. Those of certificate authorities have 43 bytes.
const TOKEN_BYTES_MAX: usize = 128;

fn file_of(token: &str) -> String {
    format!("challenge-{token}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the server name with which a name is validated: for an address, that of its reverse look-up (RFC 8738 §6).
fn server_name(name: &str) -> String {
    match name.parse() {
        Err(_) => name.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

impl Challenges {
    /// Returns the response to a token: that of this process, or of another server with its folder.
    pub(crate) fn response(&self, token: &str) -> Option<String> {
        if let Some(response) = lock(&self.http).get(token) {
            return Some(response.clone());
        }
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_token) {
            return None;
        }
        lock(&self.folder).as_ref()?.read(&file_of(token)).ok()?
    }

    /// Sets the folder in which servers share their responses.
    pub(super) fn share(&self, folder: &CertificateFolder) {
        *lock(&self.folder) = Some(folder.clone());
    }

    /// Returns the host for a validation of a name.
    pub(crate) fn host(&self, name: &str) -> Option<Arc<TlsHost>> {
        lock(&self.tls).get(name).cloned()
    }

    pub(super) fn add_http(&self, token: &str, response: &str) {
        lock(&self.http).insert(token.to_owned(), response.to_owned());
        if let Some(folder) = &*lock(&self.folder) {
            // Without the file, only this process responds.
            let _ = folder.write(&file_of(token), response);
        }
    }

    pub(super) fn remove_http(&self, token: &str) {
        lock(&self.http).remove(token);
        if let Some(folder) = &*lock(&self.folder) {
            folder.remove(&file_of(token));
        }
    }

    /// Prepares the handshake for a name: a certificate with the digest of the response.
    pub(super) fn add_tls(&self, name: &str, digest: &[u8]) -> io::Result<()> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let pem = params.self_signed(&key).map_err(io::Error::other)?.pem() + &key.serialize_pem();
        let certificate = Certificate::for_acme_challenge(pem.as_bytes(), pem.as_bytes()).map_err(io::Error::other)?;
        let builder = TlsHost::builder().certificates(Certificates::new(vec![certificate])).for_acme_challenge();
        let host = builder.build().map_err(io::Error::other)?;
        lock(&self.tls).insert(server_name(name), Arc::new(host));
        Ok(())
    }

    pub(super) fn remove_tls(&self, name: &str) {
        lock(&self.tls).remove(&server_name(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_validated_by_their_reverse_names() {
        for (name, expected) in [
            ("a.example", "a.example"),
            ("203.0.113.7", "7.113.0.203.in-addr.arpa"),
            ("2001:db8::1", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"),
        ] {
            assert_eq!(server_name(name), expected);
        }
    }
}
