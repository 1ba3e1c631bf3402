//! Responds to a POST to `/echo` with its content, chunk by chunk while it is received. All other
//! requests get files of a folder:
//!
//! ```text
//! cargo run -p selvedge-examples --bin echo -- 127.0.0.1:3000 examples/site
//! curl --data-binary @Cargo.toml http://127.0.0.1:3000/echo
//! ```

use axum::{Router, body::Body, extract::DefaultBodyLimit, routing::post};
use selvedge_server::ServeDir;
use std::path::Path;

fn app(folder: &Path) -> std::io::Result<Router> {
    let files = ServeDir::new(folder).opened()?;
    let echo = post(async |body: Body| body).layer(DefaultBodyLimit::disable());
    Ok(Router::new().route("/echo", echo).fallback_service(files))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let app = app(&selvedge_examples::folder())?;
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    eprintln!("listening on http://{}/", listener.local_addr()?);
    selvedge::serve(listener, app.into_make_service()).await
}

#[test]
fn content_is_echoed() {
    let app = app(Path::new("src")).expect("the folder exists");
    let running = selvedge_examples::client::serve(app);
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    let large = vec![b'x'; 300_000];
    for content in [&b"hello"[..], &large] {
        let response = client.request("POST /echo", "", content);
        assert_eq!((response.status, response.content == content), (200, true));
    }
    assert!(client.get("/bin/echo.rs").text().contains("chunk by chunk"));
}
