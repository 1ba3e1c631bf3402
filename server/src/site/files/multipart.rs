//! Several parts of a file in one answer (RFC 9110 §14.6).

use super::resolve::State;
use super::resource::{Kept, Representation};
use bytes::Bytes;
use rustix::fs::fstat;
use selvedge::proto::range::ByteRange;
use selvedge::service::{Body, Chunks, OpenFile, StreamError};
use selvedge::{Response, Status, offload};
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// How much of a file is read at once.
const PIECE_BYTES: u64 = 128 * 1024;

/// A 206 with a part for each range.
pub(super) fn respond(representation: &Representation, ranges: &[ByteRange]) -> Response {
    let boundary = boundary();
    let mut pieces = VecDeque::new();
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: {}\r\ncontent-range: bytes {}-{}/{}\r\n\r\n",
            representation.content_type, range.first, range.last, representation.length
        );
        pieces.push_back(Piece::Bytes(head.into()));
        pieces.push_back(match &representation.content {
            // A file in memory is small, so the positions fit.
            Kept::Memory(bytes) => Piece::Bytes(bytes.slice(range.first as usize..=range.last as usize)),
            Kept::Open(file) => Piece::File { file: file.clone(), at: range.first, end: range.last + 1 },
        });
    }
    pieces.push_back(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    let length = pieces.iter().map(Piece::len).sum();

    let mut response = Response::with_fields(Status::PARTIAL_CONTENT, representation.fields.clone());
    let kind = format!("multipart/byteranges; boundary={boundary}");
    response.edit_fields().set("content-type", kind).expect("a boundary is a token");
    let parts = Parts { pieces, state: representation.state, reading: None };
    response.body = Body::Stream { length: Some(length), chunks: Box::pin(parts) };
    response
}

/// 128 bits that nobody can know beforehand, so that no file can hold the boundary.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

enum Piece {
    Bytes(Bytes),
    File { file: Rc<OpenFile>, at: u64, end: u64 },
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { at, end, .. } => end - at,
        }
    }
}

type Reading = Pin<Box<dyn Future<Output = Option<std::io::Result<Vec<u8>>>>>>;

struct Parts {
    pieces: VecDeque<Piece>,
    /// The state of the file that the head of the answer speaks of.
    state: State,
    reading: Option<Reading>,
}

impl Chunks for Parts {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                return Poll::Ready(Some(match read {
                    Some(Ok(bytes)) => Ok(bytes.into()),
                    Some(Err(error)) => Err(StreamError(format!("a file could not be read: {error}"))),
                    None => Err(StreamError("reading a file was given up".to_owned())),
                }));
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Some(Piece::File { file, at, end }) => match read_piece(&file, at, end, self.state) {
                    Ok(reading) => {
                        let next = at + PIECE_BYTES.min(end - at);
                        if next < end {
                            self.pieces.push_front(Piece::File { file, at: next, end });
                        }
                        self.reading = Some(reading);
                    }
                    Err(error) => {
                        return Poll::Ready(Some(Err(StreamError(format!("a file could not be read: {error}")))));
                    }
                },
            }
        }
    }
}

/// Reads off the worker, since the file may not be in memory.
fn read_piece(file: &File, at: u64, end: u64, state: State) -> std::io::Result<Reading> {
    let file = file.try_clone()?;
    let length = usize::try_from(PIECE_BYTES.min(end - at)).unwrap_or(usize::MAX);
    Ok(Box::pin(offload(move || {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at)?;
        // Looked at behind the read: what was read before a change is of the state before it.
        match State::of(&fstat(&file)?).has_content_of(&state) {
            true => Ok(bytes),
            false => Err(std::io::Error::other("it has changed")),
        }
    })))
}
