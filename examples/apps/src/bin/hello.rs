//! Serves a greeting at <http://127.0.0.1:3000/>:
//!
//! ```text
//! cargo run -p selvedge-examples --bin hello
//! ```

use axum::{Router, routing::get};

fn app() -> Router {
    Router::new().route("/", get(async || "HELLO, WORLD"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app().into_make_service()).await
}

#[test]
fn it_serves_a_greeting() {
    let running = selvedge_examples::client::serve(app());
    let response = selvedge_examples::client::Client::connect(running.addresses()[0]).get("/");
    assert_eq!((response.status, response.text()), (200, "HELLO, WORLD"));
}
