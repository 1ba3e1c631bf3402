//! A complete site: the files of a folder, an API, a WebSocket, and compression.
//!
//! ```text
//! cargo run -p selvedge-examples --bin site -- 127.0.0.1:3000 examples/site
//! curl --compressed http://127.0.0.1:3000/
//! curl -X POST http://127.0.0.1:3000/api/visits
//! ```
//!
//! Clients with a WebSocket at `/api/live` get the count after every visit. Precompressed files of the folder
//! are sent as they are; other files and the API's responses are compressed when they are sent.

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::{any, post};
use axum::{Json, Router};
use selvedge::Compression;
use selvedge_server::ServeDir;
use serde::Serialize;
use std::path::Path;
use tokio::sync::watch::{self, Sender};

#[derive(Serialize)]
struct Visits {
    visits: u64,
}

async fn visit(State(count): State<Sender<u64>>) -> Json<Visits> {
    let mut visits = 0;
    count.send_modify(|count| {
        *count += 1;
        visits = *count;
    });
    Json(Visits { visits })
}

async fn live(upgrade: WebSocketUpgrade, State(count): State<Sender<u64>>) -> Response {
    upgrade.on_upgrade(|socket| send_visits(socket, count))
}

async fn send_visits(mut socket: WebSocket, count: Sender<u64>) {
    let mut visits = count.subscribe();
    loop {
        let text = visits.borrow_and_update().to_string();
        if socket.send(Message::text(text)).await.is_err() || visits.changed().await.is_err() {
            return;
        }
    }
}

fn app(folder: &Path) -> std::io::Result<Router> {
    let files = ServeDir::new(folder).not_found("404.html").cache_control("max-age=60").opened()?;
    let (count, _) = watch::channel(0);
    let api = Router::new().route("/visits", post(visit)).route("/live", any(live)).with_state(count);
    Ok(Router::new().nest("/api", api).fallback_service(files).layer(Compression::new()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let app = app(&selvedge_examples::folder())?;
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app.into_make_service()).await
}

#[tokio::test]
async fn files_api_and_socket() {
    use futures_util::StreamExt;
    use tokio_tungstenite::connect_async;
    let app = app(Path::new("../site")).expect("the folder exists");
    let running = selvedge_examples::client::serve(app);
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    let (mut live, _) =
        connect_async(format!("ws://{}/api/live", running.addresses()[0])).await.expect("cannot open the WebSocket");
    let mut next = async || live.next().await.expect("the socket is open").expect("a message").to_string();
    assert_eq!(next().await, "0");
    assert_eq!(client.request("POST /api/visits", "", "").text(), "{\"visits\":1}");
    assert_eq!(next().await, "1");

    let plain = client.get("/weave/");
    assert!(plain.status == 200 && plain.fields.contains(&"cache-control: max-age=60".to_owned()));
    let compressed = client.request("GET /weave/", "accept-encoding: gzip\r\n", "");
    assert!(
        compressed.fields.contains(&"content-encoding: gzip".to_owned())
            && compressed.content.len() < plain.content.len()
    );
    client.send("HEAD /weave/ HTTP/1.1\r\nhost: test\r\naccept-encoding: gzip\r\n\r\n");
    assert!(client.read_head().fields.contains(&"content-encoding: gzip".to_owned()));
    let precompressed = client.request("GET /style.css", "accept-encoding: br\r\n", "");
    assert_eq!(
        precompressed.content,
        std::fs::read("../site/style.css.br").expect("the precompressed file is readable")
    );
    let missing = client.get("/none");
    assert!(missing.status == 404 && missing.text().contains("<title>"));
    assert_eq!(client.get("/weave").status, 301);
}
