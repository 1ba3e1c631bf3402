//! Server-sent events: a page that shows a count, which grows every second.
//!
//! ```text
//! cargo run -p selvedge-examples --bin events
//! curl -N http://127.0.0.1:3000/events
//! ```
//!
//! When a visitor leaves, the event stream is dropped at once.

use axum::Router;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use std::time::Duration;
use tokio::time::interval;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::IntervalStream;

const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>Events</title><h1 id="count">-</h1>
<script>
new EventSource("/events").onmessage = event => document.getElementById("count").textContent = event.data;
</script>
"#;

async fn events(every: Duration) -> impl IntoResponse {
    let mut count = 0;
    let events = IntervalStream::new(interval(every)).map(move |_| {
        count += 1;
        Ok::<_, std::convert::Infallible>(Event::default().data(count.to_string()))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn app(every: Duration) -> Router {
    Router::new().route("/", get(async || Html(PAGE))).route("/events", get(move || events(every)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app(Duration::from_secs(1)).into_make_service()).await
}

#[test]
fn events_are_sent_as_they_happen() {
    let running = selvedge_examples::client::serve(app(Duration::from_millis(5)));
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    client.send("GET /events HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.read_head().fields.contains(&"content-type: text/event-stream".to_owned()));
    let data: Vec<_> =
        std::iter::repeat_with(|| client.read_line()).filter(|line| line.starts_with("data:")).take(3).collect();
    assert_eq!(data, ["data: 1", "data: 2", "data: 3"]);
}
