//! Checks the connection counts of a server.

use crate::support::client::Client;
use selvedge::service::Phase;
use selvedge::{
    AppVersion, ConnectionCount, ConnectionProtocol, ConnectionStats, Handle, NoObserver, Request, Response,
    RunningServer, Server, StatusCode,
};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Longest wait for the reports of the workers.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn content(request: &mut Request) -> Response {
    match request.path() {
        "/wait" => std::future::pending().await,
        "/read" => drop(request.body().read_all().await),
        _ => {}
    }
    Response::new(StatusCode::OK).body("content")
}

fn connect(running: &RunningServer) -> Client {
    Client::connect(running.addresses()[0])
}

/// Requests the counts until they satisfy the condition: the server may not have read all bytes yet.
fn wait_until(handle: &Handle, condition: impl Fn(&ConnectionStats) -> bool) -> ConnectionStats {
    for _ in 0..10_000 {
        let stats = handle.connection_stats(TIMEOUT);
        if condition(&stats) {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the counts never satisfy the condition: {:?}", handle.connection_stats(TIMEOUT));
}

#[test]
fn connections_are_counted_by_phase_and_app_version() {
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    let (running, app_handle) = server.serve_replaceable(|| content).expect("threads start");
    let handle = running.handle();
    let none = handle.connection_stats(TIMEOUT);
    assert_eq!(none, ConnectionStats { busy: none.busy.clone(), ..ConnectionStats::default() });
    let mut clients: Vec<Client> = (0..5).map(|_| connect(&running)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/"), "content"));
    clients[1].send("GET / HTTP/1.1\r\nHost:");
    clients[2].send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    clients[3].send("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegin");
    app_handle.replace(&AppVersion::new(|| content, NoObserver));
    let mut new_client = connect(&running);
    assert_eq!(new_client.get("/"), "content");
    let stats = wait_until(&handle, |stats| stats.in_phase(Phase::Idle) == 3 && stats.counts.len() == 5);
    let protocol = ConnectionProtocol::Http1;
    let count = |generation, phase, connections| ConnectionCount { generation, phase, protocol, connections };
    let groups = [
        count(0, Phase::Idle, 2),
        count(0, Phase::ReadingHead, 1),
        count(0, Phase::ReadingContent, 1),
        count(0, Phase::Processing, 1),
        count(1, Phase::Idle, 1),
    ];
    assert_eq!(stats.busy.iter().map(|(worker, _)| *worker).collect::<Vec<_>>(), [0, 1]);
    let counts = groups.to_vec();
    assert_eq!(
        stats,
        ConnectionStats { accepted: 6, counts, unknown: 0, unresponsive_workers: 0, busy: stats.busy.clone() }
    );
    assert_eq!((stats.open(), stats.of_version(0), stats.of_version(1)), (6, 5, 1));
    clients.clear();
    // The server does not detect a closed client while the application processes its request.
    let stats = wait_until(&handle, |stats| stats.open() == 2);
    assert_eq!((stats.accepted, stats.of_version(0), stats.of_version(1)), (6, 1, 1));
    handle.stop_now();
    running.join();
    let stats = handle.connection_stats(TIMEOUT);
    assert_eq!(
        (stats.accepted, stats.open(), stats.unresponsive_workers),
        (6, 0, 0),
        "ended workers do not delay the counts"
    );
}

#[test]
fn blocked_worker_is_counted_as_unresponsive() {
    let (entered, enters) = channel();
    let release = Arc::new(Barrier::new(2));
    let waits = release.clone();
    let service = async move |request: &mut Request| {
        if request.path() == "/block" {
            entered.send(()).expect("the test receives it");
            waits.wait();
        }
        Response::new(StatusCode::OK).body("content")
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let service = Mutex::new(Some(service));
    let running = server.serve_each(move || {
        service.lock().expect("no thread panicked with the lock").take().expect("one worker starts")
    });
    let running = running.expect("a thread starts");
    let mut client = connect(&running);
    client.send("GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    enters.recv().expect("the request is received");
    let stats = running.handle().connection_stats(Duration::from_millis(20));
    assert_eq!(
        stats,
        ConnectionStats { accepted: 1, counts: vec![], unknown: 1, unresponsive_workers: 1, busy: vec![] }
    );
    assert_eq!(stats.open(), 1);
    release.wait();
    assert_eq!(client.read_response().1, "content");
    let stats = running.handle().connection_stats(TIMEOUT);
    assert_eq!((stats.in_phase(Phase::Idle), stats.unknown, stats.unresponsive_workers), (1, 0, 0));
    running.handle().stop_now();
    running.join();
}
