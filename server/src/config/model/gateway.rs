//! The settings of the route actions that run scripts and programs.

use super::print::{Printer, flag, quote, quote_path};
use super::print_site::quoted;
use super::{Files, Settings};
use crate::config::value::{ServerPlace, write_size, write_time};
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// How scripts or programs serve requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gateway {
    pub(crate) runner: ScriptRunner,
    /// Names with values.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) requests_max: u32,
    /// `None` for programs, which have no connection.
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Duration,
    pub(crate) silence_timeout: Duration,
    pub(crate) spool_bytes_max: u64,
    pub(crate) send_file: Option<SendFile>,
}

/// What runs scripts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptRunner {
    Php {
        address: ServerPlace,
        files: Files,
        front_controller: String,
        root_there: Option<PathBuf>,
        idle_connections_max: u32,
    },
    FastCgi {
        address: ServerPlace,
        root: Option<PathBuf>,
        idle_connections_max: u32,
    },
    Scgi {
        address: ServerPlace,
        root: Option<PathBuf>,
    },
    Cgi(CgiPrograms),
}

/// Programs that run once for each request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CgiPrograms {
    pub(crate) folder: PathBuf,
    /// `None`: the user of the server.
    pub(crate) user: Option<String>,
    /// The one program that runs. `None`: the path names it.
    pub(crate) program: Option<String>,
    pub(crate) run_timeout: Duration,
    pub(crate) memory_bytes_max: u64,
    pub(crate) output_bytes_max: u64,
}

/// Files that a script may name for the server to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SendFile {
    pub(crate) folder: PathBuf,
    pub(crate) prefix: String,
}

impl Gateway {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(self.head()?, |lines| {
            for (name, value) in &self.variables {
                lines.line(format_args!("env {} {}", quote(name), quote(value)))?;
            }
            lines.line(format_args!("requests-max {}", self.requests_max))?;
            if let Some(connect) = self.connect_timeout {
                lines.line(format_args!("connect-timeout \"{}\"", write_time(connect)))?;
            }
            lines.line(format_args!("response-timeout \"{}\"", write_time(self.response_timeout)))?;
            lines.line(format_args!("silence-timeout \"{}\"", write_time(self.silence_timeout)))?;
            lines.line(format_args!("spool-bytes-max \"{}\"", write_size(self.spool_bytes_max)))?;
            if let Some(SendFile { folder, prefix }) = &self.send_file {
                lines.line(format_args!("send-file {} prefix={}", quote_path(folder), quote(prefix)))?;
            }
            match &self.runner {
                ScriptRunner::Php { files, root_there, idle_connections_max, .. } => {
                    lines.line(format_args!("index {}", quoted(&files.index)))?;
                    if let Some(path) = root_there {
                        lines.line(format_args!("root-there {}", quote_path(path)))?;
                    }
                    lines.line(format_args!("idle-connections-max {idle_connections_max}"))
                }
                ScriptRunner::FastCgi { idle_connections_max, .. } => {
                    lines.line(format_args!("idle-connections-max {idle_connections_max}"))
                }
                ScriptRunner::Scgi { .. } => Ok(()),
                ScriptRunner::Cgi(programs) => {
                    lines.line(format_args!("run-timeout \"{}\"", write_time(programs.run_timeout)))?;
                    lines.line(format_args!("memory-bytes-max \"{}\"", write_size(programs.memory_bytes_max)))?;
                    lines.line(format_args!("output-bytes-max \"{}\"", write_size(programs.output_bytes_max)))
                }
            }
        })
    }

    fn head(&self) -> Result<String, fmt::Error> {
        let mut head = String::new();
        let mut of_server = |name: &str, address: &ServerPlace, root: Option<&PathBuf>| {
            write!(head, "{name} {}", quote(&address.to_string()))?;
            root.iter().try_for_each(|root| write!(head, " root={}", quote_path(root)))
        };
        match &self.runner {
            ScriptRunner::Php { address, files, front_controller, .. } => {
                of_server("php", address, Some(&files.root))?;
                let precompressed = flag(files.precompressed);
                write!(head, " front-controller={} precompressed={precompressed}", quote(front_controller))?;
            }
            ScriptRunner::FastCgi { address, root, .. } => of_server("fastcgi", address, root.as_ref())?,
            ScriptRunner::Scgi { address, root } => of_server("scgi", address, root.as_ref())?,
            ScriptRunner::Cgi(programs) => {
                write!(head, "cgi {}", quote_path(&programs.folder))?;
                for (name, value) in [("user", &programs.user), ("program", &programs.program)] {
                    value.iter().try_for_each(|value| write!(head, " {name}={}", quote(value)))?;
                }
            }
        }
        Ok(head)
    }
}

impl Settings {
    /// Whether a route runs scripts or programs.
    pub(crate) fn has_gateways(&self) -> bool {
        let mut routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.any(|route| matches!(route.action, super::Action::Gateway(_)))
    }

    /// Returns the programs that routes with `cgi` run.
    pub(crate) fn cgi_programs(&self) -> impl Iterator<Item = &CgiPrograms> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.filter_map(|route| match &route.action {
            super::Action::Gateway(Gateway { runner: ScriptRunner::Cgi(programs), .. }) => Some(programs),
            _ => None,
        })
    }
}
