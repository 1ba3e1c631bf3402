//! The application of most tests: one path for each behaviour.

use crate::service::{Body, Request, Response, Service};
use selvedge_proto::StatusCode;
use std::time::Duration;
use tokio::time::sleep;

/// See the paths below.
pub(super) struct TestApp;

impl Service for TestApp {
    async fn call(&self, request: &mut Request) -> Response {
        let target = request.target().to_owned();
        let mut parts = target.trim_start_matches('/').split('/');
        let (path, number) = (parts.next().unwrap_or_default(), parts.next().and_then(|part| part.parse().ok()));
        let number: u64 = number.unwrap_or_default();
        match path {
            "ok" => Response::new(StatusCode::OK).body(target),
            // A number of bytes.
            "bytes" => Response::new(StatusCode::OK).body(content(number as usize)),
            // The content that was read, or why it was not.
            "read" => read(request).await,
            // As "read", after a number of seconds.
            "late" => {
                sleep(Duration::from_secs(number)).await;
                read(request).await
            }
            // As "read", with a limit of its own.
            "limit" => {
                request.body().set_bytes_max(number);
                read(request).await
            }
            "echo" => {
                let body = request.take_body();
                Response::new(StatusCode::OK).body(Body::Stream { length: body.length(), chunks: Box::pin(body) })
            }
            // Responds after a number of seconds.
            "slow" => {
                sleep(Duration::from_secs(number)).await;
                Response::new(StatusCode::OK).body(target)
            }
            "never" => std::future::pending().await,
            "panic" => panic!("the application broke"),
            "status" => Response::new(StatusCode::new(number as u16).expect("a status")).body("content"),
            _ => Response::error(StatusCode::NOT_FOUND),
        }
    }
}

async fn read(request: &mut Request) -> Response {
    match request.body().read_all().await {
        Ok(content) => Response::new(StatusCode::OK).body(content),
        Err(error) => error.into(),
    }
}

/// Returns bytes that differ by position, so that none can be lost or swapped unnoticed.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| if at / 26 % 2 == 0 { b'a' + (at % 26) as u8 } else { b'A' + (at % 26) as u8 }).collect()
}
