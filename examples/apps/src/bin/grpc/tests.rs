//! Tests of the service with tonic's client.

use crate::messages::{Reading, Sensor, Summary};
use crate::service::StationService;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, future, stream};
use http::uri::PathAndQuery;
use prost::Message;
use selvedge::{Body, PlainHttp2, RunningServer, Server};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::Service;

/// Bytes of a large message.
const LARGE_BYTES: usize = 32 << 20;
/// A window that is a small part of a message.
const SMALL_WINDOW_BYTES: u32 = 16 << 10;
const SENSOR: &str = "roof";

fn server() -> Server {
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    server.plain_http2(PlainHttp2::Always).body_bytes_max(u64::MAX)
}

fn serve(server: Server) -> RunningServer {
    server.serve(StationService::default()).expect("threads start")
}

fn endpoint(running: &RunningServer) -> Endpoint {
    let address = running.addresses()[0];
    Endpoint::try_from(format!("http://{address}")).expect("the address is a URI")
}

/// A client with the four methods.
#[derive(Clone)]
struct Station(Grpc<Channel>);

impl Station {
    async fn connect(endpoint: &Endpoint) -> Self {
        let channel = endpoint.connect().await.expect("the server accepts the connection");
        let client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
        Self(client.max_encoding_message_size(usize::MAX))
    }

    async fn latest(&mut self, request: Request<Sensor>) -> Result<Response<Reading>, Status> {
        self.0.ready().await.expect("the connection is open");
        self.0.unary(request, path("Latest"), codec()).await
    }

    async fn watch(&mut self, request: Request<Sensor>) -> Result<Response<Streaming<Reading>>, Status> {
        self.0.ready().await.expect("the connection is open");
        self.0.server_streaming(request, path("Watch"), codec()).await
    }

    async fn record(
        &mut self,
        readings: impl Stream<Item = Reading> + Send + 'static,
    ) -> Result<Response<Summary>, Status> {
        self.0.ready().await.expect("the connection is open");
        self.0.client_streaming(Request::new(readings), path("Record"), codec()).await
    }

    async fn convert(
        &mut self,
        readings: impl Stream<Item = Reading> + Send + 'static,
    ) -> Result<Response<Streaming<Reading>>, Status> {
        self.0.ready().await.expect("the connection is open");
        self.0.streaming(Request::new(readings), path("Convert"), codec()).await
    }
}

fn path(method: &str) -> PathAndQuery {
    format!("/station.Station/{method}").parse().expect("the path is valid")
}

fn codec<T: Message + Default + 'static, U: Message + Default + 'static>() -> ProstCodec<T, U> {
    ProstCodec::default()
}

fn sensor() -> Request<Sensor> {
    Request::new(Sensor { name: SENSOR.to_owned() })
}

fn reading(degrees: f64) -> Reading {
    Reading { sensor: SENSOR.to_owned(), degrees, note: Bytes::new() }
}

#[tokio::test]
async fn all_four_kinds_of_calls_work() {
    let running = serve(server());
    let mut station = Station::connect(&endpoint(&running)).await;
    let status = station.latest(sensor()).await.expect_err("nothing was recorded");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "the sensor has no reading"));
    let mut watched = station.watch(sensor()).await.expect("the call is accepted").into_inner();
    let summary = station.record(stream::iter([reading(1.0), reading(20.0)])).await.expect("the call is complete");
    assert_eq!(summary.into_inner(), Summary { readings: 2, note_bytes: 0 });
    for degrees in [1.0, 20.0] {
        assert_eq!(watched.message().await.expect("the stream is open"), Some(reading(degrees)));
    }
    assert_eq!(station.latest(sensor()).await.expect("it was recorded").into_inner(), reading(20.0));
    station.0.ready().await.expect("the connection is open");
    let status = station.0.unary::<_, Sensor, _>(sensor(), path("Other"), codec()).await;
    assert_eq!(status.expect_err("the service has no such method").code(), Code::Unimplemented);
}

#[tokio::test]
async fn both_directions_of_a_call_continue_at_once() {
    let running = serve(server());
    let mut station = Station::connect(&endpoint(&running)).await;
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut converted =
        station.convert(UnboundedReceiverStream::new(receiver)).await.expect("the call is accepted").into_inner();
    // Each message is sent after the reply to the previous one.
    for (celsius, fahrenheit) in [(0.0, 32.0), (100.0, 212.0), (-40.0, -40.0)] {
        sender.send(reading(celsius)).expect("the call is open");
        assert_eq!(converted.message().await.expect("the call is open"), Some(reading(fahrenheit)));
    }
    drop(sender);
    assert_eq!(converted.message().await.expect("the call ends well"), None);
    assert!(converted.trailers().await.expect("the call ends well").is_some());
}

/// The service, and the number of its calls that have no response.
#[derive(Clone)]
struct Counted {
    service: StationService,
    calls: watch::Sender<usize>,
}

/// A call that has no response.
struct CountedCall(watch::Sender<usize>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

impl Service<http::Request<Body>> for Counted {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.calls.send_modify(|calls| *calls += 1);
        let (call, counted) = (self.service.call(request), CountedCall(self.calls.clone()));
        Box::pin(async move {
            let _counted = counted;
            call.await
        })
    }
}

#[tokio::test]
async fn calls_end_when_the_client_cancels_them_or_their_deadline_passes() {
    let counted = Counted { service: StationService::default(), calls: watch::Sender::new(0) };
    let (recorded, mut calls) = (counted.service.recorded.clone(), counted.calls.subscribe());
    let running = server().serve(counted).expect("threads start");
    let mut station = Station::connect(&endpoint(&running)).await;
    let watched = station.watch(sensor()).await.expect("the call is accepted");
    assert_eq!(recorded.receiver_count(), 1);
    drop(watched);
    recorded.closed().await;
    // The client never ends its stream, so only the deadline ends this call.
    let mut request = Request::new(stream::pending::<Reading>());
    request.set_timeout(Duration::from_millis(50));
    station.0.ready().await.expect("the connection is open");
    let recording = station.0.client_streaming::<_, _, Summary, _>(request, path("Record"), codec());
    let (status, _) = future::join(recording, calls.wait_for(|&calls| calls == 1)).await;
    assert_eq!(status.expect_err("nothing else ends the call").code(), Code::Cancelled);
    calls.wait_for(|&calls| calls == 0).await.expect("the service exists");
}

#[tokio::test]
async fn thousand_calls_are_open_at_once() {
    const CALLS: usize = 1_000;
    let running = serve(server().http2_streams_max(CALLS as u32));
    let station = Station::connect(&endpoint(&running)).await;
    let open = async |number: usize| {
        let (sender, receiver) = mpsc::unbounded_channel();
        let readings = UnboundedReceiverStream::new(receiver);
        let replies = station.clone().convert(readings).await.expect("the call is accepted").into_inner();
        (number, sender, replies)
    };
    // All are open before the first message.
    let calls = future::join_all((0..CALLS).map(open)).await;
    let finish = async |(number, sender, mut replies): (usize, UnboundedSender<Reading>, Streaming<Reading>)| {
        sender.send(reading(number as f64)).expect("the call is open");
        let reply = replies.message().await.expect("the call is open").expect("each message has a reply");
        assert_eq!(reply.degrees, number as f64 * 1.8 + 32.0);
        drop(sender);
        assert_eq!(replies.message().await.expect("the call ends well"), None);
    };
    future::join_all(calls.into_iter().map(finish)).await;
}

#[tokio::test]
async fn large_messages_pass_small_windows() {
    let running = serve(server());
    let endpoint = endpoint(&running)
        .initial_stream_window_size(SMALL_WINDOW_BYTES)
        .initial_connection_window_size(SMALL_WINDOW_BYTES * 4);
    let mut station = Station::connect(&endpoint).await;
    let note: Bytes = (0..LARGE_BYTES).map(|at| (at / 251) as u8).collect();
    let large = Reading { note: note.clone(), ..reading(0.0) };
    let summary = station.record(stream::iter([large.clone()])).await.expect("the call is complete");
    assert_eq!(summary.into_inner(), Summary { readings: 1, note_bytes: LARGE_BYTES as u64 });
    let latest = station.latest(sensor()).await.expect("it was recorded").into_inner();
    assert!(latest.note == note);
    let mut converted = station.convert(stream::iter([large])).await.expect("the call is accepted").into_inner();
    let reply = converted.message().await.expect("the call is open").expect("the message has a reply");
    assert!(reply.note == note);
    assert!(converted.next().await.is_none());
}
