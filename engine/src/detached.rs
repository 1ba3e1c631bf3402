//! Requests without a connection, for programs that explain what an application would respond.

use crate::buffer::Buffer;
use crate::net::runtime;
use crate::peer::TlsInfo;
use crate::service::{Request, RequestInner, Response, Timestamp};
use selvedge_proto::limits::MessageLimits;
use selvedge_proto::{HeadBuilder, Reject, RequestLine};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The parts of a request that does not arrive over a connection. It has no content.
#[derive(Clone, Debug)]
pub struct DetachedRequest<'a> {
    /// The request line.
    pub line: RequestLine<'a>,
    /// Names and values of the fields in order, with Host among them.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// The remote end that the connection would have.
    pub peer: SocketAddr,
    /// What a TLS handshake would agree on; `None` for a plain connection.
    pub tls: Option<TlsInfo>,
}

impl DetachedRequest<'_> {
    /// Builds the request. It arrives now, at the start of its worker.
    ///
    /// # Errors
    /// If the head would be refused as a received one.
    pub fn build(self, limits: &MessageLimits) -> Result<Request, Reject> {
        let mut inner = Box::<RequestInner>::default();
        inner.bytes = Buffer::take();
        let mut builder = HeadBuilder::new(&mut inner.bytes, &mut inner.head, limits, self.line)?;
        self.fields.iter().try_for_each(|(name, value)| builder.field(name, value))?;
        builder.finish()?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        inner.received_at = Timestamp {
            since_worker_start: Duration::ZERO,
            unix_time: i64::try_from(unix.as_secs()).unwrap_or(i64::MAX),
        };
        (inner.peer, inner.tls) = (self.peer, self.tls);
        Ok(Request { inner })
    }
}

/// Returns the response to a head that [`DetachedRequest::build`] refuses, in the form that the values of its Accept prefer.
pub fn refuse<'a>(reject: Reject, accept: impl IntoIterator<Item = &'a [u8]>) -> Response {
    Response::to_refused_head(reject.status(), reject.message(), accept)
}

/// Runs a future to its end on this thread, in a runtime as a worker has. What the future has started is dropped then;
/// work on blocking threads is not waited for.
///
/// # Errors
/// If the system provides no resources for a runtime.
///
/// # Panics
/// On a thread with a runtime, such as a worker.
pub fn run_to_end<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = runtime::runtime()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_proto::head::Version;

    fn build(target: &str, fields: &[(&str, &str)]) -> Result<Request, Reject> {
        let line = RequestLine { method: b"GET", target: target.as_bytes(), version: Version::Http11 };
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let peer = "192.0.2.1:4711".parse().unwrap();
        let tls = Some(TlsInfo::assumed(Some("example.com"), 7, Some("CN=alice")));
        DetachedRequest { line, fields, peer, tls }.build(&MessageLimits::default())
    }

    #[test]
    fn parts_become_a_request() {
        let request = build("/a?b", &[("host", "example.com"), ("accept", "text/html")]).unwrap();
        assert_eq!((request.path(), request.query()), ("/a", Some("b")));
        assert_eq!(request.host().unwrap().name, b"example.com");
        assert_eq!(request.field("accept"), Some(&b"text/html"[..]));
        assert_eq!(request.client().to_string(), "192.0.2.1");
        let tls = request.tls().unwrap();
        assert_eq!((tls.server_name(), tls.host_tag(), tls.peer_subject()), (Some("example.com"), 7, Some("CN=alice")));
        assert!(request.received_at().unix_time > 1_600_000_000);
    }

    #[test]
    fn a_head_is_checked_like_a_received_one() {
        assert_eq!(build("/", &[]).err(), Some(Reject::HostMissing));
        assert_eq!(build("/ b", &[("host", "a")]).err(), Some(Reject::TargetInvalid));
        assert_eq!(build("/", &[("host", "a"), ("b c", "")]).err(), Some(Reject::FieldNameInvalid));
    }

    #[test]
    fn a_future_runs_to_its_end() {
        let result = run_to_end(async { crate::spawn_blocking(|| 1 + 1).await });
        assert_eq!(result.unwrap(), Some(2));
    }
}
