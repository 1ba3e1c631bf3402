//! `selvedge serve`: a configuration for one folder.

use crate::certificates::{CertificateFolder, folder_of_user};
use crate::cli::{AccessLogArg, CommonArgs, ConfigArgs, HeaderArg, RunArgs, ServeArgs, ServedNames, UserArg};
use crate::config::Configuration;
use crate::config::model::quote;
use crate::config::value::Address;
use crate::options_server::{self, Presentation};
use crate::process::ListenError;
use crate::site::Root;
use crate::site_urls::{open_in_browser, own_addresses};
use crate::syntax::{HostName, NameReach};
use crate::{log, process};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The configuration of `selvedge serve --domain`, beside the folder of certificates.
const CONFIGURATION: &str = "serve.kdl";
/// The name of the settings that the options stand for, in problems.
const OPTIONS: &str = "selvedge serve";
/// The index of a directory.
const INDEX: &str = "index.html";
/// The page for missing files that a directory may have.
const NOT_FOUND: &str = "404.html";

/// Serves a directory until a signal ends it.
pub(crate) fn serve(options: &ServeArgs) -> Result<(), String> {
    process::raise_descriptor_limit();
    let root = Root::open(&options.dir).map_err(|error| cannot_serve(options, &error))?;
    if !root.follows_links() {
        log::print_line("selvedge: this kernel has no openat2 (Linux 5.6), so symbolic links are not followed");
    }
    drop(root);
    let configuration = configuration_of_addresses(options)?;
    let shown = Presentation {
        subject: options.dir.display().to_string(),
        listen_hint: |error| listen_hint(error, "`--port 0` takes a free port"),
        started: &|urls| greet(options, urls),
    };
    options_server::run(configuration, options.common.driver, &shown)
}

/// Prints what a person may need next, and opens the browser.
fn greet(options: &ServeArgs, urls: &[String]) {
    for hint in hints(options) {
        log::print_line(&format!("hint: {} has no {hint}", options.dir.display()));
    }
    let url = urls.iter().find(|url| url.starts_with("http"));
    match url.filter(|_| options.open).map(|url| open_in_browser(url)) {
        Some(Err(problem)) => log::print_line(&format!("selvedge: {problem}")),
        None if options.open => log::print_line("hint: no browser opens a Unix socket"),
        _ => {}
    }
}

/// Returns the files that the options expect and the directory does not have, and what follows from that.
fn hints(options: &ServeArgs) -> Vec<String> {
    let has = |file: &str| options.dir.join(file.trim_start_matches('/')).exists();
    let mut hints = Vec::new();
    if !has(INDEX) && options.spa {
        hints.push(format!("{INDEX}, which `--spa` sends for missing pages"));
    } else if !has(INDEX) && !options.listing {
        hints.push(format!("{INDEX}, so its page is 404; `--listing` lists directories"));
    }
    let is_file = |page: &&str| options.dir.join(page.trim_start_matches('/')).is_file();
    if let Some(page) = options.not_found.as_deref().filter(|page| !is_file(page)) {
        hints.push(format!("file {page}, so missing files get the page of the server"));
    }
    hints
}

/// Explains why a directory cannot be served, and what may be meant.
fn cannot_serve(ServeArgs { dir, cors, .. }: &ServeArgs, error: &io::Error) -> String {
    let text = dir.to_str().unwrap_or_default();
    let hint = match dir.extension().and_then(|extension| extension.to_str()) {
        Some("kdl") => format!("; `selvedge run {text}` serves a configuration"),
        _ if text.trim_start_matches(':').parse::<u16>().is_ok() => {
            format!("; `--port {}` is a port", text.trim_start_matches(':'))
        }
        _ if text.contains("://") && cors.iter().any(|origin| origin == "*") => {
            format!("; an origin follows an equals sign: `--cors={text}`")
        }
        _ if text.contains("://") => format!("; `selvedge proxy --to {text}` forwards requests to a server"),
        _ => String::new(),
    };
    format!("cannot serve {}: {error}{hint}", dir.display())
}

/// Returns what to do if an address cannot be bound. `otherwise` is for a port that is in use.
pub(crate) fn listen_hint(error: &ListenError, otherwise: &str) -> String {
    let ListenError { address, why } = error;
    let hint = match address {
        Address::Inet(address) if why.contains("ermission denied") && address.port() < 1024 => {
            "a port below 1024 needs root or CAP_NET_BIND_SERVICE"
        }
        Address::Inet(_) | Address::Name { .. } if why.contains("in use") => otherwise,
        _ => return String::new(),
    };
    format!("; {hint}")
}

/// Writes the configuration of `selvedge serve --domain`, a site for public names, and returns what runs it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn configuration_of_domains(options: &ServeArgs) -> Result<RunArgs, String> {
    let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
    let text = configuration(options, &folder)?;
    let file = write_configuration(&folder, (CONFIGURATION, &text))?;
    let served = ServedNames { subject: options.dir.display().to_string(), names: options.domains.clone() };
    Ok(run_args(file, &options.common, served))
}

/// Returns what runs a configuration that a command has written.
pub(crate) fn run_args(file: PathBuf, options: &CommonArgs, served: ServedNames) -> RunArgs {
    let config = ConfigArgs { file: Some(file), config: None };
    RunArgs { config, driver: Some(options.driver), served: Some(served) }
}

/// Writes a configuration beside the folder of certificates, and returns its path.
pub(crate) fn write_configuration(folder: &Path, (name, text): (&str, &str)) -> Result<PathBuf, String> {
    let beside = folder.parent().unwrap_or(folder);
    let written = CertificateFolder::open(beside).and_then(|folder| folder.write(name, text));
    let file = beside.join(name);
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// Reads the configuration of a directory that is served at addresses.
fn configuration_of_addresses(options: &ServeArgs) -> Result<Configuration, String> {
    let mut text = String::new();
    let tls = if options.tls { "#true" } else { "#false" };
    let addresses = options.addresses()?;
    for address in &addresses {
        let address = match address.strip_prefix("unix:") {
            Some(path) => quote(&format!("unix:{}", absolute(Path::new(path))?)),
            None => quote(address),
        };
        let _ = writeln!(text, "listen {address} tls={tls}");
    }
    text += &common_settings(&options.common)?;
    let names = match options.tls {
        true => {
            let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
            let _ = writeln!(text, "certificate-folder {}", quoted_path(&folder)?);
            let names = names_with_certificates(&addresses).map(|name| quote(&name.to_string()));
            format!("{} \"*\"", names.collect::<Vec<_>>().join(" "))
        }
        false => "\"*\"".to_owned(),
    };
    text += &site(options, &names)?;
    options_server::read(OPTIONS, &text)
}

/// Returns the names and addresses by which clients of these listeners may reach this machine, as far as the own
/// authority certifies them.
fn names_with_certificates(addresses: &[String]) -> impl Iterator<Item = HostName> {
    let hosts = addresses.iter().filter_map(|address| address.rsplit_once(':').map(|(host, _)| host.to_owned()));
    let is_all = addresses.iter().any(|address| address.starts_with("0.0.0.0:") || address.starts_with("[::]:"));
    let own = if is_all { own_addresses() } else { Vec::new() };
    let own = own.into_iter().map(|ip| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
    let texts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into_iter().chain(hosts).chain(own);
    let mut names: Vec<HostName> = Vec::new();
    for text in texts.filter(|text| !matches!(&**text, "0.0.0.0" | "[::]")) {
        if let Ok(name) = text.parse::<HostName>()
            && name.reach() == NameReach::Internal
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names.into_iter()
}

fn configuration(options: &ServeArgs, folder: &Path) -> Result<String, String> {
    let mut text = head_of_names("serve", folder, options.acme_directory.as_deref())?;
    text += &common_settings(&options.common)?;
    text += &site(options, &quoted_names(&options.domains))?;
    Ok(text)
}

/// Returns the site of the options.
fn site(options: &ServeArgs, names: &str) -> Result<String, String> {
    let mut text = format!("site {names} {{\n    root {}\n", quoted_path(&options.dir)?);
    let mut line = |setting: String| {
        let _ = writeln!(text, "    {setting}");
    };
    let flags = [
        (options.listing, "listing #true"),
        (!options.no_compress, "compress #true"),
        (options.clean_urls, "clean-urls #true"),
        (options.domains.is_empty() && options.tls, "https-redirect #false"),
        (options.no_cache, "cache-control \"*\" \"no-cache\""),
        (options.spa, "route \"/*\" { files fallback=\"/index.html\"; }"),
    ];
    flags.iter().filter(|(is_on, _)| *is_on).for_each(|(_, setting)| line((*setting).to_owned()));
    if options.trailing_slash != "auto" {
        line(format!("trailing-slash {}", options.trailing_slash));
    }
    let headers = not_empty("--header", &options.headers)?;
    for (at, HeaderArg { name, value }) in headers.iter().enumerate() {
        // `header` replaces an earlier line with that name.
        let is_repeated = headers[..at].iter().any(|earlier| earlier.name.eq_ignore_ascii_case(name));
        let setting = if is_repeated { "header-add" } else { "header" };
        line(format!("{setting} {} {}", quote(name), quote(value)));
    }
    if !options.cors.is_empty() {
        let origins: Vec<String> = options.cors.iter().map(|origin| quote(origin)).collect();
        line(format!("cors {}", origins.join(" ")));
    }
    let users = not_empty("--auth", &options.users)?;
    if !users.is_empty() {
        let user = |UserArg { name, hash }: &UserArg| format!("user {} {}; ", quote(name), quote(hash));
        line(format!("basic-auth {{ {}}}", users.into_iter().map(user).collect::<String>()));
    }
    let has_page = || options.dir.join(NOT_FOUND).is_file();
    let not_found = options.not_found.as_deref().or_else(|| has_page().then_some(NOT_FOUND));
    if let Some(page) = not_found {
        line(format!("error-page 404 {}", quote(&format!("/{}", page.trim_start_matches('/')))));
    }
    text += "}\n";
    Ok(text)
}

/// Returns the values of an option without its empty lines.
///
/// # Errors
/// If it has nothing else: a password of an empty variable would protect nothing.
fn not_empty<'a, T>(option: &str, lines: &'a [Option<T>]) -> Result<Vec<&'a T>, String> {
    let values: Vec<&T> = lines.iter().flatten().collect();
    match values.is_empty() && !lines.is_empty() {
        true => Err(format!("`{option}` has no value")),
        false => Ok(values),
    }
}

/// Returns the start of a configuration for public names.
pub(crate) fn head_of_names(command: &str, folder: &Path, acme_directory: Option<&str>) -> Result<String, String> {
    let mut text = format!(
        "// Written by `selvedge {command}` at each start. To change it, copy it, and start `selvedge run`.\n\
         listen \"[::]:80\"\nlisten \"[::]:443\"\ncertificate-folder {}\n",
        quoted_path(folder)?
    );
    if let Some(directory) = acme_directory {
        let _ = writeln!(text, "acme {{\n    directory {}\n}}", quote(directory));
    }
    Ok(text)
}

/// Returns the settings of the options that commands without a configuration share.
pub(crate) fn common_settings(options: &CommonArgs) -> Result<String, String> {
    let mut text = String::new();
    if let Some(workers) = options.workers {
        let _ = writeln!(text, "workers {workers}");
    }
    let target = |file: &Option<PathBuf>, otherwise: &str| file.as_deref().map_or(Ok(quote(otherwise)), quoted_path);
    let access = match &options.log {
        AccessLogArg::Off => "access \"off\"".to_owned(),
        AccessLogArg::In(text) => {
            format!("access {} format={}", target(&options.access_log, "stdout")?, quote(text))
        }
    };
    let error = target(&options.error_log, "stderr")?;
    let _ = writeln!(text, "log {{\n    {access}\n    error {error} level=\"info\"\n}}");
    Ok(text)
}

/// Quotes names, separated by spaces.
pub(crate) fn quoted_names(names: &[HostName]) -> String {
    names.iter().map(|name| quote(&name.to_string())).collect::<Vec<_>>().join(" ")
}

/// Quotes a path, which is made absolute.
fn quoted_path(path: &Path) -> Result<String, String> {
    absolute(path).map(|path| quote(&path))
}

fn absolute(path: &Path) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|error| format!("cannot find {}: {error}", path.display()))?;
    path.into_os_string().into_string().map_err(|path| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::model::Switch;
    use crate::config::{self, Sources};
    use clap::Parser;

    struct Text(String);

    impl Sources for Text {
        fn text(&self, _: &Path) -> Result<String, String> {
            Ok(self.0.clone())
        }

        fn matching_files(&self, _: &Path, _: &str) -> Result<Vec<PathBuf>, String> {
            Ok(Vec::new())
        }

        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn read(arguments: &[&str]) -> Configuration {
        let parsed = Cli::try_parse_from(["selvedge", "serve"].iter().chain(arguments)).expect("they are valid");
        let Command::Serve(options) = parsed.command else { panic!("it is `serve`") };
        let text = configuration(&options, Path::new("/data/certificates")).expect("all paths are UTF-8");
        config::read(Path::new("/data/serve.kdl"), &Text(text.clone()))
            .unwrap_or_else(|problems| panic!("{text}{problems}"))
    }

    #[test]
    fn options_are_settings() {
        let settings = read(&["/a ${b} \"c", "--domain", "example.com", "--domain", "a.test", "--listing"]).settings;
        assert_eq!(
            settings.listeners.iter().map(|listener| listener.tls).collect::<Vec<_>>(),
            [Switch::Off, Switch::On]
        );
        assert_eq!(settings.sites[0].names.len(), 2);
        assert!(format!("{:?}", settings.sites[0]).contains(r#"/a ${b} \"c"#), "{:?}", settings.sites[0]);
        assert_eq!(settings.certificate_folder, Path::new("/data/certificates"));
        let directory = ["--acme-directory", "https://a.example/dir", "--workers", "3"];
        let log = ["--log", "%h \"%r\"", "--access-log", "/l/access", "--error-log", "/l/error"];
        let settings = read(&[&["/a", "--domain", "example.com"], &directory[..], &log].concat()).settings;
        assert_eq!((settings.acme.directories, settings.process.workers), (vec![directory[1].to_owned()], Some(3)));
        let logs = format!("{:?}", settings.logs);
        assert!(["/l/access", "/l/error", r#"%h \"%r\""#].iter().all(|part| logs.contains(part)), "{logs}");
        read(&["/a", "--domain", "example.com", "--log", "off"]);
    }

    #[test]
    fn empty_lines_of_headers_and_users_are_nothing_unless_all_are_empty() {
        let user = format!("alice:$2y$10${}", "a".repeat(53));
        let [headers, users] = ["X-A: one\r\n\r\nX-B: two\r\n".to_owned(), format!("{user}\n")];
        let lines = ["/a", "--domain", "example.com", "--header", &headers, "--auth", &users];
        let settings = format!("{:?}", read(&lines).settings.sites[0]);
        assert!(["one", "two", "alice"].iter().all(|part| settings.contains(part)), "{settings}");
        for (option, value) in [("--auth", ""), ("--auth", "\n"), ("--header", "\r\n")] {
            let arguments = ["selvedge", "serve", "--domain", "example.com", option, value];
            let Command::Serve(options) = Cli::try_parse_from(arguments).expect("its lines are read").command else {
                panic!("it is `serve`")
            };
            assert_eq!(configuration(&options, Path::new("/data")), Err(format!("`{option}` has no value")));
        }
    }

    #[test]
    fn other_names_and_options_are_refused() {
        for options in [
            &["--domain", "*.example.com"][..],
            &["--domain", "https://example.com/"],
            &["--domain", "a_b"],
            &["--not-found", ""],
            &["--domain", "example.com", "--tls"],
            &["--domain", "example.com", "--listen", "[::]:443"],
            &["--acme-directory", "https://a.example/dir"],
        ] {
            let parsed = Cli::try_parse_from(["selvedge", "serve"].iter().chain(options));
            assert!(parsed.is_err(), "{options:?}");
        }
    }
}
