//! Exchanges with the client and the server of the crate `h2`, connected in memory.

use super::random::Random;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use selvedge_proto::http2::{
    Connection, Content, End, Event, FieldSection, Http2Limits, Millis, Role, Section, StreamId,
};
use selvedge_proto::status::StatusCode as CoreStatus;
use std::collections::BTreeMap;
use std::future::poll_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

/// Requests of each exchange, all at once.
const REQUESTS: usize = 80;

/// Bytes that the transport holds.
const TRANSPORT_BYTES: usize = 20_000;

/// What a stream has received and must send.
#[derive(Default)]
struct Exchange {
    content: Vec<u8>,
    sent: usize,
    /// All content is there.
    is_complete: bool,
    has_trailers: bool,
}

/// A driver of a connection over a transport in memory.
struct Driver {
    connection: Connection,
    io: DuplexStream,
    out: Vec<u8>,
    exchanges: BTreeMap<StreamId, Exchange>,
}

impl Driver {
    fn new(role: Role, io: DuplexStream, limits: &Http2Limits) -> Self {
        let mut connection = Connection::new(role, limits, Millis(0));
        let mut out = Vec::new();
        connection.start(&mut out);
        Self { connection, io, out, exchanges: BTreeMap::new() }
    }

    /// Sends content as far as windows permit, and then the trailers if a stream has some.
    fn send_content(&mut self) {
        while let Some(turn) = self.connection.next_to_send() {
            let exchange = self.exchanges.get_mut(&turn.stream).unwrap();
            let rest = &exchange.content[exchange.sent..];
            let piece = &rest[..rest.len().min(turn.bytes_max)];
            exchange.sent += piece.len();
            let is_last = exchange.is_complete && exchange.sent == exchange.content.len();
            let end = if is_last && !exchange.has_trailers { End::Last } else { End::More };
            self.connection.begin_data(turn.stream, piece.len(), end, &mut self.out).unwrap();
            self.out.extend_from_slice(piece);
            if is_last && exchange.has_trailers {
                self.connection
                    .send_fields(turn.stream, Section::Trailers, &mut self.out, |block| block.field(b"x-sum", b"7"))
                    .unwrap();
            } else if exchange.sent == exchange.content.len() {
                self.connection.set_content(turn.stream, Content::Waiting);
            }
        }
    }

    /// Sends what was written, and receives something. Returns its length, 0 at the end.
    async fn exchange_bytes(&mut self, input: &mut [u8]) -> usize {
        self.io.write_all(&self.out).await.unwrap();
        self.out.clear();
        self.io.read(input).await.unwrap_or(0)
    }

    /// Receives input, and gives each event to `process`.
    fn receive(&mut self, mut input: &[u8], mut process: impl FnMut(&mut Self, Event, &[u8])) {
        loop {
            let step = self.connection.receive(input, Millis(0), &mut self.out).unwrap();
            let Some(event) = step.event else { break };
            process(self, event, input);
            input = &input[step.consumed..];
        }
    }
}

/// Serves a transport: each response has the content of its request.
async fn echo(io: DuplexStream, limits: Http2Limits) {
    let mut driver = Driver::new(Role::Server, io, &limits);
    let mut input = vec![0; 5_000];
    loop {
        driver.send_content();
        let length = driver.exchange_bytes(&mut input).await;
        if length == 0 {
            return;
        }
        driver.receive(&input[..length], |driver, event, input| match event {
            Event::Headers { stream, end, section } => {
                assert!(!matches!(section, FieldSection::TooLarge(_)));
                let mut fields = driver.connection.fields().iter();
                let path = fields.find(|field| field.name == b":path").map(|field| field.value.to_vec()).unwrap();
                let exchange = Exchange { is_complete: end == End::Last, ..Exchange::default() };
                let has_trailers = path.ends_with(b"trailers");
                drop(fields);
                driver.exchanges.insert(stream, Exchange { has_trailers, ..exchange });
                driver
                    .connection
                    .send_fields(stream, Section::Head(End::More), &mut driver.out, |block| {
                        block.status(CoreStatus::OK);
                        block.field(b"server", b"selvedge");
                    })
                    .unwrap();
                driver.connection.set_content(stream, Content::Ready);
            }
            Event::Data { stream, content, end } => {
                let exchange = driver.exchanges.get_mut(&stream).unwrap();
                exchange.content.extend_from_slice(&input[content.clone()]);
                exchange.is_complete = end == End::Last;
                driver.connection.consumed(stream, content.len(), &mut driver.out);
                driver.connection.set_content(stream, Content::Ready);
            }
            Event::Trailers { stream, .. } => {
                driver.exchanges.get_mut(&stream).unwrap().is_complete = true;
                driver.connection.set_content(stream, Content::Ready);
            }
            Event::Reset { .. } => panic!("{event:?}"),
            Event::Writable | Event::GoAway { .. } | Event::PingAcknowledged { .. } => {}
        });
    }
}

fn small_limits(random: &mut Random) -> Http2Limits {
    Http2Limits {
        stream_window_bytes: [1_000, 65_535, 200_000][random.below(3)],
        sent_frame_bytes_max: [1_000, 16_384, 30_000][random.below(3)],
        decoder_table_bytes_max: [0, 100, 4_096, 8_192][random.below(4)],
        ..Http2Limits::default()
    }
}

/// The content of a request.
fn content_of(index: usize) -> Bytes {
    let length = [0, 1, 100, 5_000, 70_000, 200_000][index % 6];
    (0..length).map(|at| (at + index) as u8).collect::<Vec<_>>().into()
}

/// Sends all of `content` in steps that flow control permits.
async fn send_all(stream: &mut h2::SendStream<Bytes>, mut content: Bytes, trailers: Option<HeaderMap>) {
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
        stream.send_data(content.split_to(capacity.min(content.len())), false).unwrap();
    }
    match trailers {
        Some(trailers) => stream.send_trailers(trailers).unwrap(),
        None => stream.send_data(Bytes::new(), true).unwrap(),
    }
}

async fn receive_all(stream: &mut h2::RecvStream) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.unwrap();
        content.extend_from_slice(&piece);
        stream.flow_control().release_capacity(piece.len()).unwrap();
    }
    content
}

/// Runs tasks on one thread until the given one is complete.
fn run(task: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, task);
}

async fn request_from_server(sender: h2::client::SendRequest<Bytes>, index: usize) {
    let mut sender = sender.ready().await.unwrap();
    let has_trailers = index.is_multiple_of(3);
    let path = if has_trailers { "http://a/trailers" } else { "http://a/plain" };
    let request = Request::builder().method(Method::POST).uri(path).header("x-index", index).body(()).unwrap();
    let (response, mut stream) = sender.send_request(request, false).unwrap();
    let content = content_of(index);
    let trailers = has_trailers.then(HeaderMap::new);
    let sending = spawn_local({
        let content = content.clone();
        async move { send_all(&mut stream, content, trailers).await }
    });
    let response = response.await.unwrap();
    assert_eq!((response.status(), &response.headers()["server"]), (StatusCode::OK, &"selvedge".parse().unwrap()));
    let mut body = response.into_body();
    assert_eq!(receive_all(&mut body).await, content);
    let trailers = body.trailers().await.unwrap();
    assert_eq!(trailers.is_some_and(|trailers| trailers["x-sum"] == "7"), has_trailers);
    sending.await.unwrap();
}

#[test]
fn client_of_another_implementation_is_served() {
    for seed in 0..12 {
        run(async move {
            let mut random = Random::new(seed);
            let (near, far) = tokio::io::duplex(TRANSPORT_BYTES);
            let server = spawn_local(echo(near, small_limits(&mut random)));
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size([100, 65_535, 1_000_000][random.below(3)]);
            builder.max_frame_size([16_384, 50_000][random.below(2)]);
            builder.header_table_size([0, 4_096][random.below(2)]);
            let (sender, connection) = builder.handshake::<_, Bytes>(far).await.unwrap();
            let connection = spawn_local(connection);
            let requests: Vec<_> =
                (0..REQUESTS).map(|index| spawn_local(request_from_server(sender.clone(), index))).collect();
            drop(sender);
            for request in requests {
                request.await.unwrap();
            }
            connection.await.unwrap().unwrap();
            server.await.unwrap();
        });
    }
}

/// A server of the other implementation that responds with the content of the request.
async fn echo_of_other(io: DuplexStream, window: u32) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(window).max_concurrent_streams(10);
    let mut connection = builder.handshake::<_, Bytes>(io).await.unwrap();
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request.unwrap();
        spawn_local(async move {
            let has_trailers = request.uri().path().ends_with("trailers");
            let content = receive_all(&mut request.into_body()).await;
            let response = Response::builder().header("x-length", content.len()).body(()).unwrap();
            let mut stream = respond.send_response(response, false).unwrap();
            let trailers =
                has_trailers.then(|| HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]));
            send_all(&mut stream, content.into(), trailers).await;
        });
    }
}

/// Sends requests, and checks that each response has the content of its request.
async fn client(io: DuplexStream, limits: Http2Limits) {
    let mut driver = Driver::new(Role::Client, io, &limits);
    let (mut input, mut opened, mut complete) = (vec![0; 5_000], 0, 0);
    let mut received: BTreeMap<StreamId, (usize, Vec<u8>)> = BTreeMap::new();
    while complete < REQUESTS {
        // After the first exchange the limit of streams is known.
        let may_open = if opened == 0 { 1 } else { REQUESTS };
        while opened < may_open {
            let path: &[u8] = if opened.is_multiple_of(3) { b"/trailers" } else { b"/plain" };
            let stream = driver.connection.open(End::More, &mut driver.out, |block| {
                block.field(b":method", b"POST");
                block.field(b":scheme", b"http");
                block.field(b":authority", b"a");
                block.field(b":path", path);
            });
            let Ok(stream) = stream else { break };
            let (content, is_complete) = (content_of(opened).to_vec(), true);
            driver.exchanges.insert(stream, Exchange { content, is_complete, ..Exchange::default() });
            received.insert(stream, (opened, Vec::new()));
            driver.connection.set_content(stream, Content::Ready);
            opened += 1;
        }
        driver.send_content();
        let length = driver.exchange_bytes(&mut input).await;
        assert!(length > 0, "the server closed");
        driver.receive(&input[..length], |driver, event, input| match event {
            Event::Headers { end, .. } => assert_eq!(end, End::More),
            Event::Data { stream, content, end } => {
                let (index, got) = received.get_mut(&stream).unwrap();
                got.extend_from_slice(&input[content.clone()]);
                driver.connection.consumed(stream, content.len(), &mut driver.out);
                if end == End::Last {
                    assert_eq!(got[..], content_of(*index)[..]);
                    complete += 1;
                }
            }
            Event::Trailers { stream, .. } => {
                let (index, got) = &received[&stream];
                assert!(index.is_multiple_of(3));
                assert_eq!(got[..], content_of(*index)[..]);
                complete += 1;
            }
            Event::Reset { .. } | Event::GoAway { .. } => panic!("{event:?}"),
            Event::Writable | Event::PingAcknowledged { .. } => {}
        });
    }
    assert_eq!(driver.connection.open_streams(), 0);
    driver.connection.begin_shutdown(Millis(0), &mut driver.out);
    driver.io.write_all(&driver.out).await.unwrap();
}

#[test]
fn server_of_another_implementation_serves_the_client() {
    for seed in 0..12 {
        run(async move {
            let mut random = Random::new(seed);
            let (near, far) = tokio::io::duplex(TRANSPORT_BYTES);
            let server = spawn_local(echo_of_other(far, [100, 65_535, 1_000_000][random.below(3)]));
            client(near, small_limits(&mut random)).await;
            server.await.unwrap();
        });
    }
}
