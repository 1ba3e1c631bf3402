//! `selvedge serve`, from top to bottom.

use crate::certificates::{AcmeSettings, AutomaticCertificates, CertificateFolder, folder_of_user};
use crate::cli::{AccessLogArg, CommonArgs, ConfigArgs, RunArgs, ServeArgs};
use crate::config::model::quote;
use crate::log::config::{AccessLogConfig, Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig};
use crate::log::{self, LogObserver, Logs};
use crate::process;
use crate::site::{CleanUrls, Listing, PageAddresses, Root, RouteTable, SiteRules, SiteService, TrailingSlash};
use crate::syntax::{HostName, NameReach};
use selvedge::tls::{Tls, TlsHost};
use selvedge::{Limits, Server};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// The configuration of `selvedge serve --domain`, beside the folder of certificates.
const CONFIGURATION: &str = "serve.kdl";

/// Serves a directory until a signal ends it.
pub(crate) fn serve(options: &ServeArgs) -> Result<(), String> {
    process::raise_descriptor_limit();
    let root = Root::open(&options.dir).map_err(|error| format!("cannot serve {}: {error}", options.dir.display()))?;
    if !root.follows_links() {
        log::print_line("selvedge: this kernel has no openat2 (Linux 5.6), so symbolic links are not followed");
    }
    let workers = match options.common.workers {
        Some(workers) => usize::from(workers),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let limits = Limits::default();
    let server =
        Server::bind_with_workers(&options.listen, workers).map_err(|error| cannot_listen(&options.listen, &error))?;

    let logs = Logs::start(&log_config(options), process::connect).map_err(|problem| problem.to_string())?;
    let listing = if options.listing { Listing::On } else { Listing::Off };
    let addresses = PageAddresses {
        clean_urls: if options.clean_urls { CleanUrls::On } else { CleanUrls::Off },
        trailing_slash: match &*options.trailing_slash {
            "add" => TrailingSlash::Add,
            "remove" => TrailingSlash::Remove,
            _ => TrailingSlash::Auto,
        },
    };
    let rules = SiteRules::for_directory(Arc::new(root), listing, addresses);
    let rules = if options.no_compress { rules } else { rules.with_compression() };
    let table = RouteTable::new(vec![rules]).map_err(|_| "no site")?;
    let table = Arc::new(table);
    let server = match options.tls {
        true => server_with_tls(server, &options.listen)?,
        false => server,
    };
    let running = server
        .observe(LogObserver::new(&logs, &limits))
        .limits(limits)
        .driver(options.common.driver)
        .serve_each(move || SiteService::new(table.clone(), workers))
        .map_err(|error| format!("cannot start: {error}"))?;

    // Before the line that reports readiness, because a client may act on that line.
    let reopener = logs.reopener();
    process::obey_signals(running.handle(), move || reopener.reopen())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    for address in running.addresses() {
        let scheme = if options.tls { "https" } else { "http" };
        log::print_line(&format!("serving {} on {scheme}://{address}/", options.dir.display()));
    }
    running.join();
    logs.flush_and_join();
    Ok(())
}

/// Writes the configuration of `selvedge serve --domain`, a site for public names, and returns what runs it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn configuration_of_domains(options: &ServeArgs) -> Result<RunArgs, String> {
    let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
    let text = configuration(options, &folder)?;
    let file = write_configuration(&folder, (CONFIGURATION, &text))?;
    if !process::is_supervised() {
        let names: Vec<String> = options.domains.iter().map(|name| format!("https://{name}/")).collect();
        log::print_line(&format!("serving {} on {}", options.dir.display(), names.join(" ")));
    }
    Ok(RunArgs { config: ConfigArgs { file: Some(file), config: None }, driver: Some(options.common.driver) })
}

/// Writes a configuration beside the folder of certificates, and returns its path.
pub(crate) fn write_configuration(folder: &Path, (name, text): (&str, &str)) -> Result<PathBuf, String> {
    let beside = folder.parent().unwrap_or(folder);
    let written = CertificateFolder::open(beside).and_then(|folder| folder.write(name, text));
    let file = beside.join(name);
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

fn configuration(options: &ServeArgs, folder: &Path) -> Result<String, String> {
    let mut text = head_of_names("serve", folder, options.acme_directory.as_deref())?;
    text += &common_settings(&options.common)?;
    let listing = if options.listing { "    listing #true\n" } else { "" };
    let names = quoted_names(&options.domains);
    let compress = if options.no_compress { "" } else { "    compress #true\n" };
    let slash = match &*options.trailing_slash {
        "auto" => String::new(),
        word => format!("    trailing-slash {word}\n"),
    };
    let clean = if options.clean_urls { "    clean-urls #true\n" } else { "" };
    let root = quoted_path(&options.dir)?;
    let _ = writeln!(text, "site {names} {{\n    root {root}\n{listing}{compress}{clean}{slash}}}");
    Ok(text)
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
        AccessLogArg::In { text, .. } => {
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
    let path = std::path::absolute(path).map_err(|error| format!("cannot find {}: {error}", path.display()))?;
    path.to_str().map(quote).ok_or_else(|| format!("{} is not UTF-8", path.display()))
}

/// Gives a server certificates of the own authority, for the names and addresses by which this machine is reached.
fn server_with_tls(server: Server, listen: &str) -> Result<Server, String> {
    let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
    let automatic = Arc::new(AutomaticCertificates::default());
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']).to_ascii_lowercase();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let is_internal = host.parse::<HostName>().is_ok_and(|name| name.reach() == NameReach::Internal);
    if is_internal && !names.contains(&host) && host != "0.0.0.0" {
        names.insert(0, host);
    }
    automatic.use_folder(&folder)?;
    let set = |name: &String| Ok((name.clone(), automatic.certificates(name, NameReach::Internal)?));
    let sets = names.iter().map(set).collect::<Result<Vec<_>, String>>()?;
    automatic.apply(AcmeSettings::default(), (&names, &[]));
    thread::spawn(move || automatic.run());
    let host = TlsHost::builder().certificates_by_name(sets).build().map_err(|error| error.to_string())?;
    Ok(server.tls(Tls::new(host)))
}

/// Returns a log configuration with one site, at most one access log, and an error log.
fn log_config(options: &ServeArgs) -> LogConfig {
    let to = |path: &Option<PathBuf>, otherwise| path.as_ref().map_or(otherwise, Destination::file);
    let access = match &options.common.log {
        AccessLogArg::Off => vec![],
        AccessLogArg::In { format, .. } => vec![AccessLogConfig {
            destination: to(&options.common.access_log, Destination::StandardOutput),
            format: format.clone(),
        }],
    };
    let site = SiteLogConfig { name: String::new(), access: (0..access.len()).collect(), error: None };
    let destination = to(&options.common.error_log, Destination::StandardError);
    let error = ErrorLogConfig { destination, format: ErrorFormat::Text, level: Level::Info };
    LogConfig { access, sites: vec![site], error, site_errors: Vec::new() }
}

/// Explains why an address is invalid and suggests another.
pub(crate) fn cannot_listen(address: &str, error: &io::Error) -> String {
    let hint = match address.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("; an address is needed too, as in 127.0.0.1:{port}"),
        Err(_) => String::new(),
    };
    format!("cannot listen on {address}: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::model::Switch;
    use crate::config::{self, Configuration, Sources};
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
    fn other_names_and_options_are_refused() {
        for options in [
            &["--domain", "*.example.com"][..],
            &["--domain", "https://example.com/"],
            &["--domain", "example.com", "--tls"],
            &["--domain", "example.com", "--listen", "[::]:443"],
            &["--acme-directory", "https://a.example/dir"],
        ] {
            let parsed = Cli::try_parse_from(["selvedge", "serve"].iter().chain(options));
            assert!(parsed.is_err(), "{options:?}");
        }
    }
}
