//! A chat over WebSocket, with a page: all visitors see what each of them writes.
//!
//! ```text
//! cargo run -p selvedge-examples --bin chat
//! cargo run -p selvedge-examples --bin chat -- 127.0.0.1:3000 chain.pem key.pem
//! ```
//!
//! `axum::extract::ws` works as on other servers; it needs this library's feature `hyper-upgrade`. With a certificate, a
//! browser opens the WebSocket on the HTTP/2 connection that has loaded the page.

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{Html, Response};
use axum::routing::{any, get};
use tokio::sync::broadcast::{self, Sender};

const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>Chat</title>
<ul id="messages"></ul><form id="form"><input autofocus><button>Send</button></form>
<script>
const socket = new WebSocket(`${location.protocol.replace("http", "ws")}//${location.host}/chat`);
socket.onmessage = event => {
    const line = document.createElement("li");
    line.textContent = event.data;
    document.getElementById("messages").append(line);
};
document.getElementById("form").onsubmit = event => {
    event.preventDefault();
    const input = event.target.firstElementChild;
    socket.send(input.value);
    input.value = "";
};
</script>
"#;

/// The maximum number of pending lines of a slow visitor, which misses lines beyond it.
const PENDING_LINES_MAX: usize = 100;
/// The maximum length of a line.
const LINE_BYTES_MAX: usize = 4 * 1024;

async fn connect(upgrade: WebSocketUpgrade, State(room): State<Sender<String>>) -> Response {
    upgrade.max_message_size(LINE_BYTES_MAX).on_upgrade(|socket| run_session(socket, room))
}

async fn run_session(mut socket: WebSocket, room: Sender<String>) {
    let mut lines = room.subscribe();
    loop {
        tokio::select! {
            received = socket.recv() => match received {
                Some(Ok(Message::Text(line))) => drop(room.send(line.to_string())),
                Some(Ok(_)) => {}
                Some(Err(_)) => return close_with_error(socket).await,
                None => return,
            },
            line = lines.recv() => {
                // A visitor that missed lines continues with the current ones.
                let Ok(line) = line else { continue };
                if socket.send(Message::text(line)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Closes the socket of a visitor that sent an invalid or too long message, with a reason.
async fn close_with_error(mut socket: WebSocket) {
    let close = CloseFrame { code: close_code::POLICY, reason: "the message is too long or not text".into() };
    // The visitor may have disconnected.
    let _ = socket.send(Message::Close(Some(close))).await;
}

fn app() -> Router {
    let (room, _) = broadcast::channel(PENDING_LINES_MAX);
    Router::new().route("/", get(async || Html(PAGE))).route("/chat", any(connect)).with_state(room)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    let server = selvedge::serve(listener, app());
    let mut files = std::env::args_os().skip(2);
    match (files.next(), files.next()) {
        (Some(chain), Some(key)) => server.tls(selvedge::tls::Tls::from_files(chain, key)?).await,
        _ => server.await,
    }
}

#[tokio::test]
async fn all_visitors_see_a_message() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::{connect_async, tungstenite};
    let running = selvedge_examples::client::serve(app());
    let url = format!("ws://{}/chat", running.addresses()[0]);
    let (mut one, _) = connect_async(&url).await.expect("cannot open the WebSocket");
    let (mut other, _) = connect_async(&url).await.expect("cannot open the WebSocket");
    // A visitor that receives its own message has joined.
    for visitor in [&mut one, &mut other] {
        visitor.send(tungstenite::Message::text("I am here")).await.expect("cannot send the message");
        while visitor.next().await.expect("the socket is open").expect("a message").into_text().expect("text")
            != "I am here"
        {}
    }
    one.send(tungstenite::Message::text("hello")).await.expect("cannot send the message");
    while other.next().await.expect("the socket is open").expect("a message").into_text().expect("text") != "hello" {}
    other.send(tungstenite::Message::text("x".repeat(LINE_BYTES_MAX + 1))).await.expect("cannot send the message");
    let refused = loop {
        if let tungstenite::Message::Close(close) = other.next().await.expect("the socket is open").expect("a message")
        {
            break close.expect("the close frame has a reason");
        }
    };
    assert_eq!(u16::from(refused.code), close_code::POLICY);
    one.close(None).await.expect("cannot close the socket");
    drop(other);
    running.handle().stop();
    running.ended().await;
}
