//! Listeners with streams of the application: in memory, with the TLS of another library, and with counted bytes.

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use selvedge::{StreamListener, stopping};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, ready};
use std::{io, thread};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Streams in memory, which are counted.
struct InMemory {
    accepted: mpsc::UnboundedReceiver<(DuplexStream, SocketAddr)>,
    count: Arc<AtomicU64>,
}

impl StreamListener for InMemory {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                accepted
            }
            None => std::future::pending().await,
        }
    }
}

#[test]
fn streams_of_the_application_are_served() {
    let (sender, accepted) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicU64::new(0));
    let listener = InMemory { accepted, count: count.clone() };
    let app = Router::new()
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/long", get(async || "x".repeat(3 << 20)));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let running = selvedge::serve_streams(listener, app).workers(2).start().expect("threads start");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    runtime.block_on(async {
        for (number, path, expected) in [(1, "/peer", "192.0.2.1:9"), (2, "/long", "xxx"), (3, "/peer", "192.0.2.3:9")]
        {
            let (mut own, theirs) = duplex(1024);
            sender.send((theirs, SocketAddr::from((Ipv4Addr::new(192, 0, 2, number), 9)))).expect("it accepts");
            let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            own.write_all(request.as_bytes()).await.expect("the server reads");
            let mut response = String::new();
            own.read_to_string(&mut response).await.expect("the server responds");
            assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(expected), "{path}: {response:.200}");
            assert!(path != "/long" || response.len() > 3 << 20);
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 3);
    running.handle().stop();
    running.join();
}

#[test]
fn a_stop_completes_the_responses_of_own_streams() {
    let (sender, accepted) = mpsc::unbounded_channel();
    let listener = InMemory { accepted, count: Arc::default() };
    let (called, calls) = channel();
    let app = Router::new().route(
        "/",
        get(async move || {
            called.send(()).expect("the test waits");
            stopping().await;
            "y".repeat(1 << 20)
        }),
    );
    let running = selvedge::serve_streams(listener, app.into_make_service()).workers(1).start().expect("threads start");
    let (mut own, theirs) = duplex(64);
    sender.send((theirs, SocketAddr::from(([192, 0, 2, 1], 9)))).expect("it accepts");
    let handle = running.handle();
    let stopper = thread::spawn(move || {
        calls.recv().expect("the handler is called");
        handle.stop();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    let response = runtime.block_on(async {
        own.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("the server reads");
        let mut response = Vec::new();
        own.read_to_end(&mut response).await.expect("the server responds");
        response
    });
    assert!(response.len() > 1 << 20 && response.ends_with(b"yyy"), "{} bytes", response.len());
    stopper.join().expect("it does not panic");
    running.join();
}

/// A stream that counts the bytes that it receives.
struct Counted {
    stream: TcpStream,
    received: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.received.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// TLS of another library around counted sockets.
struct OtherTls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    received: Arc<AtomicU64>,
}

impl StreamListener for OtherTls {
    type Stream = TlsStream<Counted>;

    async fn accept(&mut self) -> (Self::Stream, SocketAddr) {
        loop {
            let (stream, peer) = self.listener.accept().await.expect("descriptors are left");
            let counted = Counted { stream, received: self.received.clone() };
            if let Ok(stream) = self.acceptor.accept(counted).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

/// Returns both sides of TLS for `localhost`.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let key = rcgen::KeyPair::generate().expect("a key is made");
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("the name is valid");
    let certificate: CertificateDer<'static> = params.self_signed(&key).expect("it is signed").der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("the key is valid");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let server = server.expect("the versions exist").with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key).expect("the key fits");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("the certificate is valid");
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = client.expect("the versions exist").with_root_certificates(roots).with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_of_another_library_and_a_tap_are_served() {
    let (acceptor, connector) = tls();
    let received = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let listener = OtherTls { listener, acceptor, received: received.clone() };
    let app = Router::new().route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()));
    let server = selvedge::serve_streams(listener, app.into_make_service_with_connect_info::<SocketAddr>()).workers(1);
    let address = server.local_addr().expect("the listener has an address");
    let running = server.start().expect("threads start");
    assert_eq!(running.addresses(), [address]);
    let stream = TcpStream::connect(address).await.expect("the server listens");
    let own = stream.local_addr().expect("it is connected");
    let name = ServerName::try_from("localhost").expect("the name is valid");
    let mut stream = connector.connect(name, stream).await.expect("the certificate is trusted");
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut response = String::new();
    // Without a close_notify, the read fails after the whole response.
    let _ = stream.read_to_string(&mut response).await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(&own.to_string()), "{response}");
    assert!(received.load(Ordering::Relaxed) > request.len() as u64, "the tap has seen the bytes");
    running.handle().stop();
    running.join();
}
