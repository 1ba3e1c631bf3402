//! Shuts down gracefully on Ctrl-C: refuses new connections and finishes current requests.
//!
//! ```text
//! cargo run -p selvedge-examples --bin stop
//! curl http://127.0.0.1:3000/slow & sleep 1; kill -INT %1
//! ```

use axum::{Router, routing::get};
use std::time::Duration;
use tokio::time::sleep;

fn app(duration: Duration) -> Router {
    let slow = async move || {
        sleep(duration).await;
        "done"
    };
    Router::new().route("/slow", get(slow))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app(Duration::from_secs(5)).into_make_service())
        .shutdown_timeout(Duration::from_secs(10))
        .with_graceful_shutdown(async {
            // If the signal handler fails, the server shuts down at once.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await
}

#[tokio::test]
async fn running_requests_are_finished() {
    use selvedge_examples::client::Client;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("cannot bind a port");
    let address = listener.local_addr().expect("the listener has an address");
    let app = app(Duration::from_millis(200));
    let served = selvedge::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
    let client_thread = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n");
        stop.send(()).expect("the server waits for the message");
        client.read_response()
    });
    served.await.expect("the server shuts down");
    let response = client_thread.join().expect("the client gets a response");
    assert_eq!((response.status, response.text()), (200, "done"));
    assert!(response.fields.contains(&"connection: close".to_owned()));
}
