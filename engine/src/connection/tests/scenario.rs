//! A world with one worker, and a builder that brings a connection to any state.

use super::pipe::{Ending, Memory, Pipe};
use super::recorder::{Finished, Recorder};
use super::replies::{self, Reply};
use super::site::Site;
use crate::connection::{self, App, phase_of};
use crate::limits::{Limits, SWEEP_INTERVAL};
use crate::net::notes::Place;
use crate::net::panic;
use crate::net::worker::Worker;
use crate::service::{CloseReason, Phase, Service};
use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{interval, sleep, timeout};

/// No test takes longer, in time that is not real.
const TEST_TIME_MAX: Duration = Duration::from_secs(3600);

/// Runs a test on a worker's kind of runtime, whose clock jumps to the next thing that
/// happens whenever everybody waits.
pub(super) fn virtually(test: impl Future<Output = ()>) {
    panic::install_hook();
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime needs nothing that could be missing")
        .block_on(async { timeout(TEST_TIME_MAX, test).await.expect("a test ends") });
}

/// One worker without sockets.
pub(super) struct World {
    pub(super) worker: Rc<Worker>,
    pub(super) recorder: Recorder,
    connect: Box<dyn Fn(Memory, SocketAddr, Place)>,
    connected: Cell<u16>,
}

impl World {
    /// The usual application and limits.
    pub(super) fn new() -> Self {
        Self::with(Limits::default())
    }

    /// The usual application.
    pub(super) fn with(limits: Limits) -> Self {
        Self::serving(Site, limits)
    }

    pub(super) fn serving(service: impl Service, limits: Limits) -> Self {
        let worker = Rc::new(Worker::alone(&limits));
        let recorder = Recorder::default();
        let app = App::new(service, recorder.clone(), limits, worker.clone());
        let connect = Box::new(move |stream, peer, place| {
            drop(tokio::task::spawn_local(connection::run(stream, peer, place, app.clone(), ())));
        });
        tokio::task::spawn_local(sweep(worker.clone()));
        Self { worker, recorder, connect, connected: Cell::new(0) }
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Client<'_> {
        self.connected.set(self.connected.get() + 1);
        let peer = SocketAddr::from(([192, 0, 2, 1], self.connected.get()));
        let (pipe, place) = (Pipe::new(), self.worker.connection_began());
        (self.connect)(Memory(pipe.clone()), peer, place);
        Client { world: self, pipe, peer, place }
    }

    /// Whoever is idle is parked.
    pub(super) async fn park(&self) {
        self.worker.notes.park_idle();
        settle().await;
    }

    /// A graceful stop begins.
    pub(super) fn drain(&self) {
        self.worker.draining.set(true);
        self.worker.notes.drain();
    }
}

/// Whether connections move and park as soon as they are idle, so that all tests are tests of that, too.
pub(super) fn parks_at_once() -> bool {
    std::env::var_os("SELVEDGE_TEST_PARKED").is_some()
}

/// The sweeper of a worker.
async fn sweep(worker: Rc<Worker>) {
    let mut sweeps = interval(SWEEP_INTERVAL);
    loop {
        sweeps.tick().await;
        worker.clock.read();
        worker.notes.sweep(worker.clock.tick());
    }
}

/// Lets time pass, and with it all that happens meanwhile.
pub(super) async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// Lets happen what needs no time: the clock moves only when everybody waits.
pub(super) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// Whether a wait took as long as it should: a deadline is noticed a sweep or two later.
pub(super) fn is_about(seconds: u64, expected: u64) -> bool {
    (expected..=expected + 1).contains(&seconds)
}

/// The client's end of a connection.
pub(super) struct Client<'a> {
    pub(super) world: &'a World,
    pub(super) pipe: Rc<Pipe>,
    pub(super) peer: SocketAddr,
    place: Place,
}

impl Client<'_> {
    /// Sends bytes, and lets happen what follows at once.
    pub(super) async fn send(&self, bytes: impl AsRef<[u8]>) {
        if parks_at_once() {
            self.world.park().await;
        }
        self.pipe.push(bytes.as_ref());
        settle().await;
    }

    /// Ends or resets the connection, and lets happen what follows at once.
    pub(super) async fn end(&self, ending: Ending) {
        if parks_at_once() {
            self.world.park().await;
        }
        self.pipe.end(ending);
        settle().await;
    }

    /// Takes so many bytes more, and lets happen what follows at once.
    pub(super) async fn take(&self, bytes: usize) {
        self.pipe.add_room(bytes);
        settle().await;
    }

    /// The answers so far.
    pub(super) fn replies(&self) -> Vec<Reply> {
        replies::read(&self.pipe.outgoing())
    }

    /// The one answer that there is.
    pub(super) fn reply(&self) -> Reply {
        let [reply] = &self.replies()[..] else { panic!("{} answers", self.replies().len()) };
        reply.clone()
    }

    /// The statuses of the answers so far.
    pub(super) fn statuses(&self) -> Vec<u16> {
        self.replies().iter().map(|reply| reply.status).collect()
    }

    /// The requests that were reported.
    pub(super) fn finished(&self) -> Vec<Finished> {
        self.world.recorder.finished(self.peer)
    }

    /// Why the connection ended; `None` while it has not.
    pub(super) fn closed(&self) -> Option<CloseReason> {
        let closed = self.world.recorder.closed(self.peer);
        assert_eq!(self.pipe.is_closed(), closed.is_some(), "whoever is reported as closed is closed");
        closed.map(|closed| closed.reason)
    }

    /// What the connection was doing when it ended.
    pub(super) fn closed_while(&self) -> Phase {
        self.world.recorder.closed(self.peer).expect("it has ended").phase
    }

    /// Waits until the connection ends: why, and after how many whole seconds.
    pub(super) async fn ends(&self) -> (CloseReason, u64) {
        let began = tokio::time::Instant::now();
        while self.closed().is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        (self.closed().expect("it has just ended"), began.elapsed().as_secs())
    }

    /// What the connection is doing, while it lives.
    pub(super) fn phase(&self) -> Phase {
        assert_eq!(self.closed(), None, "it lives");
        phase_of(self.world.worker.notes.deadline(self.place))
    }
}

/// A request, and how far it comes.
#[derive(Clone)]
pub(super) struct Scenario {
    head: String,
    content: Vec<u8>,
}

impl Scenario {
    pub(super) fn get(target: &str) -> Self {
        Self::request("GET", target, "HTTP/1.1")
    }

    pub(super) fn post(target: &str) -> Self {
        Self::request("POST", target, "HTTP/1.1")
    }

    pub(super) fn request(method: &str, target: &str, version: &str) -> Self {
        Self { head: format!("{method} {target} {version}\r\nHost: test\r\n"), content: Vec::new() }
    }

    pub(super) fn field(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// With so much content.
    pub(super) fn content(self, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref().to_vec();
        Self { content, ..self }.length()
    }

    /// With content in chunks as they are given, framing and all.
    pub(super) fn chunks(self, chunks: impl AsRef<[u8]>) -> Self {
        Self { content: chunks.as_ref().to_vec(), ..self.field("Transfer-Encoding", "chunked") }
    }

    fn length(self) -> Self {
        let length = self.content.len().to_string();
        self.field("Content-Length", &length)
    }

    /// The head, to its empty line.
    pub(super) fn head(&self) -> Vec<u8> {
        format!("{}\r\n", self.head).into_bytes()
    }

    /// All of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.head(), self.content.clone()].concat()
    }

    /// A connection that has sent all of it.
    pub(super) async fn sent(self, world: &World) -> Client<'_> {
        let client = world.connect();
        client.send(self.bytes()).await;
        client
    }

    /// A connection that has sent the head of it.
    pub(super) async fn at_head(self, world: &World) -> Client<'_> {
        let client = world.connect();
        client.send(self.head()).await;
        client
    }

    /// A connection that has come with it to a phase and stays there until something
    /// happens to it.
    pub(super) async fn at(self, phase: Phase, world: &World) -> Client<'_> {
        let client = world.connect();
        match phase {
            Phase::Idle => client.send(self.bytes()).await,
            Phase::ReadingHead => client.send(&self.head()[..self.head().len() - 1]).await,
            Phase::Answering | Phase::Lingering => client.send(self.bytes()).await,
            Phase::ReadingContent => client.send(self.head()).await,
            Phase::Sending => {
                client.pipe.set_room(10);
                client.send(self.bytes()).await;
            }
        }
        assert_eq!(client.phase(), phase);
        client
    }
}
