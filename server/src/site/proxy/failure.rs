//! What a client and the log get if no server responds to a request.

use super::wait_queue::NoPlace;
use selvedge::client::{ClientError, ClientErrorKind, ClientPhase};
use selvedge::{Response, StatusCode};
use std::time::Duration;

/// Why a request got no response of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardFailure {
    /// An exchange with a server failed.
    Exchange(ClientError),
    /// The name of the server is not resolved.
    NoAddress,
    /// All servers fail their checks.
    NoneInUse,
    /// All servers are full.
    NoPlace(NoPlace),
    /// The client or the server cannot switch to the protocol of an extended CONNECT.
    NoUpgrade,
    /// The request has passed this server before.
    Loop,
}

impl ForwardFailure {
    /// Returns the status of the response, and its reason for the log.
    fn status(self) -> (StatusCode, &'static str) {
        match self {
            Self::Exchange(error) => match error.kind {
                ClientErrorKind::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "the upstream did not respond in time"),
                ClientErrorKind::InvalidRequest(_) => (StatusCode::BAD_REQUEST, "the request cannot be forwarded"),
                ClientErrorKind::StreamsExhausted => {
                    (StatusCode::SERVICE_UNAVAILABLE, "all streams of the connections to the upstream are in use")
                }
                ClientErrorKind::UpgradeUnsupported => {
                    (StatusCode::BAD_GATEWAY, "the upstream does not accept WebSockets over HTTP/2 (extended CONNECT)")
                }
                ClientErrorKind::ResourcesExhausted => {
                    (StatusCode::SERVICE_UNAVAILABLE, "no descriptor, port or memory is left for an upstream")
                }
                _ => match error.phase {
                    ClientPhase::Connect | ClientPhase::Tls => {
                        (StatusCode::BAD_GATEWAY, "no connection to the upstream")
                    }
                    _ => (StatusCode::BAD_GATEWAY, "no valid response of the upstream"),
                },
            },
            Self::NoAddress => (StatusCode::SERVICE_UNAVAILABLE, "the name of the upstream is not resolved"),
            Self::NoneInUse => {
                (StatusCode::SERVICE_UNAVAILABLE, "all servers of the upstream fail their health checks")
            }
            Self::NoPlace(NoPlace::QueueFull) => {
                (StatusCode::SERVICE_UNAVAILABLE, "all servers of the upstream are full")
            }
            Self::NoPlace(NoPlace::TimedOut) => {
                (StatusCode::SERVICE_UNAVAILABLE, "no place at a server of the upstream within the queue timeout")
            }
            Self::NoUpgrade => (StatusCode::BAD_GATEWAY, "the upstream did not switch to the protocol"),
            // No 502: a server in front would count it as a failure of this one, and a client could cause it.
            Self::Loop => (StatusCode::LOOP_DETECTED, "a loop: the request has passed this server before"),
        }
    }

    /// Returns the response. `retry_after` is when a place may be free.
    pub(super) fn response(self, retry_after: Duration) -> Response {
        if let Self::Exchange(ClientError { kind: ClientErrorKind::RequestContent(error), .. }) = self {
            return Response::from(error);
        }
        let (status, reason) = self.status();
        let response = Response::error(status).log_reason(reason);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = retry_after.as_secs().max(1);
                response.field("retry-after", seconds.to_string())
            }
            _ => response,
        }
    }

    /// Whether the failure is a sign of the server's health.
    pub(super) fn is_of_server(self) -> bool {
        match self {
            Self::Exchange(error) => !matches!(
                error.kind,
                ClientErrorKind::RequestContent(_)
                    | ClientErrorKind::RequestLength
                    | ClientErrorKind::InvalidRequest(_)
                    | ClientErrorKind::ResourcesExhausted
                    | ClientErrorKind::StreamsExhausted
                    | ClientErrorKind::UpgradeUnsupported
            ),
            Self::NoAddress => true,
            Self::NoneInUse | Self::NoPlace(_) | Self::NoUpgrade | Self::Loop => false,
        }
    }

    /// Describes the failure in a clause, without the address.
    pub(super) fn text(self) -> String {
        match self {
            Self::Exchange(error) => error.to_string(),
            other => other.status().1.to_owned(),
        }
    }

    /// Returns the kind of the failure: failures of one kind are counted together in the log.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Exchange(ClientError { kind: ClientErrorKind::Malformed(reason), .. }) => reason.name(),
            _ => self.proxy_error(),
        }
    }

    /// Returns the error type of Proxy-Status (RFC 9209 §2.3).
    pub(super) fn proxy_error(self) -> &'static str {
        match self {
            Self::NoAddress => "dns_error",
            Self::NoneInUse => "destination_unavailable",
            Self::NoPlace(_) => "connection_limit_reached",
            Self::NoUpgrade => "http_upgrade_failed",
            Self::Loop => "proxy_loop_detected",
            Self::Exchange(error) if error.kind == ClientErrorKind::UpgradeUnsupported => "http_upgrade_failed",
            Self::Exchange(error) => match (error.kind, error.phase) {
                (ClientErrorKind::StreamsExhausted, _) => "connection_limit_reached",
                (ClientErrorKind::TimedOut, ClientPhase::Connect | ClientPhase::Tls) => "connection_timeout",
                (ClientErrorKind::TimedOut, ClientPhase::SendRequest) => "connection_write_timeout",
                (ClientErrorKind::TimedOut, _) => "http_response_timeout",
                (ClientErrorKind::Certificate(_) | ClientErrorKind::ClientCertificate(_), _) => "tls_certificate_error",
                (ClientErrorKind::Refused, _) => "connection_refused",
                (ClientErrorKind::Unreachable, _) => "destination_ip_unroutable",
                (ClientErrorKind::SocketMissing, _) => "destination_unavailable",
                (ClientErrorKind::ResourcesExhausted | ClientErrorKind::PermissionDenied, _) => "proxy_internal_error",
                (
                    ClientErrorKind::RequestContent(_)
                    | ClientErrorKind::RequestLength
                    | ClientErrorKind::InvalidRequest(_),
                    _,
                ) => "http_request_error",
                (_, ClientPhase::Tls) => "tls_protocol_error",
                (ClientErrorKind::Reset | ClientErrorKind::Closed, ClientPhase::ReadContent) => {
                    "http_response_incomplete"
                }
                (ClientErrorKind::Reset | ClientErrorKind::Closed, _) => "connection_terminated",
                _ => "http_protocol_error",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::client::{ConnectionUse, RetrySafety};
    use selvedge::service::ContentError;

    #[test]
    fn failures_have_a_status_and_an_error_type() {
        use ClientErrorKind::{
            Closed, Refused, RequestContent, Reset, ResourcesExhausted, StreamsExhausted, TimedOut, UpgradeUnsupported,
        };
        use ClientPhase::{AwaitHead, Connect, SendRequest};
        let exchange = |phase, kind| {
            let (retry, connection) = (RetrySafety::Never, ConnectionUse::First);
            ForwardFailure::Exchange(ClientError { phase, kind, retry, connection })
        };
        for (failure, status, error) in [
            (exchange(Connect, Refused), 502, "connection_refused"),
            (exchange(Connect, TimedOut), 504, "connection_timeout"),
            (exchange(AwaitHead, TimedOut), 504, "http_response_timeout"),
            (exchange(AwaitHead, Closed), 502, "connection_terminated"),
            (exchange(SendRequest, Reset), 502, "connection_terminated"),
            (exchange(Connect, ResourcesExhausted), 503, "proxy_internal_error"),
            (exchange(Connect, StreamsExhausted), 503, "connection_limit_reached"),
            (exchange(AwaitHead, ClientErrorKind::ClientCertificate("x")), 502, "tls_certificate_error"),
            (exchange(SendRequest, UpgradeUnsupported), 502, "http_upgrade_failed"),
            (exchange(SendRequest, RequestContent(ContentError::TooLarge)), 413, "http_request_error"),
            (ForwardFailure::NoAddress, 503, "dns_error"),
            (ForwardFailure::NoPlace(NoPlace::QueueFull), 503, "connection_limit_reached"),
            (ForwardFailure::NoneInUse, 503, "destination_unavailable"),
            (ForwardFailure::Loop, 508, "proxy_loop_detected"),
        ] {
            let response = failure.response(Duration::from_secs(5));
            assert_eq!((response.status.code(), failure.proxy_error()), (status, error), "{failure:?}");
            assert_eq!(response.fields().get("retry-after").is_some(), status == 503, "{failure:?}");
        }
        assert!(!exchange(SendRequest, RequestContent(ContentError::Disconnected)).is_of_server());
        assert_eq!(exchange(Connect, Refused).text(), "connect: connection refused");
        let full = exchange(Connect, StreamsExhausted);
        assert_eq!(full.text(), "connect: all streams that the upstream permits are in use");
        assert!(!full.is_of_server());
    }
}
