//! Writes uploads of up to 100 MiB to files, and reports their progress.
//!
//! ```text
//! cargo run -p selvedge-examples --bin upload
//! curl -T large.iso http://127.0.0.1:3000/upload/mine
//! curl http://127.0.0.1:3000/progress/mine
//! ```
//!
//! Each chunk is written before the next is read. So a slow disk slows the client down, and an upload takes
//! no more memory than one chunk.

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
/// The maximum number of tracked uploads.
const UPLOADS_MAX: usize = 1_000;
/// The maximum length of their names.
const NAME_BYTES_MAX: usize = 100;

/// The number of created files.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The progress of an upload.
#[derive(Clone, Copy)]
struct UploadProgress {
    bytes: u64,
    is_complete: bool,
}

/// The tracked uploads by name.
#[derive(Clone, Default)]
struct Uploads(Arc<Mutex<HashMap<String, UploadProgress>>>);

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, UploadProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a name. At the limit, it removes a complete upload.
    fn reserve(&self, name: &str) -> Result<(), StatusCode> {
        let mut uploads = self.lock();
        if name.len() > NAME_BYTES_MAX {
            return Err(StatusCode::BAD_REQUEST);
        }
        if uploads.get(name).is_some_and(|progress| !progress.is_complete) {
            return Err(StatusCode::CONFLICT);
        }
        if uploads.len() >= UPLOADS_MAX {
            let complete = uploads.iter().find(|(_, progress)| progress.is_complete).map(|(name, _)| name.clone());
            uploads.remove(&complete.ok_or(StatusCode::SERVICE_UNAVAILABLE)?);
        }
        uploads.insert(name.to_owned(), UploadProgress { bytes: 0, is_complete: false });
        Ok(())
    }
}

/// An upload in progress. If its client disconnects, it is dropped with the handler, which removes its file and name.
struct Upload {
    name: String,
    uploads: Uploads,
    path: PathBuf,
    progress: UploadProgress,
}

impl Upload {
    fn store_progress(&self) {
        self.uploads.lock().insert(self.name.clone(), self.progress);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.progress.is_complete {
            self.uploads.lock().remove(&self.name);
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
    uploads.reserve(&name)?;
    // A generated file name, so that no input of a client is part of a path.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-upload-{}-{number}", std::process::id()));
    let mut upload = Upload { name, uploads, path, progress: UploadProgress { bytes: 0, is_complete: false } };
    let mut file = File::create(&upload.path).await.map_err(failed)?;
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        upload.progress.bytes += chunk.len() as u64;
        if upload.progress.bytes > UPLOAD_BYTES_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        file.write_all(&chunk).await.map_err(failed)?;
        upload.store_progress();
    }
    file.flush().await.map_err(failed)?;
    upload.progress.is_complete = true;
    upload.store_progress();
    Ok(format!("{} bytes\n", upload.progress.bytes))
}

async fn progress(State(uploads): State<Uploads>, Path(name): Path<String>) -> Result<String, StatusCode> {
    uploads.lock().get(&name).map(|progress| progress.bytes.to_string()).ok_or(StatusCode::NOT_FOUND)
}

fn app() -> Router {
    Router::new()
        .route("/upload/{name}", put(upload))
        .route("/progress/{name}", get(progress))
        // The limit of the server applies: it refuses a larger upload before reading it.
        .layer(DefaultBodyLimit::disable())
        .with_state(Uploads::default())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app()).body_bytes_max(UPLOAD_BYTES_MAX).await
}

#[test]
fn progress_is_reported_during_an_upload() {
    use selvedge_examples::client::Client;
    let running = selvedge::Server::bind("127.0.0.1:0").expect("a port").body_bytes_max(UPLOAD_BYTES_MAX);
    let running = running.serve(app()).expect("threads start");
    let mut sender = Client::connect(running.addresses()[0]);
    let mut watcher = Client::connect(running.addresses()[0]);
    sender.send("PUT /upload/mine HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n01234");
    while watcher.get("/progress/mine").text() != "5" {}
    sender.send("56789");
    assert_eq!(sender.read_response().text(), "10 bytes\n");
    assert_eq!(watcher.get("/progress/mine").text(), "10");
    let path = std::env::temp_dir().join(format!("selvedge-upload-{}-0", std::process::id()));
    assert_eq!(std::fs::read(&path).expect("the uploaded file is readable"), b"0123456789");
    std::fs::remove_file(path).expect("cannot remove the file");
    sender.send("PUT /upload/other HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n01234");
    while watcher.get("/progress/other").text() != "5" {}
    assert_eq!(watcher.request("PUT /upload/other", "", "0").status, 409);
    drop(sender);
    while watcher.get("/progress/other").status != 404 {}
    let mut sender = Client::connect(running.addresses()[0]);
    let too_long = UPLOAD_BYTES_MAX + 1;
    sender.send(format!("PUT /upload/mine HTTP/1.1\r\nhost: test\r\ncontent-length: {too_long}\r\n\r\n"));
    assert_eq!(sender.read_response().status, 413);
}
