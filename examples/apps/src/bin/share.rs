//! Shares the files of a folder, without its subfolders:
//!
//! ```text
//! cargo run -p selvedge-examples --bin share -- 127.0.0.1:3000 ~/Downloads
//! ```
//!
//! The kernel sends a file directly from the page cache. Range requests, as of players and download managers, work too.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use selvedge::{SendFile, spawn_blocking};
use std::path::PathBuf;

/// The maximum number of listed files.
const LISTED_MAX: usize = 1_000;

/// Whether a name is a single path segment and not hidden.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

async fn list(State(folder): State<PathBuf>) -> Result<Html<String>, StatusCode> {
    let names = spawn_blocking(move || -> std::io::Result<Vec<String>> {
        let entries = std::fs::read_dir(folder)?.filter_map(Result::ok);
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let names = files.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| is_plain(name)).take(LISTED_MAX).collect())
    });
    let Some(Ok(mut names)) = names.await else { return Err(StatusCode::INTERNAL_SERVER_ERROR) };
    names.sort();
    let items =
        names.iter().map(|name| format!("<li><a href=\"/file/{}\">{}</a>", percent_encode(name), escape_html(name)));
    Ok(Html(format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Files</title><ul>{}</ul>",
        items.collect::<String>()
    )))
}

/// Encodes a name as a path segment.
fn percent_encode(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Escapes a name for HTML text.
fn escape_html(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;")
}

async fn send(
    State(folder): State<PathBuf>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, StatusCode> {
    if !is_plain(&name) {
        return Err(StatusCode::NOT_FOUND);
    }
    let path = folder.join(name);
    // A symbolic link may lead out of the folder; it is not listed either.
    let facts = tokio::fs::symlink_metadata(&path).await;
    if !facts.is_ok_and(|facts| facts.is_file()) {
        return Err(StatusCode::NOT_FOUND);
    }
    let file = SendFile::open(path).await.map_err(|_| StatusCode::NOT_FOUND)?;
    // The type of a shared file is unknown, and no browser must guess that it is a page.
    Ok((
        [("content-type", "application/octet-stream"), ("x-content-type-options", "nosniff")],
        file.respond_to(&headers),
    ))
}

fn app(folder: PathBuf) -> Router {
    Router::new().route("/", get(list)).route("/file/{name}", get(send)).with_state(folder)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app(selvedge_examples::folder())).await
}

#[test]
fn files_are_listed_and_sent() {
    let folder = std::env::temp_dir().join(format!("selvedge-share-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("cannot create the folder");
    let content: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
    std::fs::write(folder.join("a file"), &content).expect("cannot write the file");
    std::os::unix::fs::symlink("/etc/hostname", folder.join("link")).expect("cannot create the link");
    let running = selvedge_examples::client::serve(app(folder.clone()));
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    assert!(client.get("/").text().contains("<a href=\"/file/a%20file\">a file</a>"));
    let whole = client.get("/file/a%20file");
    assert!(whole.status == 200 && whole.content == content);
    let part = client.request("GET /file/a%20file", "range: bytes=100000-200000\r\n", "");
    assert!(part.status == 206 && part.content == content[100_000..=200_000]);
    assert!(part.fields.contains(&"content-range: bytes 100000-200000/300000".to_owned()));
    let etag = whole.fields.iter().find_map(|line| line.strip_prefix("etag: ")).expect("the response has an ETag");
    assert_eq!(client.request("GET /file/a%20file", &format!("if-none-match: {etag}\r\n"), "").status, 304);
    for target in ["/file/..%2Fsecret", "/file/.hidden", "/file/link", "/file/none"] {
        assert_eq!(client.get(target).status, 404);
    }
    std::fs::remove_dir_all(folder).expect("cannot remove the folder");
}
