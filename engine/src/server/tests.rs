//! Servers whose connections have a session, with sockets of both drivers.

use super::*;
use crate::limits::LONG_BUFFER_BYTES;
use crate::net::link::MakeSession;
use crate::net::link::xor_session::{Keystream, XorSessions};
use crate::service::{Body, Duplex, FileContent, OpenFile, Request, Response, UpgradeResponse};
use bytes::Bytes;
use selvedge_cases::load_cases;
use selvedge_proto::StatusCode;
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

/// The length of the file that the application serves: more than the buffers of a client hold.
const FILE_LEN: usize = 8 << 20;

/// Returns bytes that differ by position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Serves a file, the request's content, another protocol, or a small page.
async fn respond(request: &mut Request) -> Response {
    match request.path() {
        "/file" => {
            let path = std::env::temp_dir().join(format!("selvedge-session-{}", std::process::id()));
            std::fs::write(&path, pattern(FILE_LEN)).unwrap();
            let file = Rc::new(OpenFile::new(std::fs::File::open(&path).unwrap()));
            std::fs::remove_file(&path).unwrap();
            let content = FileContent::new(file, 0, FILE_LEN as u64).unwrap();
            Response::new(StatusCode::OK).body(Body::File(Box::new(content)))
        }
        "/echo" => {
            request.body().set_bytes_max(u64::MAX);
            let body = request.take_body();
            Response::new(StatusCode::OK).body(Body::Stream { length: body.length(), chunks: Box::pin(body) })
        }
        "/upgrade" => {
            let handler = Box::new(|duplex| drop(runtime::spawn_local(echo(duplex))));
            let upgrade = UpgradeResponse { protocol: Bytes::from_static(b"echo"), handler };
            Response::new(StatusCode::SWITCHING_PROTOCOLS).body(Body::Upgrade(Box::new(upgrade)))
        }
        _ => match request.body().read_all().await {
            Ok(content) => Response::new(StatusCode::OK).body(content),
            Err(error) => error.into(),
        },
    }
}

/// Sends back what it receives.
async fn echo(mut duplex: Box<dyn Duplex>) {
    let mut buffer = vec![0; 5000];
    loop {
        let count = match poll_fn(|cx| duplex.poll_receive(cx, &mut buffer)).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let mut sent = 0;
        while sent < count {
            match poll_fn(|cx| duplex.poll_send(cx, &[IoSlice::new(&buffer[sent..count])])).await {
                Ok(accepted) => sent += accepted,
                Err(_) => return,
            }
        }
    }
    let _ = duplex.shutdown_write();
}

/// Whether a client has a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    Plain,
    WithSession,
}

/// Sends bytes on a new connection. Returns what the server sends until it closes.
pub(crate) fn exchange(address: SocketAddr, mut sent: Vec<u8>, client: ClientKind) -> Vec<u8> {
    let (mut to_server, mut from_server) = (Keystream::CLIENT, Keystream::SERVER);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    if client == ClientKind::WithSession {
        to_server.apply(&mut sent);
    }
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        // The server may close the connection before it has read everything.
        let _ = writer.write_all(&sent);
        let _ = writer.shutdown(Shutdown::Write);
    });
    let mut received = Vec::new();
    // A reset after the response is an end as well.
    let _ = stream.read_to_end(&mut received);
    writing.join().unwrap();
    if client == ClientKind::WithSession {
        from_server.apply(&mut received);
    }
    received
}

/// Removes the values of Date.
pub(crate) fn without_dates(bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    lines.retain(|line| !line.starts_with(b"date: "));
    lines.concat()
}

/// Runs a test for each driver, with a plain server and one whose connections have a session.
fn with_servers(test: impl Fn(SocketAddr, SocketAddr)) {
    for driver in DRIVERS {
        let start = |sessions: Option<Arc<dyn MakeSession>>| {
            let mut server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(driver);
            server.config.sessions = sessions;
            server.serve(respond).unwrap()
        };
        let (plain, encoded) = (start(None), start(Some(Arc::new(XorSessions))));
        test(plain.addresses()[0], encoded.addresses()[0]);
        for server in [plain, encoded] {
            server.handle().stop_now();
            assert_eq!(server.join(), ExitCause::Stopped);
        }
    }
}

#[test]
fn case_rows_get_equal_responses_with_a_session() {
    let cases = load_cases();
    with_servers(|plain, encoded| {
        for case in &cases {
            let [expected, received] = [(plain, ClientKind::Plain), (encoded, ClientKind::WithSession)]
                .map(|(address, client)| without_dates(&exchange(address, case.raw.clone(), client)));
            assert_eq!(received.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{}", case.name);
        }
    });
}

#[test]
fn long_content_passes_a_session_in_both_directions() {
    let content = pattern(LONG_BUFFER_BYTES * 20 + 1);
    let upload = format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", content.len());
    let upload = [upload.as_bytes(), &content].concat();
    with_servers(|_, encoded| {
        let file = exchange(encoded, b"GET /file HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), ClientKind::WithSession);
        assert!(file.ends_with(&pattern(FILE_LEN)), "{} bytes", file.len());
        let echoed = exchange(encoded, upload.clone(), ClientKind::WithSession);
        assert!(echoed.ends_with(&content), "{} bytes", echoed.len());
    });
}

#[test]
fn an_upgraded_connection_keeps_its_session() {
    let content = pattern(300_000);
    let head = b"GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    with_servers(|_, encoded| {
        let received = exchange(encoded, [head, &content[..]].concat(), ClientKind::WithSession);
        assert!(received.starts_with(b"HTTP/1.1 101 ") && received.ends_with(&content), "{} bytes", received.len());
    });
}
