//! Traces and their collector.

use super::Builder;
use crate::config::model::Traces;
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::syntax::ValueError;
use http::Uri;

/// The fields that belong to the protocol.
const OWN_FIELDS: [&str; 7] =
    ["connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];
/// The path at which collectors accept traces.
const USUAL_PATH: &str = "/v1/traces";

/// Builds the settings of traces.
pub(super) fn traces(builder: &mut Builder<'_, '_>, top: &Block) -> Option<Traces> {
    let item = top.get("traces")?;
    let given = item.first();
    let url = match check_url(given) {
        Ok(url) => url,
        Err(ValueError { message, suggestion }) => {
            builder.problem(Problem::new(given.at, message).suggest(suggestion));
            return None;
        }
    };
    let block = item.block();
    let headers = block.all("header").filter_map(|item| header(builder, item)).collect();
    Some(Traces {
        url,
        service: block.item("service").first().text().to_owned(),
        ratio: block.item("ratio").first().ratio(),
        slower: block.item("slower").first().time(),
        headers,
    })
}

/// Returns the URL, if it is one of a collector.
fn check_url(given: &SpannedValue) -> Result<String, ValueError> {
    let text = given.text();
    let example = "write, for example, \"http://127.0.0.1:4318/v1/traces\"";
    let url: Uri =
        text.parse().map_err(|_| ValueError::new(format!("`{}` is not a URL", text.escape_debug()), example))?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let Some(authority) = url.authority().filter(|_| is_web) else {
        return Err(ValueError::new("the URL of a collector begins with http:// or https://", example));
    };
    if authority.as_str().contains('@') {
        let instead = "write them as a field: `header \"Authorization\" \"Basic ...\"`";
        return Err(ValueError::new("a user or a password in the URL of a collector", instead));
    }
    match (authority.port_u16(), url.path()) {
        (Some(4317), _) => Err(ValueError::new(
            "4317 is the port of OTLP over gRPC",
            format!("write the port of OTLP over HTTP: \"http://{}:4318{USUAL_PATH}\"", authority.host()),
        )),
        (_, "/") => Err(ValueError::new(
            "the URL of a collector has a path",
            format!("write \"{}{USUAL_PATH}\"", text.trim_end_matches('/')),
        )),
        _ => Ok(text.to_owned()),
    }
}

fn header(builder: &mut Builder<'_, '_>, item: &Item) -> Option<(String, String)> {
    let (name, value) = (item.first(), item.arguments[1].text());
    if OWN_FIELDS.iter().any(|own| name.text().eq_ignore_ascii_case(own)) {
        let problem = Problem::new(name.at, format!("the protocol sets `{}`", name.text()));
        builder.problem(problem.suggest("remove it"));
        return None;
    }
    Some((name.text().to_owned(), value.to_owned()))
}
