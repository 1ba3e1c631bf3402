//! Checks that a keep-alive GET with a prepared response allocates no memory.
//!
//! The profiler counts the allocations of all threads, so the client must not allocate either.

use selvedge::proto::field::Fields;
use selvedge::{Request, Response, Server, StatusCode};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const REQUESTS: usize = 2_000;
/// Allocations that the sweeps of the worker may make during the measured requests.
const SWEEP_ALLOCATIONS_MAX: u64 = 20;

/// Sends a GET request and reads the response into `buffer`.
fn get(stream: &mut TcpStream, buffer: &mut [u8]) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    let mut len = 0;
    while !buffer[..len].ends_with(b"hello") {
        len += stream.read(&mut buffer[len..]).expect("the server responds");
    }
}

#[test]
fn prepared_response_allocates_nothing() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let running = Server::bind_with_workers("127.0.0.1:0", 1)
        .expect("a free port")
        .serve_each(|| {
            let mut fields = Fields::new();
            fields.append("content-type", "text/plain").expect("the field is valid");
            let fields = Rc::new(fields);
            let content = bytes::Bytes::from(b"hello".to_vec());
            async move |_: &mut Request| Response::with_fields(StatusCode::OK, fields.clone()).body(content.clone())
        })
        .expect("a thread starts");
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let mut response = [0; 1024];
    // The first requests fill the buffers and pools that the server reuses.
    (0..REQUESTS).for_each(|_| get(&mut stream, &mut response));
    let before = dhat::HeapStats::get().total_blocks;
    (0..REQUESTS).for_each(|_| get(&mut stream, &mut response));
    let allocations = dhat::HeapStats::get().total_blocks - before;
    assert!(allocations < SWEEP_ALLOCATIONS_MAX, "{allocations} allocations in {REQUESTS} requests");
    drop(stream);
    running.handle().stop_now();
    running.join();
}
