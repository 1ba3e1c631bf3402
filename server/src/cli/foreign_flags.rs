//! Tips for flags of other servers, and for a folder or a configuration in the place of a command.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
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
    (&["--health", "--metrics"], "`selvedge run` has a state that `selvedge status` prints, as text or JSON"),
    (
        &["--maintenance-mode", "--maintenance-mode-status", "--maintenance-mode-file"],
        "a response to all requests needs a configuration: `route \"/*\" { respond 503; }`",
    ),
    (&["--cgi", "--php"], "programs need a configuration: `cgi` and `php` of a route"),
    (&["--protocol"], "the protocol is HTTP/1.1, and HTTP/2 with TLS, as the client chooses"),
    (&["--config", "--config-file", "-c", "-w"], "`selvedge run FILE` serves a configuration"),
    (&["--security-headers", "--custom-header", "-H"], "`--header 'NAME: VALUE'` sets a field of every response"),
    (&["--print-completions"], "`selvedge completions SHELL` prints them"),
    (&["--print-manpage"], "`selvedge manual-pages FOLDER` writes them"),
    (&["--windows-service"], "selvedge runs on Linux; docs/operations.md has a unit for systemd"),
];

/// Adds tips to an error of the command line.
pub(crate) fn with_tips(mut error: Error) -> Error {
    let invalid = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => invalid(&error, ContextKind::InvalidArg).and_then(|flag| tip_for_flag(&flag)),
        ErrorKind::InvalidSubcommand => {
            invalid(&error, ContextKind::InvalidSubcommand).and_then(|word| tip_for_word(&word))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        // A flag whose letters are similar is not meant then.
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn tip_for_flag(flag: &str) -> Option<String> {
    let name = flag.split(['=', ' ']).next()?;
    FOREIGN.iter().find(|(flags, _)| flags.contains(&name)).map(|(_, tip)| (*tip).to_owned())
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
    use crate::cli::command;

    fn refused(arguments: &[&str]) -> String {
        let error = command().try_get_matches_from([&["selvedge"], arguments].concat()).expect_err("they are wrong");
        with_tips(error).to_string()
    }

    #[test]
    fn flags_of_other_servers_have_a_tip() {
        for (flag, expected) in [
            ("--browse", "tip: `--listing`"),
            ("--page-fallback=index.html", "tip: `--spa`"),
            ("--bind", "tip: `--listen ADDRESS`"),
            ("-d", "tip: the directory is an argument"),
        ] {
            let text = refused(&["serve", flag]);
            assert!(text.contains(expected), "{flag}: {text}");
        }
        assert!(refused(&["serve", "--lisssting"]).contains("'--listing'"), "a similar flag is named");
        assert!(refused(&["."]).contains("tip: `selvedge serve .`"));
        assert!(refused(&["site.kdl"]).contains("tip: `selvedge run site.kdl`"));
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
            flags.split('`').filter(|text| text.starts_with("--")).map(str::to_owned).collect()
        };
        let flags: Vec<String> = section.lines().flat_map(flags_of).collect();
        assert!(flags.len() > 100, "{}", flags.len());
        for flag in flags {
            // Both print what they are called for, here as there.
            let is_known = matches!(&*flag, "--help" | "--version") || is_own(&flag) || tip_for_flag(&flag).is_some();
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
