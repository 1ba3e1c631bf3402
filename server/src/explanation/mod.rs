//! Explains what the server does with a request: which steps of the serving code decide the response, and where the
//! configuration states it. The request runs through the service of the sites with a recorder. Nothing is sent, counted or
//! logged.

mod arrival;
mod explained;
mod output;
mod places;

pub(crate) use explained::{Explainable, ExplainedResponse, Explanation};

use crate::compile::Compiled;
use crate::config::Configuration;
use crate::config::model::{Settings, Switch};
use crate::site::{Producer, SiteService, StepVerdict};
use crate::syntax::RequestUrl;
use explained::PlacedStep;
use places::PlacedPart;
use selvedge::detached::{DetachedRequest, refuse, run_to_end};
use selvedge::proto::RequestLine;
use selvedge::proto::head::{Scheme, Version};
use selvedge::service::TlsInfo;
use selvedge::{Reject, Request, Response};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

/// The port of the client. Port 0 would be that of a Unix socket.
const CLIENT_PORT: u16 = 49_152;

/// The stack of the thread that runs the request: that of a worker.
const STACK_BYTES: usize = 2 << 20;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExplainRequest {
    pub(crate) method: String,
    pub(crate) url: String,
    /// Names and values. A Host replaces that of the URL.
    pub(crate) fields: Vec<(String, String)>,
    /// The address of the client; that of this machine by default.
    pub(crate) client: Option<IpAddr>,
    /// The server name of the TLS handshake; the host of the URL by default.
    pub(crate) server_name: Option<String>,
    /// The subject of the client's certificate. The server trusts its issuer.
    pub(crate) client_certificate: Option<String>,
    pub(crate) arrival: Arrival,
}

/// How a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Arrival {
    /// At the port of the URL.
    AtPort,
    /// It has arrived earlier. Neither the listener nor the certificate of the client is known.
    Earlier,
}

/// Explains a request.
///
/// # Errors
/// Why the request is none.
pub(crate) fn explain(of: &Explainable, request: &ExplainRequest) -> Result<Explanation, String> {
    let failed = |error: std::io::Error| format!("cannot explain: {error}");
    // A thread of its own, because this one may belong to another runtime.
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("selvedge-explain".to_owned()).stack_size(STACK_BYTES);
        let explaining = thread.spawn_scoped(scope, || explain_here(of, request)).map_err(failed)?;
        explaining.join().unwrap_or_else(|_| Err("the request has caused a panic".to_owned()))
    })
}

fn explain_here(of: &Explainable, request: &ExplainRequest) -> Result<Explanation, String> {
    let url = RequestUrl::parse(&request.url).map_err(|error| format!("{}; {}", error.message, error.suggestion))?;
    let is_framing =
        |name: &str| ["content-length", "transfer-encoding"].iter().any(|own| own.eq_ignore_ascii_case(name));
    if let Some((name, _)) = request.fields.iter().find(|(name, _)| is_framing(name)) {
        return Err(format!("{name}: only requests without content can be explained"));
    }
    if url.scheme() == Scheme::Http && (request.server_name.is_some() || request.client_certificate.is_some()) {
        return Err("a server name and a certificate of the client need a URL with https".to_owned());
    }
    let client = request.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut explanation = Explanation {
        request: format!("{} {url} from {client}", request.method),
        site: None,
        route: None,
        route_name: None,
        steps: Vec::new(),
        response: ExplainedResponse::NoResponse,
    };
    if let Some(refusal) = of.arrive(&url, request.arrival, &mut explanation) {
        explanation.response = refusal;
        return Ok(explanation);
    }
    let tls = match url.scheme() {
        Scheme::Http => None,
        Scheme::Https => {
            let name = request.server_name.as_deref().or_else(|| Some(url.host()).filter(|host| !is_address(host)));
            let (info, step) = of.handshake(name, request);
            explanation.steps.push(step);
            match info {
                Some(info) => Some(info),
                None => return Ok(explanation),
            }
        }
    };
    match detached(request, &url, (client, tls)).build(&of.limits) {
        Ok(request) => of.run(request, &mut explanation)?,
        Err(reject) => explanation.refuse(reject, &request.fields),
    }
    Ok(explanation)
}

/// Whether a host is an address, which no client sends as a server name.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<IpAddr>().is_ok()
}

fn detached<'a>(
    request: &'a ExplainRequest,
    url: &'a RequestUrl,
    (client, tls): (IpAddr, Option<TlsInfo>),
) -> DetachedRequest<'a> {
    let own = request.fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let has_host = request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = (!has_host).then_some((&b"host"[..], url.authority().as_bytes()));
    let line =
        RequestLine { method: request.method.as_bytes(), target: url.target().as_bytes(), version: Version::Http11 };
    DetachedRequest {
        line,
        fields: host.into_iter().chain(own).collect(),
        peer: SocketAddr::new(client, CLIENT_PORT),
        tls,
    }
}

impl Explanation {
    /// Takes a refusal of a head with these fields as the response.
    fn refuse(&mut self, reject: Reject, fields: &[(String, String)]) {
        let status = reject.status().code();
        let text = format!("the head is refused: {}: {status}", reject.message());
        self.steps.push(PlacedStep { stage: "head", verdict: StepVerdict::Denied, text, place: None });
        let accept = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
        let response = refuse(reject, accept.map(|(_, value)| value.as_bytes())).log_reason(reject.message());
        self.response = explained_response(&response, None);
    }
}

impl Explainable {
    /// Returns what a file is explained by.
    pub(crate) fn of_file(configuration: &Configuration, compiled: &Compiled) -> Self {
        Self {
            settings: Arc::new(configuration.settings.clone()),
            places: configuration.places.clone(),
            table: compiled.table.clone(),
            limits: compiled.limits.message,
            https_port: configured_https_port(&configuration.settings),
        }
    }

    /// Runs a request through the service of the sites.
    fn run(&self, mut request: Request, explanation: &mut Explanation) -> Result<(), String> {
        let ran = run_to_end(async {
            // Within the runtime, in which the service starts the tasks of its connections.
            let service = SiteService::explaining(self.table.clone()).with_https_port(self.https_port);
            service.explain(&mut request).await
        });
        let (response, recorder) = ran.map_err(|error| format!("cannot explain: {error}"))?;
        let part = PlacedPart::new(self, recorder.site());
        let (steps, omitted) = recorder.take();
        explanation.steps.extend(steps.into_iter().map(|step| part.placed(step)));
        if omitted > 0 {
            let text = format!("{omitted} more steps");
            explanation.steps.push(PlacedStep { stage: "more", verdict: StepVerdict::Note, text, place: None });
        }
        explanation.site = part.site_name();
        explanation.route = recorder.route().and_then(|route| part.pattern(route));
        explanation.route_name = recorder.route().and_then(|route| part.route_name(route));
        explanation.response = explained_response(&response, recorder.producer());
        Ok(())
    }
}

fn explained_response(response: &Response, producer: Option<Producer>) -> ExplainedResponse {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let fields = response.fields().iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    match producer {
        Some(producer) => ExplainedResponse::Produced { producer, fields },
        None => ExplainedResponse::Response { status: response.status.code(), reason: response.reason(), fields },
    }
}

/// Returns the port of the first listener with TLS. A socket without a port has that of https.
pub(crate) fn configured_https_port(settings: &Settings) -> Option<u16> {
    const HTTPS_PORT: u16 = 443;
    let mut with_tls = settings.listeners.iter().filter(|listener| listener.tls == Switch::On);
    with_tls.next().map(|listener| listener.address.port().unwrap_or(HTTPS_PORT))
}
