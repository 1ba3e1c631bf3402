//! Explains what the server does with a request: which steps of the serving code decide the response, and where the
//! configuration states it. The request runs through the service of the sites with a recorder. Nothing is sent, counted or
//! logged.

mod explained;
mod output;
mod places;

pub(crate) use explained::{Explainable, ExplainedResponse, Explanation};

use crate::compile::{self, Compiled};
use crate::config::Configuration;
use crate::config::model::{ClientCertificatesMode, Listener, Settings, SiteTls, Switch};
use crate::config::value::Address;
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

/// The stage of the first step.
const LISTENER: &str = "listener";

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
    let client = request.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut explanation = Explanation {
        request: format!("{} {url} from {client}", request.method),
        site: None,
        route: None,
        route_name: None,
        steps: vec![of.listener_step(&url)],
        response: ExplainedResponse::NoResponse,
    };
    let tls = match url.scheme() {
        Scheme::Http if request.server_name.is_some() => {
            return Err("a server name of a handshake needs a URL with https".to_owned());
        }
        Scheme::Http => None,
        Scheme::Https => {
            let name = request.server_name.as_deref().or_else(|| Some(url.host()).filter(|host| !is_address(host)));
            let (info, step) = of.handshake(name);
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
    /// Returns why the listener at the port of the request does not take it, in words.
    pub(crate) fn refusal_of_listener(&self) -> Option<&str> {
        let refused = |step: &&PlacedStep| step.stage == LISTENER && step.verdict == StepVerdict::Denied;
        self.steps.iter().find(refused).map(|step| &*step.text)
    }

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

    /// Returns the step about the listener that the request arrives at.
    fn listener_step(&self, url: &RequestUrl) -> PlacedStep {
        let listeners = self.settings.listeners.iter().enumerate();
        let at_port: Vec<_> = listeners.filter(|(_, listener)| port_of(listener) == Some(url.port())).collect();
        let tls = Switch::from(url.scheme() == Scheme::Https);
        let (with, otherwise) = match tls {
            Switch::On => ("with TLS", "has no TLS, so a handshake fails there; what follows is as if it had"),
            Switch::Off => {
                ("without TLS", "has TLS, so a plain request gets 400 there; what follows is as if it had none")
            }
        };
        let (verdict, text, number) = match at_port.iter().find(|(_, listener)| listener.tls == tls).or(at_port.first())
        {
            Some((number, listener)) if listener.tls == tls => {
                (StepVerdict::Yes, format!("{} {with}", listener.address), Some(*number))
            }
            Some((number, listener)) => {
                (StepVerdict::Denied, format!("{} {otherwise}", listener.address), Some(*number))
            }
            None => {
                (StepVerdict::No, format!("none at port {} {with}; what follows is as if one were", url.port()), None)
            }
        };
        let place = number.and_then(|number| self.places.top("listen", number)).map(|placed| placed.place().into());
        PlacedStep { stage: LISTENER, verdict, text, place }
    }

    /// Returns what the handshake with a server name agrees on, and the step about it. `None`: it fails.
    fn handshake(&self, name: Option<&str>) -> (Option<TlsInfo>, PlacedStep) {
        let site = compile::site_of_handshake(&self.table, &self.settings.sites, name);
        let tag = site.map_or(0, |site| self.table.host_tag(site));
        let place = site.and_then(|site| self.places.top("site", site as usize)).map(|placed| placed.place().into());
        let named = match name {
            Some(name) => format!("the server name {}", name.escape_debug()),
            None => "no server name".to_owned(),
        };
        let (info, verdict, text) = match (site, tag) {
            (Some(site), 1..) => {
                let site = &self.settings.sites[site as usize];
                let text = format!("{named}: the certificate of the site {}{}", site.names[0], assumptions(&site.tls));
                (Some(TlsInfo::assumed(name, tag)), StepVerdict::Yes, text)
            }
            (Some(site), 0) => {
                let site = &self.settings.sites[site as usize].names[0];
                (
                    None,
                    StepVerdict::Denied,
                    format!("{named}: the site {site} has no certificate, so the handshake fails"),
                )
            }
            (None, _) => (None, StepVerdict::Denied, format!("{named}: no site has it, so the handshake fails")),
        };
        (info, PlacedStep { stage: "tls", verdict, text, place })
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

/// Returns what an explanation assumes of a handshake, in words.
fn assumptions(tls: &SiteTls) -> String {
    let approval = match &tls.on_demand {
        Some(_) => ", if `on-demand-certificates` approves the name, which this does not try",
        None => "",
    };
    let clients = match tls.client_certificates.as_ref().map(|clients| clients.mode) {
        Some(ClientCertificatesMode::Required) => {
            "; a client without a certificate gets no handshake, and one whose certificate has no subject is assumed"
        }
        Some(ClientCertificatesMode::Optional) => "; a client without a certificate is assumed",
        None => "",
    };
    format!("{approval}{clients}")
}

/// Returns the port of a listener, if its address has one.
fn port_of(listener: &Listener) -> Option<u16> {
    match &listener.address {
        Address::Inet(address) => Some(address.port()),
        Address::Name { port, .. } => Some(*port),
        Address::Unix(_) | Address::Inherited(_) => None,
    }
}

/// Returns the port of the first listener with TLS. A socket without a port has that of https.
pub(crate) fn configured_https_port(settings: &Settings) -> Option<u16> {
    const HTTPS_PORT: u16 = 443;
    let mut with_tls = settings.listeners.iter().filter(|listener| listener.tls == Switch::On);
    with_tls.next().map(|listener| port_of(listener).unwrap_or(HTTPS_PORT))
}
