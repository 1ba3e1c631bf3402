//! The baseline server on tokio: the loop of `peers/baseline/epoll.c` as a task for each connection, on a
//! current-thread runtime. It parses nothing.
//!
//! `baseline-tokio PORT WORKERS REQUEST_BYTES keep|close FILE`

use bytes::Bytes;
use selvedge_bench_peers::{listen, on_each_worker};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The number of pipelined requests whose responses take one write.
const PIPELINED_MAX: usize = 64;

#[derive(Clone)]
struct FixedResponse {
    bytes: Bytes,
    one: usize,
    request_bytes: usize,
    closes: bool,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, workers, request_bytes, after, file] = words.as_slice() else {
        panic!("baseline-tokio PORT WORKERS REQUEST_BYTES keep|close FILE");
    };
    let body = std::fs::read(file).expect("the file is readable");
    let closes = after == "close";
    let close = if closes { "Connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: baseline-tokio\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Type: text/html\r\nContent-Length: {}\r\n{close}\r\n",
        body.len()
    );
    let one = [head.as_bytes(), &body].concat();
    let copies = if one.len() > 65_536 { 1 } else { PIPELINED_MAX };
    let response = FixedResponse {
        one: one.len(),
        bytes: one.repeat(copies).into(),
        request_bytes: request_bytes.parse().expect("REQUEST_BYTES is a number"),
        closes,
    };
    let port = port.parse().expect("PORT is a port number");
    on_each_worker(workers.parse().expect("WORKERS is a number"), move || serve(port, response.clone()));
}

async fn serve(port: u16, response: FixedResponse) {
    let listener = listen(port).expect("cannot listen");
    let buffer = Rc::new(RefCell::new(vec![0; 64 * 1024])); // shared: no task uses it across an await
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(connection(stream, response.clone(), buffer.clone()));
        }
    }
}

async fn connection(mut stream: TcpStream, response: FixedResponse, buffer: Rc<RefCell<Vec<u8>>>) {
    let mut got = 0;
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read(&mut buffer.borrow_mut()) {
            Ok(0) => return,
            Ok(count) => got += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        let requests = (got / response.request_bytes).min(response.bytes.len() / response.one);
        got -= requests * response.request_bytes;
        if requests > 0 && stream.write_all(&response.bytes[..requests * response.one]).await.is_err() {
            return;
        }
        if requests > 0 && response.closes {
            return;
        }
    }
}
