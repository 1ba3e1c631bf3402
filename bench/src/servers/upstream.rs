//! The upstream of measured proxies: the raw epoll loop with one file.

use super::Launch;
use crate::server_binary::ServerBinary;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A built upstream.
#[derive(Clone)]
pub(crate) struct UpstreamProgram {
    program: PathBuf,
}

impl UpstreamProgram {
    /// Builds the program in `folder`.
    ///
    /// # Errors
    /// If the C compiler is not installed or fails.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        Ok(Self { program: ServerBinary::C("baseline/epoll.c").locate(folder)? })
    }

    /// Returns the command that serves the file of a launch on its upstream port, over connections that it keeps.
    pub(crate) fn command(&self, launch: &Launch<'_>) -> Command {
        let mut command = Command::new(&self.program);
        // One worker. Requests have no fixed length, which is the 0: each proxy adds other fields.
        command.arg(launch.ports.upstream.to_string()).args(["1", "0", "keep"]).arg(launch.file());
        command
    }
}
