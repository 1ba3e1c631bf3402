//! The HTTP client for certificate authorities: bounded in time and size, and it notes what the ACME library does not
//! tell, such as how long to wait after a refusal.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use selvedge::proto::date::HttpDate;
use selvedge::tls::{RootCertificates, client_config};
use serde::Deserialize;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for a response, its content included.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest content of a response. A chain of certificates has a few KiB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// What responses of a certificate authority contain beside their content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// The latest time in Unix seconds before which no request is wanted.
    pub(super) not_before: Option<i64>,
    /// The names of the authority in records of names (RFC 8659), in lower case.
    pub(super) issuer_names: Vec<String>,
}

/// A client of one certificate authority.
#[derive(Clone)]
pub(super) struct AuthorityClient {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    notes: Arc<Mutex<Notes>>,
}

/// A client for http and https.
type PlainClient = Client<HttpsConnector<HttpConnector>, http_body_util::Empty<Bytes>>;

/// Returns a client for requests to other servers, by http or https.
///
/// # Errors
/// If the system trusts no authority.
pub(super) fn plain_client() -> Result<PlainClient, String> {
    let config = client_config(RootCertificates::System).map_err(|error| error.to_string())?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

#[derive(Deserialize)]
struct Directory {
    meta: Option<DirectoryMeta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DirectoryMeta {
    #[serde(default)]
    caa_identities: Vec<String>,
}

impl AuthorityClient {
    /// Creates a client. `root` is a file with the root of the authority's own TLS; `None` for those of the system.
    ///
    /// # Errors
    /// If the root cannot be used.
    pub(super) fn new(root: Option<&Path>) -> Result<Self, String> {
        let text = match root {
            Some(path) => Some(fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?),
            None => None,
        };
        let roots = text.as_deref().map_or(RootCertificates::System, RootCertificates::Pem);
        let config = client_config(roots).map_err(|error| error.to_string())?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().enable_http2();
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { client, notes: Arc::default() })
    }

    pub(super) fn notes(&self) -> Notes {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let notes = self.notes.clone();
        let is_directory = request.method() == http::Method::GET;
        let sent = self.client.request(request);
        Box::pin(async move {
            let received = async {
                let (parts, content) = sent.await.map_err(|error| Error::Other(Box::new(error)))?.into_parts();
                let content = Limited::new(content, RESPONSE_BYTES_MAX).collect().await.map_err(Error::Other)?;
                Ok::<_, Error>((parts, content.to_bytes()))
            };
            let (parts, content) = match tokio::time::timeout(RESPONSE_TIMEOUT, received).await {
                Ok(result) => result?,
                Err(_) => return Err(Error::Str("the certificate authority does not respond")),
            };
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            if is_directory && let Ok(Directory { meta: Some(meta) }) = serde_json::from_slice(&content) {
                notes.issuer_names = meta.caa_identities.iter().map(|name| name.to_ascii_lowercase()).collect();
            }
            if parts.status.is_client_error() || parts.status.is_server_error() {
                let value = parts.headers.get(RETRY_AFTER).map(http::HeaderValue::as_bytes);
                let at = value.and_then(|value| retry_after(value, super::unix_now()));
                notes.not_before = notes.not_before.max(at);
            }
            drop(notes);
            Ok(BytesResponse { parts, body: Box::new(content) })
        })
    }
}

/// Returns the time that a `Retry-After` field names, in Unix seconds (RFC 9110 §10.2.3): a date, or a number of seconds.
fn retry_after(value: &[u8], now: i64) -> Option<i64> {
    match std::str::from_utf8(value).ok()?.trim().parse::<u32>() {
        Ok(seconds) => Some(now + i64::from(seconds)),
        Err(_) => {
            let date = HttpDate::parse(value.trim_ascii(), HttpDate::from_unix(now))?;
            Some(date.unix())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_date_or_a_number_of_seconds() {
        const NOW: i64 = 1_800_000_000;
        for (value, expected) in [
            ("120", Some(NOW + 120)),
            (" 0 ", Some(NOW)),
            ("Fri, 15 Jan 2027 08:00:10 GMT", Some(NOW + 10)),
            ("-5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value.as_bytes(), NOW), expected, "{value}");
        }
    }
}
