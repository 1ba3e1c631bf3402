//! Expectations: of the top level, and of sites.

use super::values::status;
use super::{Builder, MachineRequirementKind};
use crate::config::model::{Expectation, Listener, SiteTls, Switch};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::syntax::{HostName, RequestUrl, ValueError};
use std::net::IpAddr;

/// Most expectations. Each takes about 0.1 ms at a reload.
const EXPECTATIONS_MAX: usize = 10_000;

/// The site of expectations.
#[derive(Clone, Copy)]
pub(super) struct ExpectingSite<'a> {
    pub(super) names: &'a [HostName],
    pub(super) tls: &'a SiteTls,
}

/// Builds the expectations of the top level or of a site.
pub(super) fn add_expectations(builder: &mut Builder<'_, '_>, block: &Block, site: Option<ExpectingSite<'_>>) {
    for item in block.all("expect") {
        if builder.expectations.len() == EXPECTATIONS_MAX {
            let problem = Problem::new(item.at, format!("more than {EXPECTATIONS_MAX} expectations"));
            return builder.problem(problem.suggest("remove some of them"));
        }
        match expectation(builder, item, site) {
            Ok(expectation) => {
                let number = builder.expectations.len();
                builder.require(item.at, MachineRequirementKind::Expectation(number));
                builder.expectations.push(expectation);
            }
            Err((at, ValueError { message, suggestion })) => {
                builder.problem(Problem::new(at, message).suggest(suggestion));
            }
        }
    }
}

fn expectation(
    builder: &Builder<'_, '_>,
    item: &Item,
    site: Option<ExpectingSite<'_>>,
) -> Result<Expectation, (Span, ValueError)> {
    let given = item.first();
    let (method, url) = request(given.text());
    if url.contains(' ') {
        let what = format!("`{}` has a space", url.escape_debug());
        return Err((
            given.at,
            ValueError::new(what, "write a method and a URL, as in \"GET /path\"; a space in it is %20"),
        ));
    }
    let url = match (url.starts_with('/'), site) {
        _ if url.contains(' ') => Err(ValueError::new(
            format!("a space in `{}`", url.escape_debug()),
            "write %20 for it; the request has no version of HTTP",
        )),
        (false, _) => RequestUrl::parse(url),
        (true, Some(site)) => url_of_site(site, url, &builder.listeners),
        (true, None) => {
            Err(ValueError::new("a path outside of a site", "write a URL as in \"https://example.com/path\""))
        }
    };
    let url = url.map_err(|error| (given.at, error))?;
    if method.is_empty() || !method.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        let what = format!("`{}` is not a method", method.escape_debug());
        return Err((given.at, ValueError::new(what, "write, for example, \"GET /path\"")));
    }
    let text = |name| item.property(name).map(|given| given.text().to_owned());
    let fields = |name| {
        let items = item.block().all(name);
        items.map(|item| (item.first().text().to_owned(), item.arguments[1].text().to_owned())).collect()
    };
    let expectation = Expectation {
        method: method.to_owned(),
        url,
        client: item.property("client").map(client).transpose()?,
        client_certificate: text("client-certificate"),
        request_fields: fields("request-header"),
        response: Switch::from(item.required("response").flag()),
        status: item.property("status").map(status),
        location: text("location"),
        content_type: text("content-type"),
        fields: fields("header"),
    };
    let expects_fields =
        expectation.location.is_some() || expectation.content_type.is_some() || !expectation.fields.is_empty();
    let problem = match (expectation.response, expectation.status.is_some() || expects_fields) {
        (Switch::On, false) => ("an expectation that every response meets", "write, for example, status=200"),
        (Switch::Off, true) => ("`response=#false` beside what a response has", "remove one of them"),
        _ => return Ok(expectation),
    };
    if item.has_problem { Ok(expectation) } else { Err((item.at, ValueError::new(problem.0, problem.1))) }
}

/// Returns the URL of a path of a site. Its port is the usual one, or that of the first listener if none has the usual one.
fn url_of_site(site: ExpectingSite<'_>, path: &str, listeners: &[Listener]) -> Result<RequestUrl, ValueError> {
    let has_certificate = !site.tls.certificates.is_empty() || site.tls.automatic == Switch::On;
    let has_tls = has_certificate && listeners.iter().any(|listener| listener.tls == Switch::On);
    let (scheme, usual) = if has_tls { ("https", 443) } else { ("http", 80) };
    let of_scheme = listeners.iter().filter(|listener| listener.tls == Switch::from(has_tls));
    let ports: Vec<_> = of_scheme.map(|listener| listener.address.port().unwrap_or(usual)).collect();
    let port = ports.first().filter(|_| !ports.contains(&usual)).unwrap_or(&usual);
    match site.names.first() {
        Some(HostName::Exact(name)) => RequestUrl::parse(&format!("{scheme}://{name}:{port}{path}")),
        _ => {
            let instead = format!("write the whole URL, such as \"{scheme}://example.com{path}\"");
            Err(ValueError::new("the first name of the site is a wildcard", instead))
        }
    }
}

/// Splits a request into its method and its URL.
fn request(text: &str) -> (&str, &str) {
    match text.split_once(' ') {
        Some((method, url)) => (method, url.trim_start()),
        None => ("GET", text),
    }
}

fn client(given: &SpannedValue) -> Result<IpAddr, (Span, ValueError)> {
    let text = given.text();
    text.parse().map_err(|_| {
        let what = format!("`{}` is not an address", text.escape_debug());
        (given.at, ValueError::new(what, "write, for example, client=\"192.0.2.1\""))
    })
}
