//! actix-web with actix-files: a current-thread runtime for each worker is how it works by itself.

use actix_web::http::KeepAlive;
use actix_web::{App, HttpServer, web};
use selvedge_bench_peers::Arguments;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let Arguments { port, workers, root } = Arguments::read();
    actix_web::rt::System::new().block_on(
        HttpServer::new(move || {
            App::new()
                .route("/hello", web::get().to(async || "HELLO, WORLD"))
                .service(actix_files::Files::new("/", &root))
        })
        .workers(workers)
        .backlog(4096)
        .tcp_nodelay(true) // else a second write of an answer waits for the client
        .max_connections(20_000)
        .keep_alive(KeepAlive::Timeout(Duration::from_secs(3_600)))
        .bind(("127.0.0.1", port))?
        .run(),
    )
}
