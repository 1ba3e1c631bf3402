//! What approves a name before a certificate is ordered for it: a program or a URL.

use super::authority_client::plain_client;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Runs the programs of the configuration, outside of the sandbox.
pub(crate) trait RunProgram: Send + Sync {
    /// Runs a program with arguments until it ends or its time is over. Blocks.
    ///
    /// # Errors
    /// Why it did not end with success.
    fn run(&self, program: &Path, arguments: &[String]) -> Result<(), String>;
}

/// What approves names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Program(PathBuf),
    Url { url: String, timeout: Duration },
}

impl Approval {
    /// Decides about a name.
    ///
    /// # Errors
    /// Why it is not approved.
    pub(super) async fn decide(&self, name: &str, programs: Option<Arc<dyn RunProgram>>) -> Result<(), String> {
        match self {
            Self::Program(program) => run_program(program.clone(), name.to_owned(), programs).await,
            Self::Url { url, timeout } => match tokio::time::timeout(*timeout, request(url, name)).await {
                Ok(result) => result,
                Err(_) => Err(format!("{url} did not respond in time")),
            },
        }
    }
}

async fn run_program(program: PathBuf, name: String, programs: Option<Arc<dyn RunProgram>>) -> Result<(), String> {
    let Some(programs) = programs else { return Err("programs cannot be run here".to_owned()) };
    let run = tokio::task::spawn_blocking(move || programs.run(&program, &[name]));
    run.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Requests a URL with a name, which is approved if the status is 200.
async fn request(url: &str, name: &str) -> Result<(), String> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let request = Request::get(format!("{url}{separator}domain={name}")).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("{url}: {error}"))?;
    let response = plain_client()?.request(request).await.map_err(|error| format!("{url}: {error}"))?;
    match response.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{url} responds with {}", status.as_u16())),
    }
}
