//! Over sockets and both drivers: nobody can tell from outside whether a connection is parked.

use crate::net::driver::Driver;
use crate::net::notes::Notes;
use crate::service::{CloseReason, Closed, Phase};
use crate::{Ending, Observer, Request, Response, Running, Server, Status};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// No test takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says how each connection ends.
#[derive(Clone)]
struct Ends(Sender<Closed>);

impl Observer for Ends {
    fn closed(&self, closed: &Closed) {
        let _ = self.0.send(closed.clone());
    }
}

/// Answers with the path, and with the content that came.
async fn echo(request: &mut Request) -> Response {
    let path = request.path().to_owned();
    match request.body().read().await {
        Ok(content) => Response::new(Status::OK).body([path.as_bytes(), &content].concat()),
        Err(error) => error.into(),
    }
}

/// Runs a test of a server with one worker over each driver.
fn with_each_driver(set_up: fn(Server) -> Server, test: impl Fn(&Running, &Receiver<Closed>)) {
    for driver in [Driver::Epoll, Driver::IoUring, Driver::Few(0), Driver::Few(1)] {
        let (tell, told) = channel();
        let server = set_up(Server::bind_with_workers("127.0.0.1:0", 1).unwrap()).driver(driver);
        let server = server.observe(Ends(tell)).serve(echo).unwrap();
        test(&server, &told);
        server.handle().stop_now();
        server.join();
    }
}

/// What one worker says of its notes.
fn ask<T: Send + 'static>(server: &Running, question: fn(&Notes) -> T) -> T {
    let (tell, told) = channel();
    server.handle().ask(move |notes| drop(tell.send(question(notes))));
    told.recv_timeout(PATIENCE).unwrap()
}

/// Has so many idle connections parked, which they are when this returns.
fn park(server: &Running, count: usize) {
    let began = Instant::now();
    while ask(server, Notes::parked) != count {
        ask(server, Notes::park_idle);
        assert!(began.elapsed() < PATIENCE, "{} of {count} are parked", ask(server, Notes::parked));
    }
}

fn connect(server: &Running) -> TcpStream {
    let client = TcpStream::connect(server.addresses()[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Reads one answer, whose content this is.
fn expect(mut client: &TcpStream, content: &str) {
    let mut answer = Vec::new();
    while !answer.ends_with(format!("\r\n\r\n{content}").as_bytes()) {
        let mut byte = [0];
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", answer.escape_ascii());
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
}

/// A client that has asked once, and waits.
fn idle(server: &Running) -> TcpStream {
    let mut client = connect(server);
    client.write_all(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    expect(&client, "/first");
    client
}

/// That the server ends the connection.
fn expect_end(mut client: &TcpStream) {
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_parked_connection_is_served_as_any_other() {
    with_each_driver(
        |server| server,
        |server, told| {
            let mut client = idle(server);
            for number in 0..5 {
                park(server, 1);
                let request =
                    format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2000));
                // Whole, or in pieces that come one by one.
                for piece in request.as_bytes().chunks([usize::MAX, 1000, 30, 7, 1][number]) {
                    client.write_all(piece).unwrap();
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
            let closed = told.recv_timeout(PATIENCE).unwrap();
            assert_eq!((closed.reason, closed.phase, closed.requests), (CloseReason::ClientDone, Phase::Idle, 8));
            assert_eq!(closed.peer, client.local_addr().unwrap());
        },
    );
}

#[test]
fn many_that_something_comes_for_at_once_go_on() {
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
fn a_client_that_is_gone_is_noticed() {
    with_each_driver(
        |server| server,
        |server, told| {
            let client = idle(server);
            park(server, 1);
            // What it does not read makes the system reset the connection.
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            let closed = told.recv_timeout(PATIENCE).unwrap();
            assert_eq!((closed.reason, closed.phase, closed.requests), (CloseReason::Reset, Phase::Idle, 1));
        },
    );
}

#[test]
fn a_parked_connection_ends_at_its_deadline() {
    with_each_driver(
        |server| server.keep_alive(Duration::from_secs(1)),
        |server, told| {
            let client = idle(server);
            park(server, 1);
            expect_end(&client);
            assert_eq!(told.recv_timeout(PATIENCE).unwrap().reason, CloseReason::Idle);
        },
    );
}

#[test]
fn parked_connections_make_room() {
    with_each_driver(
        |server| server.connections_max(2),
        |server, told| {
            let (first, second) = (idle(server), idle(server));
            park(server, 2);
            let third = idle(server);
            let closed = told.recv_timeout(PATIENCE).unwrap();
            assert_eq!(closed.reason, CloseReason::MadeRoom);
            let (gone, mut left) =
                if closed.peer == first.local_addr().unwrap() { (first, second) } else { (second, first) };
            expect_end(&gone);
            left.write_all(b"GET /again HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            expect(&left, "/again");
            drop(third);
        },
    );
}

#[test]
fn parked_connections_end_with_a_stop() {
    with_each_driver(
        |server| server,
        |server, told| {
            let client = idle(server);
            park(server, 1);
            server.handle().stop();
            expect_end(&client);
            assert_eq!(told.recv_timeout(PATIENCE).unwrap().reason, CloseReason::Draining);
        },
    );
    with_each_driver(
        |server| server,
        |server, told| {
            let clients: Vec<TcpStream> = (0..100).map(|_| idle(server)).collect();
            park(server, clients.len());
            server.handle().stop_now();
            clients.iter().for_each(expect_end);
            let reasons: Vec<CloseReason> = (0..100).map(|_| told.recv_timeout(PATIENCE).unwrap().reason).collect();
            let known = |reason: &CloseReason| matches!(reason, CloseReason::Draining | CloseReason::StoppedAtOnce);
            assert!(reasons.iter().all(known), "{reasons:?}");
        },
    );
}

#[test]
fn parked_connections_end_with_a_worker_that_is_lost() {
    for driver in [Driver::Epoll, Driver::IoUring, Driver::Few(0), Driver::Few(1)] {
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(driver).serve(echo).unwrap();
        let client = idle(&server);
        park(&server, 1);
        server.handle().ask(|_| panic!("the worker is lost"));
        expect_end(&client);
        assert_eq!(server.join(), Ending::WorkerLost);
    }
}
