//! Tests which panics of an application the panic hook of the process gets.
//!
//! The test is alone in its process, because the hook belongs to the process.

use selvedge::service::ServerEvent;
use selvedge::{Observer, Request, Response, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the panics that it sees.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Observer for Counter {
    fn event(&self, event: &ServerEvent) {
        if matches!(event, ServerEvent::Panic { .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn reports_panics(&self) -> bool {
        true
    }
}

/// Sees requests only.
#[derive(Clone)]
struct OnlyRequests;

impl Observer for OnlyRequests {}

async fn app(_: &mut Request) -> Response {
    panic!("the handler broke")
}

fn request(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the server responds");
    assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
}

#[test]
fn the_hook_gets_panics_that_no_observer_reports() {
    let printed = Arc::new(AtomicUsize::new(0));
    let count = printed.clone();
    std::panic::set_hook(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let server = || Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = server().serve(app).expect("threads start");
    request(running.addresses()[0]);
    assert_eq!(printed.load(Ordering::SeqCst), 1);
    let running = server().observe(OnlyRequests).serve(app).expect("threads start");
    request(running.addresses()[0]);
    assert_eq!(printed.load(Ordering::SeqCst), 2);
    let observer = Counter::default();
    let running = server().observe(observer.clone()).serve(app).expect("threads start");
    request(running.addresses()[0]);
    running.handle().stop();
    running.join();
    assert_eq!((printed.load(Ordering::SeqCst), observer.0.load(Ordering::SeqCst)), (2, 1));
}
