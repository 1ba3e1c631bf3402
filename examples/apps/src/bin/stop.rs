//! Stops gracefully on Ctrl-C: nobody new is let in, and who is being served is served.
//!
//! ```text
//! cargo run -p selvedge-examples --bin stop
//! curl http://127.0.0.1:3000/slow & sleep 1; kill -INT %1
//! ```

use axum::{Router, routing::get};
use std::time::Duration;
use tokio::time::sleep;

fn app(takes: Duration) -> Router {
    let slow = async move || {
        sleep(takes).await;
        "done"
    };
    Router::new().route("/slow", get(slow))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    selvedge::serve(listener, app(Duration::from_secs(5)).into_make_service())
        .drain_time(Duration::from_secs(10))
        .with_graceful_shutdown(async {
            // Without signals there is no other way to ask for it than to end the process.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await
}

#[tokio::test]
async fn what_runs_is_finished() {
    use selvedge_examples::client::Client;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = app(Duration::from_millis(200));
    let served = selvedge::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
    let asked = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n");
        stop.send(()).expect("the server waits for it");
        client.answer()
    });
    served.await.expect("it stops");
    let answer = asked.join().expect("the client is answered");
    assert_eq!((answer.status, answer.text()), (200, "done"));
    assert!(answer.fields.contains(&"connection: close".to_owned()));
}
