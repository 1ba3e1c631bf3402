//! What a server says of its connections.

mod client;

use client::Client;
use selvedge::service::Phase;
use selvedge::{Census, Existing, Generation, Group, Handle, NoObserver, Request, Response, Running, Server, Status};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Longer than any worker that is not held up takes to answer.
const PATIENCE: Duration = Duration::from_secs(60);

async fn content(request: &mut Request) -> Response {
    match request.path() {
        "/wait" => std::future::pending().await,
        "/read" => drop(request.body().read().await),
        _ => {}
    }
    Response::new(Status::OK).body("content")
}

fn connect(running: &Running) -> Client {
    Client::connect(running.addresses()[0])
}

/// Asks until it is as it should be: what a client has sent need not have been read yet.
fn until(handle: &Handle, is_so: impl Fn(&Census) -> bool) -> Census {
    for _ in 0..10_000 {
        let census = handle.census(PATIENCE);
        if is_so(&census) {
            return census;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("it never comes to that: {:?}", handle.census(PATIENCE));
}

#[test]
fn connections_are_counted_by_what_they_do_and_by_what_serves_them() {
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    let (running, succession) = server.serve_generations(|| content).expect("threads start");
    let handle = running.handle();
    assert_eq!(handle.census(PATIENCE), Census::default());
    let mut clients: Vec<Client> = (0..5).map(|_| connect(&running)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/"), "content"));
    clients[1].send("GET / HTTP/1.1\r\nHost:");
    clients[2].send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    clients[3].send("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegin");
    succession.replace(&Generation::new(|| content, NoObserver), Existing::Finish);
    let mut newer = connect(&running);
    assert_eq!(newer.get("/"), "content");
    let census = until(&handle, |census| census.doing(Phase::Idle) == 3 && census.groups.len() == 5);
    let group = |generation, phase, connections| Group { generation, phase, connections };
    let groups = [
        group(0, Phase::Idle, 2),
        group(0, Phase::ReadingHead, 1),
        group(0, Phase::ReadingContent, 1),
        group(0, Phase::Answering, 1),
        group(1, Phase::Idle, 1),
    ];
    assert_eq!(census, Census { accepted: 6, groups: groups.to_vec(), unknown: 0, silent_workers: 0 });
    assert_eq!((census.open(), census.of_generation(0), census.of_generation(1)), (6, 5, 1));
    clients.clear();
    // Nobody sees that the client is gone while the application is at work.
    let census = until(&handle, |census| census.open() == 2);
    assert_eq!((census.accepted, census.of_generation(0), census.of_generation(1)), (6, 1, 1));
    handle.stop_now();
    running.join();
    let census = handle.census(PATIENCE);
    assert_eq!((census.accepted, census.open(), census.silent_workers), (6, 0, 0), "nobody is waited for");
}

#[test]
fn a_worker_that_is_held_up_is_not_waited_for() {
    let (held, is_held) = channel();
    let goes_on = Arc::new(Barrier::new(2));
    let waits = goes_on.clone();
    let service = async move |request: &mut Request| {
        if request.path() == "/hold" {
            held.send(()).expect("somebody waits for it");
            waits.wait();
        }
        Response::new(Status::OK).body("content")
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let service = Mutex::new(Some(service));
    let running = server.serve_each(move || service.lock().expect("nobody panics").take().expect("one worker"));
    let running = running.expect("a thread starts");
    let mut client = connect(&running);
    client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    is_held.recv().expect("it comes to that");
    let census = running.handle().census(Duration::from_millis(20));
    assert_eq!(census, Census { accepted: 1, groups: vec![], unknown: 1, silent_workers: 1 });
    assert_eq!(census.open(), 1);
    goes_on.wait();
    assert_eq!(client.reply().1, "content");
    let census = running.handle().census(PATIENCE);
    assert_eq!((census.doing(Phase::Idle), census.unknown, census.silent_workers), (1, 0, 0));
    running.handle().stop_now();
    running.join();
}
