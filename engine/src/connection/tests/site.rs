//! The application of most tests: one path for each thing that an application does.

use crate::service::{Body, Request, Response, Service};
use selvedge_proto::Status;
use std::time::Duration;
use tokio::time::sleep;

/// See the paths below.
pub(super) struct Site;

impl Service for Site {
    async fn call(&self, request: &mut Request) -> Response {
        let target = request.target().to_owned();
        let mut parts = target.trim_start_matches('/').split('/');
        let (path, number) = (parts.next().unwrap_or_default(), parts.next().and_then(|part| part.parse().ok()));
        let number: u64 = number.unwrap_or_default();
        match path {
            "ok" => Response::new(Status::OK).body(target),
            // So many bytes.
            "bytes" => Response::new(Status::OK).body(content(number as usize)),
            // What was read, or why it was not.
            "read" => read(request).await,
            // The same, after so many seconds.
            "late" => {
                sleep(Duration::from_secs(number)).await;
                read(request).await
            }
            // The same, with a limit of its own.
            "limit" => {
                request.body().limit(number);
                read(request).await
            }
            "echo" => {
                let body = request.take_body();
                Response::new(Status::OK).body(Body::Stream { length: body.length(), chunks: Box::pin(body) })
            }
            // Answers after so many seconds.
            "slow" => {
                sleep(Duration::from_secs(number)).await;
                Response::new(Status::OK).body(target)
            }
            "never" => std::future::pending().await,
            "panic" => panic!("the site broke"),
            "status" => Response::new(Status::new(number as u16).expect("a status")).body("content"),
            _ => Response::error(Status::NOT_FOUND),
        }
    }
}

async fn read(request: &mut Request) -> Response {
    match request.body().read().await {
        Ok(content) => Response::new(Status::OK).body(content),
        Err(error) => error.into(),
    }
}

/// Bytes that differ from place to place, so that none can be lost or swapped unseen.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| if at / 26 % 2 == 0 { b'a' + (at % 26) as u8 } else { b'A' + (at % 26) as u8 }).collect()
}
