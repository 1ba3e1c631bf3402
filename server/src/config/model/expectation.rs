//! Requests with what their responses have to be.

use super::Switch;
use super::print::{Printer, quote};
use crate::syntax::RequestUrl;
use std::fmt;
use std::net::IpAddr;

/// A request, and what its response has to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) method: String,
    pub(crate) url: RequestUrl,
    /// `None`: a client of this machine.
    pub(crate) client: Option<IpAddr>,
    /// The subject of the client's certificate.
    pub(crate) client_certificate: Option<String>,
    /// The fields of the request beside Host.
    pub(crate) request_fields: Vec<(String, String)>,
    /// Off: the handshake fails, or no listener takes the request.
    pub(crate) response: Switch,
    pub(crate) status: Option<u16>,
    pub(crate) location: Option<String>,
    pub(crate) content_type: Option<String>,
    /// Fields that the response has to have.
    pub(crate) fields: Vec<(String, String)>,
}

impl Expectation {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let mut head = format!("expect {}", quote(&format!("{} {}", self.method, self.url)));
        if self.response == Switch::Off {
            head += " response=#false";
        }
        if let Some(status) = self.status {
            head += &format!(" status={status}");
        }
        for (name, value) in [("location", &self.location), ("content-type", &self.content_type)] {
            if let Some(value) = value {
                head += &format!(" {name}={}", quote(value));
            }
        }
        if let Some(client) = self.client {
            head += &format!(" client=\"{client}\"");
        }
        if let Some(subject) = &self.client_certificate {
            head += &format!(" client-certificate={}", quote(subject));
        }
        if self.request_fields.is_empty() && self.fields.is_empty() {
            return lines.line(head);
        }
        lines.braces(head, |lines| {
            for (setting, fields) in [("request-header", &self.request_fields), ("header", &self.fields)] {
                for (name, value) in fields {
                    lines.line(format_args!("{setting} {} {}", quote(name), quote(value)))?;
                }
            }
            Ok(())
        })
    }
}
