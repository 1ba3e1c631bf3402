//! Explanations as text and as JSON.

use super::explained::{ExplainedResponse, Explanation, PlacedStep};
use crate::process::StatusFormat;
use crate::site::{Producer, printable};
use selvedge::StatusCode;
use serde_json::{Value, json};
use std::path::Path;

impl Explanation {
    /// Returns the explanation as lines. Files in the folder are named without it.
    pub(crate) fn lines(&self, folder: Option<&Path>) -> Vec<String> {
        let step = |step: &PlacedStep| {
            let place = step.place.as_ref().map(|place| format!(" ({})", place.beside(folder))).unwrap_or_default();
            format!("{} {:<8} {}{place}", step.verdict.mark(), step.stage, step.text)
        };
        let mut lines = vec![self.request.clone()];
        lines.extend(self.steps.iter().map(step));
        let (first, fields) = match &self.response {
            ExplainedResponse::NoResponse => ("no response".to_owned(), &[][..]),
            ExplainedResponse::Response { status, reason, fields } => {
                let name = StatusCode::new(*status).map_or("", StatusCode::reason_phrase);
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                (format!("{status} {name}{reason}"), fields.as_slice())
            }
            ExplainedResponse::Produced { producer, fields } => {
                (format!("the response of {}", name(*producer)), fields.as_slice())
            }
        };
        lines.push(format!("= {first}"));
        lines.extend(fields.iter().map(|(name, value)| format!("  {name}: {}", printable(value))));
        lines
    }

    /// Returns the explanation of a configuration, which `source` names, in a format.
    pub(crate) fn format(&self, format: StatusFormat, source: &str, folder: Option<&Path>) -> String {
        match format {
            StatusFormat::Json => format!("{:#}\n", self.json(source)),
            StatusFormat::Text => {
                let mut lines = self.lines(folder);
                lines.insert(1, format!("by {source}"));
                lines.join("\n") + "\n"
            }
        }
    }

    /// Returns the explanation as JSON.
    fn json(&self, source: &str) -> Value {
        let step = |step: &PlacedStep| {
            json!({
                "stage": step.stage,
                "verdict": step.verdict.name(),
                "text": step.text,
                "file": step.place.as_ref().map(|place| place.file.display().to_string()),
                "line": step.place.as_ref().map(|place| place.line),
            })
        };
        json!({
            "request": self.request,
            "source": source,
            "site": self.site,
            "route": self.route,
            "route_name": self.route_name,
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
            "response": response(&self.response),
        })
    }
}

/// Returns the response as JSON; `null` for none.
fn response(response: &ExplainedResponse) -> Value {
    let list =
        |fields: &[(String, String)]| fields.iter().map(|(name, value)| json!([name, value])).collect::<Vec<_>>();
    match response {
        ExplainedResponse::NoResponse => Value::Null,
        ExplainedResponse::Response { status, reason, fields } => {
            json!({ "status": status, "of": "server", "reason": reason, "fields": list(fields) })
        }
        ExplainedResponse::Produced { producer, fields } => {
            let of = match producer {
                Producer::Upstream => "upstream",
                Producer::Script => "script",
            };
            json!({ "status": null, "of": of, "reason": null, "fields": list(fields) })
        }
    }
}

fn name(producer: Producer) -> &'static str {
    match producer {
        Producer::Upstream => "the server that the request is forwarded to, with these fields in addition",
        Producer::Script => "the script, with these fields in addition",
    }
}
