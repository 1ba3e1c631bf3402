//! Sends several ranges of a file in one response (RFC 9110 §14.6).

use super::resource::{BodyStorage, Representation, RepresentationFields};
use bytes::Bytes;
use selvedge::proto::range::ByteRange;
use selvedge::service::{Body, Chunks, FileStamp, OpenFile, StreamError};
use selvedge::{Response, StatusCode, spawn_blocking};
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The number of bytes read at once.
const READ_BYTES: u64 = 128 * 1024;

/// Responds 206 (Partial Content) with a part for each range.
pub(super) fn respond(
    representation: &Representation,
    fields: &RepresentationFields,
    ranges: &[ByteRange],
) -> Response {
    let boundary = boundary();
    let mut pieces = VecDeque::new();
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: {}\r\ncontent-range: bytes {}-{}/{}\r\n\r\n",
            representation.content_type, range.first, range.last, representation.length
        );
        pieces.push_back(MultipartPiece::Bytes(head.into()));
        pieces.push_back(match &representation.storage {
            // A file in memory is small, so the casts are lossless.
            BodyStorage::Memory(bytes) => {
                MultipartPiece::Bytes(bytes.slice(range.first as usize..=range.last as usize))
            }
            BodyStorage::Open(file) => {
                MultipartPiece::File { file: file.clone(), at: range.first, end: range.last + 1 }
            }
        });
    }
    pieces.push_back(MultipartPiece::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    let length = pieces.iter().map(MultipartPiece::len).sum();

    let mut response = Response::with_fields(StatusCode::PARTIAL_CONTENT, fields.full.clone());
    let media_type = format!("multipart/byteranges; boundary={boundary}");
    response.fields_mut().set("content-type", media_type).expect("a boundary is a token");
    let body = MultipartBody { pieces, stamp: representation.stamp, pending_read: None };
    response.body = Body::Stream { length: Some(length), chunks: Box::pin(body) };
    response
}

/// Returns a boundary of 128 random bits, so that no file can contain it.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

enum MultipartPiece {
    Bytes(Bytes),
    File { file: Rc<OpenFile>, at: u64, end: u64 },
}

impl MultipartPiece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { at, end, .. } => end - at,
        }
    }
}

type ReadFuture = Pin<Box<dyn Future<Output = Option<std::io::Result<Vec<u8>>>>>>;

struct MultipartBody {
    pieces: VecDeque<MultipartPiece>,
    /// The state of the file that the response head describes.
    stamp: FileStamp,
    pending_read: Option<ReadFuture>,
}

impl Chunks for MultipartBody {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            if let Some(reading) = &mut self.pending_read {
                let read = ready!(reading.as_mut().poll(cx));
                self.pending_read = None;
                return Poll::Ready(Some(match read {
                    Some(Ok(bytes)) => Ok(bytes.into()),
                    Some(Err(error)) => Err(StreamError(format!("cannot read the file: {error}"))),
                    None => Err(StreamError("the read was canceled by shutdown".to_owned())),
                }));
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(MultipartPiece::Bytes(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Some(MultipartPiece::File { file, at, end }) => match read_piece(&file, at, end, self.stamp) {
                    Ok(reading) => {
                        let next = at + READ_BYTES.min(end - at);
                        if next < end {
                            self.pieces.push_front(MultipartPiece::File { file, at: next, end });
                        }
                        self.pending_read = Some(reading);
                    }
                    Err(error) => {
                        return Poll::Ready(Some(Err(StreamError(format!("cannot read the file: {error}")))));
                    }
                },
            }
        }
    }
}

/// Starts a read on a blocking thread, because the file may not be in the page cache.
fn read_piece(file: &File, at: u64, end: u64, stamp: FileStamp) -> std::io::Result<ReadFuture> {
    let file = file.try_clone()?;
    let length = usize::try_from(READ_BYTES.min(end - at)).unwrap_or(usize::MAX);
    Ok(Box::pin(spawn_blocking(move || {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at)?;
        // Checked after the read: bytes read before a change belong to the earlier state.
        match FileStamp::of(&file)?.has_content_of(&stamp) {
            true => Ok(bytes),
            false => Err(std::io::Error::other("the file changed while it was sent")),
        }
    })))
}
