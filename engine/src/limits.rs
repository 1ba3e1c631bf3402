//! All limits of the engine, each with unit, default and reason.

use selvedge_proto::field_section::{FIELD_OVERHEAD_BYTES, SectionLimits};
use selvedge_proto::http2::Http2Limits;
use selvedge_proto::limits::MessageLimits;
use std::num::NonZeroUsize;
use std::time::Duration;
use std::{io, thread};

/// Limits of one server on its clients. All are on by default. Set them one by one at [`Server`](crate::Server) or
/// [`Serve`](crate::Serve), or all at once:
///
/// ```no_run
/// use selvedge::{Limits, Server};
/// use std::time::Duration;
///
/// let limits = Limits {
///     body_bytes_max: 100 << 20,
///     header_timeout: Duration::from_secs(5),
///     shutdown_timeout: Duration::from_secs(60),
///     ..Limits::default()
/// };
/// let server = Server::bind("127.0.0.1:3000")?.limits(limits);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limits on heads, chunks and trailers.
    pub message: MessageLimits,
    /// Limits of connections with HTTP/2. Their [`Http2Limits::section`] follows from [`Limits::message`].
    pub http2: Http2Limits,
    /// Time to a complete head: from accept for the first request of a connection, from its first byte for later
    /// ones. Default 10 s. Exceeded: 408, close. In HTTP/2, it is the time to the first
    /// request, from the start of the connection or the end of its TLS handshake. Exceeded: GOAWAY, close.
    pub header_timeout: Duration,
    /// Longest time without a received byte while request content is expected. Default 30 s. Exceeded: 408, close. In
    /// HTTP/2, only the stream ends.
    pub body_timeout: Duration,
    /// Minimum rate of request content in bytes per second, averaged after a first [`Limits::body_timeout`]. Default
    /// 500. Below it: 408, close. In HTTP/2, only the stream ends.
    pub body_min_rate: u32,
    /// Longest time in which a client reads nothing of a response. Default 30 s. Exceeded: close. In HTTP/2, it is also
    /// the longest time in which a client does not open the window of a response. Exceeded: the stream is reset.
    pub send_timeout: Duration,
    /// Minimum rate of a response in bytes per second, averaged after a first [`Limits::send_timeout`]. Default 500.
    /// Below it: close. In HTTP/2, windows that are opened more slowly reset the stream.
    pub send_min_rate: u32,
    /// Longest idle time between requests. Default 60 s; it shrinks towards [`KEEP_ALIVE_TIMEOUT_MIN`] as the connection
    /// limit nears. Exceeded: close. In HTTP/2, it begins when no stream is open; PING does not extend it.
    pub keep_alive_timeout: Duration,
    /// Most request content, unless the application sets another limit. Default 10 MiB. Exceeded: 413.
    pub body_bytes_max: u64,
    /// Most unread request content that is discarded to keep the connection open. Default 256 KiB. Exceeded: close. HTTP/2
    /// resets the stream of unread content, and the connection stays open.
    pub discard_bytes_max: u64,
    /// Most connections at once, over all workers. Default: the soft `RLIMIT_NOFILE`, less [`DESCRIPTORS_RESERVED`],
    /// [`DESCRIPTORS_RESERVED_PER_CORE`] for each core, and an eighth of the rest, which is reserved for files. At
    /// the limit the connection that is idle for the longest time is closed. If none is idle, new connections wait to
    /// be accepted.
    pub connections_max: usize,
    /// Longest time that a graceful shutdown waits for requests in progress. Default 30 s. Exceeded: close, and the
    /// log names the open connections.
    pub shutdown_timeout: Duration,
    /// How long a connection of HTTP/1 without a request is kept open after a graceful shutdown has begun. Default 2 s. A
    /// request that arrives within it is served with `Connection: close`; without it, the request could be lost. Exceeded:
    /// close. [`Limits::shutdown_timeout`] bounds it. HTTP/2 announces its end, with
    /// [`Http2Limits::shutdown_notice_ms`].
    pub shutdown_notice: Duration,
}

/// Returns the most memory of a buffer for bytes of this length. A full buffer at most doubles.
const fn buffer_bytes_max(bytes: usize) -> usize {
    if bytes <= BUFFER_BYTES / 2 { BUFFER_BYTES } else { 2 * (bytes + BUFFER_BYTES) }
}

impl Limits {
    /// Returns an upper bound of the memory of one connection with these limits. It counts two receive buffers (of
    /// the request and of what follows it), the send buffer, a buffer for a copied part of a file, the task, and the
    /// positions of fields. Content that an application generates is not counted.
    pub fn connection_bytes_max(&self) -> u64 {
        let input = buffer_bytes_max(self.message.head_bytes_max.max(self.message.trailer_bytes_max));
        // Bytes after a request may be bulk content.
        (input + input.max(LONG_BUFFER_BYTES) + 2 * BUFFER_BYTES + TASK_BYTES_MAX) as u64
    }

    /// Returns the most memory that a worker pools or lends to its blocking threads.
    pub const fn worker_bytes_max() -> u64 {
        let buffers = POOLED_BUFFERS_MAX * BUFFER_BYTES + POOLED_LONG_BUFFERS_MAX * LONG_BUFFER_BYTES;
        (buffers + BLOCKING_THREADS_MAX * PREFETCH_BYTES) as u64
    }
}

impl Limits {
    /// Returns the most memory that a worker's ring takes, including its file reads.
    pub const fn ring_bytes_max() -> u64 {
        const SUBMISSION_BYTES: usize = 64;
        const COMPLETION_BYTES: usize = 16;
        let queues = RING_SUBMISSIONS as usize * SUBMISSION_BYTES + RING_COMPLETIONS as usize * COMPLETION_BYTES;
        let buffers = RING_BUFFERS as usize * (RING_BUFFER_BYTES as usize + COMPLETION_BYTES);
        let copies = RING_POOLED_COPIES_MAX * RING_COPY_BYTES;
        (buffers + queues + copies + BLOCKING_THREADS_MAX * PREFETCH_BYTES) as u64
    }

    /// Returns the most memory that a ring takes for a connection. It counts bytes received before the connection
    /// reads them, a response that is sent while the next one is written, and buffers for both if the connection has
    /// to wait.
    pub const fn ring_connection_bytes_max() -> u64 {
        (RING_BULK_BYTES + RING_BURST_BUFFERS * RING_BUFFER_BYTES as usize + 2 * BUFFER_BYTES) as u64
    }
}

/// Most pseudo-fields of a request (RFC 9113 §8.3.1, RFC 8441 §4).
const PSEUDO_FIELDS_MAX: usize = 5;
/// Most crumbs of a cookie. Browsers send each pair of a cookie as a field of its own (RFC 9113 §8.2.3), up to 180 for
/// a site, and the head has them as one field.
const COOKIE_CRUMBS_MAX: usize = 200;

impl Limits {
    /// Returns the limits of an HTTP/2 connection. A decoded field section may have what a head may have.
    pub(crate) fn of_http2(&self) -> Http2Limits {
        let fields_max = self.message.fields_max + PSEUDO_FIELDS_MAX + COOKIE_CRUMBS_MAX;
        let section_bytes_max = self.message.head_bytes_max + fields_max * FIELD_OVERHEAD_BYTES;
        Http2Limits { section: SectionLimits { fields_max, section_bytes_max }, ..self.http2 }.permitted()
    }

    /// Returns the most memory that HTTP/2 takes for a connection: the state of the protocol, the heads of all
    /// requests, content that applications have not read, and a long send buffer. A stream of another protocol, which an
    /// application may accept, takes up to 96 KiB more.
    pub fn http2_connection_bytes_max(&self) -> u64 {
        let limits = self.of_http2();
        let head = buffer_bytes_max(self.message.head_bytes_max);
        let requests = limits.streams_max as usize * (head + REQUEST_BYTES);
        let content = limits.connection_window_bytes as usize;
        (limits.state_bytes_max() + requests + content + 2 * LONG_BUFFER_BYTES) as u64
    }
}

#[cfg(feature = "tls")]
impl Limits {
    /// Returns the most memory that TLS takes for a connection: the client's messages of a handshake, and the copy of them
    /// that the TLS library decodes; then decoded content, encoded output, and keys.
    pub const fn tls_connection_bytes_max() -> u64 {
        const KEYS_BYTES_MAX: usize = 16 * 1024;
        (2 * HANDSHAKE_BYTES_MAX + LONG_BUFFER_BYTES + 2 * BUFFER_BYTES + KEYS_BYTES_MAX) as u64
    }
}

/// The keep-alive timeout when the connection limit is reached.
pub const KEEP_ALIVE_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// File descriptors that are never used for connections: listeners, logs.
pub const DESCRIPTORS_RESERVED: u64 = 64;
/// File descriptors reserved for each core, which has a worker with a runtime and a ring.
pub const DESCRIPTORS_RESERVED_PER_CORE: u64 = 8;

/// How long a lingering close waits for the client. Without it, a client that is still sending would lose the
/// response to a reset (RFC 9112 §9.6).
pub(crate) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes a lingering close discards before it only waits.
pub(crate) const LINGER_BYTES_MAX: u64 = 1 << 20;

/// Size of a pooled buffer: twice a head at its default limit.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Pooled buffers of a worker: 2 MiB.
pub(crate) const POOLED_BUFFERS_MAX: usize = 64;
/// Size of a buffer for bulk content: one receive takes as much as four would. It is not a whole number of pages.
/// Otherwise each receive would start at one offset within a page, in the buffer and in the kernel's copy source, and
/// some processors copy four times slower if these offsets nearly match.
pub(crate) const LONG_BUFFER_BYTES: usize = 128 * 1024 - 64;
/// Pooled long buffers of a worker: 1 MiB.
pub(crate) const POOLED_LONG_BUFFERS_MAX: usize = 8;
/// Content up to this size is copied behind its head, so that both leave in one send.
pub(crate) const COPY_BYTES_MAX: usize = 16 * 1024;
/// Bytes that a session encodes before they are sent.
pub(crate) const ENCODED_SLICE_BYTES: usize = 16 * 1024;
/// Steps of handshakes that run in the order of their requests, on each worker. Of more, the newest runs first. Such a
/// number takes about 10 ms.
pub(crate) const HANDSHAKES_IN_ORDER: usize = 64;
/// Most bytes that a client sends within a handshake: long chains of client certificates fit.
#[cfg(feature = "tls")]
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
/// Content of an encoded record at the start of a connection. With the overhead of encoding, it fits into a packet, so
/// that the client can use it when the packet arrives.
#[cfg(feature = "tls")]
pub(crate) const FIRST_RECORD_BYTES: usize = 1320;
/// Content that is sent in such records: what the first packets of a connection carry before an acknowledgement.
#[cfg(feature = "tls")]
pub(crate) const FIRST_RECORDS_BYTES: usize = 10 * FIRST_RECORD_BYTES;
/// Bytes that may be unsent while a connection with HTTP/2 still receives.
pub(crate) const UNSENT_BYTES_MAX: usize = LONG_BUFFER_BYTES;
/// The memory of a request without its head and content.
pub(crate) const REQUEST_BYTES: usize = 4 * 1024;
/// Responses to pipelined requests are sent when this many bytes have gathered.
pub(crate) const BATCH_BYTES: usize = 8 * 1024;
/// A file is prefetched and sent in slices of at most this size. The worker yields between two slices.
pub(crate) const FILE_SLICE_BYTES: u64 = 1 << 20;
/// Slice size for sending by copy, which takes the worker longer.
pub(crate) const COPIED_SLICE_BYTES: u64 = 64 * 1024;
/// The end of a file that is sent only after the file was checked against its announced state.
pub(crate) const FILE_END_BYTES: u64 = 16 * 1024;
/// The last part of a file, which is copied. `sendfile` hands over pages of the page cache, which a client on this
/// machine may hold unread. The buffers of a connection limit how many: by default 4 MiB here and 32 MiB at the
/// client.
pub(crate) const FILE_COPIED_BYTES: u64 = 36 << 20;
/// Pipes of a worker that move content from upstreams to clients. Each holds content only while its client takes it, so
/// few are in use unless clients read slowly. When none is free, content is copied.
pub(crate) const SPLICE_PIPES_MAX: usize = 32;
/// Most bytes in such a pipe. It has a place for each packet or page, so it has more places than the usual 16.
pub(crate) const SPLICE_PIPE_BYTES: usize = 256 * 1024;
/// Content of which less is left is copied. To move bytes takes up to three more system calls, which cost as much as
/// both copies of 32 KiB, and what the copies evict from the processor's caches.
pub(crate) const SPLICE_BYTES_MIN: usize = 40 * 1024;
/// The end of content that was moved so far is copied if it is shorter. The receive that copies it also finds bytes that
/// should not follow it.
pub(crate) const SPLICE_END_BYTES_MIN: usize = 16 * 1024;
/// By how much a head may be longer than the last one of its upstream, if it is received without most of its content. So
/// little content is copied with it.
pub(crate) const HEAD_MARGIN_BYTES: u16 = 256;
/// Requests of one connection before its task yields.
pub(crate) const REQUESTS_PER_YIELD: u32 = 64;
/// Bytes of content of one connection before its task yields.
pub(crate) const BYTES_PER_YIELD: usize = 1 << 20;
/// Chunks of content of one connection before its task yields.
pub(crate) const CHUNKS_PER_YIELD: usize = 256;
/// Accepted connections before the accept task yields.
pub(crate) const ACCEPTS_PER_YIELD: usize = 64;
/// Interval of the sweep, and so how late an expired deadline is noticed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Sweeps that find a connection idle before it is parked: about one second.
pub(crate) const SWEEPS_UNTIL_PARKED: u8 = 4;
/// When this many connections have ended or parked since the peak, the heap is trimmed.
pub(crate) const TRIM_AFTER_CONNECTIONS: usize = 256;
/// Pause of accepting when file descriptors or kernel memory run out.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Length of the accept queue; the kernel lowers it to `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;
/// Under overload, the accept queue holds what is accepted in this time.
pub(crate) const BACKLOG_TIME: Duration = Duration::from_millis(250);
/// The shortest accept queue under overload, so that clients with one request each can all wait.
pub(crate) const BACKLOG_MIN: i32 = 512;
/// Bytes of a response that the kernel accepts before it can send them. Without the bound, a client that does not
/// read would hold a whole send buffer of up to 4 MiB, and the worker would spend time to fill it.
pub(crate) const SEND_BUFFER_BYTES: i32 = 128 * 1024;
/// The bound for connections with a large send buffer, which receive long files with fewer waits.
pub(crate) const LARGE_SEND_BUFFER_BYTES: i32 = 1 << 20;
/// Large send buffers of a worker: 64 MiB in total.
pub(crate) const LARGE_SEND_BUFFERS_MAX: usize = 64;
/// How long the kernel holds back a connection without data: it is accepted with its first request, or after this
/// time.
pub(crate) const DEFER_ACCEPT_SECONDS: i32 = 1;
/// How long a listening socket that is about to close still accepts the connections that the kernel has held back.
pub(crate) const DEFERRED_CONNECTIONS_TIME: Duration = Duration::from_millis(50);
/// How long the listeners of a server that stops accept if the kernel still holds connections then. It completes one
/// without data when it has repeated its SYN-ACK, one second after the handshake, and needs a round trip for that.
pub(crate) const HELD_CONNECTIONS_TIME: Duration = Duration::from_millis(1500);
/// Bytes that one read prefetches. With io_uring the kernel copies on the worker without yielding, so a larger read
/// delays other connections.
pub(crate) const PREFETCH_BYTES: usize = 64 * 1024;
/// A busy connection's task with its field positions. An idle one has about 1 KiB, a parked one 200 bytes.
const TASK_BYTES_MAX: usize = 8 * 1024;
/// Operations that a worker's ring submits at once.
pub(crate) const RING_SUBMISSIONS: u32 = 256;
/// Completions that a worker's ring holds before the kernel queues them separately.
pub(crate) const RING_COMPLETIONS: u32 = 1024;
/// Provided buffers of a worker's ring. Each is in use only from its completion until the connection reads it within
/// that turn. If none is free, `recv` reads without one.
pub(crate) const RING_BUFFERS: u16 = 512;
/// Size of a provided buffer: most requests, or two of them.
pub(crate) const RING_BUFFER_BYTES: u32 = 2048;
/// Provided buffers that the kernel fills for one client before other clients are served.
const RING_BURST_BUFFERS: usize = 32;
/// A response up to this size is copied for the kernel to send.
pub(crate) const RING_COPY_BYTES: usize = 2048;
/// Pooled memory for these copies.
pub(crate) const RING_POOLED_COPIES_MAX: usize = 64;
/// A client that sends at least this much at once is received from directly, past the provided buffers. Bytes
/// received before that are stored with the connection.
pub(crate) const RING_BULK_BYTES: usize = 16 * 1024;
/// Blocking threads of each worker.
pub(crate) const BLOCKING_THREADS_MAX: usize = 8;

const _: () =
    assert!(BATCH_BYTES + COPY_BYTES_MAX <= BUFFER_BYTES, "a response fits after a batch without growing the buffer");
const _: () = assert!(ENCODED_SLICE_BYTES * 3 / 2 <= BUFFER_BYTES, "an encoded slice fits without growing the buffer");
const _: () = assert!(SWEEP_INTERVAL.as_millis() < KEEP_ALIVE_TIMEOUT_MIN.as_millis(), "a deadline is noticed in time");

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: MessageLimits::default(),
            http2: Http2Limits::default(),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_min_rate: 500,
            send_timeout: Duration::from_secs(30),
            send_min_rate: 500,
            keep_alive_timeout: Duration::from_secs(60),
            body_bytes_max: 10 << 20,
            discard_bytes_max: 256 << 10,
            connections_max: connections_allowed_by_descriptors(),
            shutdown_timeout: Duration::from_secs(30),
            shutdown_notice: Duration::from_secs(2),
        }
    }
}

/// Fewest connections for which a server starts.
const CONNECTIONS_MIN: u64 = 16;

/// Returns the soft limit of open files.
fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20)
}

fn descriptors_reserved(cores: usize) -> u64 {
    DESCRIPTORS_RESERVED + cores as u64 * DESCRIPTORS_RESERVED_PER_CORE
}

/// Returns the number of connections that the descriptor limit allows.
fn connections_allowed_by_descriptors() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let usable = descriptors_max().saturating_sub(descriptors_reserved(cores));
    usize::try_from((usable - usable / 8).max(CONNECTIONS_MIN)).unwrap_or(usize::MAX)
}

/// Returns an error if the descriptor limit is too low for a server that serves all its clients.
pub(crate) fn check_descriptor_limit(workers: usize, connections_max: usize) -> io::Result<()> {
    let (have, needed) =
        (descriptors_max(), descriptors_reserved(workers) + CONNECTIONS_MIN.min(connections_max as u64));
    if have >= needed {
        return Ok(());
    }
    let text =
        format!("the limit of {have} open files is too low: {workers} workers need {needed} (ulimit -n, LimitNOFILE=)");
    Err(io::Error::other(text))
}
