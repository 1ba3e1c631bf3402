//! The axum application of `peer-axum` on Selvedge, with its `SendFile` and `ServeDir`, as in the first example of
//! the library's documentation.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use selvedge::{SendFile, Server};
use selvedge_bench_peers::application::application;
use selvedge_bench_peers::{Arguments, FILE};
use selvedge_server::ServeDir;
use std::path::PathBuf;
use std::sync::Arc;

fn main() -> std::io::Result<()> {
    let Arguments { port, workers, root, port_h2c: _ } = Arguments::read();
    let path = Arc::new(root.join(FILE));
    let application = application(get(move |headers: HeaderMap| send(path.clone(), headers)))
        .fallback_service(ServeDir::new(&root))
        .into_make_service();
    Server::bind_with_workers(("127.0.0.1", port), workers)?.serve(application)?.join();
    Ok(())
}

async fn send(path: Arc<PathBuf>, headers: HeaderMap) -> Result<impl IntoResponse, StatusCode> {
    let file = SendFile::open(&*path).await.map_err(|_| StatusCode::NOT_FOUND)?;
    Ok(([(CONTENT_TYPE, "text/html")], file.respond_to(&headers)))
}
