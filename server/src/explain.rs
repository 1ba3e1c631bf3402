//! `selvedge explain`, from top to bottom.

use crate::check::{print_refusal, read};
use crate::cli::ExplainArgs;
use crate::config_path;
use crate::control_client;
use crate::explanation::{Arrival, ExplainRequest, Explainable, explain};
use crate::last_requests;
use crate::log::print_line;
use crate::process::{self, ControlCommand, StatusFormat};
use crate::recorder::{LastQuery, read_dump};
use crate::snapshot::Refusal;
use serde::Deserialize;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;

/// Explains a request by a configuration, or by that of a running server.
pub(crate) fn run(options: &ExplainArgs) -> ExitCode {
    let request = match request(options) {
        Ok(request) => request,
        Err(problem) => return refuse(&problem),
    };
    let format = if options.json { StatusFormat::Json } else { StatusFormat::Text };
    if options.running || options.control.is_some() {
        return match ControlCommand::explain(format, &request) {
            Ok(command) => control_client::run_for(&options.config, options.control.as_deref(), command),
            Err(problem) => refuse(&problem),
        };
    }
    // The server raises the limit too, so the limits are those in force.
    process::raise_descriptor_limit();
    let file = match config_path::find(&options.config) {
        Ok(file) => file,
        Err(problem) => return print_refusal(&Refusal::Plain(problem)),
    };
    let (configuration, compiled) = match read(&file) {
        Ok(read) => read,
        Err(refusal) => return print_refusal(&refusal),
    };
    let explainable = Explainable::of_file(&configuration, &compiled);
    match explain(&explainable, &request) {
        Ok(explanation) => {
            let text = explanation.format(format, &file.display().to_string(), file.parent());
            // If the reader has closed the pipe, it has read enough.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(problem) => refuse(&problem),
    }
}

/// Returns the request of the options, which replace the parts of a recorded one.
fn request(options: &ExplainArgs) -> Result<ExplainRequest, String> {
    let recorded = options.request.map(|id| RecordedRequest::find(id, options)).transpose()?;
    let url = match &recorded {
        Some(recorded) => recorded.url(&options.fields)?,
        None => options.url.clone().unwrap_or_default(),
    };
    let client = recorded.as_ref().map(|recorded| recorded.client);
    let arrival = if recorded.is_some() { Arrival::Earlier } else { Arrival::AtPort };
    let method = recorded.map(|recorded| recorded.method);
    Ok(ExplainRequest {
        method: options.method.clone().or(method).unwrap_or_else(|| "GET".to_owned()),
        url,
        fields: options.fields.clone(),
        client: options.client.or(client),
        server_name: options.server_name.clone(),
        client_certificate: options.client_certificate.clone(),
        arrival,
    })
}

/// A request of the flight recorder, in the JSON of `selvedge last`.
#[derive(Debug, Deserialize)]
struct RecordedRequest {
    client: IpAddr,
    method: String,
    /// Empty if it is not recorded.
    host: String,
    target: String,
    target_cut: bool,
    tls: bool,
    /// `None` for a refused head.
    protocol: Option<String>,
}

impl RecordedRequest {
    /// Returns the request with an identifier: of a dump, or of the running server.
    fn find(id: (usize, u64), options: &ExplainArgs) -> Result<Self, String> {
        let query = LastQuery { json: true, count_max: 1, id: Some(id), ..LastQuery::default() };
        let reply = match &options.dump {
            Some(dump) => {
                let memory = read_dump(dump).map_err(|error| format!("cannot read {}: {error}", dump.display()))?;
                last_requests::report(&memory, &query)
            }
            None => control_client::reply(&options.config, options.control.as_deref(), ControlCommand::Last(query))?,
        };
        match reply.trim() {
            "" => Err(format!("the request {}-{} is not recorded, or later ones have replaced it", id.0, id.1)),
            json => serde_json::from_str(json).map_err(|_| json.to_owned()),
        }
    }

    /// Returns the URL, without the query, which is not recorded. A field Host replaces its host.
    fn url(&self, fields: &[(String, String)]) -> Result<String, String> {
        let given = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = given.map_or(&self.host, |(_, host)| host);
        let scheme = if self.tls { "https" } else { "http" };
        let target = self.target.escape_debug();
        match self.protocol {
            None => Err("the head of the request was refused, so the recorder has its first line only".to_owned()),
            _ if !self.target.starts_with('/') => Err(format!("the request has no path: {target}")),
            _ if self.target_cut => {
                Err(format!("the recorder has the begin of the path only: {target}; write the URL"))
            }
            _ if host.is_empty() => Err("the recorder has no host of the request; add -H \"Host: NAME\"".to_owned()),
            Some(_) => Ok(format!("{scheme}://{host}{}", self.target)),
        }
    }
}

fn refuse(problem: &str) -> ExitCode {
    print_line(&format!("selvedge: {problem}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_request_becomes_a_url_or_a_reason_why_not() {
        let recorded = |host: &str, target: &str| RecordedRequest {
            client: IpAddr::from([192, 0, 2, 7]),
            method: "GET".to_owned(),
            host: host.to_owned(),
            target: target.to_owned(),
            target_cut: target.len() > 8,
            tls: host.starts_with("tls."),
            protocol: Some("HTTP/1.1".to_owned()),
        };
        let fields = [("X-A".to_owned(), "1".to_owned()), ("HOST".to_owned(), "b:8".to_owned())];
        for (host, target, fields, expected) in [
            ("a.example:80", "/x%20y", &fields[..1], Ok("http://a.example:80/x%20y")),
            ("tls.example", "/", &[], Ok("https://tls.example/")),
            ("", "/x", &fields, Ok("http://b:8/x")),
            ("", "/x", &[], Err("no host")),
            ("a", "/12345678", &[], Err("the begin of the path only")),
            ("a", "*", &[], Err("no path")),
        ] {
            match (recorded(host, target).url(fields), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url, expected),
                (Err(text), Err(expected)) => assert!(text.contains(expected), "{text}"),
                (url, expected) => panic!("{url:?} instead of {expected:?}"),
            }
        }
        let refused = RecordedRequest { protocol: None, ..recorded("a", "/x") };
        assert!(refused.url(&[]).is_err());
    }
}
