//! The table of measured servers, with their command lines and the content that they serve.

use super::content::ContentKind;
use crate::names::{AXUM, BASELINE, SELVEDGE};
use crate::server_binary::ServerBinary;

/// How a server is started.
#[derive(Clone, Copy)]
pub(super) struct StartCommand {
    /// Its configuration below `peers/`, with placeholders such as `@PORT@`.
    pub(super) config: Option<&'static str>,
    pub(super) arguments: &'static str,
}

/// A server of the table.
pub(super) struct ServerEntry {
    pub(super) name: &'static str,
    pub(super) binary: ServerBinary,
    /// The I/O back end of a server on Selvedge; `auto` is its default.
    pub(super) driver: Option<&'static str>,
    pub(super) version: &'static [&'static str],
    pub(super) start: StartCommand,
    /// The start with HTTP/2 and TLS, if it differs.
    pub(super) http2: Option<StartCommand>,
    /// The start as a proxy in front of an upstream, if the server is one.
    pub(super) proxy: Option<StartCommand>,
    pub(super) serves: &'static [ContentKind],
    pub(super) runs_under_callgrind: bool,
    pub(super) install: &'static str,
}

const SERVE_ARGUMENTS: &str = "serve @ROOT@ --listen 127.0.0.1:@PORT@ --workers @WORKERS@ --log off";
const SELVEDGE_WITH_HTTP2: StartCommand =
    StartCommand { config: Some("selvedge/http2.kdl"), arguments: "run @CONFIG@" };
const SELVEDGE_AS_PROXY: StartCommand = StartCommand { config: Some("selvedge/proxy.kdl"), arguments: "run @CONFIG@" };
const NGINX_ARGUMENTS: &str = "-e @STATE@/error.log -c @CONFIG@";
const H2O_ARGUMENTS: &str = "-m worker -c @CONFIG@";
const HAPROXY_ARGUMENTS: &str = "-db -f @CONFIG@";
const CADDY_ARGUMENTS: &str = "run --adapter caddyfile --config @CONFIG@";
const BASELINE_ARGUMENTS: &str = "@PORT@ @WORKERS@ @REQUEST_BYTES@ @PERSISTENCE@ @FILE@";
const FILES_AND_HELLO: &[ContentKind] =
    &[ContentKind::File, ContentKind::LongFile, ContentKind::Tree, ContentKind::Hello];
/// The content of servers with a file server, a configured response, HTTP/2 and TLS.
const PEER_CONTENT: &[ContentKind] = &[
    ContentKind::File,
    ContentKind::LongFile,
    ContentKind::Tree,
    ContentKind::Hello,
    ContentKind::SmallFileOverHttp2,
    ContentKind::SmallFileOverTls,
    ContentKind::FilesOverHttp2,
    ContentKind::FilesOverTls,
    ContentKind::Proxied,
];
const SELVEDGE_CONTENT: &[ContentKind] = &[
    ContentKind::File,
    ContentKind::LongFile,
    ContentKind::Tree,
    ContentKind::Hello,
    ContentKind::Library,
    ContentKind::SmallFileOverHttp2,
    ContentKind::SmallFileOverTls,
    ContentKind::FilesOverHttp2,
    ContentKind::FilesOverTls,
    ContentKind::Proxied,
];
const FILES_AND_APPLICATION: &[ContentKind] = &[
    ContentKind::File,
    ContentKind::LongFile,
    ContentKind::Tree,
    ContentKind::Hello,
    ContentKind::Library,
    ContentKind::Application,
];
const FILES: &[ContentKind] = &[ContentKind::File, ContentKind::LongFile, ContentKind::Tree];
const ONE_RESPONSE: &[ContentKind] = &[ContentKind::File, ContentKind::LongFile, ContentKind::Hello];

pub(super) const RING: &str = "io_uring";

/// All servers, in the order in which they are measured and reported.
pub(super) const SERVERS: &[ServerEntry] = &[
    ServerEntry {
        name: BASELINE,
        binary: ServerBinary::C("baseline/epoll.c"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: BASELINE_ARGUMENTS },
        http2: None,
        proxy: None,
        serves: ONE_RESPONSE,
        runs_under_callgrind: true,
        install: "apt-get install gcc",
    },
    ServerEntry {
        name: "baseline-tokio",
        binary: ServerBinary::Rust("baseline-tokio"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: BASELINE_ARGUMENTS },
        http2: None,
        proxy: None,
        serves: &[ContentKind::File, ContentKind::Hello],
        runs_under_callgrind: true,
        install: "cargo",
    },
    ServerEntry {
        name: SELVEDGE,
        binary: ServerBinary::Selvedge,
        driver: Some("auto"),
        version: &["--version"],
        start: StartCommand { config: None, arguments: SERVE_ARGUMENTS },
        http2: Some(SELVEDGE_WITH_HTTP2),
        proxy: Some(SELVEDGE_AS_PROXY),
        serves: SELVEDGE_CONTENT,
        runs_under_callgrind: false, // valgrind would measure the epoll entry: it has no io_uring
        install: "cargo",
    },
    ServerEntry {
        name: "selvedge-epoll",
        binary: ServerBinary::Selvedge,
        driver: Some("epoll"),
        version: &["--version"],
        start: StartCommand { config: None, arguments: SERVE_ARGUMENTS },
        http2: Some(SELVEDGE_WITH_HTTP2),
        proxy: Some(SELVEDGE_AS_PROXY),
        serves: SELVEDGE_CONTENT,
        runs_under_callgrind: true,
        install: "cargo",
    },
    ServerEntry {
        name: "selvedge-io_uring",
        binary: ServerBinary::Selvedge,
        driver: Some(RING),
        version: &["--version"],
        start: StartCommand { config: None, arguments: SERVE_ARGUMENTS },
        http2: Some(SELVEDGE_WITH_HTTP2),
        proxy: Some(SELVEDGE_AS_PROXY),
        serves: SELVEDGE_CONTENT,
        runs_under_callgrind: false, // valgrind has no io_uring
        install: "cargo",
    },
    ServerEntry {
        name: "nginx",
        binary: ServerBinary::Program("nginx"),
        driver: None,
        version: &["-v"],
        start: StartCommand { config: Some("nginx/nginx.conf"), arguments: NGINX_ARGUMENTS },
        http2: Some(StartCommand { config: Some("nginx/http2.conf"), arguments: NGINX_ARGUMENTS }),
        proxy: Some(StartCommand { config: Some("nginx/proxy.conf"), arguments: NGINX_ARGUMENTS }),
        serves: PEER_CONTENT,
        runs_under_callgrind: true,
        install: "apt-get install nginx-light",
    },
    ServerEntry {
        name: "h2o",
        binary: ServerBinary::Program("h2o"),
        driver: None,
        version: &["-v"],
        start: StartCommand { config: Some("h2o/h2o.conf"), arguments: H2O_ARGUMENTS },
        http2: Some(StartCommand { config: Some("h2o/http2.conf"), arguments: H2O_ARGUMENTS }),
        proxy: Some(StartCommand { config: Some("h2o/proxy.conf"), arguments: H2O_ARGUMENTS }),
        serves: PEER_CONTENT,
        runs_under_callgrind: true,
        install: "apt-get install h2o",
    },
    ServerEntry {
        name: "lighttpd",
        binary: ServerBinary::Program("lighttpd"),
        driver: None,
        version: &["-v"],
        start: StartCommand { config: Some("lighttpd/lighttpd.conf"), arguments: "-D -f @CONFIG@" },
        http2: None,
        proxy: None,
        serves: FILES,
        runs_under_callgrind: true,
        install: "apt-get install lighttpd",
    },
    ServerEntry {
        name: "apache",
        binary: ServerBinary::Program("apache2"),
        driver: None,
        version: &["-v"],
        start: StartCommand { config: Some("apache/apache.conf"), arguments: "-D FOREGROUND -f @CONFIG@" },
        http2: None,
        proxy: None,
        serves: FILES,
        runs_under_callgrind: false,
        install: "apt-get install apache2-bin",
    },
    ServerEntry {
        name: "caddy",
        binary: ServerBinary::Program("caddy"),
        driver: None,
        version: &["version"],
        start: StartCommand { config: Some("caddy/Caddyfile"), arguments: CADDY_ARGUMENTS },
        http2: Some(StartCommand { config: Some("caddy/http2.Caddyfile"), arguments: CADDY_ARGUMENTS }),
        proxy: Some(StartCommand { config: Some("caddy/proxy.Caddyfile"), arguments: CADDY_ARGUMENTS }),
        serves: PEER_CONTENT,
        runs_under_callgrind: false, // valgrind does not run Go programs
        install: "apt-get install caddy",
    },
    ServerEntry {
        name: "haproxy",
        binary: ServerBinary::Program("haproxy"),
        driver: None,
        version: &["-v"],
        start: StartCommand { config: Some("haproxy/haproxy.cfg"), arguments: HAPROXY_ARGUMENTS },
        http2: None,
        proxy: Some(StartCommand { config: Some("haproxy/proxy.cfg"), arguments: HAPROXY_ARGUMENTS }),
        serves: &[ContentKind::SmallFileOverHttp2, ContentKind::SmallFileOverTls, ContentKind::Proxied],
        runs_under_callgrind: true,
        install: "apt-get install haproxy",
    },
    ServerEntry {
        name: "warp",
        binary: ServerBinary::Haskell("warp/warp.hs"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @ROOT@ +RTS -N@WORKERS@ -A16m -RTS" },
        http2: None,
        proxy: None,
        serves: FILES_AND_HELLO,
        runs_under_callgrind: false, // its timer signal terminates it under valgrind
        install: "apt-get install ghc libghc-warp-dev",
    },
    ServerEntry {
        name: "hyper",
        binary: ServerBinary::Rust("peer-hyper"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: Some(StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@ @PORT_H2C@" }),
        proxy: None,
        serves: &[
            ContentKind::File,
            ContentKind::Hello,
            ContentKind::Library,
            ContentKind::SmallFileOverHttp2,
            ContentKind::FilesOverHttp2,
        ],
        runs_under_callgrind: true,
        install: "cargo",
    },
    ServerEntry {
        name: "axum-selvedge",
        binary: ServerBinary::Rust("peer-axum-selvedge"),
        driver: Some("auto"),
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: None,
        proxy: None,
        serves: &[ContentKind::Hello, ContentKind::Library, ContentKind::Application],
        runs_under_callgrind: false, // valgrind would measure the epoll entry: it has no io_uring
        install: "cargo",
    },
    ServerEntry {
        name: "axum-selvedge-epoll",
        binary: ServerBinary::Rust("peer-axum-selvedge"),
        driver: Some("epoll"),
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: None,
        proxy: None,
        serves: &[ContentKind::Hello, ContentKind::Library],
        runs_under_callgrind: true,
        install: "cargo",
    },
    ServerEntry {
        name: "axum-selvedge-io_uring",
        binary: ServerBinary::Rust("peer-axum-selvedge"),
        driver: Some(RING),
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: None,
        proxy: None,
        serves: &[ContentKind::Hello, ContentKind::Library],
        runs_under_callgrind: false, // valgrind has no io_uring
        install: "cargo",
    },
    ServerEntry {
        name: AXUM,
        binary: ServerBinary::Rust("peer-axum"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: None,
        proxy: None,
        serves: FILES_AND_APPLICATION,
        runs_under_callgrind: true,
        install: "cargo",
    },
    ServerEntry {
        name: "actix",
        binary: ServerBinary::Rust("peer-actix"),
        driver: None,
        version: &[],
        start: StartCommand { config: None, arguments: "@PORT@ @WORKERS@ @ROOT@" },
        http2: None,
        proxy: None,
        serves: FILES_AND_APPLICATION,
        runs_under_callgrind: true,
        install: "cargo",
    },
];
