//! Tries the expectations of a configuration.

use crate::compile::{self, CarriedState};
use crate::config::model::{Expectation, Switch, quote};
use crate::config::{Configuration, MachineRequirementKind, Problem, Span};
use crate::explanation::{Arrival, ExplainRequest, Explainable, ExplainedResponse, Explanation, explain};
use crate::preflight::Disk;
use std::path::Path;

/// Most expectations that are reported. Further ones are not tried then.
const PROBLEMS_MAX: usize = 100;
/// Most problems that have the explanation of their request.
const EXPLAINED_MAX: usize = 10;

/// Returns the problems of [`problems`] for a server that starts now, whatever the clients of a running one have done: they
/// must not decide whether it takes a configuration.
pub(crate) fn problems_at_start(configuration: &Configuration) -> Vec<Problem> {
    if configuration.settings.expectations.is_empty() {
        return Vec::new();
    }
    match compile::compile(configuration, &CarriedState::default(), &Disk) {
        Ok(compiled) => problems(configuration, &Explainable::of_file(configuration, &compiled)),
        Err(problems) => problems,
    }
}

/// Returns a problem for each expectation that the response to its request does not meet.
pub(crate) fn problems(configuration: &Configuration, of: &Explainable) -> Vec<Problem> {
    let folder = configuration.texts.files().next().and_then(Path::parent);
    // Their requirements have the order of the expectations.
    let places = configuration.requirements.iter().filter_map(|requirement| match requirement.kind {
        MachineRequirementKind::Expectation(_) => Some(requirement.at),
        _ => None,
    });
    let problem = |(expectation, at): (&Expectation, Span)| {
        let request = request(expectation);
        let (differences, details) = match explain(of, &request) {
            Ok(explanation) => match differences(expectation, &explanation) {
                differences if differences.is_empty() => return None,
                differences => (differences.join("; "), explanation.lines(folder)),
            },
            Err(error) => (error, Vec::new()),
        };
        let message = format!("{} {}: {differences}", request.method, request.url);
        Some(Problem::with_suggestion(at, message, String::new()).with_details(details))
    };
    let unmet = configuration.settings.expectations.iter().zip(places).filter_map(problem).take(PROBLEMS_MAX);
    let explained = |(number, problem): (usize, Problem)| match number {
        ..EXPLAINED_MAX => problem,
        _ => problem.with_details(Vec::new()),
    };
    unmet.enumerate().map(explained).collect()
}

fn request(expectation: &Expectation) -> ExplainRequest {
    ExplainRequest {
        method: expectation.method.clone(),
        url: expectation.url.to_string(),
        fields: expectation.request_fields.clone(),
        client: expectation.client,
        server_name: None,
        client_certificate: expectation.client_certificate.clone(),
        arrival: Arrival::AtPort,
    }
}

/// Returns what differs from an expectation, in words.
fn differences(expectation: &Expectation, explanation: &Explanation) -> Vec<String> {
    let mut differences = Vec::new();
    let (status, fields) = match &explanation.response {
        ExplainedResponse::NoResponse if expectation.response == Switch::Off => return differences,
        ExplainedResponse::NoResponse => {
            let why = explanation.steps.last().map(|step| format!(": {} {}", step.stage, step.text));
            return vec![format!("the request gets no response{}", why.unwrap_or_default())];
        }
        _ if expectation.response == Switch::Off => return vec!["the request gets a response".to_owned()],
        ExplainedResponse::Response { status, fields, .. } => (Some(*status), fields),
        ExplainedResponse::Produced { fields, .. } => (None, fields),
    };
    match (expectation.status, status) {
        (Some(expected), Some(status)) if expected != status => {
            differences.push(format!("expected status {expected}, and it is {status}"));
        }
        (Some(expected), None) => {
            differences.push(format!("expected status {expected}, and another server or script decides it"));
        }
        _ => {}
    }
    let of_own = [("location", &expectation.location), ("content-type", &expectation.content_type)];
    let of_own = of_own.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let others = expectation.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, expected) in of_own.chain(others) {
        let mut values = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let found: Vec<_> = values.by_ref().collect();
        if found.iter().all(|value| *value != expected) {
            let it = match found.first() {
                Some(value) => format!("it is {}", quote(value)),
                None => "it is missing".to_owned(),
            };
            differences.push(format!("expected {name} {}, and {it}", quote(expected)));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::RequestUrl;

    fn expectation() -> Expectation {
        Expectation {
            method: "GET".to_owned(),
            url: RequestUrl::parse("https://a/").unwrap(),
            client: None,
            client_certificate: None,
            request_fields: Vec::new(),
            response: Switch::On,
            status: Some(301),
            location: Some("/b".to_owned()),
            content_type: None,
            fields: vec![("X-A".to_owned(), "1".to_owned())],
        }
    }

    fn explanation(response: ExplainedResponse) -> Explanation {
        Explanation { request: String::new(), site: None, route: None, route_name: None, steps: Vec::new(), response }
    }

    fn response(status: u16, fields: &[(&str, &str)]) -> Explanation {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        explanation(ExplainedResponse::Response { status, reason: None, fields })
    }

    #[test]
    fn differences_are_named() {
        let met = response(301, &[("location", "/b"), ("x-a", "0"), ("x-a", "1")]);
        assert_eq!(differences(&expectation(), &met), [""; 0]);
        let other = response(302, &[("location", "/c")]);
        assert_eq!(
            differences(&expectation(), &other),
            [
                "expected status 301, and it is 302",
                "expected location \"/b\", and it is \"/c\"",
                "expected X-A \"1\", and it is missing"
            ]
        );
        let none = explanation(ExplainedResponse::NoResponse);
        assert_eq!(differences(&expectation(), &none), ["the request gets no response"]);
        let of_none = Expectation { response: Switch::Off, ..expectation() };
        assert_eq!(differences(&of_none, &none), [""; 0]);
        assert_eq!(differences(&of_none, &other), ["the request gets a response"]);
    }
}
