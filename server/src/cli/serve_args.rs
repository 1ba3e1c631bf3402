//! The options of `selvedge serve`, and the languages of their values.

use super::{CommonArgs, domain};
use crate::config::value::{check_listen, is_password_hash};
use crate::syntax::{HostName, ValueError};
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Serves the files of a directory.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Directory to serve
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Where to listen: `ADDRESS:PORT`, `PORT` of this machine, `:PORT` of all addresses, `ADDRESS` with the port of
    /// `--port`, or `unix:PATH`. Repeat it for several [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = listen, value_delimiter = ' ')]
    pub(crate) listen: Vec<ListenArg>,

    /// Port to listen on; port 0 takes a free port [default: 8080]
    #[arg(short, long)]
    pub(crate) port: Option<u16>,

    /// Serve https for this name at ports 80 and 443, with a certificate from Let's Encrypt; by using it you accept its
    /// terms. Repeat it for further names
    #[arg(long = "domain", value_name = "NAME", conflicts_with_all = ["listen", "port", "tls", "open"], value_parser = domain, value_delimiter = ' ')]
    pub(crate) domains: Vec<HostName>,

    /// Directory of another certificate authority for `--domain`
    #[arg(long, value_name = "URL", requires = "domains")]
    pub(crate) acme_directory: Option<String>,

    /// Use TLS, with certificates of the own authority (`selvedge trust` lets this machine trust it)
    #[arg(long)]
    pub(crate) tls: bool,

    /// List directories that have no index.html
    #[arg(long)]
    pub(crate) listing: bool,

    /// Serve a single-page application: page navigations to missing files get index.html
    #[arg(long)]
    pub(crate) spa: bool,

    /// Page of the directory for missing files [default: 404.html if the directory has it]
    #[arg(long, value_name = "FILE", value_parser = page)]
    pub(crate) not_found: Option<String>,

    /// Serve about.html at /about, and redirect /about.html to it
    #[arg(long)]
    pub(crate) clean_urls: bool,

    /// Whether the paths of pages end in a slash
    #[arg(long, value_name = "WORD", value_parser = ["auto", "add", "remove"], default_value = "auto")]
    pub(crate) trailing_slash: String,

    /// Field of every response, as in 'X-Frame-Options: DENY'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header_line, value_delimiter = '\n')]
    pub(crate) headers: Vec<Option<HeaderArg>>,

    /// Let pages of this origin use the responses; without a value, of every origin. May be repeated
    #[arg(long, value_name = "ORIGIN", num_args = 0..=1, require_equals = true, default_missing_value = "*", value_parser = origin, value_delimiter = ' ')]
    pub(crate) cors: Vec<String>,

    /// Require a password; `selvedge hash-password --name USER` prints such a value. May be repeated
    #[arg(long = "auth", value_name = "USER:HASH", value_parser = user_line, value_delimiter = '\n')]
    pub(crate) users: Vec<Option<UserArg>>,

    /// Let browsers check each time whether a file has changed (Cache-Control: no-cache)
    #[arg(long)]
    pub(crate) no_cache: bool,

    /// Do not compress responses; files such as `style.css.br` are sent in any case
    #[arg(long)]
    pub(crate) no_compress: bool,

    /// Open the first address in the browser
    #[arg(long)]
    pub(crate) open: bool,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The port without `--port` and without one in `--listen`.
const PORT: u16 = 8080;

impl ServeArgs {
    /// Returns the addresses to listen on, as `listen` of a configuration has them.
    ///
    /// # Errors
    /// If `--port` has no address that needs it.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, String> {
        let port = self.port.unwrap_or(PORT);
        if self.listen.is_empty() {
            return Ok(vec![format!("127.0.0.1:{port}")]);
        }
        let needs_port = |listen: &&ListenArg| matches!(listen, ListenArg::Host(_));
        if let (Some(port), None) = (self.port, self.listen.iter().find(needs_port))
            && !is_of_variable(port)
        {
            return Err(format!("no `--listen` needs a port, so `--port {port}` has no effect: use one of them"));
        }
        let address = |listen: &ListenArg| match listen {
            ListenArg::Whole(address) => address.clone(),
            ListenArg::Host(host) => format!("{host}:{port}"),
        };
        Ok(self.listen.iter().map(address).collect())
    }
}

/// Whether a port is that of the environment, which `--listen` overrides.
fn is_of_variable(port: u16) -> bool {
    std::env::var("SELVEDGE_SERVE_PORT").is_ok_and(|text| text.parse() == Ok(port))
}

/// A value of `--listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenArg {
    /// An address as `listen` of a configuration has it.
    Whole(String),
    /// A host without a port.
    Host(String),
}

/// A field for responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderArg {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A user who may enter.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UserArg {
    pub(crate) name: String,
    pub(crate) hash: String,
}

impl std::fmt::Debug for UserArg {
    /// Leaves out the hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserArg({})", self.name)
    }
}

/// Completes a port without an address: `8080` of this machine, `:8080` of all addresses.
pub(super) fn address_of_port(text: &str) -> Option<String> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    let port: u16 = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    Some(match text.starts_with(':') {
        // A kernel without IPv6 has no such file, and cannot bind `[::]`.
        true if Path::new("/proc/net/if_inet6").exists() => format!("[::]:{port}"),
        true => format!("0.0.0.0:{port}"),
        false => format!("127.0.0.1:{port}"),
    })
}

/// Reads an origin. The variable of an option without a value is `true`.
fn origin(text: &str) -> Result<String, String> {
    match text {
        "true" => Ok("*".to_owned()),
        "" => Err("the origin is missing; `--cors` alone is for pages of every origin".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads the page for missing files.
fn page(text: &str) -> Result<String, String> {
    let is_hidden = |name: &str| name.starts_with('.') && !matches!(name, "." | ".." | ".well-known");
    match text.trim_matches('/') {
        "" => Err("the file is missing".to_owned()),
        path if path.split('/').any(is_hidden) => Err("names that begin with a dot are never sent".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn listen(text: &str) -> Result<ListenArg, String> {
    if text == "unix:" {
        return Err("`unix:` is followed by the path of the socket".to_owned());
    }
    if let Some(address) = address_of_port(text) {
        return Ok(ListenArg::Whole(address));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let address = rest.trim_end_matches('/');
        let secure = if text.starts_with("https") { ", and `--tls` for https" } else { "" };
        return Err(format!("a URL where an address is expected; write `--listen {address}`{secure}"));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(ListenArg::Host(if address.is_ipv6() { format!("[{address}]") } else { address.to_string() }));
    }
    let is_host = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if is_host && !text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(ListenArg::Host(text.to_owned()));
    }
    let text =
        text.strip_prefix("*:").map_or_else(|| Some(text.to_owned()), |port| address_of_port(&format!(":{port}")));
    let text = text.ok_or("this is not a port")?;
    match check_listen(&text) {
        Ok(()) => Ok(ListenArg::Whole(text)),
        Err(ValueError { message, suggestion }) => Err(format!("{message}; {suggestion}")),
    }
}

/// Reads a line of `--header`; `None` for an empty one, such as that after the last line end.
fn header_line(line: &str) -> Result<Option<HeaderArg>, String> {
    not_empty(line).map(header).transpose()
}

/// Reads a line of `--auth`; `None` for an empty one.
fn user_line(line: &str) -> Result<Option<UserArg>, String> {
    not_empty(line).map(user).transpose()
}

fn not_empty(line: &str) -> Option<&str> {
    Some(line.trim()).filter(|line| !line.is_empty())
}

fn header(text: &str) -> Result<HeaderArg, String> {
    let Some((name, value)) = text.split_once(':') else {
        let name = text.split(['=', ' ']).next().unwrap_or_default();
        return Err(format!("a field has a colon after its name, as in '{name}: VALUE'"));
    };
    Ok(HeaderArg { name: name.trim().to_owned(), value: value.trim().to_owned() })
}

fn user(text: &str) -> Result<UserArg, String> {
    match text.split_once(':') {
        Some((name, hash)) if !name.is_empty() && is_password_hash(hash) => {
            Ok(UserArg { name: name.to_owned(), hash: hash.to_owned() })
        }
        // The value may be a password, so the message does not repeat it.
        _ => {
            Err("expected a user, a colon and the hash of the password; `selvedge hash-password --name USER` prints it"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_options_has_each_option_and_its_variable() {
        let page = include_str!("../../../docs/serve.md");
        let command = crate::cli::command();
        let serve = command.find_subcommand("serve").expect("it is a command");
        for option in serve.get_arguments().filter_map(|arg| arg.get_long().map(|long| (long, arg.get_env()))) {
            let (long, variable) = option;
            assert!(page.contains(&format!("`--{long}")) || page.contains(&format!("--{long} ")), "{long}");
            let expected = format!("SELVEDGE_SERVE_{}", long.replace('-', "_").to_uppercase());
            let is_set = variable.is_some_and(|variable| variable == expected.as_str());
            assert!(is_set || matches!(long, "driver" | "help"), "{long}: {variable:?}");
        }
    }

    #[test]
    fn an_address_may_lack_its_host_or_its_port() {
        let whole = |text: &str| Ok(ListenArg::Whole(text.to_owned()));
        let host = |text: &str| Ok(ListenArg::Host(text.to_owned()));
        assert_eq!(listen("8080"), whole("127.0.0.1:8080"));
        let all = listen(":80").unwrap();
        assert!(all == ListenArg::Whole("[::]:80".into()) || all == ListenArg::Whole("0.0.0.0:80".into()), "{all:?}");
        assert_eq!(listen("*:80").unwrap(), all);
        assert_eq!(listen("0.0.0.0"), host("0.0.0.0"));
        assert_eq!((listen("::1"), listen("[::1]")), (host("[::1]"), host("[::1]")));
        assert_eq!(listen("localhost"), host("localhost"));
        for text in ["localhost:80", "[::1]:0", "unix:/run/site.sock", "fd:3"] {
            assert_eq!(listen(text), whole(text));
        }
    }

    #[test]
    fn problems_of_wrong_values_name_the_right_ones() {
        for (wrong, expected) in [
            ("http://localhost:80/", "write `--listen localhost:80`"),
            ("https://localhost:443", "write `--listen localhost:443`, and `--tls` for https"),
            ("/run/site.sock", "write \"unix:/run/site.sock\""),
            ("99999", "is not"),
            ("a:b", "is not an address"),
            ("*:b", "not a port"),
            ("unix:", "followed by the path"),
        ] {
            let problem = listen(wrong).unwrap_err();
            assert!(problem.contains(expected), "{wrong}: {problem}");
        }
        assert!(header("X-Frame-Options=DENY").unwrap_err().contains("'X-Frame-Options: VALUE'"));
        assert_eq!(header("A: b:c").unwrap(), HeaderArg { name: "A".into(), value: "b:c".into() });
        assert_eq!((origin("true"), origin("https://a")), (Ok("*".to_owned()), Ok("https://a".to_owned())));
        assert!(origin("").is_err() && page("/").is_err() && page("a/.env").is_err());
        assert_eq!(page("/.well-known/404.html"), Ok("/.well-known/404.html".to_owned()));
        let problem = user("alice:secret").unwrap_err();
        assert!(problem.contains("hash-password") && !problem.contains("secret"), "{problem}");
        assert_eq!(user("alice:$2y$10$abc").unwrap().hash, "$2y$10$abc");
        assert!(header_line("X-Frame-Options=DENY\r").unwrap_err().contains("'X-Frame-Options: VALUE'"));
        assert_eq!(header_line("A: b\r").unwrap(), Some(HeaderArg { name: "A".into(), value: "b".into() }));
        assert_eq!(user_line("alice:$2y$10$abc\r").unwrap().unwrap().hash, "$2y$10$abc");
        assert_eq!((header_line("\r"), user_line("")), (Ok(None), Ok(None)));
    }
}
