//! Every bound of the engine, in one place: name with unit, default, reason.

use selvedge_proto::limits::Limits as MessageLimits;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

/// What one server lets its clients do. Every bound is on by default.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bounds on heads, chunks and trailers.
    pub message: MessageLimits,
    /// Time to a complete head: from accept for the first request of a connection, from its
    /// first byte for a later one. Default 10 s. Exceeded: 408, close.
    pub head_time: Duration,
    /// Longest silence while request content is awaited. Default 30 s. Exceeded: 408, close.
    pub body_silence: Duration,
    /// Fewest bytes of request content a second, on the average after a first
    /// [`Limits::body_silence`]. Default 500. Exceeded: 408, close.
    pub body_bytes_per_second_min: u32,
    /// Longest time in which a client takes nothing of a response. Default 30 s. Exceeded: close.
    pub send_silence: Duration,
    /// Fewest bytes of a response that a client takes a second, on the average after a first
    /// [`Limits::send_silence`]. Default 500. Exceeded: close.
    pub send_bytes_per_second_min: u32,
    /// How long a connection may be idle between requests. Default 60 s; it shrinks towards
    /// [`KEEP_ALIVE_FLOOR`] as the connection limit nears. Exceeded: close.
    pub keep_alive: Duration,
    /// Most request content that an application gets unless it asks for more. Default 10 MiB.
    /// Exceeded: 413.
    pub body_bytes_max: u64,
    /// Most unread request content that is drained so that the connection can live on.
    /// Default 256 KiB. Exceeded: close.
    pub drain_bytes_max: u64,
    /// Most connections at once, over all workers. Default: what `RLIMIT_NOFILE` allows,
    /// less [`DESCRIPTORS_RESERVED`], [`DESCRIPTORS_RESERVED_OF_CORE`] for each core, and an eighth of the
    /// rest, which is kept for files. At the limit the idlest connection is closed, or, when none is
    /// idle, new ones wait to be accepted.
    pub connections_max: usize,
    /// How long a graceful stop waits for what is running. Default 30 s. Exceeded: close, and
    /// the log names what was still open.
    pub drain_time: Duration,
}

impl Limits {
    /// Most memory that one connection of these limits takes, from above: two input buffers
    /// (of the request, and of what follows it), the output, and one for the end of a file or
    /// a copied piece of it; its task, and the positions of the fields. Content that an
    /// application makes is not in it.
    pub fn connection_bytes_max(&self) -> u64 {
        // A full buffer doubles at most.
        let head = self.message.head_bytes_max.max(self.message.trailer_bytes_max);
        let input = if head <= BUFFER_BYTES / 2 { BUFFER_BYTES } else { 2 * (head + BUFFER_BYTES) };
        // What follows a request may be content of which much comes at a time.
        (input + input.max(LONG_BUFFER_BYTES) + 2 * BUFFER_BYTES + TASK_BYTES_MAX) as u64
    }

    /// Most memory that a worker keeps for reuse or gives to the threads that read from disks.
    pub const fn worker_bytes_max() -> u64 {
        let buffers = BUFFERS_KEPT_MAX * BUFFER_BYTES + LONG_BUFFERS_KEPT_MAX * LONG_BUFFER_BYTES;
        (buffers + BLOCKING_THREADS_MAX * DISK_READ_BYTES) as u64
    }
}

impl Limits {
    /// Most memory that a worker's ring takes, where io_uring may drive sockets, with what it reads from disks.
    pub const fn ring_bytes_max() -> u64 {
        const SUBMISSION_BYTES: usize = 64;
        const COMPLETION_BYTES: usize = 16;
        let queues = RING_SUBMISSIONS as usize * SUBMISSION_BYTES + RING_COMPLETIONS as usize * COMPLETION_BYTES;
        let buffers = RING_BUFFERS as usize * (RING_BUFFER_BYTES as usize + COMPLETION_BYTES);
        let kept = RING_COPIES_KEPT_MAX * RING_COPY_BYTES;
        (buffers + queues + kept + BLOCKING_THREADS_MAX * DISK_READ_BYTES) as u64
    }

    /// Most memory that a ring takes for a connection: what it receives of one client before that
    /// shows not to be wanted yet, an answer that it sends while the next one is made, and room for
    /// both when that one has to wait.
    pub const fn ring_connection_bytes_max() -> u64 {
        (RING_BULK_BYTES + RING_BURST_BUFFERS * RING_BUFFER_BYTES as usize + 2 * BUFFER_BYTES) as u64
    }
}

/// The keep-alive time when the connection limit is reached.
pub const KEEP_ALIVE_FLOOR: Duration = Duration::from_secs(5);

/// Descriptors that are never given to connections: listeners, logs.
pub const DESCRIPTORS_RESERVED: u64 = 64;
/// The same for each core, which has a worker with a runtime and a ring.
pub const DESCRIPTORS_RESERVED_OF_CORE: u64 = 8;

/// How long a lingering close waits for the client to finish, and how much it discards before
/// it only waits. A client that is still sending would lose the answer to a reset otherwise (RFC 9112 §9.6).
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(5);
/// See [`LINGER_TIME`].
pub(crate) const LINGER_BYTES_MAX: u64 = 1 << 20;

/// Size of a pooled buffer: a head at its default limit, twice.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Buffers that a worker keeps for reuse: 2 MiB.
pub(crate) const BUFFERS_KEPT_MAX: usize = 64;
/// Size of a buffer for content that comes fast: one receive takes as much as four would. No whole number of
/// pages: else each receive would begin at the same place of a page as the one before, in the buffer and in
/// what the kernel copies from, and where the two are just behind each other some processors copy four times slower.
pub(crate) const LONG_BUFFER_BYTES: usize = 128 * 1024 - 64;
/// Such buffers that a worker keeps for reuse: 1 MiB.
pub(crate) const LONG_BUFFERS_KEPT_MAX: usize = 8;
/// Content up to this size is copied behind its head, so that both leave in one send.
pub(crate) const COPY_BYTES_MAX: usize = 16 * 1024;
/// Answers of a pipelined batch are sent once so much has come together.
pub(crate) const BATCH_BYTES: usize = 8 * 1024;
/// A file is brought into memory and sent in slices of at most this size; between two the worker serves others.
pub(crate) const FILE_SLICE_BYTES: u64 = 1 << 20;
/// The same for sending where the bytes are copied, which takes the worker longer.
pub(crate) const COPIED_SLICE_BYTES: u64 = 64 * 1024;
/// The end of a file that is sent only once the file was seen to be as announced.
pub(crate) const FILE_END_BYTES: u64 = 16 * 1024;
/// The last part of a file, which is copied. What `sendfile` hands over before it are the page
/// cache's own pages; a client on the same machine may hold those unread, but no more of them
/// than the two buffers of a connection take: 4 MiB here and 32 MiB there, unless the system
/// was told otherwise.
pub(crate) const FILE_COPIED_BYTES: u64 = 36 << 20;
/// Requests that a connection is served in a row before others get their turn.
pub(crate) const REQUESTS_PER_TURN: u32 = 64;
/// Bytes of content that a connection is sent or received from in a row, and pieces of it, before others get
/// their turn.
pub(crate) const TURN_BYTES: usize = 1 << 20;
/// See [`TURN_BYTES`].
pub(crate) const PIECES_PER_TURN: usize = 256;
/// Connections that are accepted in a row before others get their turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;
/// How often deadlines are looked at, and so how late one may be noticed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Sweeps that find a connection idle before it is parked: about a second.
pub(crate) const SWEEPS_UNTIL_PARKED: u8 = 4;
/// Connections whose tasks ended, or more, make a rush that is over: what they had goes back to the system.
pub(crate) const RUSH: usize = 256;
/// How long accepting pauses when the process or the system is out of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;
/// The same while they come faster than they can be accepted: as many as are accepted in this time, and no
/// fewer than these, so that clients who each wait for their answer before they come again may all wait.
pub(crate) const QUEUE_TIME: Duration = Duration::from_millis(250);
/// See [`QUEUE_TIME`].
pub(crate) const BACKLOG_MIN: i32 = 512;
/// Bytes that the kernel takes of an answer before it can send them. A client that does not
/// read holds so much of the system's memory, and of the worker's time to copy it, where it
/// would hold all that a send buffer may grow to: 4 MiB.
pub(crate) const UNSENT_BYTES_MAX: i32 = 128 * 1024;
/// The same for a connection that is one of the first that a worker sends long files to at the moment, until they
/// were sent, and for how many that is: it saves them waits, and 64 MiB is all that they can hold.
pub(crate) const UNSENT_BYTES_MAX_OF_ROOMY: i32 = 1 << 20;
/// See [`UNSENT_BYTES_MAX_OF_ROOMY`].
pub(crate) const ROOMY_MAX: usize = 64;
/// How long the kernel keeps a connection to itself whose client says nothing: it is accepted
/// with its first request, in one turn, or after this time.
pub(crate) const DEFER_ACCEPT_SECONDS: i32 = 1;
/// What is read at once to bring a part of a file into memory. The kernel copies it without giving way, on
/// the worker where the ring reads, so with more everybody else waits longer.
pub(crate) const DISK_READ_BYTES: usize = 64 * 1024;
/// A connection's task while it is busy, and its positions; with nothing to do it has a good kilobyte, and parked
/// 200 bytes.
const TASK_BYTES_MAX: usize = 8 * 1024;
/// So many connections at work, and no more, a worker leaves to epoll where it has a ring, too: for them a turn
/// of the ring is a call more than it saves.
pub(crate) const EPOLL_CONNECTIONS_FEW: usize = 16;
/// Operations that a worker's ring hands to the kernel at once.
pub(crate) const RING_SUBMISSIONS: u32 = 256;
/// Completions that wait in a worker's ring before the kernel sets them aside.
pub(crate) const RING_COMPLETIONS: u32 = 1024;
/// Buffers of a worker's ring for what comes in, and the size of each: most requests, or two of
/// them. Each is in use only from when bytes come until they are read, in the same turn; while there
/// is none left, bytes are received without one.
pub(crate) const RING_BUFFERS: u16 = 512;
/// See [`RING_BUFFERS`].
pub(crate) const RING_BUFFER_BYTES: u32 = 2048;
/// Buffers that the kernel fills for one client before others have their turn.
const RING_BURST_BUFFERS: usize = 32;
/// An answer up to this size is copied for the kernel to send, and so many copies' memory is kept
/// for the next ones.
pub(crate) const RING_COPY_BYTES: usize = 2048;
/// See [`RING_COPY_BYTES`].
pub(crate) const RING_COPIES_KEPT_MAX: usize = 64;
/// A client that sends so much at once is received from as fast as it is read, past the ring's
/// buffers; what came before that shows is kept with the connection.
pub(crate) const RING_BULK_BYTES: usize = 16 * 1024;
/// Threads of each worker that wait for disks.
pub(crate) const BLOCKING_THREADS_MAX: usize = 8;

const _: () = assert!(BATCH_BYTES + COPY_BYTES_MAX <= BUFFER_BYTES, "an answer fits behind a batch without growing it");
const _: () = assert!(SWEEP_INTERVAL.as_millis() < KEEP_ALIVE_FLOOR.as_millis(), "a deadline is noticed in time");

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: MessageLimits::default(),
            head_time: Duration::from_secs(10),
            body_silence: Duration::from_secs(30),
            body_bytes_per_second_min: 500,
            send_silence: Duration::from_secs(30),
            send_bytes_per_second_min: 500,
            keep_alive: Duration::from_secs(60),
            body_bytes_max: 10 << 20,
            drain_bytes_max: 256 << 10,
            connections_max: connections_of_descriptors(),
            drain_time: Duration::from_secs(30),
        }
    }
}

/// How many connections the process's descriptors allow.
fn connections_of_descriptors() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64;
    let reserved = DESCRIPTORS_RESERVED + cores * DESCRIPTORS_RESERVED_OF_CORE;
    let usable = descriptors.saturating_sub(reserved).max(16);
    usize::try_from(usable - usable / 8).unwrap_or(usize::MAX)
}
