//! One line for each request, in a format that was compiled once.
//!
//! A format is a list of steps, each of which appends one thing; the well-known formats
//! are format strings like any other. JSON lines are written by a function of their own.
//! Invariant: whatever a request holds, a line is one line of ASCII (but for what a format
//! string itself says) that its format's readers can take apart.

mod json;
mod parse;
mod step;

pub(crate) use parse::FormatProblem;

use super::time::TimePattern;
use selvedge::service::Exchange;
use step::Step;

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
        match &mut self.shape {
            Shape::Steps(steps) => steps.iter_mut().for_each(|step| step.append(exchange, site, out)),
            Shape::Json(json) => json.append(exchange, site, out),
        }
        out.push(b'\n');
    }
}

/// The name of the host that a request is for, if it says one.
fn host<'a>(exchange: &Exchange<'a>) -> Option<selvedge::proto::target::Host<'a>> {
    exchange.request.and_then(selvedge::Request::host)
}
