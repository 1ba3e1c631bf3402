//! The service: a tower service that passes each path to its method.

use crate::messages::{Reading, Sensor, Summary};
use futures_util::{Stream, StreamExt};
use prost::Message;
use selvedge::Body;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tonic::server::Grpc;
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// The maximum number of pending readings of a slow watcher, which misses readings beyond it.
const PENDING_READINGS_MAX: usize = 100;
/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

type Replies = Pin<Box<dyn Stream<Item = Result<Reading, Status>> + Send>>;

/// The readings of all sensors.
#[derive(Clone)]
pub(crate) struct StationService {
    latest: Arc<Mutex<HashMap<String, Reading>>>,
    pub(crate) recorded: broadcast::Sender<Reading>,
}

impl Default for StationService {
    fn default() -> Self {
        Self { latest: Arc::default(), recorded: broadcast::channel(PENDING_READINGS_MAX).0 }
    }
}

impl StationService {
    /// Returns the last reading of a sensor.
    fn latest(&self, sensor: &Sensor) -> Result<Reading, Status> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get(&sensor.name).cloned().ok_or_else(|| Status::not_found("the sensor has no reading"))
    }

    /// Returns the readings of a sensor from now on.
    fn watch(&self, sensor: Sensor) -> Replies {
        let recorded = BroadcastStream::new(self.recorded.subscribe());
        let readings = recorded.filter_map(move |reading| {
            let reading = reading.ok().filter(|reading| reading.sensor == sensor.name);
            std::future::ready(reading.map(Ok))
        });
        Box::pin(readings)
    }

    /// Stores readings until the client ends the stream.
    async fn record(&self, mut readings: Streaming<Reading>) -> Result<Summary, Status> {
        let mut summary = Summary::default();
        while let Some(reading) = readings.message().await? {
            summary.readings += 1;
            summary.note_bytes += reading.note.len() as u64;
            self.latest.lock().unwrap_or_else(PoisonError::into_inner).insert(reading.sensor.clone(), reading.clone());
            // It fails if the sensor has no watcher.
            let _ = self.recorded.send(reading);
        }
        Ok(summary)
    }

    /// Passes a call to its method.
    async fn dispatch(self, request: http::Request<Body>) -> http::Response<tonic::body::Body> {
        match request.uri().path() {
            "/station.Station/Latest" => {
                let method = service_fn(async |request: tonic::Request<Sensor>| {
                    self.latest(request.get_ref()).map(Response::new)
                });
                grpc().unary(method, request).await
            }
            "/station.Station/Watch" => {
                let method = service_fn(async |request: tonic::Request<Sensor>| {
                    Ok(Response::new(self.watch(request.into_inner())))
                });
                grpc().server_streaming(method, request).await
            }
            "/station.Station/Record" => {
                let method = service_fn(async |request: tonic::Request<Streaming<Reading>>| {
                    self.record(request.into_inner()).await.map(Response::new)
                });
                grpc().client_streaming(method, request).await
            }
            "/station.Station/Convert" => {
                let method = service_fn(async |request: tonic::Request<Streaming<Reading>>| {
                    let readings = request.into_inner();
                    Ok(Response::new(readings.map(|reading| reading.map(to_fahrenheit))))
                });
                grpc().streaming(method, request).await
            }
            _ => Status::unimplemented("the service has no such method").into_http(),
        }
    }
}

/// Returns the reader and writer of the messages of a call.
fn grpc<Reply, Request>() -> Grpc<ProstCodec<Reply, Request>>
where
    Reply: Message + Default + 'static,
    Request: Message + Default + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

fn to_fahrenheit(reading: Reading) -> Reading {
    Reading { degrees: reading.degrees * 1.8 + 32.0, ..reading }
}

impl Service<http::Request<Body>> for StationService {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.dispatch(request).await) })
    }
}
