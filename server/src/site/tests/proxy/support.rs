//! Servers whose behaviour a test defines, and groups of them.

use super::*;
use selvedge::client::{Address, ClientTimeouts, Protocol};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::thread;

/// One request that a server has received, and its connection.
pub(super) struct Received<'a> {
    /// The number of the request at its server, from 0.
    pub(super) number: usize,
    /// Head and content as text.
    pub(super) text: &'a str,
    pub(super) stream: &'a mut TcpStream,
}

impl Received<'_> {
    /// Sends bytes.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The proxy may have closed the connection.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends a response with this content.
    pub(super) fn respond(&mut self, status: u16, lines: &str, content: &str) {
        let length = content.len();
        self.send(format!("HTTP/1.1 {status} X\r\n{lines}Content-Length: {length}\r\n\r\n{content}"));
    }

    /// Waits until the proxy closes the connection.
    pub(super) fn await_close(&mut self) {
        let mut byte = [0];
        while matches!(self.stream.read(&mut byte), Ok(1..)) {}
    }
}

/// Whether a connection continues after a response.
pub(super) enum Then {
    Continue,
    Close,
}

/// A server whose behaviour is a function.
pub(super) struct TestUpstream {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestUpstream {
    /// Starts a server. It ends with the process.
    pub(super) fn new(respond: impl Fn(Received<'_>) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, respond) = (requests.clone(), Arc::new(respond));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), seen, respond) = (stream, seen.clone(), respond.clone()) else { return };
                thread::spawn(move || {
                    while let Some(text) = read_request(&mut stream) {
                        let number = {
                            let mut seen = seen.lock().unwrap();
                            seen.push(text.clone());
                            seen.len() - 1
                        };
                        let received = Received { number, text: &text, stream: &mut stream };
                        if let Then::Close = respond(received) {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// A server that responds 200 with this content.
    pub(super) fn with_content(content: &'static str) -> Self {
        Self::new(move |mut received| {
            received.respond(200, "", content);
            Then::Continue
        })
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

/// Reads a head, and content of an announced length.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes.clone()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut content = vec![0; length];
    stream.read_exact(&mut content).ok()?;
    bytes.extend(content);
    Some(String::from_utf8(bytes).unwrap())
}

/// Returns an address at which nothing listens.
pub(super) fn closed_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(super) fn server(address: SocketAddr) -> ServerRules {
    ServerRules {
        name: format!("http://{address}").into(),
        authority: address.to_string().into(),
        addresses: Arc::new(AddressCell::new([Address::Tcp(address)])),
        weight: NonZeroU16::MIN,
        tls: None,
        protocol: Protocol::Http1,
        proxy_header: None,
    }
}

pub(super) fn group(addresses: &[SocketAddr]) -> UpstreamRules {
    UpstreamRules {
        name: "app".into(),
        servers: addresses.iter().copied().map(server).collect(),
        balance: Balance::LeastLoaded,
        failures: FailureRules::default(),
        check: None,
        slow_start: Duration::ZERO,
        capacity: CapacityRules::default(),
        timeouts: ClientTimeouts::default(),
    }
}

pub(super) fn rules(group: UpstreamRules) -> ProxyRules {
    ProxyRules::new(Arc::new(Upstream::new(group)))
}

/// A server that forwards the requests of one pattern.
pub(super) fn proxy_at(pattern: &str, rules: ProxyRules) -> TestServer {
    TestServer::one(vec![route(pattern, Action::Proxy(Arc::new(rules)))])
}

pub(super) fn proxy(rules: ProxyRules) -> TestServer {
    proxy_at("/*", rules)
}

pub(super) fn proxy_to(upstream: &TestUpstream) -> TestServer {
    proxy(rules(group(&[upstream.address])))
}

/// Opens a connection and sends a request.
pub(super) fn connect(server: &TestServer, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.running.as_ref().unwrap().addresses()[0]).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    client
}

/// Reads until the bytes end with this text.
pub(super) fn read_until(client: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end.as_bytes()) {
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&bytes));
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}
