//! Socket tests with each back end: parked connections behave like active ones.

use crate::net::backend::Driver;
use crate::net::connection_table::ConnectionTable;
use crate::service::{CloseReason, Closed, Phase};
use crate::{ExitCause, Observer, Request, Response, RunningServer, Server, StatusCode};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Longest duration of a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a record of each closed connection.
#[derive(Clone)]
struct ClosedSender(Sender<Closed>);

impl Observer for ClosedSender {
    fn closed(&self, closed: &Closed) {
        let _ = self.0.send(closed.clone());
    }
}

/// Responds with the path followed by the request content.
async fn echo(request: &mut Request) -> Response {
    let path = request.path().to_owned();
    match request.body().read_all().await {
        Ok(content) => Response::new(StatusCode::OK).body([path.as_bytes(), &content].concat()),
        Err(error) => error.into(),
    }
}

/// Runs a test against a server with one worker, for each back end.
fn with_each_driver(set_up: fn(Server) -> Server, test: impl Fn(&RunningServer, &Receiver<Closed>)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let (sender, closed_receiver) = channel();
        let server = set_up(Server::bind_with_workers("127.0.0.1:0", 1).unwrap()).driver(driver);
        let server = server.observe(ClosedSender(sender)).serve(echo).unwrap();
        test(&server, &closed_receiver);
        server.handle().stop_now();
        server.join();
    }
}

/// Returns the result of `query` on the worker's connection table.
fn query_table<T: Send + 'static>(server: &RunningServer, query: fn(&ConnectionTable) -> T) -> T {
    let (sender, receiver) = channel();
    server.handle().inspect(move |connections| drop(sender.send(query(connections))));
    receiver.recv_timeout(TEST_TIMEOUT).unwrap()
}

/// Parks idle connections and waits until `count` are parked.
fn park(server: &RunningServer, count: usize) {
    let started = Instant::now();
    while query_table(server, ConnectionTable::parked_count) != count {
        query_table(server, ConnectionTable::park_idle);
        assert!(
            started.elapsed() < TEST_TIMEOUT,
            "{} of {count} are parked",
            query_table(server, ConnectionTable::parked_count)
        );
    }
}

fn connect(server: &RunningServer) -> TcpStream {
    let client = TcpStream::connect(server.addresses()[0]).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client
}

/// Reads one response and checks its content.
fn expect(mut client: &TcpStream, content: &str) {
    let mut response = Vec::new();
    while !response.ends_with(format!("\r\n\r\n{content}").as_bytes()) {
        let mut byte = [0];
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", response.escape_ascii());
        response.push(byte[0]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", response.escape_ascii());
}

/// Connects a client that has received one response and is idle.
fn idle(server: &RunningServer) -> TcpStream {
    let mut client = connect(server);
    client.write_all(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    expect(&client, "/first");
    client
}

/// Expects that the server closes the connection.
fn expect_end(mut client: &TcpStream) {
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn parked_connection_serves_requests() {
    with_each_driver(
        |server| server,
        |server, closed_receiver| {
            let mut client = idle(server);
            for number in 0..5 {
                park(server, 1);
                let request =
                    format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2000));
                // In one write, or in parts.
                for part in request.as_bytes().chunks([usize::MAX, 1000, 30, 7, 1][number]) {
                    client.write_all(part).unwrap();
                }
                expect(&client, &format!("/{number}{}", "x".repeat(2000)));
            }
            park(server, 1);
            client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            expect(&client, "/a");
            expect(&client, "/b");
            park(server, 1);
            client.shutdown(Shutdown::Write).unwrap();
            expect_end(&client);
            let closed = closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap();
            assert_eq!((closed.reason, closed.phase, closed.requests), (CloseReason::ClientClosed, Phase::Idle, 8));
            assert_eq!(closed.peer, client.local_addr().unwrap());
        },
    );
}

#[test]
fn many_parked_connections_resume_at_once() {
    with_each_driver(
        |server| server,
        |server, _| {
            let clients: Vec<TcpStream> = (0..300).map(|_| idle(server)).collect();
            park(server, clients.len());
            for mut client in &clients {
                client.write_all(b"GET /again HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            }
            clients.iter().for_each(|client| expect(client, "/again"));
        },
    );
}

#[test]
fn reset_of_a_parked_connection_is_noticed() {
    with_each_driver(
        |server| server,
        |server, closed_receiver| {
            let client = idle(server);
            park(server, 1);
            // Closing the socket with zero linger time resets the connection.
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            let closed = closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap();
            assert_eq!((closed.reason, closed.phase, closed.requests), (CloseReason::Reset, Phase::Idle, 1));
        },
    );
}

#[test]
fn parked_connection_closes_at_its_deadline() {
    with_each_driver(
        |server| server.keep_alive_timeout(Duration::from_secs(1)),
        |server, closed_receiver| {
            let client = idle(server);
            park(server, 1);
            expect_end(&client);
            assert_eq!(closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap().reason, CloseReason::KeepAliveTimeout);
        },
    );
}

#[test]
fn parked_connections_are_evicted() {
    with_each_driver(
        |server| server.connections_max(2),
        |server, closed_receiver| {
            let (first, second) = (idle(server), idle(server));
            park(server, 2);
            let third = idle(server);
            let closed = closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap();
            assert_eq!(closed.reason, CloseReason::Evicted);
            let (evicted, mut remaining) =
                if closed.peer == first.local_addr().unwrap() { (first, second) } else { (second, first) };
            expect_end(&evicted);
            remaining.write_all(b"GET /again HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            expect(&remaining, "/again");
            drop(third);
        },
    );
}

#[test]
fn parked_connections_close_when_the_server_stops() {
    with_each_driver(
        |server| server,
        |server, closed_receiver| {
            let client = idle(server);
            park(server, 1);
            server.handle().stop();
            expect_end(&client);
            assert_eq!(closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap().reason, CloseReason::Draining);
        },
    );
    with_each_driver(
        |server| server,
        |server, closed_receiver| {
            let clients: Vec<TcpStream> = (0..100).map(|_| idle(server)).collect();
            park(server, clients.len());
            server.handle().stop_now();
            clients.iter().for_each(expect_end);
            let reasons: Vec<CloseReason> =
                (0..100).map(|_| closed_receiver.recv_timeout(TEST_TIMEOUT).unwrap().reason).collect();
            let is_expected =
                |reason: &CloseReason| matches!(reason, CloseReason::Draining | CloseReason::StoppedImmediately);
            assert!(reasons.iter().all(is_expected), "{reasons:?}");
        },
    );
}

#[test]
fn parked_connections_close_when_the_worker_panics() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(driver).serve(echo).unwrap();
        let client = idle(&server);
        park(&server, 1);
        server.handle().inspect(|_| panic!("the test makes the worker panic"));
        expect_end(&client);
        assert_eq!(server.join(), ExitCause::WorkerPanicked);
    }
}
