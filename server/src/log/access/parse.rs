//! Parses a format string of Apache's LogFormat directives.
//!
//! An unknown or unsupported directive is a problem with its position and a hint, never a line with another value.

use super::record::TimeOf;
use super::step::{FormatStep, LogValue, StatusFilter, TimeUnit, TlsValue, UpstreamValue};
use crate::log::time::TimePattern;
use selvedge::proto::field::{KnownField, is_token};
use std::fmt;

/// Why a format string is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatProblem {
    /// Position in bytes.
    pub(crate) at: usize,
    /// The problem.
    pub(crate) text: String,
    /// What to write instead; may be empty.
    pub(crate) hint: &'static str,
}

impl fmt::Display for FormatProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.text, self.at + 1)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl std::error::Error for FormatProblem {}

impl FormatProblem {
    /// A text that is no format name and has no directive.
    pub(super) fn no_name(text: &str) -> Self {
        problem(0, format!("{text:?} is no format of an access log"), NAMES)
    }
}

/// The part between `%` and the letter.
#[derive(Debug, Default)]
struct Modifiers<'a> {
    statuses: Option<StatusFilter>,
    argument: Option<(usize, &'a str)>,
}

/// Returns the steps of a format.
pub(super) fn steps(format: &str) -> Result<Vec<FormatStep>, FormatProblem> {
    Parser { format, at: 0, steps: Vec::new(), text: Vec::new() }.all()
}

struct Parser<'a> {
    format: &'a str,
    at: usize,
    steps: Vec<FormatStep>,
    /// Literal text before the next step.
    text: Vec<u8>,
}

impl<'a> Parser<'a> {
    fn all(mut self) -> Result<Vec<FormatStep>, FormatProblem> {
        while let Some(c) = self.next() {
            let at = self.at - c.len_utf8();
            match c {
                '%' => self.directive(at)?,
                '\\' => self.escaped(at)?,
                '\t' => self.text.push(b'\t'),
                c if c.is_control() => {
                    return Err(problem(at, format!("the format has the control character {:?}", c), ONE_LINE));
                }
                c => self.text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.end_text();
        if self.steps.is_empty() {
            return Err(problem(0, "the format is empty".to_owned(), NAMES));
        }
        Ok(self.steps)
    }

    fn rest(&self) -> &'a str {
        &self.format[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.steps.push(FormatStep::Text(std::mem::take(&mut self.text)));
        }
    }

    /// Parses the character after a backslash.
    fn escaped(&mut self, at: usize) -> Result<(), FormatProblem> {
        match self.next() {
            Some('t') => self.text.push(b'\t'),
            // Every line ends with a line end anyway.
            Some('n') if self.rest().is_empty() => {}
            Some('n') => return Err(problem(at, "a line end within the format".to_owned(), ONE_LINE)),
            Some(c @ ('"' | '\'' | '\\')) => self.text.push(c as u8),
            _ => {
                let text = "a backslash that escapes nothing".to_owned();
                return Err(problem(at, text, "write \\\\ for a backslash, or one of \\\" \\t \\n"));
            }
        }
        Ok(())
    }

    /// Parses a directive after its percent sign.
    fn directive(&mut self, at: usize) -> Result<(), FormatProblem> {
        let modifiers = self.modifiers(at)?;
        let Some(letter) = self.next() else {
            return Err(problem(at, "the format ends within a directive".to_owned(), "write %% for a percent sign"));
        };
        if letter == '%' && modifiers.argument.is_none() && modifiers.statuses.is_none() {
            self.text.push(b'%');
            return Ok(());
        }
        let directive = Directive { at, whole: &self.format[at..self.at], letter };
        let value = match modifiers.argument {
            None => directive.plain()?,
            Some((argument_at, argument)) => directive.with_argument(argument_at, argument)?,
        };
        self.end_text();
        self.steps.push(match modifiers.statuses {
            None => FormatStep::Value(value),
            Some(statuses) => FormatStep::ValueIf(statuses, value),
        });
        Ok(())
    }

    /// Parses `<` and `>` (which have no effect here), a status filter, and an argument in braces, in any order.
    fn modifiers(&mut self, at: usize) -> Result<Modifiers<'a>, FormatProblem> {
        let mut modifiers = Modifiers::default();
        loop {
            match self.rest().chars().next() {
                Some('<' | '>') => self.at += 1,
                Some('0'..='9' | '!') if modifiers.statuses.is_none() => modifiers.statuses = Some(self.statuses()?),
                Some('{') if modifiers.argument.is_none() => {
                    let inside = self.at + 1;
                    let Some(length) = self.format[inside..].find('}') else {
                        return Err(problem(at, "a brace that is not closed".to_owned(), "write as in %{Referer}i"));
                    };
                    modifiers.argument = Some((inside, &self.format[inside..inside + length]));
                    self.at = inside + length + 1;
                }
                _ => return Ok(modifiers),
            }
        }
    }

    /// Parses `400,501` or `!200,304`.
    fn statuses(&mut self) -> Result<StatusFilter, FormatProblem> {
        let at = self.at;
        let negated = self.rest().starts_with('!');
        self.at += usize::from(negated);
        let length = self.rest().find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(self.rest().len());
        let list = &self.rest()[..length];
        self.at += length;
        let codes: Option<Vec<u16>> =
            list.split(',').map(|code| code.parse().ok().filter(|code| (100..=599).contains(code))).collect();
        match codes {
            Some(codes) if negated => Ok(StatusFilter::Except(codes)),
            Some(codes) => Ok(StatusFilter::Only(codes)),
            None => {
                let text = format!("{:?} is no list of statuses", &self.format[at..self.at]);
                Err(problem(at, text, "write as in %400,501{User-agent}i or %!200,304{Referer}i"))
            }
        }
    }
}

const NAMES: &str = "write common, combined, json, or directives such as %h";
const TLS_NAMES: &str = "the names are SSL_PROTOCOL, SSL_CIPHER, SSL_TLS_SNI, SSL_SESSION_RESUMED, SSL_CLIENT_VERIFY and \
                         SSL_CLIENT_S_DN, as in %{SSL_PROTOCOL}x";
const ONE_LINE: &str = "a line is always one line";

/// A parsed directive.
struct Directive<'a> {
    at: usize,
    whole: &'a str,
    letter: char,
}

impl Directive<'_> {
    fn plain(&self) -> Result<LogValue, FormatProblem> {
        Ok(match self.letter {
            'h' | 'a' => LogValue::Client,
            'l' => LogValue::Identity,
            'u' => LogValue::User,
            't' => LogValue::Time(TimeOf::Received, TimePattern::access()),
            'r' => LogValue::RequestLine,
            'm' => LogValue::Method,
            'U' => LogValue::Path,
            'q' => LogValue::Query,
            'H' => LogValue::Protocol,
            's' => LogValue::Status,
            'b' => LogValue::ContentBytesOrHyphen,
            'B' => LogValue::ContentBytes,
            'O' => LogValue::BytesWithHead,
            'D' => LogValue::Elapsed(TimeUnit::Microseconds),
            'T' => LogValue::Elapsed(TimeUnit::Seconds),
            'v' => LogValue::Site,
            'V' => LogValue::Host,
            'p' => LogValue::Port,
            'P' => LogValue::Fixed(std::process::id().to_string().into_bytes()),
            'X' => LogValue::Connection,
            'k' => LogValue::EarlierRequests,
            'L' => LogValue::RequestId,
            'i' | 'o' | 'C' | 'x' => {
                let text = format!("{} needs a name", self.whole);
                let hint = match self.letter {
                    'x' => TLS_NAMES,
                    _ => "write it in braces, as in %{Referer}i",
                };
                return Err(problem(self.at, text, hint));
            }
            _ => return Err(self.unknown()),
        })
    }

    fn with_argument(&self, at: usize, argument: &str) -> Result<LogValue, FormatProblem> {
        let choices = match (self.letter, argument) {
            ('i' | 'o' | 'C', _) => return self.named(at, argument),
            ('t', _) => return self.time(at, argument),
            ('x', "TRACE_ID") => return Ok(LogValue::TraceId),
            ('x', name) => match (TlsValue::from_name(name), UpstreamValue::from_name(name)) {
                (Some(value), _) => return Ok(LogValue::Tls(value)),
                (None, Some(value)) => return Ok(LogValue::Upstream(value)),
                (None, None) => TLS_NAMES,
            },
            ('h' | 'a', "c") => return Ok(LogValue::Peer),
            ('T', "s") => return Ok(LogValue::Elapsed(TimeUnit::Seconds)),
            ('T', "ms") => return Ok(LogValue::Elapsed(TimeUnit::Milliseconds)),
            ('T', "us") => return Ok(LogValue::Elapsed(TimeUnit::Microseconds)),
            ('p', "canonical") => return Ok(LogValue::Port),
            ('p', "remote") => return Ok(LogValue::PeerPort),
            ('P', "pid") => return self.plain(),
            ('h' | 'a', _) => "%{c}a is the other end of the connection",
            ('T', _) => "the units are %{s}T, %{ms}T and %{us}T",
            ('p', _) => "use %{canonical}p or %{remote}p",
            ('P', _) => "use %{pid}P",
            _ => {
                // If the letter is unknown, that is the better error.
                self.plain()?;
                "write it without braces"
            }
        };
        Err(problem(at, format!("{} does not take {argument:?}", self.whole), choices))
    }

    /// Parses `%{Name}i` and its kin.
    fn named(&self, at: usize, name: &str) -> Result<LogValue, FormatProblem> {
        if !is_token(name.as_bytes()) {
            return Err(problem(at, format!("{name:?} is no name of a field or cookie"), ""));
        }
        let lower = name.to_ascii_lowercase();
        match self.letter {
            'C' => Ok(LogValue::Cookie(name.to_owned())),
            'i' => Ok(match KnownField::from_name(name.as_bytes()) {
                // A request has at most one line of these.
                Some(known @ (KnownField::Host | KnownField::Referer | KnownField::UserAgent)) => {
                    LogValue::Known(known)
                }
                _ => LogValue::RequestField(lower),
            }),
            _ => match lower.as_str() {
                "content-length" => Err(problem(at, engine_only(name), "%B counts the content that was sent")),
                "date" => Err(problem(at, engine_only(name), "%{end:%a, %d %b %Y %T GMT}t has that time")),
                "connection" => Err(problem(at, engine_only(name), "%X tells whether the connection stays")),
                "transfer-encoding" | "server" | "keep-alive" | "upgrade" => Err(problem(at, engine_only(name), "")),
                _ => Ok(LogValue::ResponseField(lower)),
            },
        }
    }

    /// Parses `%{format}t`.
    fn time(&self, at: usize, argument: &str) -> Result<LogValue, FormatProblem> {
        let (time_of, pattern) = match argument.split_once(':') {
            Some(("begin", pattern)) => (TimeOf::Received, pattern),
            Some(("end", pattern)) => (TimeOf::Completed, pattern),
            _ => (TimeOf::Received, argument),
        };
        match pattern {
            "" => return Ok(LogValue::Time(time_of, TimePattern::access())),
            "sec" => return Ok(LogValue::UnixTime(time_of, TimeUnit::Seconds)),
            "msec" => return Ok(LogValue::UnixTime(time_of, TimeUnit::Milliseconds)),
            "usec" => return Ok(LogValue::UnixTime(time_of, TimeUnit::Microseconds)),
            "msec_frac" => return Ok(LogValue::Fraction(time_of, TimeUnit::Milliseconds)),
            "usec_frac" => return Ok(LogValue::Fraction(time_of, TimeUnit::Microseconds)),
            _ => {}
        }
        let skipped = argument.len() - pattern.len();
        TimePattern::parse(pattern).map(|pattern| LogValue::Time(time_of, pattern)).map_err(|wrong| {
            let found =
                wrong.found.map(|c| format!("%{}", c.escape_debug())).unwrap_or_else(|| "% at the end".to_owned());
            let text = format!("the time has {found}, which is not known here");
            problem(at + skipped + wrong.at, text, "use letters of strftime, as in %{%Y-%m-%dT%H:%M:%SZ}t")
        })
    }

    /// Returns the problem of an unknown or unsupported letter.
    fn unknown(&self) -> FormatProblem {
        let hint = match self.letter {
            'A' => "the address of this end is not known here; %v is the site",
            'I' | 'S' => "received bytes are not counted; %O and %B count what was sent",
            'f' | 'R' => "the file or handler is not known here; %U is the path",
            'e' | 'n' => "write the value itself into the format",
            '^' => "trailers are not kept",
            'c' => "%X tells what became of the connection",
            'E' | 'F' | 'G' => "see %h %l %u %t %r %s %b %D",
            _ => "write %% for a percent sign",
        };
        problem(self.at, format!("the directive {} is not known", self.whole), hint)
    }
}

fn engine_only(name: &str) -> String {
    format!("{name} is written behind the application's fields and is not kept")
}

fn problem(at: usize, text: String, hint: &'static str) -> FormatProblem {
    FormatProblem { at, text, hint }
}
