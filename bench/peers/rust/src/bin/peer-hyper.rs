//! hyper 1 on a current-thread runtime for each core, with HTTP/1 on one port and HTTP/2 without TLS on another. It
//! has no file server, so the files at the top of the root are in memory, up to 1 MiB each: the minimum cost of hyper.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use selvedge_bench_peers::{Arguments, listen, on_each_worker};
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;
use tokio::net::TcpListener;

const IN_MEMORY_MAX: u64 = 1024 * 1024;

type Files = HashMap<String, Bytes>;

fn main() {
    let arguments = Arguments::read();
    let files = read_files(&arguments.root);
    let (port, port_h2c) = (arguments.port, arguments.port_h2c);
    on_each_worker(arguments.workers, move || serve(port, port_h2c, files.clone()));
}

fn read_files(root: &Path) -> Files {
    let mut files = Files::new();
    for entry in std::fs::read_dir(root).expect("the root is readable").flatten() {
        let is_small = entry.metadata().is_ok_and(|facts| facts.is_file() && facts.len() <= IN_MEMORY_MAX);
        if is_small && let (Ok(bytes), Some(name)) = (std::fs::read(entry.path()), entry.file_name().to_str()) {
            files.insert(format!("/{name}"), bytes.into());
        }
    }
    files
}

async fn serve(port: u16, port_h2c: Option<u16>, files: Files) {
    let files = Rc::new(files);
    if let Some(port_h2c) = port_h2c {
        tokio::task::spawn_local(serve_http2(listen(port_h2c).expect("cannot listen"), files.clone()));
    }
    let listener = listen(port).expect("cannot listen");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let files = files.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| std::future::ready(Ok::<_, Infallible>(respond(&files, &request))));
            let mut http = http1::Builder::new();
            http.pipeline_flush(true); // one write for a batch of pipelined responses
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Serves HTTP/2 to clients that know that the server speaks it (RFC 9113 section 3.3).
async fn serve_http2(listener: TcpListener, files: Rc<Files>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let files = files.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| std::future::ready(Ok::<_, Infallible>(respond(&files, &request))));
            let http = http2::Builder::new(LocalExecutor);
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Runs the tasks of streams on the thread of their connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

fn respond(files: &Files, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let body = if path == "/hello" { Some(Bytes::from_static(b"HELLO, WORLD")) } else { files.get(path).cloned() };
    let Some(body) = body else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(SERVER, HeaderValue::from_static("hyper"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
