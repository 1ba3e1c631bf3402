//! Calls of the example `grpc` with tonic: all four kinds, and each message of a call in both directions after the previous
//! one of the other side.

use crate::{Outcome, expect};
use futures_util::{Stream, stream};
use prost::Message;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const NOTE_BYTES: usize = 8 << 20;

#[derive(Clone, PartialEq, Message)]
struct Sensor {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Measurement {
    #[prost(string, tag = "1")]
    sensor: String,
    #[prost(double, tag = "2")]
    degrees: f64,
    #[prost(bytes = "vec", tag = "3")]
    note: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, tag = "1")]
    readings: u64,
    #[prost(uint64, tag = "2")]
    note_bytes: u64,
}

fn sensor() -> Request<Sensor> {
    Request::new(Sensor { name: "tonic".to_owned() })
}

fn measurement(degrees: f64, note: Vec<u8>) -> Measurement {
    Measurement { sensor: "tonic".to_owned(), degrees, note }
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}

fn codec<T: Message + Default + 'static, U: Message + Default + 'static>() -> ProstCodec<T, U> {
    ProstCodec::default()
}

/// Returns a sender, and the stream of what it sends.
fn channel() -> (mpsc::UnboundedSender<Measurement>, impl Stream<Item = Measurement> + Send + 'static) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))))
}

/// Makes the calls at a port of localhost, which accepts HTTP/2 without TLS.
pub(crate) async fn run(port: &str) -> Outcome {
    let channel = Endpoint::try_from(format!("http://localhost:{port}"))?.connect().await?;
    let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    client.ready().await?;
    let status = client.unary::<_, Sensor, _>(sensor(), path("/station.Station/Other"), codec()).await;
    if status.map(drop).map_err(|status| status.code()) != Err(Code::Unimplemented) {
        return Err("the service has no such method".into());
    }
    client.ready().await?;
    let watching =
        client.server_streaming::<_, Measurement, _>(sensor(), path("/station.Station/Watch"), codec()).await?;
    let mut watched = watching.into_inner();
    let readings = Request::new(stream::iter([measurement(1.0, vec![7; NOTE_BYTES]), measurement(20.0, Vec::new())]));
    client.ready().await?;
    let summary: Summary =
        client.client_streaming(readings, path("/station.Station/Record"), codec()).await?.into_inner();
    expect("a summary", &format!("{} {}", summary.readings, summary.note_bytes), &format!("2 {NOTE_BYTES}"))?;
    for degrees in [1.0, 20.0] {
        let reading = watched.message().await?.ok_or("the watched sensor has no reading")?;
        expect("a watched reading", &reading.degrees.to_string(), &f64::to_string(&degrees))?;
    }
    drop(watched);
    client.ready().await?;
    let latest: Measurement = client.unary(sensor(), path("/station.Station/Latest"), codec()).await?.into_inner();
    expect("the latest reading", &latest.degrees.to_string(), "20")?;
    converse(&mut client).await
}

/// Sends each message after the reply to the previous one.
async fn converse(client: &mut Grpc<Channel>) -> Outcome {
    let (sender, readings) = channel();
    client.ready().await?;
    let call = client.streaming(Request::new(readings), path("/station.Station/Convert"), codec());
    let mut converted: tonic::Streaming<Measurement> = call.await?.into_inner();
    for (celsius, fahrenheit) in [(0.0, "32"), (100.0, "212"), (-40.0, "-40")] {
        sender.send(measurement(celsius, vec![0; 100_000]))?;
        let reply = converted.message().await?.ok_or("the call has ended")?;
        expect("a converted reading", &reply.degrees.to_string(), fahrenheit)?;
    }
    drop(sender);
    expect("the end", &format!("{:?}", converted.message().await?), "None")?;
    if converted.trailers().await?.is_none() {
        return Err("the call has no trailers".into());
    }
    Ok(())
}
