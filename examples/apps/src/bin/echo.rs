//! Answers a POST to `/echo` with the content that it came with, piece by piece as it comes:
//!
//! ```text
//! cargo run -p selvedge-examples --bin echo
//! curl --data-binary @Cargo.toml http://127.0.0.1:3000/echo
//! ```

use axum::{Router, body::Body, extract::DefaultBodyLimit, routing::post};

fn app() -> Router {
    Router::new().route("/echo", post(async |body: Body| body)).layer(DefaultBodyLimit::disable())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app().into_make_service()).await
}

#[test]
fn what_comes_goes_back() {
    let running = selvedge_examples::client::serve(app());
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    let large = vec![b'x'; 300_000];
    for content in [&b"hello"[..], &large] {
        let answer = client.ask("POST /echo", "", content);
        assert_eq!((answer.status, answer.content == content), (200, true));
    }
}
