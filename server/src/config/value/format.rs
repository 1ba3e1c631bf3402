//! Formats of the access log, with the directives of Apache's LogFormat.

use super::Wrong;
use crate::config::nearest::nearest;

/// How an access line is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Common,
    Combined,
    Json,
    /// A format string, all of whose directives are known.
    Custom(String),
}

/// A directive of a format string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormatDirective {
    pub(crate) letter: char,
    pub(crate) argument: DirectiveArgument,
    pub(crate) doc: &'static str,
}

/// Whether braces stand between the `%` and the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectiveArgument {
    Never,
    /// One of these, or none.
    OneOf(&'static [&'static str]),
    /// Any text, or none.
    Optional,
    /// Any text.
    Needed,
}

use DirectiveArgument::{Needed, Never, OneOf, Optional};

const fn directive(letter: char, argument: DirectiveArgument, doc: &'static str) -> FormatDirective {
    FormatDirective { letter, argument, doc }
}

const DIRECTIVES: &[FormatDirective] = &[
    directive('a', OneOf(&["c"]), "address of the client; `%{c}a` of who connected"),
    directive('A', Never, "address of the server"),
    directive('b', Never, "bytes of content sent, `-` for none"),
    directive('B', Never, "bytes of content sent"),
    directive('D', Never, "duration in microseconds"),
    directive('h', Never, "address of the client"),
    directive('H', Never, "protocol, as in HTTP/1.1"),
    directive('i', Needed, "a request field, as in `%{Referer}i`"),
    directive('I', Never, "bytes received, head included"),
    directive('k', Never, "how many requests the connection had before this one"),
    directive('l', Never, "always `-`"),
    directive('m', Never, "method"),
    directive('o', Needed, "a response field, as in `%{Content-Type}o`"),
    directive('O', Never, "bytes sent, head included"),
    directive('p', OneOf(&["canonical", "local", "remote"]), "port of the server; `%{remote}p` of the client"),
    directive('q', Never, "query with its `?`, or nothing"),
    directive('r', Never, "request line"),
    directive('s', Never, "status"),
    directive('t', Optional, "time of the request; `%{sec}t`, `%{msec}t`, `%{usec}t`, or strftime"),
    directive('T', OneOf(&["s", "ms", "us"]), "duration in seconds, or in the unit in braces"),
    directive('u', Never, "name of the user, `-` without one"),
    directive('U', Never, "path without the query"),
    directive('v', Never, "first name of the site"),
    directive('V', Never, "host that the request named"),
    directive('X', Never, "fate of the connection: `X` cut, `+` kept, `-` closed"),
];

/// Every directive that is known.
pub(crate) fn directives() -> &'static [FormatDirective] {
    DIRECTIVES
}

pub(super) fn read(text: &str) -> Result<LogFormat, Wrong> {
    match text {
        "common" => Ok(LogFormat::Common),
        "combined" => Ok(LogFormat::Combined),
        "json" => Ok(LogFormat::Json),
        _ if !text.contains('%') => {
            let instead = match nearest(text, ["common", "combined", "json"].into_iter()) {
                Some(name) => format!("did you mean \"{name}\"?"),
                None => "it is common, combined, json, or has directives such as %h".to_owned(),
            };
            Err(Wrong::new(format!("`{text}` is no log format"), instead))
        }
        _ if text.contains(|c: char| c.is_control()) => {
            Err(Wrong::new("a format with a line end or another control character", "a line of the log is one line"))
        }
        _ => check_directives(text).map(|()| LogFormat::Custom(text.to_owned())),
    }
}

fn check_directives(text: &str) -> Result<(), Wrong> {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('%') {
        if let Some(behind) = behind.strip_prefix('%') {
            rest = behind;
            continue;
        }
        // `>` is the last status after internal redirects, `<` the first; there is only one.
        let behind = behind.trim_start_matches(['>', '<']);
        let (argument, behind) = match behind.strip_prefix('{') {
            Some(inside) => match inside.split_once('}') {
                Some((argument, behind)) => (Some(argument), behind),
                None => return Err(Wrong::new("a `%{` without its `}`", "as in %{Referer}i")),
            },
            None => (None, behind),
        };
        let Some(letter) = behind.chars().next() else {
            return Err(Wrong::new("a `%` without its letter", "write %% for a percent sign"));
        };
        check_directive(letter, argument)?;
        rest = &behind[letter.len_utf8()..];
    }
    Ok(())
}

fn check_directive(letter: char, argument: Option<&str>) -> Result<(), Wrong> {
    let Some(known) = DIRECTIVES.iter().find(|known| known.letter == letter) else {
        let letters: Vec<_> = DIRECTIVES.iter().map(|known| known.letter.to_string()).collect();
        let instead = format!("known are %% and % with one of {}", letters.join(" "));
        return Err(Wrong::new(format!("%{letter} is no directive"), instead));
    };
    match (known.argument, argument) {
        (Needed, None) => Err(Wrong::new(format!("%{letter} without a name"), format!("write %{{Name}}{letter}"))),
        (Needed, Some("")) => {
            Err(Wrong::new(format!("%{{}}{letter} without a name"), format!("write %{{Name}}{letter}")))
        }
        (Never, Some(_)) => Err(Wrong::new(format!("%{letter} takes no braces"), format!("write %{letter}"))),
        (OneOf(words), Some(word)) if !words.contains(&word) => {
            Err(Wrong::new(format!("`{word}` is not known to %{letter}"), format!("it may be {}", words.join(", "))))
        }
        _ => Ok(()),
    }
}
