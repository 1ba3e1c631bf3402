//! A file as the content of a response.
//!
//! For the ecosystem, [`SendFile`] is an ordinary body that reads the file in chunks. The engine
//! probes a body through `size_hint` while a thread-local flag is set; an unchanged `SendFile` then
//! returns a marker size and stores its file for the engine. A layer that changes the content, such as
//! compression, returns another size or none, and then the file is read like any body.

use crate::file::{FileContent, FileRange, FileStamp, OpenFile, SharedFile};
use crate::service::Body as Content;
use crate::tower::open_file_cache;
use crate::tower::request_context::RequestContext;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use selvedge_proto::condition::{self, PreconditionResult, Validators};
use selvedge_proto::date::HttpDate;
use selvedge_proto::field::KnownField;
use selvedge_proto::head::RequestHead;
use selvedge_proto::http1::parse_request;
use selvedge_proto::limits::MessageLimits;
use selvedge_proto::method::Method;
use selvedge_proto::range::{self, RangeSelection};
use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes per read, if the file is read as an ordinary body.
const READ_BYTES: u64 = 64 * 1024;

/// The size that a [`SendFile`] returns while the engine probes it.
const PROBE_SIZE: u64 = (1 << 62) + 0x5e1_f1e;

/// An open regular file, or a range of it, as the content of a response. This engine sends it by
/// `sendfile`; other servers read and send it like any other body.
///
/// ```no_run
/// use selvedge::SendFile;
///
/// async fn report(headers: http::HeaderMap) -> std::io::Result<http::Response<SendFile>> {
///     Ok(SendFile::open("report.pdf").await?.respond_to(&headers))
/// }
/// ```
///
/// A layer around it that does not change the size is assumed not to change the bytes. The layer's body
/// lives until the file was sent, but never sees the bytes. A layer that must see or change the
/// bytes has to return another size or none.
///
/// If the file changes while it is sent, the engine closes the connection before the response is
/// complete, so no client accepts a mix of two states.
#[derive(Debug)]
pub struct SendFile {
    file: Arc<SharedFile>,
    stamp: FileStamp,
    offset: u64,
    remaining: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SendFile {
    /// Opens a file on a blocking thread. The caller decides which paths are permitted: a path from
    /// client input needs checks that this function does not make.
    ///
    /// A worker caches a few recently used open files, and checks each time whether the path still
    /// refers to the unchanged file. A file that did not change for 10 seconds and is requested
    /// repeatedly is sent from a copy in memory, if the copies' byte limit permits.
    ///
    /// # Errors
    /// If it cannot be opened or is not a regular file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let (file, stamp) = open_file_cache::open(path.as_ref()).await?;
        Ok(Self::whole(file, stamp))
    }

    /// Wraps an open file.
    ///
    /// # Errors
    /// If `fstat` fails or it is not a regular file.
    pub fn from_file(file: File) -> io::Result<Self> {
        open_file_cache::check_is_regular(&file)?;
        let stamp = FileStamp::of(&file)?;
        Ok(Self::whole(SharedFile::new(file), stamp))
    }

    fn whole(file: Arc<SharedFile>, stamp: FileStamp) -> Self {
        Self { file, stamp, offset: 0, remaining: stamp.length, reading: None }
    }

    /// Wraps content that the engine was to send, for another server.
    pub(super) fn from_content(content: &FileContent) -> Self {
        let FileContent { file, offset, length, stamp } = content;
        Self { file: file.shared().clone(), stamp: *stamp, offset: *offset, remaining: *length, reading: None }
    }

    /// Restricts the content to a range of its current range. Bytes after its end are ignored.
    #[must_use]
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Self {
        let first = match range.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
        };
        let end = match range.end_bound() {
            Bound::Unbounded => u64::MAX,
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
        };
        let first = first.min(self.remaining);
        self.remaining = end.clamp(first, self.remaining) - first;
        self.offset += first;
        self
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        self.remaining
    }

    /// Returns when the file was last modified.
    pub fn modified(&self) -> SystemTime {
        let (seconds, _) = self.stamp.modified;
        UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Builds the response to a GET or HEAD request with these fields: all of it (200), a single
    /// requested range (206), 304, 412 or 416.
    ///
    /// A request for several ranges gets all of it, and so does a HEAD, since Range only applies to
    /// GET (RFC 9110 §14.2). On other servers the method is unknown here, and HEAD is treated as GET.
    /// The caller must add the Content-Type.
    pub fn respond_to(self, request: &HeaderMap) -> Response<Self> {
        let now = HttpDate::from_unix(unix_now());
        let modified = HttpDate::from_unix(self.stamp.modified.0);
        let etag = format!("\"{:x}-{:x}-{:x}\"", self.stamp.modified.0, self.stamp.modified.1, self.stamp.length);
        let (status, content, range) = match choose_response(request, etag.as_bytes(), modified, now, self.remaining) {
            ResponseChoice::Whole => (StatusCode::OK, self, None),
            ResponseChoice::NotModified => (StatusCode::NOT_MODIFIED, self.range(..0), None),
            ResponseChoice::PreconditionFailed => (StatusCode::PRECONDITION_FAILED, self.range(..0), None),
            ResponseChoice::Unsatisfiable => {
                let range = format!("bytes */{}", self.remaining);
                (StatusCode::RANGE_NOT_SATISFIABLE, self.range(..0), Some(range))
            }
            ResponseChoice::Part(part) => {
                let range = format!("bytes {}-{}/{}", part.first, part.last, self.remaining);
                (StatusCode::PARTIAL_CONTENT, self.range(part.first..=part.last), Some(range))
            }
        };
        let mut response = Response::new(content);
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let texts = [
            (header::LAST_MODIFIED, HeaderValue::from_bytes(&modified.format()).ok()),
            (header::ETAG, HeaderValue::try_from(etag).ok()),
            (header::CONTENT_RANGE, range.and_then(|range| HeaderValue::try_from(range).ok())),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
        response
    }
}

/// Which response a file request gets.
enum ResponseChoice {
    Whole,
    Part(range::ByteRange),
    Unsatisfiable,
    NotModified,
    PreconditionFailed,
}

/// Evaluates the preconditions and the range of a request for a file.
fn choose_response(request: &HeaderMap, etag: &[u8], modified: HttpDate, now: HttpDate, length: u64) -> ResponseChoice {
    const CONDITION_FIELDS: [header::HeaderName; 6] = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ];
    // A request head that contains only the condition fields.
    let mut bytes = b"GET / HTTP/1.1\r\nhost: a\r\n".to_vec();
    let before = bytes.len();
    for name in &CONDITION_FIELDS {
        for value in request.get_all(name) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                bytes.extend_from_slice(part);
            }
        }
    }
    if bytes.len() == before {
        return ResponseChoice::Whole;
    }
    bytes.extend_from_slice(b"\r\n");
    let mut head = RequestHead::default();
    // Fields of a parsed request form a valid head again; if not, the whole file is sent.
    let Ok(true) = parse_request(&bytes, &MessageLimits::default(), &mut head) else { return ResponseChoice::Whole };
    let validators = Validators { etag: Some(etag), last_modified: Some(modified) };
    match condition::evaluate(&head, &bytes, &validators, now) {
        PreconditionResult::NotModified => ResponseChoice::NotModified,
        PreconditionResult::Failed => ResponseChoice::PreconditionFailed,
        PreconditionResult::ProceedIgnoringRange => ResponseChoice::Whole,
        // The file may have had two contents in the second of a date.
        PreconditionResult::Proceed if condition::has_range_without_tag(&head, &bytes) => ResponseChoice::Whole,
        PreconditionResult::Proceed
            if RequestContext::current().is_some_and(|context| context.method == Method::Head) =>
        {
            ResponseChoice::Whole
        }
        PreconditionResult::Proceed => {
            match head.value(&bytes, KnownField::Range).map(|value| range::select(value, length)) {
                Some(RangeSelection::Single(part)) => ResponseChoice::Part(part),
                Some(RangeSelection::Unsatisfiable) => ResponseChoice::Unsatisfiable,
                None | Some(RangeSelection::Whole | RangeSelection::Multiple(_)) => ResponseChoice::Whole,
            }
        }
    }
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

thread_local! {
    static SIZE_PROBE: Cell<SizeProbe> = const { Cell::new(SizeProbe::Inactive) };
}

/// State of the engine's probe for a file.
#[derive(Default)]
enum SizeProbe {
    /// The engine is not probing.
    #[default]
    Inactive,
    /// The engine is probing.
    Active,
    /// The engine is probing, and a file was found.
    Found(FileRange),
}

/// Converts a body that is a file to file content; returns other bodies with their size hint.
pub(super) fn into_engine_body<B: Body + 'static>(body: B) -> Result<Content, (B, SizeHint)> {
    let (hint, part) = probe(&body);
    let Some(FileRange { file, stamp, offset, length }) = part else { return Err((body, hint)) };
    // A wrapping body is dropped only after the file was sent, since it may hold a permit.
    let file = Rc::new(OpenFile::from_shared(file).with_attached(Box::new(body)));
    Ok(Content::File(Box::new(FileContent { file, offset, length, stamp })))
}

/// Returns the size hint of a body, and its file if the body is an unchanged [`SendFile`].
pub(super) fn probe<B: Body>(body: &B) -> (SizeHint, Option<FileRange>) {
    SIZE_PROBE.set(SizeProbe::Active);
    let hint = body.size_hint();
    match SIZE_PROBE.take() {
        SizeProbe::Found(part) if hint.exact() == Some(PROBE_SIZE) => (SizeHint::with_exact(part.length), Some(part)),
        // The file is only a part of other content, whose size must be queried again.
        SizeProbe::Found(_) => (body.size_hint(), None),
        SizeProbe::Inactive | SizeProbe::Active => (hint, None),
    }
}

impl Body for SendFile {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        if self.reading.is_none() {
            let Self { stamp, offset, remaining: length, .. } = *self;
            let range = FileRange { file: self.file.clone(), stamp, offset, length };
            let count = length.min(READ_BYTES) as usize;
            self.reading = Some(spawn_blocking(move || range.read_start(count)));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let chunk = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        match &chunk {
            Ok(bytes) => {
                self.offset += bytes.len() as u64;
                self.remaining -= bytes.len() as u64;
            }
            Err(_) => self.remaining = 0,
        }
        Poll::Ready(Some(chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.reading.is_some() || self.remaining == 0 {
            return SizeHint::with_exact(self.remaining);
        }
        match SIZE_PROBE.try_with(Cell::take) {
            Ok(SizeProbe::Active) => {
                let part = FileRange {
                    file: self.file.clone(),
                    stamp: self.stamp,
                    offset: self.offset,
                    length: self.remaining,
                };
                SIZE_PROBE.set(SizeProbe::Found(part));
                SizeHint::with_exact(PROBE_SIZE)
            }
            // The body contains a second file, so it is not just one file.
            Ok(SizeProbe::Found(part)) => {
                SIZE_PROBE.set(SizeProbe::Found(part));
                SizeHint::with_exact(PROBE_SIZE)
            }
            _ => SizeHint::with_exact(self.remaining),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ranges() {
        let path = std::env::temp_dir().join(format!("selvedge-send-file-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let whole = || SendFile::from_file(File::open(&path).unwrap()).unwrap();
        for (part, at, length) in [
            (whole().range(..), 0, 10),
            (whole().range(2..), 2, 8),
            (whole().range(2..=4), 2, 3),
            (whole().range(2..).range(1..3), 3, 2),
            (whole().range(8..20), 8, 2),
            (whole().range(20..30), 10, 0),
        ] {
            assert_eq!((part.offset, part.remaining), (at, length));
        }
        std::fs::remove_file(path).unwrap();
    }
}
