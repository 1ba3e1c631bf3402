//! Sends batches of spans to a collector: OTLP over HTTP, <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

use super::otlp::{PartialSuccess, export_request, read_response};
use super::queue::EncodedSpans;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use selvedge::proto::date::HttpDate;
use selvedge::tls::{RootCertificates, client_config};
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait for a response, its content included.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest content of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Where spans are sent, and as whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorSettings {
    /// The URL of http or https that accepts traces.
    pub(crate) url: String,
    /// The name of this server among the services of a trace.
    pub(crate) service: String,
    /// Fields of each request.
    pub(crate) headers: Vec<(String, String)>,
}

/// A collector.
pub(super) struct Collector {
    settings: CollectorSettings,
    transport: Transport,
}

enum Transport {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// Why a collector has not accepted a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SendFailure {
    pub(super) why: String,
    pub(super) retry: Retry,
}

/// Whether a batch may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Never,
    /// After the time that the collector has named, if it has.
    After(Option<Duration>),
}

impl Collector {
    /// Creates a client of a collector. Call it within the runtime that sends.
    ///
    /// # Errors
    /// If the URL needs TLS, and the system trusts no authority.
    pub(super) fn new(settings: CollectorSettings) -> Result<Self, String> {
        let transport = if settings.url.starts_with("https:") {
            let config = client_config(RootCertificates::System).map_err(|error| error.to_string())?;
            let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
            Transport::Tls(Client::builder(TokioExecutor::new()).build(connector))
        } else {
            Transport::Plain(Client::builder(TokioExecutor::new()).build(HttpConnector::new()))
        };
        Ok(Self { settings, transport })
    }

    /// Sends a batch once. Returns what the collector has rejected of it.
    ///
    /// # Errors
    /// If it has not accepted the batch.
    pub(super) async fn send(&self, batch: &[EncodedSpans]) -> Result<PartialSuccess, SendFailure> {
        match tokio::time::timeout(RESPONSE_TIMEOUT, self.exchange(batch)).await {
            Ok(result) => result,
            Err(_) => {
                let why = format!("no response within {RESPONSE_TIMEOUT:?}");
                Err(SendFailure { why, retry: Retry::After(None) })
            }
        }
    }

    async fn exchange(&self, batch: &[EncodedSpans]) -> Result<PartialSuccess, SendFailure> {
        let request = self.request(batch).map_err(|why| SendFailure { why, retry: Retry::Never })?;
        let sent = match &self.transport {
            Transport::Plain(client) => client.request(request),
            Transport::Tls(client) => client.request(request),
        };
        let broken = |error: &dyn Error| SendFailure { why: causes(error), retry: Retry::After(None) };
        let (parts, content) = sent.await.map_err(|error| broken(&error))?.into_parts();
        let content = Limited::new(content, RESPONSE_BYTES_MAX).collect().await.map_err(|error| broken(&*error))?;
        match parts.status {
            status if status.is_success() => Ok(read_response(&content.to_bytes())),
            status => {
                let after = parts.headers.get(RETRY_AFTER).and_then(|value| retry_after(value.as_bytes()));
                let retry = if is_retryable(status) { Retry::After(after) } else { Retry::Never };
                Err(SendFailure { why: format!("it responds with {}", status.as_u16()), retry })
            }
        }
    }

    fn request(&self, batch: &[EncodedSpans]) -> Result<Request<Full<Bytes>>, String> {
        let content = export_request(&self.settings.service, batch.iter().map(|spans| &*spans.bytes));
        let mut request =
            Request::post(&self.settings.url).body(Full::from(content)).map_err(|error| error.to_string())?;
        let fields = request.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        fields.insert(USER_AGENT, HeaderValue::from_static(concat!("selvedge/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &self.settings.headers {
            let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
            let mut value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            value.set_sensitive(true);
            fields.append(name, value);
        }
        Ok(request)
    }
}

/// Whether a batch may be sent again after a response with this status.
fn is_retryable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Returns an error with its causes.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Returns the time that a `Retry-After` field names (RFC 9110 §10.2.3): a date, or a number of seconds.
fn retry_after(value: &[u8]) -> Option<Duration> {
    if let Ok(seconds) = std::str::from_utf8(value).ok()?.trim().parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let date = HttpDate::parse(value.trim_ascii(), HttpDate::from_unix(now))?;
    Some(Duration::from_secs(u64::try_from(date.unix() - now).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_number_of_seconds_or_a_date() {
        for (value, expected) in
            [("5", Some(5)), (" 0 ", Some(0)), ("Fri, 15 Jan 1999 08:00:10 GMT", Some(0)), ("-5", None), ("soon", None)]
        {
            assert_eq!(retry_after(value.as_bytes()), expected.map(Duration::from_secs), "{value}");
        }
        let far = retry_after(b"Fri, 15 Jan 2100 08:00:10 GMT").unwrap();
        assert!(far > Duration::from_secs(365 * 24 * 3600), "{far:?}");
    }

    #[test]
    fn overload_is_retried_and_a_refusal_is_not() {
        let retryable: Vec<u16> =
            (100..600).filter(|status| StatusCode::from_u16(*status).is_ok_and(is_retryable)).collect();
        assert_eq!(retryable, [429, 502, 503, 504]);
    }
}
