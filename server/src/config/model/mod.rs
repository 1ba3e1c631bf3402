//! The settings in force, as plain values. Everything is resolved to its default; nothing
//! refers to the text it came from.

mod print;
mod print_site;

use super::value::{Address, HostPattern, LogTarget, Network, PathPattern, Template};
use std::path::PathBuf;
use std::time::Duration;

/// A whole configuration. Prints itself as a configuration that says all of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) process: Process,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) limits: Limits,
    pub(crate) logs: Logs,
    pub(crate) sites: Vec<Site>,
}

/// Something that is or is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Whether what is over a bound is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enforcement {
    Enforce,
    /// It is counted and logged only.
    Observe,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    /// The file mode of a Unix socket; 0 for others.
    pub(crate) mode: u32,
}

/// How the process runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// `None`: one for each core that the process may use.
    pub(crate) workers: Option<usize>,
    pub(crate) driver: Driver,
    /// `None`: stays who started it.
    pub(crate) user: Option<String>,
    /// `None`: the first group of `user`.
    pub(crate) group: Option<String>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) control: PathBuf,
    pub(crate) existing_connections: ExistingConnections,
    pub(crate) supervision: Supervision,
}

/// How sockets are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Auto,
    Epoll,
    IoUring,
}

/// What a reload means to connections that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExistingConnections {
    /// They end under the configuration they began with.
    Finish,
    /// They take the new one at their next request.
    Follow,
}

/// How the serving process is kept alive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Supervision {
    pub(crate) supervised: Switch,
    pub(crate) restarts_max: u64,
    pub(crate) restarts_within: Duration,
    pub(crate) back_off_min: Duration,
    pub(crate) back_off_max: Duration,
}

/// Whose word is taken for who the client is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrustedProxies {
    pub(crate) networks: Vec<Network>,
    /// Whether whoever connects to a Unix socket is one.
    pub(crate) unix: Switch,
    pub(crate) field: ForwardedField,
}

/// The field in which a proxy names the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardedField {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

/// Bounds on clients: the fields of [`selvedge::Limits`] and what this program adds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) request_line_bytes_max: usize,
    pub(crate) head_bytes_max: usize,
    pub(crate) fields_max: usize,
    pub(crate) chunk_extension_bytes_max: usize,
    pub(crate) chunk_overhead_bytes_free: u64,
    pub(crate) trailer_bytes_max: usize,
    pub(crate) head_time: Duration,
    pub(crate) body_silence: Duration,
    pub(crate) body_bytes_per_second_min: u32,
    pub(crate) send_silence: Duration,
    pub(crate) send_bytes_per_second_min: u32,
    pub(crate) keep_alive: Duration,
    pub(crate) body_bytes_max: u64,
    pub(crate) drain_bytes_max: u64,
    /// `None`: what the limit of descriptors allows.
    pub(crate) connections_max: Option<usize>,
    pub(crate) connections_per_client: Option<ClientConnections>,
    pub(crate) drain_time: Duration,
}

/// A bound on the connections of one address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientConnections {
    pub(crate) connections_max: usize,
    pub(crate) enforcement: Enforcement,
}

/// The logs of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Logs {
    pub(crate) access: AccessLog,
    pub(crate) error: ErrorLog,
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccessLog {
    pub(crate) target: LogTarget,
    /// The name of a format, or its directives, which the room of the log judges.
    pub(crate) format: String,
    /// Of a file.
    pub(crate) rotation: Option<Rotation>,
}

/// An error log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ErrorLog {
    pub(crate) target: LogTarget,
    pub(crate) level: Level,
    pub(crate) format: ErrorFormat,
    /// Of a file.
    pub(crate) rotation: Option<Rotation>,
}

/// How grave something is, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// How an error line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ErrorFormat {
    Text,
    Json,
}

/// When a log file is put aside; at least one of size and age is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rotation {
    pub(crate) size_max: Option<u64>,
    pub(crate) age_max: Option<Duration>,
    pub(crate) files_kept_max: usize,
    pub(crate) compress: Switch,
}

/// A site. Names of all sites differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    /// At least one.
    pub(crate) names: Vec<HostPattern>,
    /// Where error pages are looked for; set when there are any.
    pub(crate) files: Option<Files>,
    /// `None`: the server's.
    pub(crate) access_log: Option<AccessLog>,
    /// `None`: the server's.
    pub(crate) error_log: Option<ErrorLog>,
    /// What stands before paths that no route takes, and before routes that say nothing.
    pub(crate) gate: Gate,
    pub(crate) replies: Replies,
    /// In order; the first that matches decides. When the site has a root, the last one
    /// sends its files.
    pub(crate) routes: Vec<Route>,
}

/// What is done to every response. A route's come behind the site's headers and before the
/// site's rules of caching and error pages, of which the first that fits counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replies {
    pub(crate) headers: Vec<HeaderChange>,
    pub(crate) cache_control: Vec<CacheControl>,
    pub(crate) error_pages: Vec<ErrorPage>,
}

/// A change to the fields of a response. Names and values are valid, and none is the engine's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeaderChange {
    Set { name: String, value: String },
    Add { name: String, value: String },
    Remove { name: String },
}

/// Cache-Control for paths.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CacheControl {
    pub(crate) pattern: PathPattern,
    pub(crate) value: String,
}

/// What an error is shown as.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorPage {
    /// 400 to 599.
    pub(crate) status: u16,
    /// Of the site, with a leading slash.
    pub(crate) path: String,
}

/// What is done with some requests of a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// At least one; any of them.
    pub(crate) patterns: Vec<PathPattern>,
    pub(crate) when: When,
    pub(crate) gate: Gate,
    pub(crate) body_bytes_max: u64,
    pub(crate) action: Action,
    pub(crate) replies: Replies,
}

/// What else has to hold for a route to match: each of these that is not empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct When {
    /// Any of them.
    pub(crate) methods: Vec<String>,
    /// All of them.
    pub(crate) queries: Vec<Condition>,
    /// All of them.
    pub(crate) headers: Vec<Condition>,
    /// Any of them.
    pub(crate) clients: Vec<Network>,
}

/// A name that has to be there, with this value if there is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// Who may come in; the site's, where a route says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gate {
    pub(crate) clients: Option<ClientRules>,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) basic_auth: Option<BasicAuth>,
}

/// Which networks may come in. The first rule that names the client decides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientRules {
    pub(crate) rules: Vec<ClientRule>,
    /// What holds for a client that no rule names.
    pub(crate) otherwise: Verdict,
    pub(crate) enforcement: Enforcement,
}

/// What holds for some networks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientRule {
    pub(crate) verdict: Verdict,
    pub(crate) networks: Vec<Network>,
}

/// Whether somebody may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Deny,
}

/// A bound on the requests of one address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateLimit {
    pub(crate) requests: u64,
    pub(crate) per: Duration,
    pub(crate) burst: u64,
    pub(crate) enforcement: Enforcement,
}

/// Who has to say a password.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BasicAuth {
    pub(crate) realm: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) users: Vec<User>,
}

/// A user and the argon2 or bcrypt hash of the password.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) hash: String,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Files(Files),
    Redirect { target: Template, status: u16 },
    Rewrite { target: Template },
    Respond { status: u16, body: String, content_type: String },
    Deny { status: u16 },
}

/// How files are sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    /// At least one.
    pub(crate) index: Vec<String>,
    /// A path of the site that a navigation gets in place of a 404.
    pub(crate) fallback: Option<String>,
    pub(crate) listing: Switch,
    pub(crate) sidecars: Switch,
    /// At least one. The one capture of each is the path of the request.
    pub(crate) attempts: Vec<Template>,
}
