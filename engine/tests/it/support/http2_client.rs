//! An HTTP/2 client for tests, on the `h2` crate: an implementation that is not this project's.

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use selvedge::RunningServer;
use std::future::poll_fn;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One connection of a client.
pub(crate) struct Http2Client {
    sender: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// A request whose content is not complete, and its response.
pub(crate) struct OpenRequest {
    pub(crate) content: SendStream<Bytes>,
    pub(crate) response: ResponseFuture,
}

/// A response with its whole content.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) head: http::response::Parts,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Complete {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is text")
    }
}

impl Http2Client {
    /// Connects to a server that accepts HTTP/2 without TLS. Receives its settings.
    pub(crate) async fn connect(running: &RunningServer) -> Self {
        Self::connect_with(running, &h2::client::Builder::new()).await
    }

    pub(crate) async fn connect_with(running: &RunningServer, builder: &h2::client::Builder) -> Self {
        let stream = TcpStream::connect(running.addresses()[0]).await.expect("the server listens");
        stream.set_nodelay(true).expect("the option is set");
        let (sender, mut connection): (_, Connection<TcpStream>) =
            builder.handshake(stream).await.expect("the preface is sent");
        let mut ping = connection.ping_pong().expect("the first ping");
        let connection = tokio::spawn(connection);
        // The settings precede the acknowledgement.
        ping.ping(h2::Ping::opaque()).await.expect("the server acknowledges");
        Self { sender, connection }
    }

    /// Whether the server has offered extended CONNECT.
    pub(crate) fn may_open_tunnels(&self) -> bool {
        self.sender.is_extended_connect_protocol_enabled()
    }

    /// Sends the head of a request whose content follows.
    pub(crate) async fn open(&self, request: Request<()>) -> OpenRequest {
        let mut sender = self.sender.clone().ready().await.expect("the connection is open");
        let (response, content) = sender.send_request(request, false).expect("the request is valid");
        OpenRequest { content, response }
    }

    /// Sends a request without content, and receives the whole response.
    pub(crate) async fn send(&self, request: Request<()>) -> Complete {
        let mut sender = self.sender.clone().ready().await.expect("the connection is open");
        let (response, _) = sender.send_request(request, true).expect("the request is valid");
        complete(response.await.expect("the server responds")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Complete {
        self.send(request("GET", path)).await
    }
}

impl OpenRequest {
    /// Sends content, and then ends it.
    pub(crate) async fn finish(mut self, content: impl Into<Bytes>) -> Complete {
        self.content.send_data(content.into(), true).expect("the stream is open");
        complete(self.response.await.expect("the server responds")).await
    }
}

/// Creates a request for a path of the host `test`.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    let request = Request::builder().method(method).uri(format!("http://test{path}"));
    request.body(()).expect("the request is valid")
}

/// Receives all content of a response.
pub(crate) async fn complete(response: Response<RecvStream>) -> Complete {
    let (head, mut body) = response.into_parts();
    let mut content = Vec::new();
    while let Some(piece) = receive(&mut body).await {
        content.extend_from_slice(&piece.expect("the content is complete"));
    }
    let trailers = body.trailers().await.expect("the response is complete");
    Complete { head, content, trailers }
}

/// Receives the next piece of content that is not empty, and opens the windows for as much.
pub(crate) async fn receive(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    loop {
        match body.data().await? {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                // It fails if the stream has ended.
                let _ = body.flow_control().release_capacity(piece.len());
                return Some(Ok(piece));
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Receives the next interim response.
pub(crate) async fn interim(response: &mut ResponseFuture) -> Response<()> {
    let interim = poll_fn(|cx| response.poll_informational(cx)).await;
    interim.expect("an interim response is sent").expect("the stream is open")
}
