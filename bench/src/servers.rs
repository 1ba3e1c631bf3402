//! Who is measured: one table. From it come the search, the command lines and the list in the
//! report.

use crate::figures::{Figure, Ratio};
use crate::hello;
use crate::load::mix::{Afterwards, request};
use crate::origin::Origin;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a workload asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One file that fits into memory.
    File,
    /// One file that does not.
    LongFile,
    /// Files under the whole root, some of them cold.
    Tree,
    /// The answer of a program.
    Hello,
    /// The same answer, of a program on one of the libraries for Rust.
    Library,
    /// Whatever an application on such a library does.
    Application,
}

impl Content {
    /// What the figures are divided by, for content of this kind.
    pub(crate) fn ratios(self) -> &'static [Ratio] {
        match self {
            Self::File | Self::LongFile | Self::Tree | Self::Hello => &[
                Ratio { of: Figure::CpuUs, to: FLOOR, is: Figure::CpuToFloor },
                Ratio { of: Figure::CpuUs, to: SELVEDGE, is: Figure::CpuToSelvedge },
            ],
            Self::Library | Self::Application => &[
                Ratio { of: Figure::CpuUs, to: AXUM, is: Figure::CpuToAxum },
                Ratio { of: Figure::BytesPerConnection, to: AXUM, is: Figure::BytesToAxum },
            ],
        }
    }
}

struct Entry {
    name: &'static str,
    origin: Origin,
    /// What drives the sockets of one that is on Selvedge; `auto` is what it does unasked.
    driver: Option<&'static str>,
    version: &'static [&'static str],
    /// Its configuration under `peers/`, with `@WORDS@` to fill in.
    config: Option<&'static str>,
    arguments: &'static str,
    answers: &'static [Content],
    callgrind: bool,
    install: &'static str,
}

const SERVE: &str = "serve @ROOT@ --listen 127.0.0.1:@PORT@ --workers @WORKERS@ --log off";
const YARDSTICK: &str = "@PORT@ @WORKERS@ @REQUEST_BYTES@ @AFTER@ @FILE@";
const EVERYTHING: &[Content] = &[Content::File, Content::LongFile, Content::Tree, Content::Hello];
const OURS: &[Content] = &[Content::File, Content::LongFile, Content::Tree, Content::Hello, Content::Library];
const LIBRARY: &[Content] =
    &[Content::File, Content::LongFile, Content::Tree, Content::Hello, Content::Library, Content::Application];
const FILES: &[Content] = &[Content::File, Content::LongFile, Content::Tree];
const ONE_ANSWER: &[Content] = &[Content::File, Content::LongFile, Content::Hello];

/// What names the driver of sockets to those that are on Selvedge.
const DRIVER: &str = "SELVEDGE_DRIVER";
const RING: &str = "io_uring";

/// The name of the yardstick that the ratios are about.
pub(crate) const FLOOR: &str = "floor";
/// Our own name.
pub(crate) const SELVEDGE: &str = "selvedge";
/// The peer that applications are compared with: axum on hyper.
pub(crate) const AXUM: &str = "axum";

/// Whether it is Selvedge that is under a name.
pub(crate) fn is_ours(name: &str) -> bool {
    name.contains(SELVEDGE)
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: FLOOR,
        origin: Origin::C("floor/epoll.c"),
        driver: None,
        version: &[],
        config: None,
        arguments: YARDSTICK,
        answers: ONE_ANSWER,
        callgrind: true,
        install: "apt-get install gcc",
    },
    Entry {
        name: "floor-tokio",
        origin: Origin::Rust("floor-tokio"),
        driver: None,
        version: &[],
        config: None,
        arguments: YARDSTICK,
        answers: &[Content::File, Content::Hello],
        callgrind: true,
        install: "cargo",
    },
    Entry {
        name: SELVEDGE,
        origin: Origin::Selvedge,
        driver: Some("auto"),
        version: &["--version"],
        config: None,
        arguments: SERVE,
        answers: OURS,
        callgrind: false, // valgrind has no rings: what it would count is the next one's
        install: "cargo",
    },
    Entry {
        name: "selvedge-epoll",
        origin: Origin::Selvedge,
        driver: Some("epoll"),
        version: &["--version"],
        config: None,
        arguments: SERVE,
        answers: OURS,
        callgrind: true,
        install: "cargo",
    },
    Entry {
        name: "selvedge-io_uring",
        origin: Origin::Selvedge,
        driver: Some(RING),
        version: &["--version"],
        config: None,
        arguments: SERVE,
        answers: OURS,
        callgrind: false, // valgrind has no rings
        install: "cargo",
    },
    Entry {
        name: "nginx",
        origin: Origin::Program("nginx"),
        driver: None,
        version: &["-v"],
        config: Some("nginx/nginx.conf"),
        arguments: "-e @STATE@/error.log -c @CONFIG@",
        answers: EVERYTHING,
        callgrind: true,
        install: "apt-get install nginx-light",
    },
    Entry {
        name: "h2o",
        origin: Origin::Program("h2o"),
        driver: None,
        version: &["-v"],
        config: Some("h2o/h2o.conf"),
        arguments: "-m worker -c @CONFIG@",
        answers: EVERYTHING,
        callgrind: true,
        install: "apt-get install h2o",
    },
    Entry {
        name: "lighttpd",
        origin: Origin::Program("lighttpd"),
        driver: None,
        version: &["-v"],
        config: Some("lighttpd/lighttpd.conf"),
        arguments: "-D -f @CONFIG@",
        answers: FILES,
        callgrind: true,
        install: "apt-get install lighttpd",
    },
    Entry {
        name: "apache",
        origin: Origin::Program("apache2"),
        driver: None,
        version: &["-v"],
        config: Some("apache/apache.conf"),
        arguments: "-D FOREGROUND -f @CONFIG@",
        answers: FILES,
        callgrind: false,
        install: "apt-get install apache2-bin",
    },
    Entry {
        name: "caddy",
        origin: Origin::Program("caddy"),
        driver: None,
        version: &["version"],
        config: Some("caddy/Caddyfile"),
        arguments: "run --adapter caddyfile --config @CONFIG@",
        answers: EVERYTHING,
        callgrind: false, // valgrind does not run Go programs
        install: "apt-get install caddy",
    },
    Entry {
        name: "warp",
        origin: Origin::Haskell("warp/warp.hs"),
        driver: None,
        version: &[],
        config: None,
        arguments: "@PORT@ @ROOT@ +RTS -N@WORKERS@ -A16m -RTS",
        answers: EVERYTHING,
        callgrind: false, // its clock signal ends it under valgrind
        install: "apt-get install ghc libghc-warp-dev",
    },
    Entry {
        name: "hyper",
        origin: Origin::Rust("peer-hyper"),
        driver: None,
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: &[Content::File, Content::Hello, Content::Library],
        callgrind: true,
        install: "cargo",
    },
    Entry {
        name: "axum-selvedge",
        origin: Origin::Rust("peer-axum-selvedge"),
        driver: Some("auto"),
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: &[Content::Hello, Content::Library, Content::Application],
        callgrind: false, // valgrind has no rings: what it would count is the next one's
        install: "cargo",
    },
    Entry {
        name: "axum-selvedge-epoll",
        origin: Origin::Rust("peer-axum-selvedge"),
        driver: Some("epoll"),
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: &[Content::Hello, Content::Library],
        callgrind: true,
        install: "cargo",
    },
    Entry {
        name: "axum-selvedge-io_uring",
        origin: Origin::Rust("peer-axum-selvedge"),
        driver: Some(RING),
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: &[Content::Hello, Content::Library],
        callgrind: false, // valgrind has no rings
        install: "cargo",
    },
    Entry {
        name: AXUM,
        origin: Origin::Rust("peer-axum"),
        driver: None,
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: LIBRARY,
        callgrind: true,
        install: "cargo",
    },
    Entry {
        name: "actix",
        origin: Origin::Rust("peer-actix"),
        driver: None,
        version: &[],
        config: None,
        arguments: "@PORT@ @WORKERS@ @ROOT@",
        answers: LIBRARY,
        callgrind: true,
        install: "cargo",
    },
];

/// A server that is here.
pub(crate) struct Server {
    entry: &'static Entry,
    program: PathBuf,
    version: String,
}

/// A server that is not here.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) install: String,
}

/// What the report says about a server.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) command: String,
    /// Relative to `bench/`.
    pub(crate) config: Option<String>,
}

/// How a server is to run.
pub(crate) struct Launch<'a> {
    pub(crate) port: u16,
    pub(crate) workers: usize,
    pub(crate) root: &'a Path,
    pub(crate) content: Content,
    /// The path that is asked for first.
    pub(crate) path: &'a str,
    pub(crate) afterwards: Afterwards,
    /// A directory for its state.
    pub(crate) state: &'a Path,
}

/// The folder of this crate.
pub(crate) fn bench_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Finds or builds every server; `only` keeps those with these names.
pub(crate) fn find(work: &Path, only: &[String]) -> (Vec<Server>, Vec<Missing>) {
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    for entry in ENTRIES.iter().filter(|entry| only.is_empty() || only.iter().any(|name| name == entry.name)) {
        let program = match entry.driver {
            // Epoll under another name is not measured.
            Some(RING) => hello::ask_for_ring().and_then(|()| entry.origin.locate(work)),
            _ => entry.origin.locate(work),
        };
        match program {
            Ok(program) => {
                let version = entry.origin.version(&program, entry.version);
                here.push(Server { entry, program, version });
            }
            Err(error) => missing.push(Missing {
                name: entry.name.to_owned(),
                why: format!("{error:#}"),
                install: entry.install.to_owned(),
            }),
        }
    }
    (here, missing)
}

/// The names of all that can be measured.
pub(crate) fn names() -> Vec<&'static str> {
    ENTRIES.iter().map(|entry| entry.name).collect()
}

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    pub(crate) fn answers(&self, content: Content) -> bool {
        self.entry.answers.contains(&content)
    }

    /// Whether callgrind can run it.
    pub(crate) fn runs_under_callgrind(&self) -> bool {
        self.entry.callgrind
    }

    pub(crate) fn facts(&self) -> Facts {
        let program = self.program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let driver = self.entry.driver.map_or_else(String::new, |driver| format!("{DRIVER}={driver} "));
        Facts {
            name: self.entry.name.to_owned(),
            version: self.version.clone(),
            command: format!("{driver}{program} {}", self.entry.arguments),
            config: self.entry.config.map(|config| format!("peers/{config}")),
        }
    }

    /// The command that starts it.
    pub(crate) fn command(&self, launch: &Launch<'_>) -> Result<Command> {
        let config = launch.state.join("config");
        if let Some(template) = self.entry.config {
            let text = fs::read_to_string(bench_folder().join("peers").join(template))?;
            fs::write(&config, launch.fill_in(&text, &config))?;
        }
        let mut arguments = self.entry.arguments;
        let mut program = self.program.clone();
        if matches!(self.entry.origin, Origin::Selvedge) && matches!(launch.content, Content::Hello | Content::Library)
        {
            // Its way to answer without a file is a program on the library: this one.
            program = std::env::current_exe()?;
            arguments = "serve-hello @PORT@ @WORKERS@";
        }
        let mut command = Command::new(program);
        command.args(arguments.split(' ').map(|word| launch.fill_in(word, &config)));
        if let Some(driver) = self.entry.driver {
            command.env(DRIVER, driver);
        }
        command.env("GOMAXPROCS", launch.workers.to_string());
        command.env("XDG_DATA_HOME", launch.state).env("XDG_CONFIG_HOME", launch.state);
        Ok(command)
    }
}

impl Launch<'_> {
    fn fill_in(&self, text: &str, config: &Path) -> String {
        let is_root = rustix::process::geteuid().is_root();
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let words = [
            ("@PORT@", self.port.to_string()),
            ("@WORKERS@", self.workers.to_string()),
            ("@PROCESSES@", if self.workers == 1 { 0 } else { self.workers }.to_string()),
            ("@THREADS@", (256 * self.workers).to_string()),
            ("@ROOT@", self.root.display().to_string()),
            ("@STATE@", self.state.display().to_string()),
            ("@CONFIG@", config.display().to_string()),
            ("@FILE@", self.root.join(self.path.trim_start_matches('/')).display().to_string()),
            ("@REQUEST_BYTES@", request(self.path, self.afterwards).len().to_string()),
            ("@AFTER@", if self.afterwards == Afterwards::Close { "close" } else { "keep" }.to_owned()),
            ("@UNPRIVILEGED@", if is_root { "nobody".to_owned() } else { user.clone() }),
            ("@USER@", if is_root { "root".to_owned() } else { user }),
        ];
        words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}
