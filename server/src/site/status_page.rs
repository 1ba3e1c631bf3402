//! The action that responds with the live page of the server, and with the stream of events that updates the page.
//!
//! What makes the page and the events is another part of the program. One thread makes the events of all streams, once a
//! second and only while a stream is open, so nothing of it runs on a worker.

use super::methods::respond_to_method;
use super::shared_work::SharedWork;
use bytes::Bytes;
use selvedge::service::{Body, Chunks, ResponseLease, StreamError};
use selvedge::{Method, Request, Response, StatusCode, Stopping, stopping};
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

/// The most streams of events that are open in a process.
pub(crate) const STATUS_STREAMS_MAX: usize = 32;

/// The query of a request for the stream of events.
const EVENTS_QUERY: &str = "events";
/// Time between the begins of two events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// The least time between two events, in which other threads get at the state of a server that is slow.
const EVENT_PAUSE: Duration = Duration::from_millis(500);
/// A stream without an event for this time sends a comment, so that nothing on the way takes it for dead.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// A stream ends after this time. The browser opens it again, so a user who was removed loses access.
const STREAM_TIME_MAX: Duration = Duration::from_secs(600);
/// The begin of a stream: a browser that has lost it tries again after this time in milliseconds.
const STREAM_BEGIN: &[u8] = b"retry: 1000\n\n";
const HEARTBEAT: &[u8] = b":\n\n";

/// Makes the page and the events. Calls may wait for workers, so they are not made on one.
pub(crate) trait StatusSource: Send + Sync {
    /// Returns the page; `None` after the server has stopped.
    fn page(&self) -> Option<StatusPageText>;

    /// Returns the data of an event, which is one line; `None` after the server has stopped.
    fn event(&self) -> Option<String>;
}

/// The page in HTML.
#[derive(Clone, Debug)]
pub(crate) struct StatusPageText {
    pub(crate) html: String,
    /// Of its style and its script, in characters that a field may have.
    pub(crate) nonce: String,
}

/// In place of the nonce of a page that is only explained, so that an expectation can state the field.
const NONCE_EXPLAINED: &str = "NONCE";

/// The events of the process and their streams. It has no source until the server runs.
pub(crate) struct StatusFeed {
    source: OnceLock<Box<dyn StatusSource>>,
    /// The page in HTML, and its nonce. A nonce that concurrent visitors share is unknown until the page is made, so
    /// none of its texts can have it.
    pages: SharedWork<(Bytes, String)>,
    streams: Arc<Semaphore>,
    /// The last event; `None` while no thread makes events. A slow reader finds the last one, not those before it.
    events: watch::Sender<Option<Bytes>>,
    /// Whether a thread makes events.
    is_running: Mutex<bool>,
    /// Whether another process serves now.
    is_over: AtomicBool,
}

impl Default for StatusFeed {
    fn default() -> Self {
        Self {
            source: OnceLock::new(),
            pages: SharedWork::default(),
            streams: Arc::new(Semaphore::new(STATUS_STREAMS_MAX)),
            events: watch::Sender::new(None),
            is_running: Mutex::new(false),
            is_over: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for StatusFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusFeed")
    }
}

impl StatusFeed {
    /// Sets what makes the page and the events. Only the first call has an effect.
    pub(crate) fn set(&self, source: Box<dyn StatusSource>) {
        let _ = self.source.set(source);
    }

    /// Ends all streams, because the server stops or another process serves.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the streams.
        self.events.send_replace(None);
    }

    /// Makes the page on a thread for calls that block. Concurrent visitors share one.
    async fn page(self: &Arc<Self>) -> Option<(Bytes, String)> {
        let feed = self.clone();
        let made = move || feed.source.get()?.page().map(|StatusPageText { html, nonce }| (html.into(), nonce));
        self.pages.value(made).await
    }

    /// Opens a stream for a page of a configuration; `None` if too many are open or no thread can be started.
    fn open(self: &Arc<Self>, configuration: &ResponseLease) -> Option<OpenStream> {
        let permit = self.streams.clone().try_acquire_owned().ok()?;
        let mut events = self.events.subscribe();
        // The last event is new to this stream.
        events.mark_changed();
        self.start().ok()?;
        let (feed, configuration, ends_at) =
            (self.clone(), configuration.clone(), tokio::time::Instant::now() + STREAM_TIME_MAX);
        Some(OpenStream { feed, events, configuration, stopping: stopping(), ends_at, _permit: permit })
    }

    /// Starts the thread that makes events, unless it runs.
    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_running {
            let feed = self.clone();
            thread::Builder::new().name("selvedge-page".to_owned()).spawn(move || feed.make_events())?;
            *is_running = true;
        }
        Ok(())
    }

    /// Makes events while a stream is open.
    fn make_events(&self) {
        while self.is_needed() {
            let began = Instant::now();
            // A panic is reported by its hook. The next event may be made again.
            let made = catch_unwind(AssertUnwindSafe(|| self.source.get()?.event()));
            if let Some(data) = made.ok().flatten().filter(|_| !self.is_over()) {
                self.events.send_replace(Some(format!("data: {data}\n\n").into()));
            }
            thread::sleep(EVENT_INTERVAL.saturating_sub(began.elapsed()).max(EVENT_PAUSE));
        }
    }

    /// Whether a stream is open. Otherwise the thread that makes events has to end.
    fn is_needed(&self) -> bool {
        // A stream has its permit before it looks whether the thread runs.
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        *is_running = self.streams.available_permits() < STATUS_STREAMS_MAX;
        if !*is_running {
            self.events.send_replace(None);
        }
        *is_running
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// The live page of one configuration. Clones share its streams.
#[derive(Clone, Debug)]
pub(crate) struct StatusPage {
    feed: Arc<StatusFeed>,
    /// In force until the configuration is replaced, which ends the streams: another client may have access then.
    configuration: ResponseLease,
}

impl StatusPage {
    pub(crate) fn new(feed: Arc<StatusFeed>, configuration: ResponseLease) -> Self {
        Self { feed, configuration }
    }

    /// Returns the response to a request that is only explained. Makes no page and opens no stream.
    pub(super) fn explain(request: &Request) -> Response {
        respond_to_method(request).unwrap_or_else(|| match is_for_events(request) {
            true => event_stream(EventStream::default()),
            false => html_response(NONCE_EXPLAINED, Body::Empty),
        })
    }

    /// Responds with the page, or with the stream of its events.
    pub(super) async fn respond(&self, request: &Request) -> Response {
        if let Some(response) = respond_to_method(request) {
            return response;
        }
        if is_for_events(request) {
            return self.respond_with_events(request);
        }
        match self.feed.page().await {
            Some((html, nonce)) => html_response(&nonce, html.into()),
            None => unavailable("the status of the server is not available now"),
        }
    }

    fn respond_with_events(&self, request: &Request) -> Response {
        if request.method() == Method::Head {
            return event_stream(EventStream::default());
        }
        match self.feed.open(&self.configuration) {
            Some(stream) => event_stream(EventStream::of(stream)),
            None => unavailable("too many live pages of the server are open"),
        }
    }
}

fn is_for_events(request: &Request) -> bool {
    request.query() == Some(EVENTS_QUERY)
}

/// Returns the response with the page. Its policy permits only the style and the script with the nonce.
fn html_response(nonce: &str, content: Body) -> Response {
    let response = Response::new(StatusCode::OK).field("content-type", "text/html; charset=utf-8");
    let mut response = response.field("cache-control", "no-store").field("referrer-policy", "no-referrer");
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // The nonce has no character that a field may not have.
    let _ = response.append("content-security-policy", policy);
    response.body = content;
    response
}

fn event_stream(stream: EventStream) -> Response {
    let response = Response::new(StatusCode::OK).field("content-type", "text/event-stream");
    // Without the last field, nginx in front of the server keeps events until its buffer is full.
    let mut response = response.field("cache-control", "no-store").field("x-accel-buffering", "no");
    response.body = Body::Stream { length: None, chunks: Box::pin(stream) };
    response
}

fn unavailable(reason: &'static str) -> Response {
    Response::error(StatusCode::SERVICE_UNAVAILABLE).field("retry-after", "5").log_reason(reason)
}

/// What a stream waits for.
struct OpenStream {
    feed: Arc<StatusFeed>,
    events: watch::Receiver<Option<Bytes>>,
    configuration: ResponseLease,
    stopping: Stopping,
    ends_at: tokio::time::Instant,
    _permit: OwnedSemaphorePermit,
}

/// Why a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamWake {
    /// The last event has changed.
    Event,
    /// No event was made for a while.
    Silence,
    /// The server stops.
    Stop,
}

impl OpenStream {
    /// Whether the client has to open another stream, so that its access is checked by the rules in force.
    fn is_over(&self) -> bool {
        let is_valid = !self.feed.is_over() && self.configuration.is_in_force();
        !is_valid || tokio::time::Instant::now() >= self.ends_at
    }

    /// Waits for the next bytes; `None` at the end of the stream.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let mut silence = pin!(sleep(HEARTBEAT_INTERVAL));
        loop {
            let wake = {
                let stopping = &mut self.stopping;
                let mut changed = pin!(self.events.changed());
                poll_fn(|cx| {
                    if Pin::new(&mut *stopping).poll(cx).is_ready() {
                        return Poll::Ready(StreamWake::Stop);
                    }
                    match changed.as_mut().poll(cx) {
                        Poll::Ready(Ok(())) => Poll::Ready(StreamWake::Event),
                        Poll::Ready(Err(_)) => Poll::Ready(StreamWake::Stop),
                        Poll::Pending => silence.as_mut().poll(cx).map(|()| StreamWake::Silence),
                    }
                })
                .await
            };
            if wake == StreamWake::Stop || self.is_over() {
                return None;
            }
            if wake == StreamWake::Silence {
                return Some((Bytes::from_static(HEARTBEAT), self));
            }
            let event = self.events.borrow_and_update().clone();
            if let Some(event) = event {
                return Some((event, self));
            }
        }
    }
}

type NextBytes = Pin<Box<dyn Future<Output = Option<(Bytes, OpenStream)>>>>;

/// The content of a stream of events (WHATWG HTML §9.2.5). The default has none.
#[derive(Default)]
struct EventStream {
    begin: Option<Bytes>,
    next: Option<NextBytes>,
}

impl EventStream {
    fn of(stream: OpenStream) -> Self {
        Self { begin: Some(Bytes::from_static(STREAM_BEGIN)), next: Some(Box::pin(stream.next())) }
    }
}

impl Chunks for EventStream {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(begin) = self.begin.take() {
            return Poll::Ready(Some(Ok(begin)));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (bytes, next) = match ready!(next.as_mut().poll(cx)) {
            Some((bytes, stream)) => (Some(Ok(bytes)), Some(Box::pin(stream.next()) as NextBytes)),
            None => (None, None),
        };
        self.next = next;
        Poll::Ready(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicUsize;
    use std::thread::ThreadId;

    /// Numbers its events, and knows the threads that made them.
    #[derive(Default)]
    struct Numbers {
        made: AtomicUsize,
        threads: Arc<Mutex<HashSet<ThreadId>>>,
    }

    impl StatusSource for Numbers {
        fn page(&self) -> Option<StatusPageText> {
            Some(StatusPageText { html: "page".to_owned(), nonce: "0123".to_owned() })
        }

        fn event(&self) -> Option<String> {
            self.threads.lock().unwrap().insert(thread::current().id());
            Some(self.made.fetch_add(1, Ordering::Relaxed).to_string())
        }
    }

    fn feed() -> (Arc<StatusFeed>, Arc<Mutex<HashSet<ThreadId>>>) {
        let (feed, numbers) = (Arc::new(StatusFeed::default()), Numbers::default());
        let threads = numbers.threads.clone();
        feed.set(Box::new(numbers));
        (feed, threads)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    async fn chunk(stream: &mut EventStream) -> Option<String> {
        let chunk = poll_fn(|cx| Pin::new(&mut *stream).poll_chunk(cx)).await;
        chunk.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())
    }

    /// Returns the number of the next event.
    async fn number(stream: &mut EventStream) -> usize {
        let text = chunk(stream).await.unwrap();
        text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n")).unwrap().parse().unwrap()
    }

    #[test]
    fn streams_share_the_events_of_one_thread_that_ends_with_the_last_stream() {
        let ((feed, threads), configuration) = (feed(), ResponseLease::new());
        run(async {
            let mut streams = [(); 2].map(|()| EventStream::of(feed.open(&configuration).unwrap()));
            for stream in &mut streams {
                assert_eq!(chunk(stream).await.as_deref(), Some("retry: 1000\n\n"));
                let first = number(stream).await;
                assert!(number(stream).await > first);
            }
        });
        while *feed.is_running.lock().unwrap() {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(threads.lock().unwrap().len(), 1);
        assert_eq!(*feed.events.borrow(), None, "a later stream begins with an event of its time");
        assert_eq!(feed.streams.available_permits(), STATUS_STREAMS_MAX);
    }

    #[test]
    fn a_replaced_configuration_or_process_ends_streams() {
        let (feed, _) = feed();
        run(async {
            let configurations = [ResponseLease::new(), ResponseLease::new()];
            let mut streams =
                configurations.each_ref().map(|configuration| EventStream::of(feed.open(configuration).unwrap()));
            for stream in &mut streams {
                assert!(chunk(stream).await.is_some() && chunk(stream).await.is_some());
            }
            configurations[0].end();
            assert_eq!(chunk(&mut streams[0]).await, None);
            assert_eq!(chunk(&mut streams[0]).await, None, "the end stays");
            assert!(chunk(&mut streams[1]).await.is_some());
            feed.end();
            assert_eq!(chunk(&mut streams[1]).await, None);
        });
    }

    #[test]
    fn streams_are_bounded_and_their_places_are_free_again() {
        let ((feed, _), configuration) = (feed(), ResponseLease::new());
        run(async {
            let mut streams: Vec<_> = (0..STATUS_STREAMS_MAX).map(|_| feed.open(&configuration).unwrap()).collect();
            assert!(feed.open(&configuration).is_none());
            streams.pop();
            assert!(feed.open(&configuration).is_some());
        });
    }

    #[test]
    fn a_stream_without_events_sends_comments_until_its_end() {
        let (feed, configuration) = (Arc::new(StatusFeed::default()), ResponseLease::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut stream = EventStream::of(feed.open(&configuration).unwrap());
            assert_eq!(chunk(&mut stream).await.as_deref(), Some("retry: 1000\n\n"));
            let mut comments = 0;
            while let Some(comment) = chunk(&mut stream).await {
                assert_eq!(comment, ":\n\n");
                comments += 1;
            }
            assert_eq!(comments, STREAM_TIME_MAX.as_secs() / HEARTBEAT_INTERVAL.as_secs() - 1);
        });
    }
}
