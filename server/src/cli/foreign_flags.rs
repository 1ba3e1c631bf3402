//! Tips for flags of other servers, and for a folder or a configuration in the place of a command.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::path::Path;

/// Flags of other servers of files, and what does the work here.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["--root", "--directory", "--dir", "-d", "-r"], "the directory is an argument: selvedge serve DIRECTORY"),
    (
        &["--host", "--hostname", "--bind", "--address", "--interfaces", "-b", "-a", "-i"],
        "`--listen ADDRESS` is the address to listen on",
    ),
    (
        &["--browse", "--directory-listing", "--dir-listing", "--index-listing", "-z"],
        "`--listing` lists directories without index.html",
    ),
    (
        &["--page-fallback", "--index-fallback", "--single", "--fallback", "-s"],
        "`--spa` sends index.html for missing pages",
    ),
    (&["--page404", "--error-page", "--404"], "`--not-found FILE` is the page for missing files"),
    (
        &["--cors-allow-origins", "--cors-origin", "--allow-origin"],
        "`--cors=ORIGIN` is for pages of an origin, `--cors` for those of every origin",
    ),
    (
        &["--basic-auth", "--user", "--password", "--htpasswd", "--auth-file"],
        "`--auth USER:HASH` requires a password; a file of users needs a configuration: `basic-auth file=...`",
    ),
    (
        &["--https", "--ssl", "--http2", "--http2-tls-cert", "--tls-cert", "--cert", "--key", "-S"],
        "`--tls` uses TLS with HTTP/2 and a certificate of the own authority, `--domain NAME` one of Let's Encrypt; other certificates need a configuration",
    ),
    (
        &["--compression", "--compress", "--gzip", "--brotli", "--compression-static", "--precompressed"],
        "responses are compressed, and files such as style.css.br are sent, without an option",
    ),
    (
        &["--cache", "--no-cache-control", "--cache-control-headers", "--cache-control"],
        "`--no-cache` lets browsers check each time; `--header 'Cache-Control: VALUE'` sets another value",
    ),
    (
        &["--try-extensions", "--extensions", "--pretty-urls", "--html-extension"],
        "`--clean-urls` serves about.html at /about",
    ),
    (&["--quiet", "--silent", "--no-access-log", "-q"], "`--log off` writes no access log"),
    (&["--threads", "--threads-multiplier", "-n", "-t"], "`--workers N` is the number of threads"),
    (
        &["--upload-files", "--upload", "--mkdir", "-u"],
        "`selvedge serve` only sends files; uploads need an application, see `selvedge proxy`",
    ),
    (&["--cgi", "--php"], "programs need a configuration: `cgi` and `php` of a route"),
    (&["--config", "--config-file", "-c", "-w"], "`selvedge run FILE` serves a configuration"),
    (&["--security-headers", "--custom-header", "-H"], "`--header 'NAME: VALUE'` sets a field of every response"),
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
