//! A keep-alive GET that is answered from prepared fields and bytes at hand allocates
//! nothing, neither memory nor, therefore, anything that could grow.
//!
//! All threads of the process count, so the client allocates nothing either.

use selvedge::proto::field::Fields;
use selvedge::{Request, Response, Server, Status};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const REQUESTS: usize = 2_000;
/// What the worker's sweeps may allocate meanwhile.
const MEANWHILE_MAX: u64 = 20;

fn ask(stream: &mut TcpStream, into: &mut [u8]) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    let mut have = 0;
    while !into[..have].ends_with(b"hello") {
        have += stream.read(&mut into[have..]).expect("the server answers");
    }
}

#[test]
fn a_prepared_answer_allocates_nothing() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let running = Server::bind_with_workers("127.0.0.1:0", 1)
        .expect("a free port")
        .serve_each(|| {
            let mut fields = Fields::new();
            fields.append("content-type", "text/plain").expect("a field");
            let fields = Rc::new(fields);
            let content = bytes::Bytes::from(b"hello".to_vec());
            async move |_: &mut Request| Response::with_fields(Status::OK, fields.clone()).body(content.clone())
        })
        .expect("a thread starts");
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let mut answer = [0; 1024];
    // The first round warms up what is kept.
    (0..REQUESTS).for_each(|_| ask(&mut stream, &mut answer));
    let before = dhat::HeapStats::get().total_blocks;
    (0..REQUESTS).for_each(|_| ask(&mut stream, &mut answer));
    let allocations = dhat::HeapStats::get().total_blocks - before;
    assert!(allocations < MEANWHILE_MAX, "{allocations} allocations in {REQUESTS} requests");
    drop(stream);
    running.handle().stop_now();
    running.join();
}
