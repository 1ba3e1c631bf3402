//! The report of all attacks: lines while they run, or JSON at the end.

use super::attack::{AttackArea, AttackOutcome, AttackText, AttackVerdict};
use super::running_server::CountsByName;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportFormat {
    Text,
    Json,
}

/// The results so far.
pub(super) struct Report {
    format: ReportFormat,
    results: Vec<AttackResult>,
}

/// The result of one attack.
#[derive(Debug, Serialize)]
struct AttackResult {
    area: AttackArea,
    #[serde(flatten)]
    text: AttackText,
    verdict: AttackVerdict,
    seen: String,
    milliseconds: u64,
}

/// The whole report, as JSON.
#[derive(Debug, Serialize)]
struct WholeReport<'a> {
    url: &'a str,
    address: &'a str,
    held: usize,
    failed: usize,
    not_applicable: usize,
    milliseconds: u64,
    attacks: &'a [AttackResult],
    /// What the server has counted meanwhile; `None` if it has no control socket.
    counted: Option<&'a CountsByName>,
}

/// What is known when all attacks are over.
pub(super) struct ReportEnd<'a> {
    pub(super) url: &'a str,
    pub(super) address: &'a str,
    pub(super) time: Duration,
    pub(super) counted: Option<&'a CountsByName>,
}

impl Report {
    pub(super) fn begin(format: ReportFormat, url: &str, address: &str) -> Self {
        let report = Self { format, results: Vec::new() };
        report.print_as_text(|| format!("selftest of {url} at {address}"));
        report
    }

    /// Adds a result, and prints it.
    pub(super) fn add(&mut self, area: AttackArea, text: AttackText, outcome: AttackOutcome, time: Duration) {
        let AttackOutcome { verdict, seen } = outcome;
        let result = AttackResult { area, text, verdict, seen, milliseconds: ms(time) };
        self.print_as_text(|| result.line());
        self.results.push(result);
    }

    pub(super) fn has_failures(&self) -> bool {
        self.count(AttackVerdict::Failed) > 0
    }

    fn count(&self, verdict: AttackVerdict) -> usize {
        self.results.iter().filter(|result| result.verdict == verdict).count()
    }

    /// Prints the end of the report.
    pub(super) fn end(&self, end: &ReportEnd<'_>) {
        let counts = [AttackVerdict::Held, AttackVerdict::Failed, AttackVerdict::NotApplicable]
            .map(|verdict| self.count(verdict));
        let [held, failed, not_applicable] = counts;
        match self.format {
            ReportFormat::Text => {
                let seconds = end.time.as_secs_f64();
                let mut text =
                    format!("{held} held, {failed} failed, {not_applicable} not applicable, in {seconds:.1} s");
                if let Some(counted) = end.counted {
                    let counted: Vec<_> = counted.iter().map(|(name, count)| format!("{count} {name}")).collect();
                    let counted = if counted.is_empty() { "nothing".to_owned() } else { counted.join(", ") };
                    let _ = write!(text, "\nthe server counted meanwhile, of all clients: {counted}");
                }
                print(&text);
            }
            ReportFormat::Json => {
                let ReportEnd { url, address, time, counted } = *end;
                let attacks = &*self.results;
                let milliseconds = ms(time);
                let report = WholeReport { url, address, held, failed, not_applicable, milliseconds, attacks, counted };
                print(&serde_json::to_string_pretty(&report).expect("all values are texts and numbers"));
            }
        }
    }

    fn print_as_text(&self, text: impl FnOnce() -> String) {
        if self.format == ReportFormat::Text {
            print(&text());
        }
    }
}

impl AttackResult {
    /// Returns the line of a text, and what was sent and expected if the server did not withstand.
    fn line(&self) -> String {
        let Self { area, text, verdict, seen, milliseconds } = self;
        let name = format!("{}/{}", area.name(), text.name);
        let mut line = format!("{verdict:<14} {name:<36} {seen} ({milliseconds} ms)");
        match verdict {
            AttackVerdict::Held => {
                let _ = write!(line, " [{}]", text.limit);
            }
            AttackVerdict::Failed => {
                for (label, value) in [("sent", text.sends), ("expected", text.expects), ("limit", text.limit)] {
                    let _ = write!(line, "\n{:<14} {label}: {value}", "");
                }
            }
            AttackVerdict::NotApplicable => {}
        }
        line
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Prints a line. If the reader has closed the pipe, it has read enough.
fn print(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(verdict: AttackVerdict) -> AttackResult {
        let text = AttackText { name: "silent", sends: "nothing", expects: "close", limit: "header-timeout" };
        AttackResult { area: AttackArea::SlowClients, text, verdict, seen: "seen".to_owned(), milliseconds: 3 }
    }

    #[test]
    fn lines_name_the_limit_and_failures_explain_themselves() {
        let held = result(AttackVerdict::Held).line();
        assert!(held.starts_with("held           slow-clients/silent "), "{held}");
        assert!(held.ends_with(" seen (3 ms) [header-timeout]"), "{held}");
        let failed = result(AttackVerdict::Failed).line();
        assert!(failed.starts_with("FAILED         slow-clients/silent "), "{failed}");
        assert!(
            failed.ends_with(
                "\n               sent: nothing\n               expected: close\n               limit: header-timeout"
            ),
            "{failed}"
        );
        assert!(!result(AttackVerdict::NotApplicable).line().contains("header-timeout"));
    }
}
