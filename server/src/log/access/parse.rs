//! Reads a format string of Apache's LogFormat directives into steps.
//!
//! What is unknown, or known and not to be had here, is a problem with its place and a
//! hint, never a line with something else in its place.

use super::step::{Statuses, Step, Unit, Value, Whence};
use crate::log::time::TimePattern;
use selvedge::proto::field::{Known, is_token};
use std::fmt;

/// Why a format string cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatProblem {
    /// Where, in bytes from the beginning.
    pub(crate) at: usize,
    /// What is wrong.
    pub(crate) text: String,
    /// What to write instead; empty where that cannot be said.
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
    /// A text that is no format's name and has no directive.
    pub(super) fn no_name(text: &str) -> Self {
        problem(0, format!("{text:?} is no format of an access log"), NAMES)
    }
}

/// What stands between `%` and the letter.
#[derive(Debug, Default)]
struct Modifiers<'a> {
    statuses: Option<Statuses>,
    argument: Option<(usize, &'a str)>,
}

/// The steps of a format.
pub(super) fn steps(format: &str) -> Result<Vec<Step>, FormatProblem> {
    Parser { format, at: 0, steps: Vec::new(), text: Vec::new() }.all()
}

struct Parser<'a> {
    format: &'a str,
    at: usize,
    steps: Vec<Step>,
    /// Text that has yet to become a step.
    text: Vec<u8>,
}

impl<'a> Parser<'a> {
    fn all(mut self) -> Result<Vec<Step>, FormatProblem> {
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
            self.steps.push(Step::Text(std::mem::take(&mut self.text)));
        }
    }

    /// What follows a backslash.
    fn escaped(&mut self, at: usize) -> Result<(), FormatProblem> {
        match self.next() {
            Some('t') => self.text.push(b'\t'),
            // Every line ends so.
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

    /// What follows a percent sign.
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
            None => Step::Value(value),
            Some(statuses) => Step::ValueIf(statuses, value),
        });
        Ok(())
    }

    /// `<` and `>`, which mean the same here, statuses, and an argument in braces, in any order.
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

    /// `400,501` or `!200,304`.
    fn statuses(&mut self) -> Result<Statuses, FormatProblem> {
        let at = self.at;
        let negated = self.rest().starts_with('!');
        self.at += usize::from(negated);
        let length = self.rest().find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(self.rest().len());
        let list = &self.rest()[..length];
        self.at += length;
        let codes: Option<Vec<u16>> =
            list.split(',').map(|code| code.parse().ok().filter(|code| (100..=599).contains(code))).collect();
        match codes {
            Some(codes) if negated => Ok(Statuses::Except(codes)),
            Some(codes) => Ok(Statuses::Among(codes)),
            None => {
                let text = format!("{:?} is no list of statuses", &self.format[at..self.at]);
                Err(problem(at, text, "write as in %400,501{User-agent}i or %!200,304{Referer}i"))
            }
        }
    }
}

const NAMES: &str = "write common, combined, json, or directives such as %h";
const ONE_LINE: &str = "a line is always one line";

/// A directive that was read.
struct Directive<'a> {
    at: usize,
    whole: &'a str,
    letter: char,
}

impl Directive<'_> {
    fn plain(&self) -> Result<Value, FormatProblem> {
        Ok(match self.letter {
            'h' | 'a' => Value::Client,
            'l' => Value::Identity,
            'u' => Value::User,
            't' => Value::Time(Whence::Begin, TimePattern::access()),
            'r' => Value::Line,
            'm' => Value::Method,
            'U' => Value::Path,
            'q' => Value::Query,
            'H' => Value::Protocol,
            's' => Value::Status,
            'b' => Value::ContentBytesOrHyphen,
            'B' => Value::ContentBytes,
            'O' => Value::BytesWithHead,
            'D' => Value::Elapsed(Unit::Microseconds),
            'T' => Value::Elapsed(Unit::Seconds),
            'v' => Value::Site,
            'V' => Value::Host,
            'p' => Value::Port,
            'P' => Value::Fixed(std::process::id().to_string().into_bytes()),
            'X' => Value::Connection,
            'k' => Value::EarlierRequests,
            'i' | 'o' | 'C' => {
                let text = format!("{} needs a name", self.whole);
                return Err(problem(self.at, text, "write it in braces, as in %{Referer}i"));
            }
            _ => return Err(self.unknown()),
        })
    }

    fn with_argument(&self, at: usize, argument: &str) -> Result<Value, FormatProblem> {
        let choices = match (self.letter, argument) {
            ('i' | 'o' | 'C', _) => return self.named(at, argument),
            ('t', _) => return self.time(at, argument),
            ('h' | 'a', "c") => return Ok(Value::Peer),
            ('T', "s") => return Ok(Value::Elapsed(Unit::Seconds)),
            ('T', "ms") => return Ok(Value::Elapsed(Unit::Milliseconds)),
            ('T', "us") => return Ok(Value::Elapsed(Unit::Microseconds)),
            ('p', "canonical") => return Ok(Value::Port),
            ('p', "remote") => return Ok(Value::PeerPort),
            ('P', "pid") => return self.plain(),
            ('h' | 'a', _) => "%{c}a is the other end of the connection",
            ('T', _) => "the units are %{s}T, %{ms}T and %{us}T",
            ('p', _) => "there are %{canonical}p and %{remote}p",
            ('P', _) => "there is %{pid}P",
            _ => {
                // It may be unknown altogether, which is the better thing to say.
                self.plain()?;
                "write it without braces"
            }
        };
        Err(problem(at, format!("{} does not take {argument:?}", self.whole), choices))
    }

    /// `%{Name}i` and the like.
    fn named(&self, at: usize, name: &str) -> Result<Value, FormatProblem> {
        if !is_token(name.as_bytes()) {
            return Err(problem(at, format!("{name:?} is no name of a field or cookie"), ""));
        }
        let lower = name.to_ascii_lowercase();
        match self.letter {
            'C' => Ok(Value::Cookie(name.to_owned())),
            'i' => Ok(match Known::from_name(name.as_bytes()) {
                // Of these a client sends one line.
                Some(known @ (Known::Host | Known::Referer | Known::UserAgent)) => Value::Known(known),
                _ => Value::RequestField(lower),
            }),
            _ => match lower.as_str() {
                "content-length" => Err(problem(at, engine_only(name), "%B counts the content that was sent")),
                "date" => Err(problem(at, engine_only(name), "%{end:%a, %d %b %Y %T GMT}t is the same time")),
                "connection" => Err(problem(at, engine_only(name), "%X tells whether the connection stays")),
                "transfer-encoding" | "server" | "keep-alive" | "upgrade" => Err(problem(at, engine_only(name), "")),
                _ => Ok(Value::ResponseField(lower)),
            },
        }
    }

    /// `%{format}t`
    fn time(&self, at: usize, argument: &str) -> Result<Value, FormatProblem> {
        let (whence, pattern) = match argument.split_once(':') {
            Some(("begin", pattern)) => (Whence::Begin, pattern),
            Some(("end", pattern)) => (Whence::End, pattern),
            _ => (Whence::Begin, argument),
        };
        match pattern {
            "" => return Ok(Value::Time(whence, TimePattern::access())),
            "sec" => return Ok(Value::UnixTime(whence)),
            "msec" | "usec" | "msec_frac" | "usec_frac" => {
                let text = format!("{pattern} is not to be had: times are known to the second");
                return Err(problem(at, text, "%{sec}t counts seconds, and %D is how long an answer took"));
            }
            _ => {}
        }
        let skipped = argument.len() - pattern.len();
        TimePattern::parse(pattern).map(|pattern| Value::Time(whence, pattern)).map_err(|wrong| {
            let found =
                wrong.found.map(|c| format!("%{}", c.escape_debug())).unwrap_or_else(|| "% at the end".to_owned());
            let text = format!("the time has {found}, which is not known here");
            problem(at + skipped + wrong.at, text, "use letters of strftime, as in %{%Y-%m-%dT%H:%M:%SZ}t")
        })
    }

    /// A letter that is not known, or has a meaning that is not to be had here.
    fn unknown(&self) -> FormatProblem {
        let hint = match self.letter {
            'A' => "the address of this end is not known here; %v is the site",
            'I' | 'S' => "received bytes are not counted; %O and %B count what was sent",
            'f' | 'R' => "which file or handler answered is not known here; %U is the path",
            'L' => "requests have no numbers; %P %{remote}p %k together name one",
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
