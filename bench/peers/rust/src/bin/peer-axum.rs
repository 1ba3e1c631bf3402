//! axum on hyper, on a current-thread runtime for each core, with tower-http's `ServeDir` for
//! files: how an axum application serves them.

use axum::Router;
use axum::routing::get;
use selvedge_bench_peers::{Arguments, listen, on_each_worker};
use tower_http::services::ServeDir;

fn main() {
    let Arguments { port, workers, root } = Arguments::read();
    on_each_worker(workers, move || {
        let application =
            Router::new().route("/hello", get(async || "HELLO, WORLD")).fallback_service(ServeDir::new(&root));
        async move {
            let listener = listen(port).expect("a listening socket");
            axum::serve(listener, application).await.expect("it serves until it is stopped");
        }
    });
}
