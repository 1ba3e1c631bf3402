//! Prints sites and routes as a configuration.

use super::print::{Printer, dry_run, flag, quote, quote_path};
use super::{
    AccessSettings, Action, BasicAuth, Condition, ConfiguredAccess, Files, HeaderChange, IpAccess, ResponseSettings,
    Route, Site, When,
};
use crate::config::value::{write_size, write_time};
use std::fmt::{self, Display};

impl Site {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("site {}", quoted(&self.names)), |lines| {
            if let Some(files) = &self.files {
                lines.line(format_args!("root {}", quote_path(&files.root)))?;
                lines.line(format_args!("index {}", quoted(&files.index)))?;
                lines.line(format_args!("listing {}", flag(files.listing)))?;
                lines.line(format_args!("precompressed {}", flag(files.precompressed)))?;
            }
            if self.access_log.is_some() || self.error_log.is_some() {
                lines.braces("log", |lines| {
                    self.access_log.iter().try_for_each(|log| log.write(lines))?;
                    self.error_log.iter().try_for_each(|log| log.write(lines))
                })?;
            }
            self.access.write(lines)?;
            self.response_settings.write(lines)?;
            self.routes.iter().try_for_each(|route| route.write(lines))
        })
    }
}

impl ResponseSettings {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        for change in &self.headers {
            match change {
                HeaderChange::Set { name, value } => {
                    lines.line(format_args!("header {} {}", quote(name), quote(value)))?;
                }
                HeaderChange::Add { name, value } => {
                    lines.line(format_args!("header-add {} {}", quote(name), quote(value)))?;
                }
                HeaderChange::Remove { name } => lines.line(format_args!("header-remove {}", quote(name)))?,
            }
        }
        for rule in &self.cache_control {
            lines.line(format_args!("cache-control {} {}", quote(&rule.pattern.to_string()), quote(&rule.value)))?;
        }
        for page in &self.error_pages {
            lines.line(format_args!("error-page {} {}", page.status, quote(&page.path)))?;
        }
        Ok(())
    }
}

impl Route {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("route {}", quoted(&self.patterns)), |lines| {
            if self.when != When::default() {
                lines.braces("when", |lines| self.when.write(lines))?;
            }
            self.access.write(lines)?;
            lines.line(format_args!("body-bytes-max \"{}\"", write_size(self.body_bytes_max)))?;
            self.action.write(lines)?;
            self.response_settings.write(lines)
        })
    }
}

impl When {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if !self.methods.is_empty() {
            lines.line(format_args!("method {}", quoted(&self.methods)))?;
        }
        for (name, conditions) in [("query", &self.queries), ("header", &self.headers)] {
            for Condition { name: subject, value } in conditions {
                let value = value.as_ref().map_or_else(String::new, |value| format!(" {}", quote(value)));
                lines.line(format_args!("{name} {}{value}", quote(subject)))?;
            }
        }
        if self.clients.is_empty() { Ok(()) } else { lines.line(format_args!("client {}", quoted(&self.clients))) }
    }
}

impl AccessSettings {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if let Some(clients) = &self.ip_access {
            clients.write(lines)?;
        }
        if let Some(limit) = &self.rate_limit {
            let (per, dry_run_text) = (write_time(limit.per), dry_run(limit.enforcement));
            lines.line(format_args!(
                "rate-limit {} per=\"{per}\" burst={}{dry_run_text}",
                limit.requests, limit.burst
            ))?;
        }
        self.basic_auth.iter().try_for_each(|auth| auth.write(lines))
    }
}

impl IpAccess {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("ip-access{}", dry_run(self.enforcement)), |lines| {
            for rule in &self.rules {
                let access = match rule.access {
                    ConfiguredAccess::Allow => "allow",
                    ConfiguredAccess::Deny => "deny",
                };
                lines.line(format_args!("{access} {}", quoted(&rule.networks)))?;
            }
            Ok(())
        })
    }
}

impl BasicAuth {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let mut head = format!("basic-auth realm={}", quote(&self.realm));
        if let Some(file) = &self.file {
            head += &format!(" file={}", quote_path(file));
        }
        if self.users.is_empty() {
            return lines.line(head);
        }
        lines.braces(head, |lines| {
            self.users
                .iter()
                .try_for_each(|user| lines.line(format_args!("user {} {}", quote(&user.name), quote(&user.hash))))
        })
    }
}

impl Action {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        match self {
            Self::Files(files) => files.write(lines),
            Self::Redirect { target, status } => {
                lines.line(format_args!("redirect {} status={status}", quote(&target.to_string())))
            }
            Self::Rewrite { target } => lines.line(format_args!("rewrite {}", quote(&target.to_string()))),
            Self::Respond { status, body, content_type } => {
                let body = if body.is_empty() { String::new() } else { format!(" {}", quote(body)) };
                lines.line(format_args!("respond {status}{body} content-type={}", quote(content_type)))
            }
            Self::Deny { status } => lines.line(format_args!("deny status={status}")),
        }
    }
}

impl Files {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let mut head = format!("files root={}", quote_path(&self.root));
        if let Some(fallback) = &self.fallback {
            head += &format!(" fallback={}", quote(fallback));
        }
        head += &format!(" listing={} precompressed={}", flag(self.listing), flag(self.precompressed));
        lines.braces(head, |lines| {
            lines.line(format_args!("index {}", quoted(&self.index)))?;
            lines.line(format_args!("try-files {}", quoted(&self.try_files)))
        })
    }
}

/// Quotes each value, separated by spaces.
fn quoted<T: Display>(values: &[T]) -> String {
    values.iter().map(|value| quote(&value.to_string())).collect::<Vec<_>>().join(" ")
}
