//! A world with one worker, and a builder that brings a connection to any state.

use super::pipe::{ClientEnd, Pipe, PipeStream};
use super::recorder::{Finished, Recorder};
use super::responses::{self, ParsedResponse};
use super::test_app::TestApp;
use crate::connection::{self, AppContext, FirstProtocol, phase_of};
use crate::limits::{Limits, SWEEP_INTERVAL};
use crate::net::connection_table::ConnectionId;
use crate::net::link::xor_session::{Keystream, XorSession};
use crate::net::link::{Link, Session};
use crate::net::panic;
use crate::net::worker::Worker;
use crate::peer::Ends;
use crate::service::{CloseReason, Phase, Service};
use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{interval, sleep, timeout};

/// Longest virtual time of a test.
const TEST_TIME_MAX: Duration = Duration::from_secs(3600);

/// How the connections of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Usual,
    /// They park whenever they are idle.
    Parking,
    /// A session encodes their bytes.
    Session,
}

thread_local! {
    /// The variant of the test that runs on this thread.
    static VARIANT: Cell<Variant> = const { Cell::new(Variant::Usual) };
}

/// Runs a test in all variants.
pub(super) fn with_virtual_time(test: impl AsyncFn()) {
    for variant in [Variant::Usual, Variant::Parking, Variant::Session] {
        // Shown if the test fails.
        println!("variant: {variant:?}");
        VARIANT.set(variant);
        run_with_virtual_time(test());
    }
}

/// Runs a test on a worker's kind of runtime, whose clock jumps to the next event when all tasks wait.
fn run_with_virtual_time(test: impl Future<Output = ()>) {
    panic::install_hook();
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime needs nothing that could be missing")
        .block_on(async { timeout(TEST_TIME_MAX, test).await.expect("a test ends") });
}

/// One worker without sockets.
pub(super) struct TestServer {
    pub(super) worker: Rc<Worker>,
    pub(super) recorder: Recorder,
    connect: Box<dyn Fn(Link<PipeStream>, SocketAddr, ConnectionId)>,
    connected: Cell<u16>,
}

impl TestServer {
    /// Creates a world with the usual application and limits.
    pub(super) fn new() -> Self {
        Self::with(Limits::default())
    }

    /// Creates a world with the usual application.
    pub(super) fn with(limits: Limits) -> Self {
        Self::serving(TestApp, limits)
    }

    pub(super) fn serving(service: impl Service, limits: Limits) -> Self {
        let worker = Rc::new(Worker::standalone(&limits));
        let recorder = Recorder::default();
        let app = AppContext::new(service, recorder.clone(), (limits, Default::default()), worker.clone());
        let connect = Box::new(move |stream, peer, id| {
            drop(tokio::task::spawn_local(connection::run(
                stream,
                Ends { peer, local: None },
                (id, FirstProtocol::Http1OrHttp2),
                app.clone(),
                (),
            )));
        });
        tokio::task::spawn_local(sweep(worker.clone()));
        let turns = worker.clone();
        tokio::task::spawn_local(async move { turns.turns.run().await });
        Self { worker, recorder, connect, connected: Cell::new(0) }
    }

    /// Opens a connection.
    pub(super) fn connect(&self) -> Client<'_> {
        match VARIANT.get() {
            Variant::Session => self.connect_with(Some(Keystream::CLIENT), Some(XorSession::make())),
            Variant::Usual | Variant::Parking => self.connect_with(None, None),
        }
    }

    /// Opens a connection with a session.
    pub(super) fn connect_with(&self, keystream: Option<Keystream>, session: Option<Box<dyn Session>>) -> Client<'_> {
        self.connected.set(self.connected.get() + 1);
        let peer = SocketAddr::from(([192, 0, 2, 1], self.connected.get()));
        let (pipe, id) = (Pipe::new(keystream), self.worker.insert_connection());
        (self.connect)(Link::new(PipeStream(pipe.clone()), session), peer, id);
        Client { server: self, pipe, peer, id }
    }

    /// Parks idle connections.
    pub(super) async fn park(&self) {
        self.worker.connections.park_idle();
        settle().await;
    }

    /// Begins a graceful shutdown.
    pub(super) fn drain(&self) {
        self.worker.begin_draining();
    }

    /// Lets the time for a last request pass in a graceful shutdown.
    pub(super) async fn pass_notice(&self) {
        advance(self.worker.shutdown_notice.get().as_secs()).await;
        self.worker.end_notice();
        advance(1).await;
    }
}

/// Runs a worker's sweep.
async fn sweep(worker: Rc<Worker>) {
    let mut sweeps = interval(SWEEP_INTERVAL);
    loop {
        sweeps.tick().await;
        worker.clock.update();
        worker.connections.sweep(worker.clock.tick());
    }
}

/// Lets virtual time pass.
pub(super) async fn advance(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// Runs everything that needs no time: the clock moves only when all tasks wait.
pub(super) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// Whether a wait took as long as expected: a deadline is noticed one or two sweeps later.
pub(super) fn is_about(seconds: u64, expected: u64) -> bool {
    (expected..=expected + 1).contains(&seconds)
}

/// The client's end of a connection.
pub(super) struct Client<'a> {
    pub(super) server: &'a TestServer,
    pub(super) pipe: Rc<Pipe>,
    pub(super) peer: SocketAddr,
    id: ConnectionId,
}

impl Client<'_> {
    /// Sends bytes, and runs what follows at once.
    pub(super) async fn send(&self, bytes: impl AsRef<[u8]>) {
        if VARIANT.get() == Variant::Parking {
            self.server.park().await;
        }
        self.pipe.push(bytes.as_ref());
        settle().await;
    }

    /// Ends or resets the connection, and runs what follows at once.
    pub(super) async fn end(&self, client_end: ClientEnd) {
        if VARIANT.get() == Variant::Parking {
            self.server.park().await;
        }
        self.pipe.end(client_end);
        settle().await;
    }

    /// Reads `bytes` more, and runs what follows at once.
    pub(super) async fn read(&self, bytes: usize) {
        self.pipe.extend_window(bytes);
        settle().await;
    }

    /// Whether a session encodes the bytes.
    pub(super) fn has_session(&self) -> bool {
        VARIANT.get() == Variant::Session
    }

    /// Returns the responses so far.
    pub(super) fn responses(&self) -> Vec<ParsedResponse> {
        responses::read(&self.pipe.outgoing())
    }

    /// Returns the only response.
    pub(super) fn response(&self) -> ParsedResponse {
        let [response] = &self.responses()[..] else { panic!("{} responses", self.responses().len()) };
        response.clone()
    }

    /// Returns the statuses of the responses so far.
    pub(super) fn statuses(&self) -> Vec<u16> {
        self.responses().iter().map(|response| response.status).collect()
    }

    /// Returns the reported requests.
    pub(super) fn finished(&self) -> Vec<Finished> {
        self.server.recorder.finished(self.peer)
    }

    /// Returns the close reason; `None` while the connection is open.
    pub(super) fn closed(&self) -> Option<CloseReason> {
        let closed = self.server.recorder.closed(self.peer);
        assert_eq!(self.pipe.is_closed(), closed.is_some(), "a connection that is reported as closed is closed");
        closed.map(|closed| closed.reason)
    }

    /// Returns the phase in which the connection ended.
    pub(super) fn phase_at_close(&self) -> Phase {
        self.server.recorder.closed(self.peer).expect("it has ended").phase
    }

    /// Waits until the connection ends. Returns the reason and the time in whole seconds.
    pub(super) async fn wait_closed(&self) -> (CloseReason, u64) {
        let began = tokio::time::Instant::now();
        while self.closed().is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        (self.closed().expect("it has just ended"), began.elapsed().as_secs())
    }

    /// Returns the phase of an open connection.
    pub(super) fn phase(&self) -> Phase {
        assert_eq!(self.closed(), None, "it lives");
        phase_of(self.server.worker.connections.deadline(self.id).0)
    }
}

/// A request to send, as far as wanted.
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

    /// Adds content with Content-Length.
    pub(super) fn content(self, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref().to_vec();
        Self { content, ..self }.length()
    }

    /// Adds content in the given chunks, with their framing.
    pub(super) fn chunks(self, chunks: impl AsRef<[u8]>) -> Self {
        Self { content: chunks.as_ref().to_vec(), ..self.field("Transfer-Encoding", "chunked") }
    }

    fn length(self) -> Self {
        let length = self.content.len().to_string();
        self.field("Content-Length", &length)
    }

    /// Returns the head with its empty line.
    pub(super) fn head(&self) -> Vec<u8> {
        format!("{}\r\n", self.head).into_bytes()
    }

    /// Returns all bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.head(), self.content.clone()].concat()
    }

    /// Opens a connection and sends the whole request.
    pub(super) async fn sent(self, server: &TestServer) -> Client<'_> {
        let client = server.connect();
        client.send(self.bytes()).await;
        client
    }

    /// Opens a connection and sends the head.
    pub(super) async fn at_head(self, server: &TestServer) -> Client<'_> {
        let client = server.connect();
        client.send(self.head()).await;
        client
    }

    /// Opens a connection and brings it to a phase, where it stays.
    pub(super) async fn at(self, phase: Phase, server: &TestServer) -> Client<'_> {
        let client = server.connect();
        match phase {
            Phase::Idle => client.send(self.bytes()).await,
            Phase::ReadingHead => client.send(&self.head()[..self.head().len() - 1]).await,
            Phase::Processing | Phase::Lingering => client.send(self.bytes()).await,
            Phase::ReadingContent => client.send(self.head()).await,
            Phase::Sending => {
                client.pipe.set_window(10);
                client.send(self.bytes()).await;
            }
        }
        assert_eq!(client.phase(), phase);
        client
    }
}
