//! A chat over WebSocket, with a page: whatever one visitor writes, all see.
//!
//! ```text
//! cargo run -p selvedge-examples --bin chat
//! ```
//!
//! `axum::extract::ws` works as everywhere; it needs this library's feature `hyper-upgrade`.

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{Html, Response};
use axum::routing::{any, get};
use tokio::sync::broadcast::{self, Sender};

const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>Chat</title>
<ul id="said"></ul><form id="say"><input autofocus><button>Say</button></form>
<script>
const socket = new WebSocket(`ws://${location.host}/chat`);
socket.onmessage = event => {
    const line = document.createElement("li");
    line.textContent = event.data;
    document.getElementById("said").append(line);
};
document.getElementById("say").onsubmit = event => {
    event.preventDefault();
    const input = event.target.firstElementChild;
    socket.send(input.value);
    input.value = "";
};
</script>
"#;

/// What a slow visitor may have waiting before it misses some.
const LINES_WAITING_MAX: usize = 100;
/// Nobody says more at once.
const LINE_BYTES_MAX: usize = 4 * 1024;

async fn enter(upgrade: WebSocketUpgrade, State(room): State<Sender<String>>) -> Response {
    upgrade.max_message_size(LINE_BYTES_MAX).on_upgrade(|socket| stay(socket, room))
}

async fn stay(mut socket: WebSocket, room: Sender<String>) {
    let mut lines = room.subscribe();
    loop {
        tokio::select! {
            said = socket.recv() => match said {
                Some(Ok(Message::Text(line))) => drop(room.send(line.to_string())),
                Some(Ok(_)) => {}
                Some(Err(_)) => return refuse(socket).await,
                None => return,
            },
            line = lines.recv() => {
                // Who was too slow goes on with what is said now.
                let Ok(line) = line else { continue };
                if socket.send(Message::text(line)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Says why to whoever sends what cannot be read, or too much of it.
async fn refuse(mut socket: WebSocket) {
    let close = CloseFrame { code: close_code::POLICY, reason: "a line that is too long, or no line".into() };
    // Who is gone hears nothing.
    let _ = socket.send(Message::Close(Some(close))).await;
}

fn app() -> Router {
    let (room, _) = broadcast::channel(LINES_WAITING_MAX);
    Router::new().route("/", get(async || Html(PAGE))).route("/chat", any(enter)).with_state(room)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app()).await
}

#[tokio::test]
async fn all_see_what_one_says() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::{connect_async, tungstenite};
    let running = selvedge_examples::client::serve(app());
    let url = format!("ws://{}/chat", running.addresses()[0]);
    let (mut one, _) = connect_async(&url).await.expect("the chat is open");
    let (mut other, _) = connect_async(&url).await.expect("the chat is open");
    // Who hears itself has entered.
    for visitor in [&mut one, &mut other] {
        visitor.send(tungstenite::Message::text("I am here")).await.expect("it is sent");
        while visitor.next().await.expect("an answer").expect("a message").into_text().expect("text") != "I am here" {}
    }
    one.send(tungstenite::Message::text("hello")).await.expect("it is sent");
    while other.next().await.expect("an answer").expect("a message").into_text().expect("text") != "hello" {}
    other.send(tungstenite::Message::text("x".repeat(LINE_BYTES_MAX + 1))).await.expect("it is sent");
    let refused = loop {
        if let tungstenite::Message::Close(close) = other.next().await.expect("an answer").expect("a message") {
            break close.expect("a reason");
        }
    };
    assert_eq!(u16::from(refused.code), close_code::POLICY);
    one.close(None).await.expect("it is closed");
    drop(other);
    running.handle().stop();
    running.ended().await;
}
