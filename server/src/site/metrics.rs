//! The action that responds with the metrics of the server. What formats them is another part of the program.

use super::methods::respond_to_method;
use super::shared_work::SharedWork;
use bytes::Bytes;
use selvedge::proto::encoding::{Quality, parse_quality};
use selvedge::proto::field::{KnownField, list_members, trim};
use selvedge::{Request, Response, StatusCode};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl MetricsFormat {
    /// Returns the format that a request prefers (RFC 9110 §12.5.1).
    pub(crate) fn of(request: &Request) -> Self {
        Self::preferred(request.known_field_values(KnownField::Accept))
    }

    /// Returns the format that values of Accept prefer: OpenMetrics, if they name it and do not prefer plain text.
    fn preferred<'a>(accept: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut openmetrics, mut plain, mut wildcard) = (None, None, None);
        for member in accept.flat_map(list_members) {
            let (range, quality) = range_and_quality(member);
            let named = match range.to_ascii_lowercase().as_slice() {
                b"application/openmetrics-text" => &mut openmetrics,
                b"text/plain" => &mut plain,
                b"text/*" | b"*/*" => &mut wildcard,
                _ => continue,
            };
            // A range may occur once for each version of its format.
            *named = Some(quality).max(*named);
        }
        match openmetrics.unwrap_or(0) {
            0 => Self::Prometheus,
            quality if quality < plain.or(wildcard).unwrap_or(0) => Self::Prometheus,
            _ => Self::OpenMetrics,
        }
    }

    /// Returns the response without its content.
    fn response(self) -> Response {
        let media_type = match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        };
        let response = Response::new(StatusCode::OK).field("content-type", media_type);
        response.field("cache-control", "no-store").field("vary", "accept")
    }
}

/// Returns the media range of a member of Accept without its parameters, and its quality.
fn range_and_quality(member: &[u8]) -> (&[u8], Quality) {
    let mut parts = member.split(|&b| b == b';').map(trim);
    let range = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    // An invalid weight is none that the client gives.
    (range, weight.map_or(1000, |weight| parse_quality(weight).unwrap_or(0)))
}

/// Formats metrics. The call may wait for workers, so it is not made on one.
pub(crate) type FormatMetrics = dyn Fn(MetricsFormat) -> Option<String> + Send + Sync;

/// What formats the metrics of the server, once that runs.
#[derive(Default)]
pub(crate) struct MetricsSlot {
    call: OnceLock<Box<FormatMetrics>>,
    openmetrics: SharedWork<Bytes>,
    prometheus: SharedWork<Bytes>,
}

impl fmt::Debug for MetricsSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsSlot")
    }
}

impl MetricsSlot {
    /// Sets what formats the metrics. Only the first call has an effect.
    #[cfg(feature = "program")]
    pub(crate) fn set(&self, format: Box<FormatMetrics>) {
        let _ = self.call.set(format);
    }

    /// Formats the metrics on a thread for calls that block. Concurrent readers of a format share one text.
    async fn text(self: &Arc<Self>, format: MetricsFormat) -> Option<Bytes> {
        let (slot, shared) = match format {
            MetricsFormat::OpenMetrics => (self.clone(), &self.openmetrics),
            MetricsFormat::Prometheus => (self.clone(), &self.prometheus),
        };
        shared.value(move || slot.call.get()?(format).map(Bytes::from)).await
    }

    /// Returns the response to a request that is only explained. Formats nothing.
    pub(super) fn explain(request: &Request) -> Response {
        respond_to_method(request).unwrap_or_else(|| MetricsFormat::of(request).response())
    }

    /// Responds with the metrics. A thread for calls that block formats them.
    pub(crate) async fn respond(self: &Arc<Self>, request: &Request) -> Response {
        if let Some(response) = respond_to_method(request) {
            return response;
        }
        let format = MetricsFormat::of(request);
        match self.text(format).await {
            Some(text) => format.response().body(text),
            None => Response::error(StatusCode::SERVICE_UNAVAILABLE)
                .field("retry-after", "1")
                .log_reason("no metrics are available now"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_chosen_by_quality() {
        for (accept, is_openmetrics) in [
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=1.0.0; Q=0.5", true),
            ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", true),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.2,*/*;q=0.9", true),
            ("application/openmetrics-text;version=0.0.1;q=0.1,application/openmetrics-text;q=0.8,*/*;q=0.5", true),
            ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", false),
            ("application/openmetrics-text;q=0.5, text/plain", false),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=0.000, */*;q=0.1", false),
            ("application/openmetrics-text;q=x", false),
            ("application/openmetrics-textual", false),
            ("text/x;a=application/openmetrics-text", false),
            ("*/*", false),
            ("", false),
        ] {
            let format = MetricsFormat::preferred([accept.as_bytes()].into_iter());
            assert_eq!(format == MetricsFormat::OpenMetrics, is_openmetrics, "{accept}");
        }
        let fields = [b"text/plain;q=0.1".as_slice(), b"application/openmetrics-text;q=0.2"];
        assert_eq!(MetricsFormat::preferred(fields.into_iter()), MetricsFormat::OpenMetrics);
    }
}
