//! One application takes another's place while clients are connected.

mod client;

use client::Client;
use selvedge::{
    Existing, Generation, Limits, NoObserver, Request, Response, Running, Server, Service, Status, Succession,
};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Says one word to every request.
struct Says(Arc<str>);

impl Service for Says {
    async fn call(&self, _: &mut Request) -> Response {
        Response::new(Status::OK).body(self.0.to_string())
    }
}

/// What makes it for each worker, and a trace of whether it is still served.
fn says(word: &str) -> (impl Fn() -> Says + Send + Sync + 'static, Weak<str>) {
    let word: Arc<str> = word.into();
    let trace = Arc::downgrade(&word);
    (move || Says(word.clone()), trace)
}

fn begin(word: &str) -> (Running, Succession<Says, NoObserver>, Weak<str>) {
    let (make, trace) = says(word);
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    let (running, succession) = server.serve_generations(make).expect("threads start");
    (running, succession, trace)
}

fn connect(running: &Running) -> Client {
    Client::connect(running.addresses()[0])
}

fn limits(drain_time: Duration) -> Limits {
    Limits { drain_time, ..Limits::default() }
}

/// Waits until nobody is served by it any more.
fn ends(trace: &Weak<str>) {
    for _ in 0..10_000 {
        if trace.strong_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("it is served for ever");
}

#[test]
fn those_who_finish_are_told_with_their_next_answer() {
    let (running, succession, first) = begin("first");
    let (mut early, mut idle) = (connect(&running), connect(&running));
    assert_eq!((&*early.get("/"), &*idle.get("/")), ("first", "first"));
    let (make, second) = says("second");
    succession.replace(&Generation::new(make, NoObserver), Existing::Finish);
    assert_eq!(connect(&running).get("/"), "second");
    assert_eq!(early.get("/"), "first");
    assert!(early.rest().is_empty());
    assert!(first.strong_count() > 0 && second.strong_count() > 0);
    drop(idle);
    ends(&first);
    running.handle().stop();
    running.join();
}

#[test]
fn those_who_follow_go_on_with_the_newest() {
    let (running, succession, first) = begin("first");
    let mut client = connect(&running);
    assert_eq!(client.get("/"), "first");
    for word in ["second", "third"] {
        let (make, _) = says(word);
        succession.replace(&Generation::new(make, NoObserver), Existing::Follow);
    }
    assert_eq!(client.get("/"), "third");
    ends(&first);
    let (make, _) = says("fourth");
    succession.replace(&Generation::new(make, NoObserver), Existing::Finish);
    assert_eq!(client.get("/"), "third");
    assert!(client.rest().is_empty());
    running.handle().stop();
    running.join();
}

#[test]
fn what_is_left_of_an_earlier_one_ends_at_its_drain_limit() {
    let (running, succession, _) = begin("first");
    let next = |word, time| {
        let (make, trace) = says(word);
        succession.replace(&Generation::new(make, NoObserver).limits(limits(time)), Existing::Finish);
        trace
    };
    let second = next("second", Duration::from_millis(200));
    let (mut idle, mut begun) = (connect(&running), connect(&running));
    assert_eq!((&*idle.get("/"), &*begun.get("/")), ("second", "second"));
    begun.send("GET / HTTP/1.1\r\n");
    let third = next("third", Duration::from_secs(600));
    let mut current = connect(&running);
    assert_eq!(current.get("/"), "third");
    ends(&second);
    assert!(idle.rest().is_empty() && begun.rest().is_empty());
    assert_eq!(current.get("/"), "third");
    assert!(third.strong_count() > 0);
    running.handle().stop_now();
    running.join();
}
