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
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

const UPLOAD_BYTES_MAX: u64 = 100 << 20;
/// Uploads that are remembered, and the length of their names.
const UPLOADS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 100;

/// Files so far.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// How far an upload has come.
#[derive(Clone, Copy)]
struct Progress {
    bytes: u64,
    is_whole: bool,
}

/// The uploads that are remembered, by their names.
#[derive(Clone, Default)]
struct Uploads(Arc<Mutex<HashMap<String, Progress>>>);

impl Uploads {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a name, in place of an upload that has ended where there are too many.
    fn begin(&self, name: &str) -> Result<(), StatusCode> {
        let mut all = self.all();
        if name.len() > NAME_BYTES_MAX {
            return Err(StatusCode::BAD_REQUEST);
        }
        if all.get(name).is_some_and(|progress| !progress.is_whole) {
            return Err(StatusCode::CONFLICT);
        }
        if all.len() >= UPLOADS_MAX {
            let whole = all.iter().find(|(_, progress)| progress.is_whole).map(|(name, _)| name.clone());
            all.remove(&whole.ok_or(StatusCode::SERVICE_UNAVAILABLE)?);
        }
        all.insert(name.to_owned(), Progress { bytes: 0, is_whole: false });
        Ok(())
    }
}

/// An upload on its way. When its client goes away it is dropped with the handler, and leaves
/// neither a file nor a name.
struct Upload {
    name: String,
    uploads: Uploads,
    path: PathBuf,
    progress: Progress,
}

impl Upload {
    fn note(&self) {
        self.uploads.all().insert(self.name.clone(), self.progress);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.progress.is_whole {
            self.uploads.all().remove(&self.name);
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

async fn upload(
    State(uploads): State<Uploads>,
    Path(name): Path<String>,
    mut body: Body,
) -> Result<String, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    uploads.begin(&name)?;
    // A file with a name of its own, so that nothing a client writes is part of a path.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-upload-{}-{number}", std::process::id()));
    let mut upload = Upload { name, uploads, path, progress: Progress { bytes: 0, is_whole: false } };
    let mut file = File::create(&upload.path).await.map_err(failed)?;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        upload.progress.bytes += piece.len() as u64;
        if upload.progress.bytes > UPLOAD_BYTES_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        file.write_all(&piece).await.map_err(failed)?;
        upload.note();
    }
    file.flush().await.map_err(failed)?;
    upload.progress.is_whole = true;
    upload.note();
    Ok(format!("{} bytes\n", upload.progress.bytes))
}

async fn look(State(uploads): State<Uploads>, Path(name): Path<String>) -> Result<String, StatusCode> {
    uploads.all().get(&name).map(|progress| progress.bytes.to_string()).ok_or(StatusCode::NOT_FOUND)
}

fn app() -> Router {
    Router::new()
        .route("/upload/{name}", put(upload))
        .route("/progress/{name}", get(look))
        // The limit is the server's: it refuses a larger upload before any of it is read.
        .layer(DefaultBodyLimit::disable())
        .with_state(Uploads::default())
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
    let path = std::env::temp_dir().join(format!("selvedge-upload-{}-0", std::process::id()));
    assert_eq!(std::fs::read(&path).expect("the upload is kept"), b"0123456789");
    std::fs::remove_file(path).expect("it is there");
    sender.send("PUT /upload/other HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n01234");
    while watcher.get("/progress/other").text() != "5" {}
    assert_eq!(watcher.ask("PUT /upload/other", "", "0").status, 409);
    drop(sender);
    while watcher.get("/progress/other").status != 404 {}
    let mut sender = Client::connect(running.addresses()[0]);
    let too_much = UPLOAD_BYTES_MAX + 1;
    sender.send(format!("PUT /upload/mine HTTP/1.1\r\nhost: test\r\ncontent-length: {too_much}\r\n\r\n"));
    assert_eq!(sender.answer().status, 413);
}
