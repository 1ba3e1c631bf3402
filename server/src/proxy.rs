//! `selvedge proxy`, from top to bottom.

use crate::certificates::folder_of_user;
use crate::cli::{ProxyArgs, ProxyFrom, RunArgs, ServedNames};
use crate::config::Configuration;
use crate::config::model::quote;
use crate::options_server::{self, Presentation};
use crate::process;
use crate::serve::{common_settings, head_of_names, listen_hint, quoted_names, run_args, write_configuration};
use crate::syntax::HostName;
use std::fmt::Write as _;

/// The configuration of a proxy for public names, beside the folder of certificates.
const CONFIGURATION: &str = "proxy.kdl";
/// The name of the settings that the options stand for, in problems.
const OPTIONS: &str = "selvedge proxy";

/// Whether the options name public names, for which [`configuration_of_names`] writes a configuration.
pub(crate) fn is_for_names(options: &ProxyArgs) -> bool {
    options.from.iter().any(|from| matches!(from, ProxyFrom::Name(_)))
}

/// Forwards requests until a signal ends it.
pub(crate) fn proxy(options: &ProxyArgs) -> Result<(), String> {
    process::raise_descriptor_limit();
    let configuration = configuration_of_addresses(options, &addresses(options))?;
    let shown = Presentation {
        subject: options.to.join(" "),
        listen_hint: |error| listen_hint(error, "`--from PORT` is another port"),
        started: &|_| {},
    };
    options_server::run(configuration, options.common.driver, &shown)
}

/// Writes the configuration of a proxy for public names, and returns what runs it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn configuration_of_names(options: &ProxyArgs) -> Result<RunArgs, String> {
    let names: Vec<HostName> = options
        .from
        .iter()
        .filter_map(|from| match from {
            ProxyFrom::Name(name) => Some(name.clone()),
            ProxyFrom::Address(_) => None,
        })
        .collect();
    if names.len() < options.from.len() {
        return Err("a public name uses ports 80 and 443, so `--from` cannot name an address beside it".to_owned());
    }
    let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
    let mut text = head_of_names("proxy", &folder, options.acme_directory.as_deref())?;
    text += &common_settings(&options.common)?;
    text += &site(&quoted_names(&names), options);
    read(&text)?;
    let file = write_configuration(&folder, (CONFIGURATION, &text))?;
    Ok(run_args(file, &options.common, ServedNames { subject: options.to.join(" "), names }))
}

fn addresses(options: &ProxyArgs) -> Vec<String> {
    let address = |from: &ProxyFrom| match from {
        ProxyFrom::Address(address) => Some(address.clone()),
        ProxyFrom::Name(_) => None,
    };
    options.from.iter().filter_map(address).collect()
}

fn configuration_of_addresses(options: &ProxyArgs, addresses: &[String]) -> Result<Configuration, String> {
    let mut text = String::new();
    for address in addresses {
        let _ = writeln!(text, "listen {} tls=#false", quote(address));
    }
    text += &common_settings(&options.common)?;
    text += &site("\"*\"", options);
    read(&text)
}

/// Returns the site that forwards everything. Content is not stored, and the application has limits of its own, so that
/// of a configuration does not apply.
fn site(names: &str, options: &ProxyArgs) -> String {
    let to: Vec<String> = options.to.iter().map(|url| quote(url)).collect();
    format!(
        "site {names} {{\n    route \"/*\" {{\n        body-bytes-max \"1024TiB\"\n        \
         proxy {} {{\n            host {}\n        }}\n    }}\n}}\n",
        to.join(" "),
        quote(&options.host)
    )
}

/// Reads the settings that the options stand for.
fn read(text: &str) -> Result<Configuration, String> {
    options_server::read(OPTIONS, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::model::{Action, ForwardedHost};
    use clap::Parser;
    use std::path::Path;

    fn options(arguments: &[&str]) -> Result<ProxyArgs, String> {
        let parsed = Cli::try_parse_from(["selvedge", "proxy"].iter().chain(arguments));
        match parsed.map_err(|error| error.to_string())?.command {
            Command::Proxy(options) => Ok(options),
            other => Err(format!("{other:?}")),
        }
    }

    fn configuration(arguments: &[&str]) -> Result<Configuration, String> {
        let options = options(arguments)?;
        configuration_of_addresses(&options, &addresses(&options))
    }

    #[test]
    fn options_are_settings() {
        let arguments = ["--from", ":8080", "--to", ":9000", "--to", "https://app.internal", "--host", "upstream"];
        let settings = configuration(&arguments).unwrap().settings;
        assert_eq!(settings.listeners[0].address.to_string(), "[::]:8080");
        assert_eq!(settings.upstreams[0].name, "http://localhost:9000 https://app.internal:443");
        let Action::Proxy(proxy) = &settings.sites[0].routes[0].action else { panic!("it forwards") };
        assert_eq!((&proxy.host, &proxy.upstream), (&ForwardedHost::Upstream, &settings.upstreams[0].name));
        let settings = configuration(&["--listen", "8081", "--to", "unix:/run/app.sock"]).unwrap().settings;
        assert_eq!(settings.listeners[0].address.to_string(), "127.0.0.1:8081");
        assert_eq!(settings.upstreams[0].name, "unix:/run/app.sock");
        let settings = configuration(&["--to", "http://localhost:9000/"]).unwrap().settings;
        assert_eq!(settings.upstreams[0].name, "http://localhost:9000");
        let settings = configuration(&["--to", "localhost:9000/"]).unwrap().settings;
        assert_eq!(settings.upstreams[0].name, "http://localhost:9000");
        assert_eq!(settings.sites[0].routes[0].body_limit.bytes_max, 1 << 50);
        assert_eq!(options(&["--to", "9000"]).unwrap().from, [ProxyFrom::Address("127.0.0.1:8080".to_owned())]);
    }

    #[test]
    fn a_route_with_all_paths_takes_the_slash_of_a_url() {
        for (pattern, expected) in [("/*", Some("http://a:1")), ("/api/*", None)] {
            let read = read(&format!("site \"*\" {{\n    route \"{pattern}\" {{ proxy \"http://a:1/\"; }}\n}}\n"));
            let name = read.ok().map(|read| read.settings.upstreams[0].name.clone());
            assert_eq!(name.as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn a_name_is_a_site_with_a_certificate() {
        let named = options(&["--from", "example.com", "--from", "www.example.com", "--to", "9000"]).unwrap();
        assert!(is_for_names(&named));
        let names = ["example.com", "www.example.com"].map(|name| name.parse::<HostName>().unwrap());
        let head = head_of_names("proxy", Path::new("/data"), None).unwrap();
        let text = format!("{head}{}", site(&quoted_names(&names), &named));
        assert_eq!(read(&text).unwrap().settings.sites[0].names, names);
        let mixed = options(&["--from", "example.com", "--from", ":80", "--to", "9000"]).unwrap();
        assert!(configuration_of_names(&mixed).unwrap_err().contains("ports 80 and 443"));
    }

    #[test]
    fn wrong_options_are_explained() {
        for (arguments, expected) in [
            (&["--to", "http://a:1/api/?q"][..], "proxy \"http://a:1\" { path \"/api/*\"; }"),
            (&["--to", "localhost:9000/api"], "proxy \"http://localhost:9000\" { path \"/api/*\"; }"),
            (&["--to", "http://[::1"], "`[::1` is neither an address nor a host name"),
            (&["--to", "http://a:1//"], "the address of a server has no path"),
            (&["--to", "app.internal"], "write \"app.internal:8080\""),
            (&["--to", "9000", "--host", "a b"], "is not a host"),
            (&[], "--to <URL>"),
            (&["--from", "*.example.com", "--to", "9000"], "a wildcard needs a configuration"),
            (&["--from", "8080", "--to", "8080"], "requests would return to it"),
            (&["--to", "https://10.0.0.1"], "https to an IP address"),
        ] {
            let problem = configuration(arguments).unwrap_err();
            assert!(problem.contains(expected), "{arguments:?}: {problem}");
        }
    }
}
