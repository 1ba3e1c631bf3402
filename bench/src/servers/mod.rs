//! The measured servers. The search, the command lines and the list in the report are derived from one table.

mod content;
mod table;
mod upstream;

pub(crate) use content::ContentKind;
pub(crate) use upstream::UpstreamProgram;

use crate::certificate::Certificate;
use crate::hello;
use crate::load::mix::{Persistence, request};
use crate::names::bench_folder;
use crate::process::server_process::Ports;
use crate::server_binary::ServerBinary;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{RING, SERVERS, ServerEntry, StartCommand};

/// The environment variable that selects the I/O back end of servers on Selvedge.
const DRIVER: &str = "SELVEDGE_DRIVER";

/// An installed or built server.
pub(crate) struct Server {
    entry: &'static ServerEntry,
    program: PathBuf,
    version: String,
}

/// A server that could not be found or built.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) reason: String,
    pub(crate) install: String,
}

/// The facts about a server in a report.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ServerFacts {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) command: String,
    /// Relative to `bench/`.
    pub(crate) config: Option<String>,
}

/// The parameters of one start of a server.
pub(crate) struct Launch<'a> {
    pub(crate) ports: Ports,
    pub(crate) workers: usize,
    pub(crate) root: &'a Path,
    pub(crate) content: ContentKind,
    /// The path of the first request.
    pub(crate) path: &'a str,
    pub(crate) persistence: Persistence,
    /// A directory for its state.
    pub(crate) state: &'a Path,
    /// The certificate for TLS. It exists in runs of workloads with TLS.
    pub(crate) certificate: &'a Certificate,
}

/// Finds or builds all servers, or those with the names in `only`. Returns the found and the missing servers.
pub(crate) fn find(work: &Path, only: &[String]) -> (Vec<Server>, Vec<Missing>) {
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    for entry in SERVERS.iter().filter(|entry| only.is_empty() || only.iter().any(|name| name == entry.name)) {
        let program = match entry.driver {
            // Without io_uring, the server would be measured with epoll under the wrong name.
            Some(RING) => hello::check_io_uring().and_then(|()| entry.binary.locate(work)),
            _ => entry.binary.locate(work),
        };
        match program {
            Ok(program) => {
                let version = entry.binary.version(&program, entry.version);
                here.push(Server { entry, program, version });
            }
            Err(error) => missing.push(Missing {
                name: entry.name.to_owned(),
                reason: format!("{error:#}"),
                install: entry.install.to_owned(),
            }),
        }
    }
    (here, missing)
}

/// Returns the names of all servers.
pub(crate) fn names() -> Vec<&'static str> {
    SERVERS.iter().map(|entry| entry.name).collect()
}

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    pub(crate) fn serves(&self, content: ContentKind) -> bool {
        self.entry.serves.contains(&content)
    }

    /// Whether the server runs under callgrind.
    pub(crate) fn runs_under_callgrind(&self) -> bool {
        self.entry.runs_under_callgrind
    }

    /// Returns the start for a content.
    fn start(&self, content: ContentKind) -> StartCommand {
        let other = if content == ContentKind::Proxied {
            self.entry.proxy
        } else {
            self.entry.http2.filter(|_| content.needs_http2_or_tls())
        };
        other.unwrap_or(self.entry.start)
    }

    /// Returns the facts for the report of a workload with this content.
    pub(crate) fn facts(&self, content: ContentKind) -> ServerFacts {
        let start = self.start(content);
        let program = self.program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let driver = self.entry.driver.map_or_else(String::new, |driver| format!("{DRIVER}={driver} "));
        ServerFacts {
            name: self.entry.name.to_owned(),
            version: self.version.clone(),
            command: format!("{driver}{program} {}", start.arguments),
            config: start.config.map(|config| format!("peers/{config}")),
        }
    }

    /// Returns the command that starts the server. Writes its configuration file first.
    pub(crate) fn command(&self, launch: &Launch<'_>) -> Result<Command> {
        let config = launch.state.join("config");
        let start = self.start(launch.content);
        if let Some(template) = start.config {
            let text = fs::read_to_string(bench_folder().join("peers").join(template))?;
            fs::write(&config, launch.substitute(&text, &config))?;
        }
        let mut arguments = start.arguments;
        let mut program = self.program.clone();
        if matches!(self.entry.binary, ServerBinary::Selvedge)
            && matches!(launch.content, ContentKind::Hello | ContentKind::Library)
        {
            // Selvedge has no configured content for this, so this program serves it with the library.
            program = std::env::current_exe()?;
            arguments = "serve-hello @PORT@ @WORKERS@";
        }
        let mut command = Command::new(program);
        command.args(arguments.split(' ').map(|word| launch.substitute(word, &config)));
        if let Some(driver) = self.entry.driver {
            command.env(DRIVER, driver);
        }
        command.env("GOMAXPROCS", launch.workers.to_string());
        command.env("XDG_DATA_HOME", launch.state).env("XDG_CONFIG_HOME", launch.state);
        Ok(command)
    }
}

impl Launch<'_> {
    /// Returns the file below the root at the path of the first request.
    fn file(&self) -> PathBuf {
        self.root.join(self.path.trim_start_matches('/'))
    }

    fn substitute(&self, text: &str, config: &Path) -> String {
        let is_root = rustix::process::geteuid().is_root();
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let words = [
            ("@PORT@", self.ports.plain.to_string()),
            ("@PORT_H2C@", self.ports.h2c.to_string()),
            ("@PORT_TLS@", self.ports.tls.to_string()),
            ("@PORT_UPSTREAM@", self.ports.upstream.to_string()),
            ("@CERTIFICATE@", self.certificate.chain.display().to_string()),
            ("@KEY@", self.certificate.key.display().to_string()),
            ("@WORKERS@", self.workers.to_string()),
            ("@PROCESSES@", if self.workers == 1 { 0 } else { self.workers }.to_string()),
            ("@THREADS@", (256 * self.workers).to_string()),
            ("@ROOT@", self.root.display().to_string()),
            ("@STATE@", self.state.display().to_string()),
            ("@CONFIG@", config.display().to_string()),
            ("@FILE@", self.file().display().to_string()),
            ("@REQUEST_BYTES@", request(self.path, self.persistence).len().to_string()),
            ("@PERSISTENCE@", if self.persistence == Persistence::Close { "close" } else { "keep" }.to_owned()),
            ("@UNPRIVILEGED@", if is_root { "nobody".to_owned() } else { user.clone() }),
            ("@USER@", if is_root { "root".to_owned() } else { user }),
        ];
        words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}
