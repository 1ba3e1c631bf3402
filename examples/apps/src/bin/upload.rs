//! Takes an upload of up to 100 MiB into a file, and tells how far it has come.
//!
//! ```text
//! cargo run -p selvedge-examples --bin upload
//! curl -T large.iso http://127.0.0.1:3000/upload/mine
//! curl http://127.0.0.1:3000/progress/mine
//! ```
//!
//! A piece is written before the next is read, so a disk that is slow makes the client slow, and
//! no upload takes more memory than a piece.

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use http_body_util::BodyExt;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

const UPLOAD_BYTES_MAX: u64 = 100 << 20;
/// Uploads that are remembered.
const UPLOADS_MAX: usize = 1_000;

/// Uploads so far.
static UPLOADS: AtomicU64 = AtomicU64::new(0);

/// How many bytes have come of each upload.
#[derive(Clone, Default)]
struct Progress(Arc<Mutex<HashMap<String, u64>>>);

impl Progress {
    fn note(&self, name: &str, bytes: u64) -> Result<(), StatusCode> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= UPLOADS_MAX && !all.contains_key(name) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        all.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn of(&self, name: &str) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

async fn upload(
    State(progress): State<Progress>,
    Path(name): Path<String>,
    mut body: Body,
) -> Result<String, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    // A name of its own, so that nothing a client writes is part of a path.
    let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-upload-{}-{number}", std::process::id()));
    let mut file = File::create(path).await.map_err(failed)?;
    let mut bytes = 0;
    progress.note(&name, bytes)?;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        bytes += piece.len() as u64;
        if bytes > UPLOAD_BYTES_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        file.write_all(&piece).await.map_err(failed)?;
        progress.note(&name, bytes)?;
    }
    file.flush().await.map_err(failed)?;
    Ok(format!("{bytes} bytes\n"))
}

async fn look(State(progress): State<Progress>, Path(name): Path<String>) -> Result<String, StatusCode> {
    progress.of(&name).map(|bytes| bytes.to_string()).ok_or(StatusCode::NOT_FOUND)
}

fn app() -> Router {
    Router::new()
        .route("/upload/{name}", put(upload))
        .route("/progress/{name}", get(look))
        // The limit is the server's: it refuses a larger upload before any of it is read.
        .layer(DefaultBodyLimit::disable())
        .with_state(Progress::default())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app()).body_bytes_max(UPLOAD_BYTES_MAX).await
}

#[test]
fn progress_is_told_while_an_upload_comes() {
    use selvedge_examples::client::Client;
    let running = selvedge::Server::bind("127.0.0.1:0").expect("a port").body_bytes_max(UPLOAD_BYTES_MAX);
    let running = running.serve(app()).expect("threads start");
    let mut sender = Client::connect(running.addresses()[0]);
    let mut watcher = Client::connect(running.addresses()[0]);
    sender.send("PUT /upload/mine HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n01234");
    while watcher.get("/progress/mine").text() != "5" {}
    sender.send("56789");
    assert_eq!(sender.answer().text(), "10 bytes\n");
    assert_eq!(watcher.get("/progress/mine").text(), "10");
    let too_much = UPLOAD_BYTES_MAX + 1;
    sender.send(format!("PUT /upload/mine HTTP/1.1\r\nhost: test\r\ncontent-length: {too_much}\r\n\r\n"));
    assert_eq!(sender.answer().status, 413);
}
