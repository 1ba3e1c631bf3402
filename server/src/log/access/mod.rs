//! Access log lines, in a format that is compiled once.
//!
//! A format is a list of steps, each of which appends one value. The predefined formats are format strings as well;
//! JSON lines have a function of their own. Invariant: a line is one line of ASCII (except for text of the format
//! itself) that readers of its format can parse, of at most 4,096 bytes.

mod json;
mod parse;
mod record;
mod step;

pub(crate) use parse::FormatProblem;

use super::time::TimePattern;
use crate::traces::TraceContext;
use record::LogRecord;
use selvedge::service::Exchange;
use std::time::Duration;
use step::FormatStep;

/// Bytes of a line with its line end. Log readers accept as much, and a client cannot multiply its bytes in the log.
pub(super) const LINE_BYTES_MAX: usize = 4096;
/// Lengths to which values are cut if a line would be too long, tried in order.
const VALUE_BYTES_MAX: [usize; 6] = [2048, 1024, 512, 256, 128, 64];

/// The Common Log Format.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
/// The Combined Log Format.
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#;

/// The format of a log line.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    kind: FormatKind,
}

#[derive(Clone, Debug)]
enum FormatKind {
    Steps(Vec<FormatStep>),
    Json(json::Json),
}

impl Format {
    /// Returns a predefined format: `common`, `combined` or `json`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "common" => Some(Self::predefined(COMMON)),
            "combined" => Some(Self::predefined(COMBINED)),
            "json" => Some(Self { kind: FormatKind::Json(json::Json::new(TimePattern::rfc3339_seconds())) }),
            _ => None,
        }
    }

    /// Parses a name or a text of directives.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn read(text: &str) -> Result<Self, FormatProblem> {
        match Self::named(text) {
            Some(format) => Ok(format),
            None if text.contains('%') => Self::parse(text),
            None => Err(FormatProblem::no_name(text)),
        }
    }

    /// A format of directives, as Apache's LogFormat has them.
    pub(crate) fn parse(text: &str) -> Result<Self, FormatProblem> {
        parse::steps(text).map(|steps| Self { kind: FormatKind::Steps(steps) })
    }

    fn predefined(text: &str) -> Self {
        Self::parse(text).expect("a test parses each of them")
    }

    /// Appends the line of a request that belongs to a site of that name, and to a trace, if the configuration has traces.
    ///
    /// `completed` is the time of the response, since 1970.
    pub(super) fn append(
        &mut self,
        exchange: &Exchange<'_>,
        (site, completed, trace): (&str, Duration, Option<TraceContext>),
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        let mut record = LogRecord { exchange, site, completed, trace, value_bytes_max: usize::MAX };
        self.append_whole(&record, out);
        // Once in a blue moon, so the line is simply made again.
        for most in VALUE_BYTES_MAX {
            if out.len() - begin < LINE_BYTES_MAX {
                break;
            }
            out.truncate(begin);
            record.value_bytes_max = most;
            self.append_whole(&record, out);
        }
        out.push(b'\n');
    }

    fn append_whole(&mut self, record: &LogRecord<'_>, out: &mut Vec<u8>) {
        match &mut self.kind {
            FormatKind::Steps(steps) => steps.iter_mut().for_each(|step| step.append(record, out)),
            FormatKind::Json(json) => json.append(record, out),
        }
    }
}
