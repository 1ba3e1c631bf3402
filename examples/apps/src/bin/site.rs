//! A site with everything: the files of a folder, an API, a WebSocket, and compression.
//!
//! ```text
//! cargo run -p selvedge-examples --bin site -- 127.0.0.1:3000 examples/site
//! curl --compressed http://127.0.0.1:3000/
//! curl -X POST http://127.0.0.1:3000/api/visits
//! ```
//!
//! Whoever has a WebSocket at `/api/live` is told of every visit. Files that the folder has in
//! compressed form are sent in it; the others, and the API's answers, are compressed on their way.

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
    upgrade.on_upgrade(|socket| tell(socket, count))
}

async fn tell(mut socket: WebSocket, count: Sender<u64>) {
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
    let app = app(Path::new("../site")).expect("the folder is there");
    let running = selvedge_examples::client::serve(app);
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    let (mut live, _) = connect_async(format!("ws://{}/api/live", running.addresses()[0])).await.expect("it is open");
    let mut next = async || live.next().await.expect("the socket is open").expect("a message").to_string();
    assert_eq!(next().await, "0");
    assert_eq!(client.ask("POST /api/visits", "", "").text(), "{\"visits\":1}");
    assert_eq!(next().await, "1");

    let plain = client.get("/weave/");
    assert!(plain.status == 200 && plain.fields.contains(&"cache-control: max-age=60".to_owned()));
    let coded = client.ask("GET /weave/", "accept-encoding: gzip\r\n", "");
    assert!(coded.fields.contains(&"content-encoding: gzip".to_owned()) && coded.content.len() < plain.content.len());
    client.send("HEAD /weave/ HTTP/1.1\r\nhost: test\r\naccept-encoding: gzip\r\n\r\n");
    assert!(client.head().fields.contains(&"content-encoding: gzip".to_owned()));
    let beside = client.ask("GET /style.css", "accept-encoding: br\r\n", "");
    assert_eq!(beside.content, std::fs::read("../site/style.css.br").expect("it is there"));
    let lost = client.get("/none");
    assert!(lost.status == 404 && lost.text().contains("<title>"));
    assert_eq!(client.get("/weave").status, 301);
}
