//! axum on hyper, on a current-thread runtime for each core. Files are served by tower-http's `ServeFile` and
//! `ServeDir`, as in a usual axum application.

use axum::routing::get_service;
use selvedge_bench_peers::application::application;
use selvedge_bench_peers::{Arguments, FILE, listen, on_each_worker};
use tower_http::services::{ServeDir, ServeFile};

fn main() {
    let Arguments { port, workers, root, port_h2c: _ } = Arguments::read();
    on_each_worker(workers, move || {
        let application = application(get_service(ServeFile::new(root.join(FILE))));
        let application = application.fallback_service(ServeDir::new(&root));
        async move {
            let listener = listen(port).expect("cannot listen");
            axum::serve(listener, application).await.expect("the server failed");
        }
    });
}
