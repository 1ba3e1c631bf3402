//! The settings in force as plain values. Defaults are resolved, and nothing refers to the text.

mod acme;
mod expectation;
mod gateway;
mod print;
mod print_site;
mod proxy;
mod remote_control;
mod statement;
mod traces;
mod upstream;

pub(crate) use acme::{Acme, Approval, Challenge, ExternalAccount, Program, has_automatic_certificate};
pub(crate) use expectation::Expectation;
pub(crate) use gateway::{CgiPrograms, Gateway, ScriptRunner, SendFile};
pub(crate) use print::quote;
pub(crate) use proxy::{FieldNames, ForwardedFields, ForwardedHost, Proxy};
pub(crate) use remote_control::RemoteControl;
pub(crate) use statement::Statement;
pub(crate) use traces::Traces;
pub(crate) use upstream::{
    Adaptive, Balance, Failures, HashKey, HealthCheck, ProxyProtocol, RequestLimit, Upstream, UpstreamLimits,
    UpstreamProtocol, UpstreamServer, UpstreamTimeouts, UpstreamTls,
};

use super::value::{Address, LogTarget};
use crate::syntax::{HostName, Network, Pattern, ResponseSelector, Template, TextPattern, TextTemplate, TryPath};
use selvedge::proto::http2::Http2Limits;
use std::path::PathBuf;
use std::time::Duration;

/// A whole configuration. It prints itself as a configuration that states every setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) process: Process,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) limits: ConfiguredLimits,
    pub(crate) logs: LogSettings,
    /// Files or folders with the secrets of session tickets. Empty: random keys.
    pub(crate) ticket_keys: Vec<PathBuf>,
    pub(crate) certificate_folder: PathBuf,
    /// `None`: no remote commands.
    pub(crate) remote_control: Option<RemoteControl>,
    /// Where metrics are read; `None` for no listener.
    pub(crate) metrics: Option<Listener>,
    /// `None`: no traces.
    pub(crate) traces: Option<Traces>,
    pub(crate) acme: Acme,
    /// Those that routes use.
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) sites: Vec<Site>,
    /// Those of the top level and of all sites.
    pub(crate) expectations: Vec<Expectation>,
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Switch {
    On,
    Off,
}

/// For what an encoded slash separates segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodedSlashRule {
    /// For nothing.
    Data,
    /// For files only.
    Files,
    /// For routes, files and proxies.
    Separator,
}

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enforcement {
    Enforce,
    /// Violations are counted and logged only.
    DryRun,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    /// File mode of a Unix socket; 0 for others.
    pub(crate) mode: u32,
    /// Whether it is `[::]` and IPv4 clients have a listener of their own.
    pub(crate) is_ipv6_only: bool,
    pub(crate) tls: Switch,
    /// Whether clients may begin with HTTP/2 without TLS.
    pub(crate) plain_http2: Switch,
    /// Whether connections begin with a header of the PROXY protocol.
    pub(crate) proxy_protocol: Switch,
}

/// How the process runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// `None`: one for each core that the process may use.
    pub(crate) workers: Option<usize>,
    pub(crate) driver: Driver,
    /// `None`: the user that started the process.
    pub(crate) user: Option<String>,
    /// `None`: the primary group of `user`.
    pub(crate) group: Option<String>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) control: PathBuf,
    pub(crate) supervision: Supervision,
}

/// The I/O back end of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Auto,
    Epoll,
    IoUring,
}

/// How the serving process is supervised.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Supervision {
    pub(crate) supervised: Switch,
    pub(crate) restarts_max: u64,
    pub(crate) restarts_within: Duration,
    pub(crate) back_off_min: Duration,
    pub(crate) back_off_max: Duration,
}

/// Proxies whose forwarding field is trusted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrustedProxies {
    pub(crate) networks: Vec<Network>,
    /// Whether every client of a Unix socket is a trusted proxy.
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

/// Limits on clients: the fields of [`selvedge::Limits`] and those of this program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfiguredLimits {
    pub(crate) request_line_bytes_max: usize,
    pub(crate) head_bytes_max: usize,
    pub(crate) fields_max: usize,
    pub(crate) chunk_extension_bytes_max: usize,
    pub(crate) chunk_overhead_allowance: u64,
    pub(crate) trailer_bytes_max: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) body_min_rate: u32,
    pub(crate) send_timeout: Duration,
    pub(crate) send_min_rate: u32,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) body_bytes_max: u64,
    pub(crate) discard_bytes_max: u64,
    /// `None`: derived from the descriptor limit.
    pub(crate) connections_max: Option<usize>,
    pub(crate) connections_per_client: Option<ClientConnectionLimit>,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) shutdown_notice: Duration,
    pub(crate) http2: Http2Limits,
    pub(crate) upstreams: UpstreamLimits,
}

/// A limit on the connections or requests of one address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientConnectionLimit {
    pub(crate) connections_max: usize,
    pub(crate) enforcement: Enforcement,
}

/// The logs of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogSettings {
    pub(crate) access: AccessLog,
    pub(crate) error: ErrorLog,
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccessLog {
    pub(crate) target: LogTarget,
    /// Name or directives of a format, which the log module parses.
    pub(crate) format: String,
    /// For a file.
    pub(crate) rotation: Option<Rotation>,
}

/// An error log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ErrorLog {
    pub(crate) target: LogTarget,
    pub(crate) level: Level,
    pub(crate) format: ErrorFormat,
    /// For a file.
    pub(crate) rotation: Option<Rotation>,
}

#[cfg(feature = "program")]
impl ErrorLog {
    /// Whether an event of this level is written to standard error.
    pub(crate) fn is_on_standard_error(&self, level: Level) -> bool {
        self.target == LogTarget::Stderr && level <= self.level
    }
}

/// Severity, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Format of an error line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ErrorFormat {
    Text,
    Json,
}

/// When a log file is rotated; at least one of size and age is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rotation {
    pub(crate) size_max: Option<u64>,
    pub(crate) age_max: Option<Duration>,
    pub(crate) files_max: usize,
    pub(crate) compress: Switch,
}

/// A site. No two sites share a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    /// At least one.
    pub(crate) names: Vec<HostName>,
    /// Where error pages are found; set if the site has any.
    pub(crate) files: Option<Files>,
    pub(crate) tls: SiteTls,
    /// `None`: the server's.
    pub(crate) access_log: Option<AccessLog>,
    /// `None`: the server's.
    pub(crate) error_log: Option<ErrorLog>,
    pub(crate) encoded_slash: EncodedSlashRule,
    /// The folders that links of its roots may lead to.
    pub(crate) link_targets: Vec<PathBuf>,
    /// Access rules for paths without a route, and for routes without their own.
    pub(crate) access: AccessSettings,
    pub(crate) response_settings: ResponseSettings,
    /// In order; the first match decides. If the site has a root, the last route serves its files.
    pub(crate) routes: Vec<Route>,
}

/// How a site uses TLS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteTls {
    pub(crate) certificates: Vec<CertificateFiles>,
    /// Whether the server gets certificates by itself; off if the site has `certificates`.
    pub(crate) automatic: Switch,
    /// What approves certificates for names that the configuration does not have.
    pub(crate) on_demand: Option<Approval>,
    pub(crate) client_certificates: Option<ClientCertificates>,
    /// Whether plain requests are redirected.
    pub(crate) https_redirect: Switch,
    pub(crate) hsts: Option<Hsts>,
}

/// The files of a certificate, which may be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CertificateFiles {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Which certificates clients need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientCertificates {
    pub(crate) mode: ClientCertificatesMode,
    /// The file with the authorities that sign them.
    pub(crate) authorities: PathBuf,
}

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientCertificatesMode {
    Required,
    Optional,
}

/// The field Strict-Transport-Security.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hsts {
    pub(crate) max_age: Duration,
    pub(crate) subdomains: Switch,
    pub(crate) preload: Switch,
}

/// Settings of every response. A route's header changes apply after its site's; its cache rules and error pages are
/// tried before its site's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResponseSettings {
    pub(crate) headers: Vec<HeaderChange>,
    pub(crate) content_types: Vec<ContentTypeRule>,
    pub(crate) cache_control: Vec<CacheControl>,
    pub(crate) error_pages: Vec<ErrorPage>,
    /// `None`: the site's.
    pub(crate) cors: Option<Cors>,
}

/// Which origins may use responses, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cors {
    /// Origins, or `*` alone.
    pub(crate) origins: Vec<TextPattern>,
    pub(crate) methods: String,
    pub(crate) headers: String,
    pub(crate) credentials: Switch,
    pub(crate) max_age: Duration,
}

impl Cors {
    /// Whether every origin is allowed.
    pub(crate) fn allows_any(&self) -> bool {
        self.origins.iter().any(|origin| origin.to_string() == "*")
    }
}

/// A change to the fields of a response. Names and values are valid, and none is set by the engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderChange {
    pub(crate) name: String,
    pub(crate) kind: HeaderChangeKind,
    /// The responses that it is for; `None` for all.
    pub(crate) only_for: Option<ResponseSelector>,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeaderChangeKind {
    Set(TextTemplate),
    Add(TextTemplate),
    Remove,
}

/// The media type of files of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContentTypeRule {
    pub(crate) pattern: Pattern,
    pub(crate) media_type: String,
}

/// A Cache-Control rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CacheControl {
    pub(crate) selector: ResponseSelector,
    pub(crate) value: String,
}

/// The page of an error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorPage {
    /// 400 to 599.
    pub(crate) status: u16,
    /// Path within the site, with a leading slash.
    pub(crate) path: String,
}

/// A route of a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// In metrics and in the flight recorder; `None` for the first pattern.
    pub(crate) name: Option<String>,
    /// At least one; any of them matches.
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) when: When,
    pub(crate) access: AccessSettings,
    pub(crate) body_limit: BodyLimit,
    pub(crate) compress: Switch,
    pub(crate) action: Action,
    pub(crate) response_settings: ResponseSettings,
    pub(crate) log: RouteLog,
}

/// The most bytes of request content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimit {
    pub(crate) bytes_max: u64,
    /// A lower limit in dry-run mode.
    pub(crate) dry_run_bytes_max: Option<u64>,
}

/// Which requests of a route have lines in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteLog {
    All,
    None,
    /// Those with a status from the first to the last one.
    Statuses(u16, u16),
}

/// Further conditions of a route: all have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct When {
    pub(crate) conditions: Vec<Condition>,
}

/// A condition on a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// One of these methods.
    Method(Vec<String>),
    Query(NamedCondition),
    Header(NamedCondition),
    Cookie(NamedCondition),
    /// One of these networks.
    Client(Vec<Network>),
    /// One of these hosts.
    Host(Vec<TextPattern>),
    Scheme(String),
    /// A verified certificate of the client, with one of these subjects unless the list is empty.
    ClientCertificate(Vec<TextPattern>),
    FileExists(PathBuf),
    /// The condition does not hold.
    Not(Box<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// All of these hold.
    All(Vec<Self>),
}

/// A name that has to be present, with one of these values unless the list is empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedCondition {
    pub(crate) name: String,
    pub(crate) values: Vec<TextPattern>,
}

/// Access rules; a route inherits its site's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccessSettings {
    pub(crate) ip_access: Option<IpAccess>,
    pub(crate) rate_limit: Option<RateLimit>,
    /// The limit on requests of one client that are in progress.
    pub(crate) requests_at_once: Option<ClientConnectionLimit>,
    pub(crate) basic_auth: Option<BasicAuth>,
    pub(crate) satisfy: Satisfy,
}

/// Which of the rules for networks and passwords a client has to satisfy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Satisfy {
    #[default]
    All,
    Any,
}

/// IP access rules. The first rule that contains the client decides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IpAccess {
    pub(crate) rules: Vec<IpRule>,
    /// Status code of the refusal.
    pub(crate) status: u16,
    /// Applies if no rule contains the client.
    pub(crate) default_access: ConfiguredAccess,
    pub(crate) enforcement: Enforcement,
}

/// A rule for some networks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IpRule {
    pub(crate) access: ConfiguredAccess,
    pub(crate) networks: Vec<Network>,
}

/// Whether a client has access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfiguredAccess {
    Allow,
    Deny,
}

/// A rate limit for each client address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateLimit {
    pub(crate) requests: u64,
    pub(crate) per: Duration,
    pub(crate) burst: u64,
    pub(crate) enforcement: Enforcement,
}

/// Basic authentication.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BasicAuth {
    pub(crate) realm: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) users: Vec<User>,
    /// The wrong passwords of one client within the time.
    pub(crate) wrong_max: u32,
    pub(crate) wrong_time: Duration,
    /// Whether more are refused.
    pub(crate) enforcement: Enforcement,
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
    Respond { status: u16, body: TextTemplate, content_type: String },
    Deny { status: u16, enforcement: Enforcement },
    Metrics,
    StatusPage { public: Switch },
    Proxy(Proxy),
    Gateway(Gateway),
}

/// How files are served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    /// Whether the path that the pattern names is taken off before the file is looked up.
    pub(crate) strip_prefix: Switch,
    /// At least one.
    pub(crate) index: Vec<String>,
    /// A path of the site that page navigations get in place of a 404.
    pub(crate) fallback: Option<String>,
    pub(crate) listing: Switch,
    pub(crate) precompressed: Switch,
    /// At least one. The capture of each is the path of the request.
    pub(crate) try_files: Vec<TryPath>,
    pub(crate) clean_urls: Switch,
    pub(crate) trailing_slash: TrailingSlash,
    /// The folders that links of the root may lead to.
    pub(crate) link_targets: Vec<PathBuf>,
}

/// Whether the paths of pages end in a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrailingSlash {
    Auto,
    Add,
    Remove,
}

impl TrailingSlash {
    /// Returns the word of the setting.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Add => "add",
            Self::Remove => "remove",
        }
    }
}

impl Route {
    /// Returns the name of the route in metrics and in the flight recorder.
    pub(crate) fn label(&self) -> String {
        let pattern = || self.patterns.first().map(ToString::to_string);
        self.name.clone().or_else(pattern).unwrap_or_default()
    }
}
