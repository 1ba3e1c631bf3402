//! The command line.

mod foreign_flags;
mod selftest_args;
mod serve_args;

pub(crate) use foreign_flags::with_tips;
pub(crate) use selftest_args::SelftestArgs;
pub(crate) use serve_args::{HeaderArg, ServeArgs, UserArg};

use crate::config::value::{check_forwarded_host, check_server};
use crate::log::Format;
use crate::recorder::{StatusRange, request_id};
use crate::syntax::{HostName, NameReach, Network, ValueError};
use clap::builder::BoolishValueParser;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use selvedge::Driver;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The colours of help and errors, on a terminal that has colours and without NO_COLOR.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const SERVE_HELP: &str = "An environment variable can set each option, such as SELVEDGE_SERVE_CLEAN_URLS=true. \
    TERM stops gracefully, INT immediately.";
/// The start of the variables of `selvedge serve`.
const SERVE_VARIABLES: &str = "SELVEDGE_SERVE_";
const PROXY_HELP: &str = "An environment variable can set each option, such as SELVEDGE_PROXY_TO=localhost:9000. \
    TERM stops gracefully, INT immediately.";

/// A web server: strict, safe, clear, fast, and calm under load.
#[derive(Debug, Parser)]
#[command(name = "selvedge", version, about, max_term_width = 100, styles = STYLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory
    Serve(ServeArgs),
    /// Forward requests to an application
    Proxy(ProxyArgs),
    /// Serve the sites of a configuration
    Run(RunArgs),
    /// Check a configuration, or print the settings in force
    Check(CheckArgs),
    /// Explain what the server does with a request, without sending it
    Explain(ExplainArgs),
    /// Format configuration files
    Fmt(FmtArgs),
    /// List all settings with their defaults
    Settings(SettingsArgs),
    /// Reload the configuration of a running server
    Reload(ControlArgs),
    /// Stop a running server gracefully, and wait until it has ended
    Stop(ControlArgs),
    /// Upgrade a running server to the current binary without refusing a connection
    Upgrade(ControlArgs),
    /// Reopen the log files of a running server
    ReopenLogs(ControlArgs),
    /// Show the status of a running server
    Status(StatusArgs),
    /// Show the last requests of a running server, or of a dump
    Last(LastArgs),
    /// Show the certificates that a running server gets by itself
    Certificates(StatusArgs),
    /// Send small attacks to one's own server, and report which limit held
    Selftest(SelftestArgs),
    /// Let this machine and its browsers trust the server's own authority
    Trust(TrustArgs),
    /// Undo `selvedge trust`
    Untrust(TrustArgs),
    /// Make a password hash for `basic-auth`
    HashPassword(HashPasswordArgs),
    /// Print the completions of the command line for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands
    ManualPages(ManualPagesArgs),
}

/// Returns the command line. An environment variable can set each option of a command without a configuration.
pub(crate) fn command() -> clap::Command {
    command_without_variables_of(&[])
}

/// Returns the command line that reads these arguments. They override the variables of `serve` that exclude them.
pub(crate) fn command_for(arguments: &[OsString]) -> clap::Command {
    let has = |options: &[&str]| {
        let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
        texts.any(|text| options.contains(&text.split('=').next().unwrap_or(text)))
    };
    if has(&["--domain"]) {
        command_without_variables_of(&["listen", "port", "tls", "open"])
    } else if has(&["--listen", "--port", "-p", "--tls", "--open"]) {
        command_without_variables_of(&["domain", "acme-directory"])
    } else {
        command()
    }
}

fn command_without_variables_of(options: &'static [&'static str]) -> clap::Command {
    let with_variables = |prefix: &'static str| {
        move |arg: clap::Arg| {
            // An argument without a dash has the name of its field, such as `dir`.
            let name = arg.get_long().unwrap_or_else(|| arg.get_id().as_str());
            let variable = format!("{prefix}{}", name.replace('-', "_").to_ascii_uppercase());
            // The engine reads the variable of the driver, for all commands.
            if name == "driver" || (prefix == SERVE_VARIABLES && options.contains(&name)) {
                return arg;
            }
            let arg = arg.env(variable).hide_env(true);
            match arg.get_action() {
                ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
                _ => arg,
            }
        }
    };
    Cli::command()
        .mut_subcommand("serve", |serve| serve.mut_args(with_variables(SERVE_VARIABLES)).after_help(SERVE_HELP))
        .mut_subcommand("proxy", |proxy| proxy.mut_args(with_variables("SELVEDGE_PROXY_")).after_help(PROXY_HELP))
}

/// Prints a script that completes commands and options. For bash: `selvedge completions bash >
/// /etc/bash_completion.d/selvedge`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: CompletedShell,
}

/// A shell that can complete a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// Writes a page for each command: selvedge.1, selvedge-serve.1 and so on.
#[derive(Debug, Args)]
pub(crate) struct ManualPagesArgs {
    /// Folder to write to, such as /usr/local/share/man/man1
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// Reads a password, from the terminal twice or from standard input once, and prints its argon2id hash.
#[derive(Debug, Args)]
pub(crate) struct HashPasswordArgs {
    /// Print a line of an htpasswd file for this user
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Serves the sites of a configuration, in the foreground and supervised. HUP reloads the configuration, USR1 reopens
/// the log files, USR2 upgrades to the current binary. TERM stops gracefully, INT immediately.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Socket I/O back end: auto, epoll or io_uring [default: the setting `driver`]
    #[arg(long, value_name = "NAME", value_parser = driver)]
    pub(crate) driver: Option<Driver>,

    // What another command, which has written the configuration, reports as served.
    #[arg(skip)]
    pub(crate) served: Option<ServedNames>,
}

/// What is served, in the lines that report readiness.
#[derive(Clone, Debug)]
pub(crate) struct ServedNames {
    /// The directory or the servers.
    pub(crate) subject: String,
    pub(crate) names: Vec<HostName>,
}

/// Reports every problem of a configuration and of what it requires on this machine. Changes nothing. Exits with code
/// 1 if it reports a problem.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Print all settings in force, and the most memory that they allow the server to use
    #[arg(long)]
    pub(crate) effective: bool,

    /// Print the problems and warnings as JSON, for editors and CI
    #[arg(long, conflicts_with = "effective")]
    pub(crate) json: bool,

    /// Print how the configuration differs from that of the running server
    #[arg(long, conflicts_with_all = ["effective", "json"])]
    pub(crate) diff: bool,

    /// Control socket of the running server [default: the setting `control`]
    #[arg(long, value_name = "PATH", requires = "diff")]
    pub(crate) control: Option<PathBuf>,
}

/// Runs the request through the code that serves, and prints each step that decides its response, with the file and line of
/// the setting. Nothing is sent to a server or script, counted or logged. Without `--running`, the configuration is that
/// of the file. With `--request`, `--config` names the file.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// URL of the request, with its scheme and host
    #[arg(value_name = "URL", required_unless_present = "request")]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Field of the request; repeat it for more. A Host replaces that of the URL
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    pub(crate) fields: Vec<(String, String)>,

    /// Method of the request [default: GET]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Address of the client [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub(crate) client: Option<IpAddr>,

    /// Take method, host, path and client from this request of `selvedge last`, such as 0-4711, instead of a URL
    #[arg(long, value_name = "ID", value_parser = request_id, conflicts_with = "url")]
    pub(crate) request: Option<(usize, u64)>,

    /// Read the request from a dump of the flight recorder instead of the running server
    #[arg(long, value_name = "PATH", requires = "request", conflicts_with = "url")]
    pub(crate) dump: Option<PathBuf>,

    /// Server name of the TLS handshake [default: the host of the URL]
    #[arg(long = "tls", value_name = "NAME")]
    pub(crate) server_name: Option<String>,

    /// Subject of a certificate of the client, such as "CN=alice", whose issuer the server trusts [default: no certificate]
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) client_certificate: Option<String>,

    /// Explain by the configuration of the running server, whose control socket the file names
    #[arg(long)]
    pub(crate) running: bool,

    /// Control socket of the running server
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Names a configuration. If none is named, it is that of the environment variable SELVEDGE_CONFIG, or the first that
/// exists of ./selvedge.kdl and /etc/selvedge/selvedge.kdl.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: SELVEDGE_CONFIG, ./selvedge.kdl or /etc/selvedge/selvedge.kdl]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    /// Configuration file, as FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Formats configuration files: indentation, blanks and empty lines. Comments and values stay as they are.
#[derive(Debug, Args)]
pub(crate) struct FmtArgs {
    /// Files to format, or `-` for standard input [default: the configuration]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Change nothing, and exit with code 1 if a file is not formatted
    #[arg(long)]
    pub(crate) check: bool,
}

/// Sends a command to a running server and waits for the result. Exits with code 1 if the command is refused.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The configuration of the server names its control socket.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Control socket [default: the setting `control`]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// Shows a state of a running server.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows the last requests, the newest one first: of a running server, which keeps 65,536 for each worker, or of a dump. All
/// conditions have to hold.
#[derive(Debug, Args)]
pub(crate) struct LastArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// Read a dump instead, which the server has written to the folder of its control socket
    #[arg(long, value_name = "PATH")]
    pub(crate) dump: Option<PathBuf>,

    /// Most requests to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) count: u16,

    /// Only with a status: a code (404), a class (5xx) or a range (400-599)
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<StatusRange>,

    /// Only those that took at least this time from the complete head to the complete response: 1s, 250ms or 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) slower: Option<Duration>,

    /// Only of clients with this address or in this network
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) client: Option<Network>,

    /// Only of the site with this first name
    #[arg(long, value_name = "NAME")]
    pub(crate) site: Option<String>,

    /// Only of routes with this name, or with this first pattern
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<String>,

    /// Only with this text in the reason of the error log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Only those that a rule in dry-run mode would have refused
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print JSON, one request on a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Changes the stores of the system, for which it has to run as root, and of the browsers of this user. The authority is
/// that of `certificate-folder` in the configuration; it signs for names of local networks only.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Prints the table of all settings.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,

    /// Print the page docs/configuration.md
    #[arg(long)]
    pub(crate) markdown: bool,

    /// Print a KDL schema of the configuration, for editors
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub(crate) schema: bool,
}

/// Forwards requests to an application. TERM stops gracefully, INT immediately.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Address and port to listen on (`:8080` for all addresses), or a public name: https at ports 80 and 443, with a
    /// certificate from Let's Encrypt, whose terms you accept by it. A name may be repeated
    #[arg(long, visible_alias = "listen", value_name = "ADDR|NAME", default_value = "127.0.0.1:8080", value_parser = from)]
    pub(crate) from: Vec<ProxyFrom>,

    /// Server to forward to: `localhost:9000`, `:9000`, `https://app.internal` or `unix:/run/app.sock`. Repeat it for
    /// several servers, which share the requests
    #[arg(long, value_name = "URL", required = true, value_parser = to)]
    pub(crate) to: Vec<String>,

    /// Host that the servers get: `keep` for that of the client, `upstream` for that of the URL, or a host
    #[arg(long, value_name = "HOST", default_value = "keep", value_parser = forwarded_host)]
    pub(crate) host: String,

    /// Directory of another certificate authority for names
    #[arg(long, value_name = "URL")]
    pub(crate) acme_directory: Option<String>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Where `selvedge proxy` listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFrom {
    /// An address and port.
    Address(String),
    /// A public name.
    Name(HostName),
}

/// Options of the commands that serve without a configuration.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Number of worker threads [default: one for each core that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Socket I/O back end: `epoll`, `io_uring` (Linux 6.1 or later), or `auto` (both; io_uring for busy keep-alive
    /// connections)
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = driver)]
    pub(crate) driver: Driver,

    /// Format of the access log: common, combined, json, off, or Apache's directives, as in '%h %t "%r" %>s %D'
    #[arg(long, value_name = "FORMAT", default_value = "combined", value_parser = access_log)]
    pub(crate) log: AccessLogArg,

    /// File of the access log [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// File of the error log [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) error_log: Option<PathBuf>,
}

/// What the access log is to be.
#[derive(Clone, Debug)]
pub(crate) enum AccessLogArg {
    /// A line for each request.
    In(String),
    /// None.
    Off,
}

/// Reads a time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let invalid = || "expected a time such as 1s, 250ms or 2m".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
    let number: u32 = text[..end].parse().map_err(|_| invalid())?;
    let unit = match &text[end..] {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        _ => return Err(invalid()),
    };
    Ok(unit * number)
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|ValueError { message, .. }| message)
}

fn driver(text: &str) -> Result<Driver, String> {
    match text {
        "auto" => Ok(Driver::Auto),
        "epoll" => Ok(Driver::Epoll),
        "io_uring" => Ok(Driver::IoUring),
        _ => Err("expected auto, epoll or io_uring".to_owned()),
    }
}

fn access_log(text: &str) -> Result<AccessLogArg, String> {
    match text {
        "off" => Ok(AccessLogArg::Off),
        _ => match Format::read(text) {
            Ok(_) => Ok(AccessLogArg::In(text.to_owned())),
            Err(problem) => Err(format!("{problem}; `off` writes none")),
        },
    }
}

/// Reads a field as `curl -H` does.
fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
        _ => Err("expected a name, a colon and a value".to_owned()),
    }
}

fn domain(text: &str) -> Result<HostName, String> {
    let name: HostName = text.parse().map_err(|ValueError { message, .. }| message)?;
    match name.reach() {
        NameReach::Public | NameReach::Internal => Ok(name),
        NameReach::Unknown if matches!(name, HostName::Exact(_)) => {
            Err("no certificate can have this name: it needs a dot, and `_` is not allowed".to_owned())
        }
        NameReach::PublicWildcard | NameReach::Unknown => {
            Err("a wildcard needs a configuration, see docs/https.md".to_owned())
        }
    }
}

/// Reads where to listen. A text without a port is a name, as in `--from example.com`.
fn from(text: &str) -> Result<ProxyFrom, String> {
    if let Some(address) = serve_args::address_of_port(text) {
        return Ok(ProxyFrom::Address(address));
    }
    match text.contains(':') {
        true => Ok(ProxyFrom::Address(text.to_owned())),
        false => domain(text).map(ProxyFrom::Name),
    }
}

/// Reads the URL of a server. A port alone is one of this machine.
fn to(text: &str) -> Result<String, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let text = match port.parse::<u16>() {
        Ok(port) => format!("localhost:{port}"),
        Err(_) => without_slash(text).to_owned(),
    };
    check_no_path(&text)?;
    match check_server(&text) {
        Ok(()) => Ok(text),
        Err(ValueError { message, suggestion }) => Err(format!("{message}; {suggestion}")),
    }
}

/// Returns a URL without the slash that browsers and other programs write at its end. The whole path of a request is
/// forwarded, so it means nothing.
fn without_slash(url: &str) -> &str {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let is_root = host.len() > 1 && host.find('/') == Some(host.len() - 1) && !host.starts_with("unix:");
    url.strip_suffix('/').filter(|_| is_root).unwrap_or(url)
}

/// Checks that a URL has no path, for which the command has no option.
fn check_no_path(url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let Some((host, path)) = rest.split_once('/').filter(|(host, _)| !host.is_empty() && !url.starts_with("unix"))
    else {
        return Ok(());
    };
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    let path = if path.is_empty() { "/*".to_owned() } else { format!("/{path}/*") };
    Err(format!(
        "the address of a server has no path; another path needs a configuration: \
         route \"/*\" {{ proxy \"{scheme}://{host}\" {{ path \"{path}\"; }}; }}"
    ))
}

fn forwarded_host(text: &str) -> Result<String, String> {
    check_forwarded_host(text).map_err(|ValueError { message, suggestion }| format!("{message}; {suggestion}"))
}
