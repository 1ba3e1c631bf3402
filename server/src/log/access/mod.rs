//! One line for each request, in a format that was compiled once.
//!
//! A format is a list of steps, each of which appends one thing; the well-known formats
//! are format strings like any other. JSON lines are written by a function of their own.
//! Invariant: whatever a request holds, a line is one line of ASCII (but for what a format
//! string itself says) that its format's readers can take apart, of 4,096 bytes at most.

mod json;
mod parse;
mod step;

pub(crate) use parse::FormatProblem;

use super::escape::{JSON_NUMBER_BYTES, TEXT_NUMBER_BYTES, escape, escape_for_json, escape_json, escape_word, fitting};
use super::time::TimePattern;
use selvedge::Request;
use selvedge::proto::target::Host;
use selvedge::service::Exchange;
use std::net::IpAddr;
use step::Step;

/// The bytes of a line with its end: log readers take as many, and a client that sends long
/// heads of odd octets cannot make the log grow by a multiple of them.
const LINE_BYTES_MAX: usize = 4096;
/// To how much each value is cut for a line that would be longer, in turn.
const VALUE_BYTES_MAX: [usize; 6] = [2048, 1024, 512, 256, 128, 64];
/// What stands where a value was cut.
const CUT: &[u8] = b"...";

/// The Common Log Format.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
/// The Combined Log Format.
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#;

/// What a line looks like.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Steps(Vec<Step>),
    Json(json::Json),
}

impl Format {
    /// A format by its name: `common`, `combined` or `json`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "common" => Some(Self::well_known(COMMON)),
            "combined" => Some(Self::well_known(COMBINED)),
            "json" => Some(Self { shape: Shape::Json(json::Json::new(TimePattern::rfc3339())) }),
            _ => None,
        }
    }

    /// A format by its name, or of directives.
    ///
    /// # Errors
    /// Why it is neither.
    pub(crate) fn read(text: &str) -> Result<Self, FormatProblem> {
        match Self::named(text) {
            Some(format) => Ok(format),
            None if text.contains('%') => Self::parse(text),
            None => Err(FormatProblem::no_name(text)),
        }
    }

    /// A format of directives, as Apache's LogFormat has them.
    pub(crate) fn parse(text: &str) -> Result<Self, FormatProblem> {
        parse::steps(text).map(|steps| Self { shape: Shape::Steps(steps) })
    }

    fn well_known(text: &str) -> Self {
        Self::parse(text).expect("a test parses each of them")
    }

    /// Whether it says how long an answer took, which somebody has to measure then.
    pub(super) fn wants_elapsed(&self) -> bool {
        match &self.shape {
            Shape::Steps(steps) => steps.iter().any(Step::wants_elapsed),
            Shape::Json(_) => true,
        }
    }

    /// Appends the line of a request that belongs to a site of that name.
    pub(super) fn append(&mut self, exchange: &Exchange<'_>, site: &str, out: &mut Vec<u8>) {
        let begin = out.len();
        let mut subject = Subject { exchange, site, value_bytes_max: usize::MAX };
        self.append_whole(&subject, out);
        // Once in a blue moon, so the line is simply made again.
        for most in VALUE_BYTES_MAX {
            if out.len() - begin < LINE_BYTES_MAX {
                break;
            }
            out.truncate(begin);
            subject.value_bytes_max = most;
            self.append_whole(&subject, out);
        }
        out.push(b'\n');
    }

    fn append_whole(&mut self, subject: &Subject<'_>, out: &mut Vec<u8>) {
        match &mut self.shape {
            Shape::Steps(steps) => steps.iter_mut().for_each(|step| step.append(subject, out)),
            Shape::Json(json) => json.append(subject, out),
        }
    }
}

/// What a line is about.
struct Subject<'a> {
    exchange: &'a Exchange<'a>,
    site: &'a str,
    /// How many bytes each value may take; what is longer ends in [`CUT`].
    value_bytes_max: usize,
}

impl<'a> Subject<'a> {
    fn request(&self) -> Option<&'a Request> {
        self.exchange.request
    }

    /// Who asks.
    fn client(&self) -> IpAddr {
        self.request().map_or_else(|| self.exchange.peer.ip(), Request::client)
    }

    /// The host that the request is for, if it says one.
    fn host(&self) -> Option<Host<'a>> {
        self.request().and_then(Request::host)
    }

    /// Appends a value to a line of text.
    fn text(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES, escape, out);
    }

    /// The same, where no space may be within it.
    fn word(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES, escape_word, out);
    }

    /// Appends a value to a JSON string.
    fn json(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, JSON_NUMBER_BYTES, escape_json, out);
    }

    /// Appends to a JSON string what [`Subject::text`] makes of a value.
    fn text_for_json(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES + 1, escape_for_json, out);
    }

    fn escaped(&self, value: &[u8], number_bytes: usize, escape: fn(&[u8], &mut Vec<u8>), out: &mut Vec<u8>) {
        let shown = fitting(value, self.value_bytes_max, number_bytes);
        escape(shown, out);
        if shown.len() < value.len() {
            out.extend_from_slice(CUT);
        }
    }
}
