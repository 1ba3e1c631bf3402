//! The settings of the route action `proxy`.

use super::print::{Printer, flag, quote};
use super::{HeaderChange, HeaderChangeKind, Switch};
use crate::config::value::write_size;
use crate::syntax::Template;
use std::fmt;

/// How requests are forwarded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proxy {
    /// The name of an upstream of the settings.
    pub(crate) upstream: String,
    pub(crate) strip_prefix: Switch,
    pub(crate) host: ForwardedHost,
    /// `None`: the path of the client.
    pub(crate) path: Option<Template>,
    pub(crate) request_headers: Vec<HeaderChange>,
    pub(crate) response_headers: Vec<HeaderChange>,
    pub(crate) forwarded: ForwardedFields,
    pub(crate) via: Switch,
    pub(crate) field_names: FieldNames,
    /// 0: none.
    pub(crate) buffered_bytes_max: u32,
    pub(crate) rewrite_location: Switch,
    pub(crate) proxy_status: Switch,
}

/// The Host field of forwarded requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForwardedHost {
    /// That of the client.
    Keep,
    /// That of the server.
    Upstream,
    Fixed(String),
}

/// Which fields tell an upstream about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardedFields {
    XForwarded,
    Forwarded,
    Both,
    Off,
}

/// Which fields are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldNames {
    Strict,
    Any,
}

impl Proxy {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let head = format!("proxy {} strip-prefix={}", quote(&self.upstream), flag(self.strip_prefix));
        lines.braces(head, |lines| {
            let host = match &self.host {
                ForwardedHost::Keep => "keep",
                ForwardedHost::Upstream => "upstream",
                ForwardedHost::Fixed(host) => host,
            };
            lines.line(format_args!("host {}", quote(host)))?;
            if let Some(path) = &self.path {
                lines.line(format_args!("path {}", quote(&path.to_string())))?;
            }
            for (direction, changes) in [("up", &self.request_headers), ("down", &self.response_headers)] {
                changes.iter().try_for_each(|change| write_change(lines, direction, change))?;
            }
            let fields = match self.forwarded {
                ForwardedFields::XForwarded => "x-forwarded",
                ForwardedFields::Forwarded => "forwarded",
                ForwardedFields::Both => "both",
                ForwardedFields::Off => "off",
            };
            lines.line(format_args!("forwarded \"{fields}\""))?;
            lines.line(format_args!("via {}", flag(self.via)))?;
            let names = match self.field_names {
                FieldNames::Strict => "strict",
                FieldNames::Any => "any",
            };
            lines.line(format_args!("field-names \"{names}\""))?;
            lines.line(format_args!("buffer-request \"{}\"", write_size(self.buffered_bytes_max.into())))?;
            lines.line(format_args!("rewrite-location {}", flag(self.rewrite_location)))?;
            lines.line(format_args!("proxy-status {}", flag(self.proxy_status)))
        })
    }
}

fn write_change(lines: &mut Printer<'_, '_>, direction: &str, change: &HeaderChange) -> fmt::Result {
    let name = quote(&change.name);
    match &change.kind {
        HeaderChangeKind::Set(value) => {
            lines.line(format_args!("header-{direction} {name} {}", quote(&value.to_string())))
        }
        HeaderChangeKind::Add(value) => {
            lines.line(format_args!("header-{direction}-add {name} {}", quote(&value.to_string())))
        }
        HeaderChangeKind::Remove => lines.line(format_args!("header-{direction}-remove {name}")),
    }
}
