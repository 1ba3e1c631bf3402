//! A file as the content of an answer.
//!
//! To the ecosystem it is content like any other, which reads the file piece by piece. The engine
//! asks an answer's content for its size in a way of its own, and a file that comes to it as
//! it was made says so in its answer. Whatever changes content on its way, as a compression does,
//! has another size or none; then the file is read like anywhere else.

use crate::service::{Body as Content, FileContent, FileState, OpenFile, SharedFile};
use crate::tower::current::Current;
use crate::tower::opened;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use selvedge_proto::condition::{self, Outcome, Validators};
use selvedge_proto::date::HttpDate;
use selvedge_proto::field::Known;
use selvedge_proto::head::RequestHead;
use selvedge_proto::http1::parse_request;
use selvedge_proto::limits::Limits;
use selvedge_proto::method::Method;
use selvedge_proto::range::{self, Selection};
use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::{JoinHandle, spawn_blocking};

/// Read at once where a file is content like any other.
const PIECE_BYTES: u64 = 64 * 1024;

/// The size that a file has for the engine, and nothing else.
const MARK: u64 = (1 << 62) + 0x5e1_f1e;

/// An open regular file, or part of it, as the content of an answer. The engine sends it
/// without reading it; every other server reads and sends it as it does with any content.
///
/// ```no_run
/// use selvedge::SendFile;
///
/// async fn report(headers: http::HeaderMap) -> std::io::Result<http::Response<SendFile>> {
///     Ok(SendFile::open("report.pdf").await?.answer(&headers))
/// }
/// ```
///
/// A layer around it that leaves its size as it is counts as one that leaves its bytes, too: it lives until
/// the file was sent, and sees none of it. What has to see or change the bytes has another size, or none.
///
/// Should the file change while it is sent, the connection is closed before the answer is
/// complete: no client takes parts of two states for one file.
#[derive(Debug)]
pub struct SendFile {
    file: Arc<SharedFile>,
    state: FileState,
    at: u64,
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SendFile {
    /// Opens a file, on a thread that may wait for the disk. What the path may name is the
    /// caller's to decide: one that a client has a say in needs more than this.
    ///
    /// A worker keeps a few files open that were asked for lately, and looks each time whether
    /// the path still names the same file in the same state; one that was not changed for ten
    /// seconds and is asked for again is sent from a copy in memory, where there is room for one.
    ///
    /// # Errors
    /// When it cannot be opened, or is no regular file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let (file, state) = opened::open(path.as_ref()).await?;
        Ok(Self::whole(file, state))
    }

    /// All of a file.
    ///
    /// # Errors
    /// When the system cannot tell its state, or it is no regular file.
    pub fn of(file: File) -> io::Result<Self> {
        opened::regular(&file)?;
        let state = FileState::of(&file)?;
        Ok(Self::whole(SharedFile::new(file), state))
    }

    fn whole(file: Arc<SharedFile>, state: FileState) -> Self {
        Self { file, state, at: 0, left: state.length, reading: None }
    }

    /// What the engine was to send, for whoever sends it otherwise.
    pub(super) fn of_content(content: &FileContent) -> Self {
        let FileContent { file, offset, length, state } = content;
        Self { file: file.shared().clone(), state: *state, at: *offset, left: *length, reading: None }
    }

    /// Only this part of what it was; what lies behind its end is left out.
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
        let first = first.min(self.left);
        self.left = end.clamp(first, self.left) - first;
        self.at += first;
        self
    }

    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.left
    }

    /// When the file was last changed.
    pub fn modified(&self) -> SystemTime {
        let (seconds, _) = self.state.modified;
        UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// The answer to a GET or HEAD with these fields: all of it, the one part that is asked for
    /// (206), none (416), or that nothing has changed (304). A request for several parts gets
    /// all of it, and so does a HEAD, for which parts have no meaning (RFC 9110 §14.2); on other
    /// servers, which do not say, a HEAD is taken for a GET. Its media type is the caller's to add.
    pub fn answer(self, request: &HeaderMap) -> Response<Self> {
        let now = HttpDate::from_unix(unix_now());
        let modified = HttpDate::from_unix(self.state.modified.0);
        let etag = format!("\"{:x}-{:x}-{:x}\"", self.state.modified.0, self.state.modified.1, self.state.length);
        let (status, content, range) = match choose(request, etag.as_bytes(), modified, now, self.left) {
            Choice::All => (StatusCode::OK, self, None),
            Choice::Unchanged => (StatusCode::NOT_MODIFIED, self.range(..0), None),
            Choice::Failed => (StatusCode::PRECONDITION_FAILED, self.range(..0), None),
            Choice::Nothing => {
                let range = format!("bytes */{}", self.left);
                (StatusCode::RANGE_NOT_SATISFIABLE, self.range(..0), Some(range))
            }
            Choice::Part(part) => {
                let range = format!("bytes {}-{}/{}", part.first, part.last, self.left);
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

/// What of a file is sent.
enum Choice {
    All,
    Part(range::ByteRange),
    Nothing,
    Unchanged,
    Failed,
}

/// Holds a request's conditions and range against a file, as they would be for any other.
fn choose(request: &HeaderMap, etag: &[u8], modified: HttpDate, now: HttpDate, length: u64) -> Choice {
    const DECIDE: [header::HeaderName; 6] = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ];
    // A head of nothing but what decides.
    let mut bytes = b"GET / HTTP/1.1\r\nhost: a\r\n".to_vec();
    let before = bytes.len();
    for name in &DECIDE {
        for value in request.get_all(name) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                bytes.extend_from_slice(part);
            }
        }
    }
    if bytes.len() == before {
        return Choice::All;
    }
    bytes.extend_from_slice(b"\r\n");
    let mut head = RequestHead::default();
    // Whatever came as a head is one again; what did not is served whole.
    let Ok(true) = parse_request(&bytes, &Limits::default(), &mut head) else { return Choice::All };
    let validators = Validators { etag: Some(etag), last_modified: Some(modified) };
    match condition::evaluate(&head, &bytes, &validators, now) {
        Outcome::NotModified => Choice::Unchanged,
        Outcome::Failed => Choice::Failed,
        Outcome::ProceedWhole => Choice::All,
        Outcome::Proceed if Current::get().is_some_and(|current| current.method == Method::Head) => Choice::All,
        Outcome::Proceed => match head.value(&bytes, Known::Range).map(|value| range::select(value, length)) {
            Some(Selection::One(part)) => Choice::Part(part),
            Some(Selection::Unsatisfiable) => Choice::Nothing,
            None | Some(Selection::Whole | Selection::Many(_)) => Choice::All,
        },
    }
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

thread_local! {
    static LOOK: Cell<Look> = const { Cell::new(Look::Away) };
}

/// What the engine's way to ask for a size has found.
#[derive(Default)]
enum Look {
    /// Nobody looks.
    #[default]
    Away,
    /// The engine looks.
    Looking,
    /// This was found.
    Found(FileFacts),
}

/// A file that content is, or the part of it.
pub(super) struct FileFacts {
    pub(super) file: Arc<SharedFile>,
    /// As it was when it was opened.
    pub(super) state: FileState,
    pub(super) at: u64,
    pub(super) left: u64,
}

/// The file that content is, as the engine sends it; or else the content, and its size.
pub(super) fn take<B: Body + 'static>(body: B) -> Result<Content, (B, SizeHint)> {
    let (hint, facts) = find(&body);
    let Some(FileFacts { file, state, at, left }) = facts else { return Err((body, hint)) };
    // What stands around the file may be there to be dropped when it was sent, as a permit is.
    let file = Rc::new(OpenFile::sharing(file).holding(Box::new(body)));
    Ok(Content::File(FileContent { file, offset: at, length: left, state }))
}

/// The size of content, and the file that it is, where it is one as it was made.
pub(super) fn find<B: Body>(body: &B) -> (SizeHint, Option<FileFacts>) {
    LOOK.set(Look::Looking);
    let hint = body.size_hint();
    match LOOK.take() {
        Look::Found(facts) if hint.exact() == Some(MARK) => (SizeHint::with_exact(facts.left), Some(facts)),
        // What was found is somewhere within other content, whose size has to be asked again.
        Look::Found(_) => (body.size_hint(), None),
        Look::Away | Look::Looking => (hint, None),
    }
}

impl Body for SendFile {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.reading.is_none() {
            let (file, state, at) = (self.file.clone(), self.state, self.at);
            let count = self.left.min(PIECE_BYTES) as usize;
            self.reading = Some(spawn_blocking(move || read(&file, state, at, count)));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let piece = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        match &piece {
            Ok(bytes) => {
                self.at += bytes.len() as u64;
                self.left -= bytes.len() as u64;
            }
            Err(_) => self.left = 0,
        }
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.reading.is_some() || self.left == 0 {
            return SizeHint::with_exact(self.left);
        }
        match LOOK.try_with(Cell::take) {
            Ok(Look::Looking) => {
                let facts = FileFacts { file: self.file.clone(), state: self.state, at: self.at, left: self.left };
                LOOK.set(Look::Found(facts));
                SizeHint::with_exact(MARK)
            }
            // A second file in the same content: it is neither.
            Ok(Look::Found(facts)) => {
                LOOK.set(Look::Found(facts));
                SizeHint::with_exact(MARK)
            }
            _ => SizeHint::with_exact(self.left),
        }
    }
}

/// Reads a piece of a file that is still as it was.
fn read(file: &File, state: FileState, at: u64, count: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; count];
    file.read_exact_at(&mut piece, at)?;
    if FileState::of(file)? != state {
        return Err(io::Error::other("the file changed while it was sent"));
    }
    Ok(piece.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts() {
        let path = std::env::temp_dir().join(format!("selvedge-send-file-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let whole = || SendFile::of(File::open(&path).unwrap()).unwrap();
        for (part, at, length) in [
            (whole().range(..), 0, 10),
            (whole().range(2..), 2, 8),
            (whole().range(2..=4), 2, 3),
            (whole().range(2..).range(1..3), 3, 2),
            (whole().range(8..20), 8, 2),
            (whole().range(20..30), 10, 0),
        ] {
            assert_eq!((part.at, part.left), (at, length));
        }
        std::fs::remove_file(path).unwrap();
    }
}
