//! Explains how a request arrives: at which listener, and by which TLS handshake.

use super::explained::{Explainable, ExplainedResponse, Explanation, PlacedStep};
use super::{Arrival, ExplainRequest};
use crate::compile;
use crate::config::model::{ClientCertificatesMode, Listener, Site, Switch};
use crate::site::StepVerdict;
use crate::syntax::RequestUrl;
use selvedge::proto::head::Scheme;
use selvedge::service::TlsInfo;
use std::collections::BTreeSet;

impl Explainable {
    /// Adds the step about the listener that a request arrives at. Returns what the client gets in place of the response of
    /// a site, if no listener takes the request.
    pub(super) fn arrive(
        &self,
        url: &RequestUrl,
        arrival: Arrival,
        explanation: &mut Explanation,
    ) -> Option<ExplainedResponse> {
        let tls = Switch::from(url.scheme() == Scheme::Https);
        let with = match tls {
            Switch::On => "with TLS",
            Switch::Off => "without TLS",
        };
        let (verdict, text, number, refusal) = match (self.listener(url.port(), tls), arrival) {
            (Some((number, listener)), _) if listener.tls == tls => {
                (StepVerdict::Yes, format!("{} {with}", listener.address), Some(number), None)
            }
            (_, Arrival::Earlier) => (StepVerdict::Note, format!("one {with}, which is not recorded"), None, None),
            (Some((number, listener)), Arrival::AtPort) => {
                let (what, refusal) = mismatch(tls);
                (StepVerdict::Denied, format!("{} {what}", listener.address), Some(number), Some(refusal))
            }
            (None, Arrival::AtPort) => {
                let text = format!("none has port {}, but {}; the request reaches no site", url.port(), self.ports());
                (StepVerdict::Denied, text, None, Some(ExplainedResponse::NoResponse))
            }
        };
        let place = number.and_then(|number| self.places.top("listen", number)).map(|placed| placed.place().into());
        explanation.steps.push(PlacedStep { stage: "listener", verdict, text, place });
        refusal
    }

    /// Returns the ports of all listeners, in words.
    fn ports(&self) -> String {
        let ports = self.settings.listeners.iter().filter_map(|listener| listener.address.port());
        let ports: BTreeSet<_> = ports.collect();
        match ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ") {
            ports if ports.is_empty() => "Unix sockets or ports that are not known".to_owned(),
            ports => ports,
        }
    }

    /// Returns the listener at a port, and its number: one with or without TLS as it should be, if it exists. A listener
    /// whose port is not known may have this one.
    fn listener(&self, port: u16, tls: Switch) -> Option<(usize, &Listener)> {
        let with_port = |port: Option<u16>| {
            let listeners = self.settings.listeners.iter().enumerate();
            let mut at_port = listeners.filter(move |(_, listener)| listener.address.port() == port);
            at_port.clone().find(|(_, listener)| listener.tls == tls).or_else(|| at_port.next())
        };
        with_port(Some(port)).or_else(|| with_port(None))
    }

    /// Returns what the handshake of a request with a server name agrees on, and the step about it. `None`: it fails.
    pub(super) fn handshake(&self, name: Option<&str>, request: &ExplainRequest) -> (Option<TlsInfo>, PlacedStep) {
        let number = compile::site_of_handshake(&self.table, &self.settings.sites, name);
        let tag = number.map_or(0, |number| self.table.host_tag(number));
        let place = number.and_then(|number| self.places.top("site", number as usize));
        let place = place.map(|placed| placed.place().into());
        let named = match name {
            Some(name) => format!("the server name {}", name.escape_debug()),
            None => "no server name".to_owned(),
        };
        let site = number.map(|number| &self.settings.sites[number as usize]);
        let (info, verdict, text) = match site {
            Some(site) if tag > 0 => {
                let approval = name.filter(|name| compile::needs_approval(site, &self.settings.acme, name));
                let (verdict, approval) = match approval {
                    Some(_) => {
                        (StepVerdict::Note, ", if `on-demand-certificates` approves the name, which is not tried")
                    }
                    None => (StepVerdict::Yes, ""),
                };
                let (verdict, client) = client_certificate(site, request).unwrap_or((verdict, String::new()));
                let subject = request.client_certificate.as_deref().filter(|_| site.tls.client_certificates.is_some());
                let info = TlsInfo::assumed(name, tag, subject);
                let text = format!("the certificate of the site {}{approval}{client}", site.names[0]);
                ((verdict != StepVerdict::Denied).then_some(info), verdict, text)
            }
            Some(site) => {
                let text = format!("the site {} has no certificate, so the handshake fails", site.names[0]);
                (None, StepVerdict::Denied, text)
            }
            None => (None, StepVerdict::Denied, "no site has it, so the handshake fails".to_owned()),
        };
        (info, PlacedStep { stage: "tls", verdict, text: format!("{named}: {text}"), place })
    }
}

/// Returns the reason and the result of a request with or without TLS at a listener that is the other way.
fn mismatch(tls: Switch) -> (&'static str, ExplainedResponse) {
    match tls {
        Switch::On => ("has no TLS, so the handshake fails", ExplainedResponse::NoResponse),
        Switch::Off => {
            let response = ExplainedResponse::Response {
                status: 400,
                reason: Some("the client sent plain HTTP to a TLS port"),
                fields: vec![("content-type".to_owned(), "text/plain".to_owned())],
            };
            ("has TLS, so a plain request gets 400", response)
        }
    }
}

/// Returns what the certificate of the client decides, in words. `None` if neither the site nor the request is about one.
fn client_certificate(site: &Site, request: &ExplainRequest) -> Option<(StepVerdict, String)> {
    let mode = site.tls.client_certificates.as_ref().map(|clients| clients.mode);
    Some(match (mode, &request.client_certificate, request.arrival) {
        (None, None, _) => return None,
        (None, Some(_), _) => (StepVerdict::Note, "; it requests none of the client".to_owned()),
        (Some(_), Some(subject), _) => {
            (StepVerdict::Yes, format!("; the client has a trusted one of {}", subject.escape_debug()))
        }
        (Some(_), None, Arrival::Earlier) => {
            (StepVerdict::Note, "; whether the client had one is not recorded".to_owned())
        }
        (Some(ClientCertificatesMode::Optional), None, Arrival::AtPort) => {
            (StepVerdict::Yes, "; the client has none, which is allowed".to_owned())
        }
        (Some(ClientCertificatesMode::Required), None, Arrival::AtPort) => {
            (StepVerdict::Denied, "; the client has no certificate, so the handshake is refused".to_owned())
        }
    })
}
