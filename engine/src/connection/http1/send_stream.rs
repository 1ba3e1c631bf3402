//! Sends content that is produced while it is sent. Content of upstreams that leaves as it is may pass through a pipe.

use super::connection::Connection;
use crate::connection::transport::Transport;
use crate::limits::{BATCH_BYTES, BYTES_PER_YIELD, CHUNKS_PER_YIELD, COPY_BYTES_MAX};
use crate::net::raw::SendMode;
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::{Chunks, CloseReason, StreamError};
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use selvedge_proto::http1::write::{self, ResponseFraming};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// A stream of content, and the pipe through which parts of it may pass.
struct PipedStream {
    chunks: Pin<Box<dyn Chunks>>,
    /// `None` if a session encodes the bytes.
    pipe: Option<SplicePipe>,
}

/// The next part of a stream.
enum Part {
    Chunk(Bytes),
    /// The pipe has this number of bytes.
    Piped(usize),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Chunk(bytes) => bytes.len(),
            Self::Piped(count) => *count,
        }
    }
}

type NextPart = Option<Result<Part, StreamError>>;

impl PipedStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextPart> {
        if let Some(pipe) = &mut self.pipe {
            match ready!(self.chunks.as_mut().poll_splice(cx, pipe)) {
                Ok(0) => {}
                Ok(count) => return Poll::Ready(Some(Ok(Part::Piped(count)))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        self.chunks.as_mut().poll_chunk(cx).map(|next| next.map(|chunk| chunk.map(Part::Chunk)))
    }
}

impl<S: Stream> Connection<S> {
    /// Sends chunks as the application produces them. Flushes whenever the next chunk is pending.
    pub(super) async fn send_stream(
        &self,
        chunks: Pin<Box<dyn Chunks>>,
        length: Option<u64>,
        framing: ResponseFraming,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        let transport = &self.transport;
        let mut budget = YieldBudget::default();
        let mut source = PipedStream { chunks, pipe: (!transport.link.has_session()).then(SplicePipe::default) };
        let mut produced = 0;
        loop {
            let next = match poll_fn(|cx| Poll::Ready(source.poll_next(cx))).await {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    budget = YieldBudget::default();
                    self.next_after_flush(&mut source).await?
                }
            };
            let Some(part) = next else { break };
            let Ok(part) = part else { return Err(self.fail_stream(framing)) };
            let count = part.len();
            produced += count as u64;
            if length.is_some_and(|length| produced > length) {
                return Err(self.fail_stream(framing));
            }
            match (part, &mut source.pipe) {
                (Part::Chunk(piece), _) if piece.is_empty() => continue,
                (Part::Chunk(piece), _) => {
                    *sent += count as u64;
                    self.send_meanwhile(&mut source.chunks, write_chunk(transport, &piece, framing)).await?;
                }
                (Part::Piped(count), Some(pipe)) if count == pipe.len() => {
                    let send = send_pipe(transport, pipe, framing, sent);
                    self.send_meanwhile(&mut source.chunks, send).await?;
                }
                (Part::Piped(_), _) => return Err(CloseReason::StreamFailed),
            }
            if budget.is_spent_by(count) {
                yield_now().await;
            }
        }
        if length.is_some_and(|length| produced < length) {
            return Err(self.fail_stream(framing));
        }
        if framing == ResponseFraming::Chunked {
            write::write_last_chunk(&source.chunks.as_mut().trailers(), transport.output.borrow_mut().bytes());
        }
        Ok(())
    }

    /// Sends a head that is still buffered. Without any byte of a response, a client takes the close for that of an idle
    /// connection, and sends the request again. Content up to the close would seem complete, so nothing is sent then.
    #[cold]
    fn fail_stream(&self, framing: ResponseFraming) -> CloseReason {
        if framing != ResponseFraming::UntilClose {
            // The connection closes in any case.
            let _ = self.transport.send_now(SendMode::Flush);
        }
        CloseReason::StreamFailed
    }

    /// Sends, and meanwhile lets the producer move what does not depend on the client's reading. A client that sends
    /// its content at the minimum rate is not late with the response.
    async fn send_meanwhile(
        &self,
        chunks: &mut Pin<Box<dyn Chunks>>,
        send: impl Future<Output = Result<(), CloseReason>>,
    ) -> Result<(), CloseReason> {
        let mut send = pin!(send);
        poll_fn(|cx| {
            // It notices the deadline of sending before the reader of content takes it for its own.
            if let Poll::Ready(sent) = send.as_mut().poll(cx) {
                return Poll::Ready(sent);
            }
            chunks.as_mut().poll_progress(cx);
            self.body.extend_send_deadline(&self.transport);
            Poll::Pending
        })
        .await
    }

    /// Sends what is buffered while the next part is awaited.
    async fn next_after_flush(&self, source: &mut PipedStream) -> Result<NextPart, CloseReason> {
        let transport = &self.transport;
        // The producer wakes this task, possibly only to yield. A flush that waits consumes that wake-up, so the
        // source is polled again after it.
        let mut is_called = !transport.send_now(SendMode::Flush)?;
        if is_called {
            self.send_meanwhile(&mut source.chunks, Box::pin(transport.flush_waiting())).await?;
        }
        self.body.wait_alone(transport);
        poll_fn(|cx| {
            if std::mem::replace(&mut is_called, true)
                && let Poll::Ready(next) = source.poll_next(cx)
            {
                return Poll::Ready(Ok(next));
            }
            self.poll_client_disconnected(cx).map(|()| Err(CloseReason::ClientDisconnected))
        })
        .await
    }
}

async fn write_chunk<S: Stream>(
    transport: &Transport<S>,
    piece: &[u8],
    framing: ResponseFraming,
) -> Result<(), CloseReason> {
    if framing == ResponseFraming::Chunked {
        write::write_chunk_size(piece.len(), transport.output.borrow_mut().bytes());
    }
    if piece.len() <= COPY_BYTES_MAX {
        transport.output.borrow_mut().bytes().extend_from_slice(piece);
    } else {
        transport.send_after_buffered(piece, &mut transport.send_progress()).await?;
    }
    if framing == ResponseFraming::Chunked {
        transport.output.borrow_mut().bytes().extend_from_slice(b"\r\n");
    }
    if transport.unsent_len() >= BATCH_BYTES { transport.flush().await } else { Ok(()) }
}

/// Sends what is buffered, and the bytes in the pipe behind it without a packet of its own.
async fn send_pipe<S: Stream>(
    transport: &Transport<S>,
    pipe: &mut SplicePipe,
    framing: ResponseFraming,
    sent: &mut u64,
) -> Result<(), CloseReason> {
    if framing == ResponseFraming::Chunked {
        write::write_chunk_size(pipe.len(), transport.output.borrow_mut().bytes());
    }
    if !transport.send_now(SendMode::MoreFollows)? {
        Box::pin(transport.flush_waiting()).await?;
    }
    let mut progress = transport.send_progress();
    while pipe.len() > 0 {
        *sent += transport.send_step(&mut progress, || transport.link.send_pipe(pipe)).await? as u64;
    }
    if framing == ResponseFraming::Chunked {
        transport.output.borrow_mut().bytes().extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Bytes and chunks sent since this task last yielded.
#[derive(Default)]
struct YieldBudget {
    bytes: usize,
    chunks: usize,
}

impl YieldBudget {
    /// Counts a chunk. Returns whether the task has to yield.
    fn is_spent_by(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.chunks += 1;
        let is_over = self.bytes >= BYTES_PER_YIELD || self.chunks >= CHUNKS_PER_YIELD;
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}
