//! Tips for flags of other servers, for values without their flag, and for a folder or a configuration in the place of
//! a command.

use super::command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;

/// Flags of other servers of files, and what does the work here.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["--root", "--directory", "--dir", "-d", "-r"], "the directory is an argument: selvedge serve DIRECTORY"),
    (&["--use-relative-root"], "the directory is opened once; a link to it that changes needs a restart"),
    (
        &["--host", "--hostname", "--bind", "--address", "--interfaces", "-b", "-a", "-i"],
        "`--listen ADDRESS` is the address to listen on",
    ),
    (&["--fd"], "`--listen fd:3` takes a socket that is open at the start"),
    (
        &["--unix-socket", "--unix-socket-mode", "--unix-socket-force"],
        "`--listen unix:PATH` listens at a Unix socket; its file mode needs a configuration: `listen ... mode=\"0660\"`",
    ),
    (
        &["--browse", "--directory-listing", "--dir-listing", "--index-listing", "-z"],
        "`--listing` lists directories without index.html",
    ),
    (&["--disable-indexing"], "directories are not listed without `--listing`"),
    (
        &[
            "--directory-listing-order",
            "--directory-listing-format",
            "--default-sorting-method",
            "--default-sorting-order",
            "--dirs-first",
            "--title",
            "--color-scheme",
            "--color-scheme-dark",
            "--hide-theme-selector",
            "--hide-version-footer",
            "--show-symlink-info",
            "--show-wget-footer",
            "--reveal-symlinks",
            "--readme",
            "--directory-size",
            "--size-display",
            "--file-external-url",
            "--file-limit",
        ],
        "`--listing` has no options: its page is sorted by a click and has the colours of the browser, and it is JSON for \
         programs",
    ),
    (
        &["--page-fallback", "--index-fallback", "--single", "--fallback", "-s"],
        "`--spa` sends index.html for missing pages",
    ),
    (&["--page404", "--error-page", "--404"], "`--not-found FILE` is the page for missing files"),
    (&["--page50x"], "pages of other errors need a configuration: `error-page 500 \"/50x.html\"`"),
    (&["--index", "--index-files"], "the index is index.html; another needs a configuration: `index \"main.html\"`"),
    (
        &["--cors-allow-origins", "--cors-origin", "--allow-origin"],
        "`--cors=ORIGIN` is for pages of an origin, `--cors` for those of every origin",
    ),
    (&["--cors-allow-headers"], "request fields of other origins need a configuration: `cors` with `headers`"),
    (&["--cors-expose-headers"], "`--header 'Access-Control-Expose-Headers: NAMES'` exposes fields"),
    (
        &["--basic-auth", "--user", "--password", "--htpasswd", "--auth-file"],
        "`--auth USER:HASH` requires a password; a file of users needs a configuration: `basic-auth file=...`",
    ),
    (
        &[
            "--https",
            "--ssl",
            "--http2",
            "--http2-tls-cert",
            "--http2-tls-key",
            "--tls-cert",
            "--tls-key",
            "--tls-password-file",
            "--cert",
            "--key",
            "-S",
        ],
        "`--tls` uses TLS with HTTP/2 and a certificate of the own authority, `--domain NAME` one of Let's Encrypt; other \
         certificates need a configuration",
    ),
    (
        &["--https-redirect", "--https-redirect-host", "--https-redirect-from-port", "--https-redirect-from-hosts"],
        "`--domain NAME` redirects http to https without an option",
    ),
    (
        &[
            "--compression",
            "--compression-level",
            "--compress",
            "--compress-response",
            "--gzip",
            "--brotli",
            "--compression-static",
            "--precompressed",
        ],
        "responses are compressed, and files such as style.css.br are sent, without an option",
    ),
    (
        &["--cache", "--no-cache-control", "--cache-control-headers", "--cache-control"],
        "`--no-cache` lets browsers check each time; `--header 'Cache-Control: VALUE'` sets another value",
    ),
    (&["--etag"], "files have an ETag without an option"),
    (&["--text-charset"], "text files have `charset=utf-8` without an option"),
    (
        &["--try-extensions", "--extensions", "--pretty-urls", "--html-extension"],
        "`--clean-urls` serves about.html at /about",
    ),
    (&["--redirect-trailing-slash"], "`--trailing-slash WORD` is `auto`, `add` or `remove`"),
    (
        &["--hidden", "--include-hidden", "--ignore-hidden-files"],
        "names that begin with a dot are never sent, except those in /.well-known/",
    ),
    (
        &["--no-symlinks", "--follow-symlinks", "--disable-symlinks"],
        "symbolic links are followed within the directory; other targets need a configuration: `link-targets`",
    ),
    (
        &["--route-prefix", "--random-route"],
        "a prefix needs a configuration: `route \"/prefix/*\" { files strip-prefix=#true; }`",
    ),
    (&["--quiet", "--silent", "--no-access-log", "-q"], "`--log off` writes no access log"),
    (
        &["--verbose", "--debug", "--log-level", "--log-format", "--log-file", "--log-color", "--log-with-ansi"],
        "`--log FORMAT` and `--access-log FILE` are for the access log, `--error-log FILE` for the error log",
    ),
    (
        &["--log-remote-address", "--log-x-real-ip", "--log-forwarded-for", "--trusted-proxies"],
        "the access log has the address of each client; behind a proxy, it needs a configuration: `trusted-proxies`",
    ),
    (
        &["--threads", "--threads-multiplier", "--max-blocking-threads", "-n", "-t"],
        "`--workers N` is the number of threads",
    ),
    (
        &["--grace-period"],
        "a stop waits up to 30 s for open requests; another time needs a configuration: `shutdown-timeout`",
    ),
    (
        &[
            "--upload-files",
            "--upload",
            "--mkdir",
            "--rm-files",
            "--pastebin",
            "--temp-directory",
            "--web-upload-files-concurrency",
            "--chmod",
            "--media-type",
            "--raw-media-type",
            "--on-duplicate-files",
            "-u",
        ],
        "`selvedge serve` only sends files; uploads need an application, see `selvedge proxy`",
    ),
    (
        &[
            "--enable-tar",
            "--enable-tar-gz",
            "--enable-zip",
            "--directory-listing-download",
            "--enable-webdav",
            "--qrcode",
            "--accept-markdown",
            "--templates",
        ],
        "`selvedge serve` sends files as they are, and nothing that is made from them",
    ),
    (
        &["--health", "--metrics"],
        "metrics need a configuration: `metrics \"127.0.0.1:9100\"`; `selvedge status` prints the state of `selvedge run`",
    ),
    (
        &["--maintenance-mode", "--maintenance-mode-status", "--maintenance-mode-file"],
        "a response to all requests needs a configuration: `route \"/*\" { respond 503; }`",
    ),
    (&["--cgi", "--php"], "programs need a configuration: `cgi` and `php` of a route"),
    (&["--protocol"], "the protocol is HTTP/1.1, and HTTP/2 with TLS, as the client chooses"),
    (&["--config", "--config-file", "-c", "-w"], "`selvedge run FILE` serves a configuration"),
    (&["--security-headers", "--custom-header", "-H"], "`--header 'NAME: VALUE'` sets a field of every response"),
    (&["--version", "-V"], "`selvedge --version` prints the version"),
    (&["--print-completions"], "`selvedge completions SHELL` prints them"),
    (&["--print-manpage"], "`selvedge manual-pages FOLDER` writes them"),
    (&["--windows-service"], "selvedge runs on Linux; docs/operations.md has a unit for systemd"),
];

/// Flags that users of other commands expect, and what does the work here.
const OF_COMMANDS: &[(&str, &[&str], &str)] = &[
    ("explain", &["-d", "--data", "--data-raw", "--data-binary"], "a request is explained without content"),
    ("explain", &["--host"], "the host is that of the URL, or of `-H 'Host: NAME'`"),
    ("last", &["--limit", "--lines", "--number", "--tail"], "`-n NUMBER` is the number of requests"),
];

/// Adds tips to an error of the command line with these arguments after the name of the program.
pub(crate) fn with_tips<'a>(mut error: Error, mut arguments: impl Iterator<Item = &'a OsStr>) -> Error {
    let name = arguments.next().and_then(OsStr::to_str).filter(|word| command().find_subcommand(word).is_some());
    let invalid = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => invalid(&error, ContextKind::InvalidArg).and_then(|argument| {
            match name {
                // A flag without a command is one of `serve` in most cases.
                None | Some("serve") => tip_for_flag(&argument)
                    .or_else(|| tip_for_value(&argument))
                    .or_else(|| tip_for_flag_of_serve(&argument)),
                Some("proxy") => tip_for_value(&argument),
                Some("run") => tip_for_flag_of_serve(&argument),
                Some(name) => tip_for_flag_of(name, &argument),
            }
        }),
        ErrorKind::InvalidSubcommand => {
            invalid(&error, ContextKind::InvalidSubcommand).and_then(|word| tip_for_word(&word))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (argument, value) =
                (invalid(&error, ContextKind::InvalidArg), invalid(&error, ContextKind::InvalidValue));
            argument.zip(value).and_then(|(argument, value)| tip_for_variable(&argument, &value))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        // A flag or a command whose letters are similar is not meant then.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn tip_for_flag(flag: &str) -> Option<String> {
    let name = flag.split(['=', ' ']).next()?;
    FOREIGN.iter().find(|(flags, _)| flags.contains(&name)).map(|(_, tip)| (*tip).to_owned())
}

fn tip_for_flag_of(command: &str, flag: &str) -> Option<String> {
    let name = flag.split(['=', ' ']).next()?;
    let is_meant = |(of, flags, _): &&(&str, &[&str], &str)| *of == command && flags.contains(&name);
    OF_COMMANDS.iter().find(is_meant).map(|(_, _, tip)| (*tip).to_owned())
}

/// Returns a tip for a wrong value that is that of the variable of an option.
fn tip_for_variable(argument: &str, value: &str) -> Option<String> {
    let option = argument.split([' ', '=', '[']).next()?.strip_prefix("--")?;
    let name = option.replace('-', "_").to_ascii_uppercase();
    let variables = ["SERVE", "PROXY"].map(|command| format!("SELVEDGE_{command}_{name}"));
    let is_value = |text: String| text.split([' ', '\n']).any(|part| part == value) || text == value;
    let set = variables.into_iter().find(|variable| std::env::var(variable).is_ok_and(is_value))?;
    Some(format!("the environment variable {set} has this value"))
}

/// Returns a tip for a value beside the directory.
fn tip_for_value(value: &str) -> Option<String> {
    let is_port = value.trim_start_matches(':').parse::<u16>().is_ok();
    match value {
        _ if value.starts_with('-') => None,
        _ if value.contains("://") => Some(format!("an origin follows an equals sign: `--cors={value}`")),
        _ if is_port && value.starts_with(':') => Some(format!("`--listen {value}` listens at all addresses")),
        _ if is_port => Some(format!("`--port {value}` is the port")),
        _ if value.parse::<SocketAddr>().is_ok() => Some(format!("`--listen {value}` is the address to listen on")),
        _ if Path::new(value).is_dir() => Some("one directory is served; several need a configuration".to_owned()),
        _ => None,
    }
}

/// Returns a tip for a flag that another command has.
fn tip_for_flag_of_serve(flag: &str) -> Option<String> {
    let name = flag.split('=').next()?;
    let command = command();
    let mut own = command.find_subcommand("serve")?.get_arguments();
    let is_own = own.any(|arg| {
        arg.get_long().is_some_and(|long| name == format!("--{long}"))
            || arg.get_short().is_some_and(|short| name == format!("-{short}"))
    });
    is_own.then(|| format!("`{name}` is an option of `selvedge serve`; `selvedge run` has settings in their place"))
}

/// Returns a tip for an argument that is no command.
fn tip_for_word(word: &str) -> Option<String> {
    let path = Path::new(word);
    match path {
        _ if path.extension().is_some_and(|extension| extension == "kdl") => {
            Some(format!("`selvedge run {word}` serves a configuration"))
        }
        _ if path.is_dir() => Some(format!("`selvedge serve {word}` serves a directory")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let error = command().try_get_matches_from([&["selvedge"], arguments].concat()).expect_err("they are wrong");
        with_tips(error, arguments.iter().map(OsStr::new)).to_string()
    }

    #[test]
    fn flags_of_other_servers_have_a_tip() {
        for (flag, expected) in [
            ("--browse", "tip: `--listing`"),
            ("--page-fallback=index.html", "tip: `--spa`"),
            ("--bind", "tip: `--listen ADDRESS`"),
            ("-d", "tip: the directory is an argument"),
            ("--version", "tip: `selvedge --version`"),
        ] {
            let text = refused(&["serve", flag]);
            assert!(text.contains(expected), "{flag}: {text}");
        }
        assert!(refused(&["serve", "--lisssting"]).contains("'--listing'"), "a similar flag is named");
        assert!(refused(&["."]).contains("tip: `selvedge serve .`"));
        assert!(refused(&["site.kdl"]).contains("tip: `selvedge run site.kdl`"));
        assert!(!refused(&["run.kdl"]).contains("similar"), "one tip is enough");
    }

    #[test]
    fn a_command_has_no_tips_of_another() {
        let url = "http://a.example/";
        for (arguments, expected) in [
            (&["explain", url, "-d", "x"][..], "tip: a request is explained without content"),
            (&["explain", url, "--host", "b"], "tip: the host is that of the URL, or of `-H 'Host: NAME'`"),
            (&["last", "--limit", "5"], "tip: `-n NUMBER` is the number of requests"),
        ] {
            let text = refused(arguments);
            assert!(text.contains(expected) && !text.contains("similar"), "{arguments:?}: {text}");
        }
        for arguments in [&["explain", url, "--browse"][..], &["last", "--root", "."], &["check", "-p", "80"]] {
            let text = refused(arguments);
            assert!(!text.contains("serve") && !text.contains("--listing"), "{arguments:?}: {text}");
        }
    }

    #[test]
    fn values_without_their_flag_have_a_tip() {
        for (arguments, expected) in [
            (&["serve", ".", "8080"][..], "tip: `--port 8080`"),
            (&["serve", ".", ":8080"], "tip: `--listen :8080`"),
            (&["serve", ".", "0.0.0.0:80"], "tip: `--listen 0.0.0.0:80`"),
            (&["serve", ".", "."], "tip: one directory is served"),
            (
                &["serve", ".", "--cors", "https://a.example"],
                "tip: an origin follows an equals sign: `--cors=https://a",
            ),
            (&["--port", "80"], "tip: `--port` is an option of `selvedge serve`"),
            (&["run", "-p", "80"], "tip: `-p` is an option of `selvedge serve`"),
        ] {
            let text = refused(arguments);
            assert!(text.contains(expected), "{arguments:?}: {text}");
        }
    }

    #[test]
    fn each_flag_of_the_page_is_an_own_one_or_has_a_tip() {
        let page = include_str!("../../../docs/serve.md");
        let (_, section) = page.split_once("## Each flag of these servers").expect("the page has the section");
        let command = command();
        let serve = command.find_subcommand("serve").expect("it is a command");
        let is_own = |flag: &str| {
            serve.get_arguments().any(|arg| arg.get_long().is_some_and(|long| flag == format!("--{long}")))
        };
        let flags_of = |row: &str| -> Vec<String> {
            let flags = row.split('|').nth(2).unwrap_or_default();
            flags.split('`').filter(|text| text.starts_with("--") && *text != "---").map(str::to_owned).collect()
        };
        let flags: Vec<String> = section.lines().flat_map(flags_of).collect();
        assert!(flags.len() > 100, "{}", flags.len());
        for flag in flags {
            // It prints the help, here as there.
            let is_known = flag == "--help" || is_own(&flag) || tip_for_flag(&flag).is_some();
            assert!(is_known, "{flag}");
        }
    }

    #[test]
    fn no_tip_is_for_an_own_flag() {
        let command = command();
        let serve = command.find_subcommand("serve").expect("it is a command");
        for (flags, tip) in FOREIGN {
            for flag in *flags {
                let own = serve.get_arguments().any(|arg| {
                    arg.get_long().is_some_and(|long| *flag == format!("--{long}"))
                        || arg.get_short().is_some_and(|short| *flag == format!("-{short}"))
                });
                assert!(!own, "{flag}: {tip}");
            }
        }
    }
}
