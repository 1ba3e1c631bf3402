//! actix-web with actix-files. Its default is a current-thread runtime for each worker.

use actix_files::{Files, NamedFile};
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::KeepAlive;
use actix_web::web::{self, Bytes, Payload};
use actix_web::{App, Error, HttpResponse, HttpServer};
use futures_util::{StreamExt, stream};
use selvedge_bench_peers::download::Download;
use selvedge_bench_peers::{Arguments, EVENT, FILE};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let Arguments { port, workers, root, port_h2c: _ } = Arguments::read();
    actix_web::rt::System::new().block_on(
        HttpServer::new(move || {
            let file = root.join(FILE);
            App::new()
                .route("/hello", web::get().to(async || "HELLO, WORLD"))
                .route("/upload", web::post().to(upload))
                .route("/download", web::get().to(async || HttpResponse::Ok().body(SizedDownload(Download::default()))))
                .route("/events", web::get().to(events))
                .route("/file", web::get().to(move || NamedFile::open_async(file.clone())))
                .service(Files::new("/", &root))
        })
        .workers(workers)
        .backlog(4096)
        .tcp_nodelay(true) // otherwise the second write of a response waits for an ACK of the client
        .max_connections(20_000)
        .keep_alive(KeepAlive::Timeout(Duration::from_secs(3_600)))
        .bind(("127.0.0.1", port))?
        .run(),
    )
}

async fn upload(mut content: Payload) -> Result<String, Error> {
    let mut bytes = 0;
    while let Some(chunk) = content.next().await {
        bytes += chunk?.len();
    }
    Ok(bytes.to_string())
}

async fn events() -> HttpResponse {
    let first = stream::once(async { Ok::<_, Infallible>(Bytes::from(format!("data: {EVENT}\n\n"))) });
    HttpResponse::Ok().content_type("text/event-stream").streaming(first.chain(stream::pending()))
}

/// A [`Download`] as an actix body.
struct SizedDownload(Download);

impl MessageBody for SizedDownload {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0.bytes_remaining())
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(self.0.next_chunk().map(Ok))
    }
}
