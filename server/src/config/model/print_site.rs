//! Prints sites and routes as a configuration.

use super::print::{Printer, dry_run, flag, quote, quote_path, statements};
use super::statement::Statement;
use super::{
    AccessSettings, Action, BasicAuth, BodyLimit, CertificateFiles, ClientCertificates, ClientCertificatesMode,
    Condition, ConfiguredAccess, ContentTypeRule, EncodedSlashRule, Files, HeaderChange, HeaderChangeKind, Hsts,
    IpAccess, NamedCondition, ResponseSettings, Route, RouteLog, Satisfy, Site, SiteTls, Switch, When,
};
use crate::config::value::{write_size, write_time};
use crate::syntax::{CaseSensitivity, ResponseSelector};
use std::fmt::{self, Display};

impl Site {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("site {}", quoted(&self.names)), |lines| {
            self.write_settings(lines)?;
            self.routes.iter().try_for_each(|route| route.write(lines))
        })
    }

    /// Returns each setting beside the routes.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        statements(|lines| {
            lines.line(format_args!("site {}", quoted(&self.names)))?;
            self.write_settings(lines)
        })
    }

    /// Writes the settings beside the routes.
    fn write_settings(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if let Some(files) = &self.files {
            lines.line(format_args!("root {}", quote_path(&files.root)))?;
            lines.line(format_args!("index {}", quoted(&files.index)))?;
            lines.line(format_args!("listing {}", flag(files.listing)))?;
            lines.line(format_args!("precompressed {}", flag(files.precompressed)))?;
        }
        let slash = match self.encoded_slash {
            EncodedSlashRule::Data => "data",
            EncodedSlashRule::Files => "files",
            EncodedSlashRule::Separator => "separator",
        };
        lines.line(format_args!("encoded-slash {slash}"))?;
        if !self.link_targets.is_empty() {
            let targets: Vec<_> = self.link_targets.iter().map(|path| quote_path(path)).collect();
            lines.line(format_args!("link-targets {}", targets.join(" ")))?;
        }
        self.tls.write(lines)?;
        if self.access_log.is_some() || self.error_log.is_some() {
            lines.braces("log", |lines| {
                self.access_log.iter().try_for_each(|log| log.write(lines))?;
                self.error_log.iter().try_for_each(|log| log.write(lines))
            })?;
        }
        self.access.write(lines)?;
        // A route whose limit is in dry-run mode has the enforced one of the site.
        let mut observing = self.routes.iter().filter(|route| route.body_limit.dry_run_bytes_max.is_some());
        if let Some(route) = observing.next() {
            lines.line(format_args!("body-bytes-max \"{}\"", write_size(route.body_limit.bytes_max)))?;
        }
        self.response_settings.write(lines)
    }
}

impl SiteTls {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if self.certificates.is_empty() {
            lines.line(format_args!("automatic-certificate {}", flag(self.automatic)))?;
        }
        if let Some(approval) = &self.on_demand {
            lines.line(format_args!("on-demand-certificates {approval}"))?;
        }
        for CertificateFiles { chain, key } in &self.certificates {
            lines.line(format_args!("certificate {} key={}", quote_path(chain), quote_path(key)))?;
        }
        if let Some(ClientCertificates { mode, authorities }) = &self.client_certificates {
            let mode = match mode {
                ClientCertificatesMode::Required => "required",
                ClientCertificatesMode::Optional => "optional",
            };
            lines.line(format_args!("client-certificates \"{mode}\" ca={}", quote_path(authorities)))?;
        }
        if !self.certificates.is_empty() || self.automatic == Switch::On {
            lines.line(format_args!("https-redirect {}", flag(self.https_redirect)))?;
        }
        let Some(Hsts { max_age, subdomains, preload }) = &self.hsts else { return Ok(()) };
        lines.line(format_args!(
            "hsts max-age=\"{}\" subdomains={} preload={}",
            write_time(*max_age),
            flag(*subdomains),
            flag(*preload)
        ))
    }
}

impl ResponseSettings {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        for HeaderChange { name, kind, only_for } in &self.headers {
            let only_for = match only_for {
                Some(selector) => format!(" for={}{}", quote(&selector.to_string()), selector_case(selector)),
                None => String::new(),
            };
            match kind {
                HeaderChangeKind::Set(value) => {
                    lines.line(format_args!("header {} {}{only_for}", quote(name), quote(&value.to_string())))?;
                }
                HeaderChangeKind::Add(value) => {
                    lines.line(format_args!("header-add {} {}{only_for}", quote(name), quote(&value.to_string())))?;
                }
                HeaderChangeKind::Remove => lines.line(format_args!("header-remove {}{only_for}", quote(name)))?,
            }
        }
        for ContentTypeRule { pattern, media_type } in &self.content_types {
            let case = case(pattern.case());
            lines.line(format_args!("content-type {} {}{case}", quote(&pattern.to_string()), quote(media_type)))?;
        }
        for rule in &self.cache_control {
            let case = selector_case(&rule.selector);
            let selector = quote(&rule.selector.to_string());
            lines.line(format_args!("cache-control {selector} {}{case}", quote(&rule.value)))?;
        }
        if let Some(cors) = &self.cors {
            lines.line(format_args!(
                "cors {} methods={} headers={} credentials={} max-age=\"{}\"",
                quoted(&cors.origins),
                quote(&cors.methods),
                quote(&cors.headers),
                flag(cors.credentials),
                write_time(cors.max_age)
            ))?;
        }
        for page in &self.error_pages {
            lines.line(format_args!("error-page {} {}", page.status, quote(&page.path)))?;
        }
        Ok(())
    }
}

impl BodyLimit {
    fn write(self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let enforced = write_size(self.bytes_max);
        match self.dry_run_bytes_max.map(write_size) {
            None => lines.line(format_args!("body-bytes-max \"{enforced}\"")),
            // A block has one limit, so the other one is that of the block around it.
            Some(observed) => {
                lines.line(format_args!("body-bytes-max \"{observed}\" dry-run=#true // enforced: {enforced}"))
            }
        }
    }
}

impl Route {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(self.head(), |lines| {
            self.write_conditions(lines)?;
            self.write_settings(lines)
        })
    }

    /// Returns the line before the block.
    fn head(&self) -> String {
        let case = self.patterns.first().map_or("", |pattern| case(pattern.case()));
        format!("route {}{case}", quoted(&self.patterns))
    }

    /// Returns for which requests the route is.
    pub(crate) fn requests(&self) -> String {
        let conditions = statements(|lines| self.write_conditions(lines));
        let conditions = conditions.iter().map(ToString::to_string);
        std::iter::once(self.head()).chain(conditions).collect::<Vec<_>>().join(" ")
    }

    /// Returns each setting beside those of [`Self::requests`].
    pub(crate) fn statements(&self) -> Vec<Statement> {
        statements(|lines| self.write_settings(lines))
    }

    /// Returns the access rules, also those of the site, and the action.
    pub(crate) fn access_and_action(&self) -> Vec<Statement> {
        statements(|lines| {
            self.access.write(lines)?;
            self.action.write(lines)
        })
    }

    /// Returns the action as a line, without secrets.
    pub(crate) fn action_without_secrets(&self) -> String {
        let statements = statements(|lines| self.action.write(lines));
        statements.iter().map(Statement::without_secrets).collect::<Vec<_>>().join(" ")
    }

    fn write_conditions(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if self.when == When::default() {
            return Ok(());
        }
        let conditions = &self.when.conditions;
        lines.braces("when", |lines| conditions.iter().try_for_each(|condition| condition.write(lines)))
    }

    fn write_settings(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if let Some(name) = &self.name {
            lines.line(format_args!("name {}", quote(name)))?;
        }
        self.access.write(lines)?;
        self.body_limit.write(lines)?;
        lines.line(format_args!("compress {}", flag(self.compress)))?;
        match self.log {
            RouteLog::All => {}
            RouteLog::None => lines.line(format_args!("log #false"))?,
            RouteLog::Statuses(first, last) => lines.line(format_args!("log #true status=\"{first}-{last}\""))?,
        }
        self.action.write(lines)?;
        self.response_settings.write(lines)
    }
}

impl Condition {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let named = |lines: &mut Printer<'_, '_>, kind: &str, condition: &NamedCondition| {
            let case = condition.values.first().map_or("", |pattern| case(pattern.case()));
            let values: String =
                condition.values.iter().map(|value| format!(" {}", quote(&value.to_string()))).collect();
            lines.line(format_args!("{kind} {}{values}{case}", quote(&condition.name)))
        };
        let block = |lines: &mut Printer<'_, '_>, kind: &str, conditions: &[Self]| {
            lines.braces(kind, |lines| conditions.iter().try_for_each(|condition| condition.write(lines)))
        };
        match self {
            Self::Method(methods) => lines.line(format_args!("method {}", quoted(methods))),
            Self::Query(condition) => named(lines, "query", condition),
            Self::Header(condition) => named(lines, "header", condition),
            Self::Cookie(condition) => named(lines, "cookie", condition),
            Self::Client(networks) => lines.line(format_args!("client {}", quoted(networks))),
            Self::Host(hosts) => lines.line(format_args!("host {}", quoted(hosts))),
            Self::ClientCertificate(subjects) => {
                let case = subjects.first().map_or("", |pattern| case(pattern.case()));
                let subjects: String =
                    subjects.iter().map(|subject| format!(" {}", quote(&subject.to_string()))).collect();
                lines.line(format_args!("client-certificate{subjects}{case}"))
            }
            Self::Scheme(scheme) => lines.line(format_args!("scheme {}", quote(scheme))),
            Self::FileExists(path) => lines.line(format_args!("file-exists {}", quote_path(path))),
            Self::Not(condition) => block(lines, "not", std::slice::from_ref(condition)),
            Self::Any(conditions) => block(lines, "any", conditions),
            Self::All(conditions) => block(lines, "all", conditions),
        }
    }
}

fn case(case: CaseSensitivity) -> &'static str {
    match case {
        CaseSensitivity::Sensitive => "",
        CaseSensitivity::Insensitive => " ignore-case=#true",
    }
}

fn selector_case(selector: &ResponseSelector) -> &'static str {
    match selector {
        ResponseSelector::Path(pattern) => case(pattern.case()),
        ResponseSelector::MediaType(_) => "",
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
        if let Some(limit) = &self.requests_at_once {
            let (most, dry_run_text) = (limit.connections_max, dry_run(limit.enforcement));
            lines.line(format_args!("requests-at-once-max {most}{dry_run_text}"))?;
        }
        self.basic_auth.iter().try_for_each(|auth| auth.write(lines))?;
        match self.satisfy {
            Satisfy::All => Ok(()),
            Satisfy::Any => lines.line("satisfy \"any\""),
        }
    }
}

impl IpAccess {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let head = format!("ip-access status={}{}", self.status, dry_run(self.enforcement));
        lines.braces(head, |lines| {
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
        let time = write_time(self.wrong_time);
        head += &format!(" wrong-max={} wrong-time=\"{time}\"{}", self.wrong_max, dry_run(self.enforcement));
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
                let body = body.to_string();
                let body = if body.is_empty() { body } else { format!(" {}", quote(&body)) };
                lines.line(format_args!("respond {status}{body} content-type={}", quote(content_type)))
            }
            Self::Deny { status, enforcement } => {
                lines.line(format_args!("deny status={status}{}", dry_run(*enforcement)))
            }
            Self::Metrics => lines.line("metrics"),
            Self::StatusPage { public } => lines.line(format_args!("status-page public={}", flag(*public))),
            Self::Proxy(proxy) => proxy.write(lines),
            Self::Gateway(gateway) => gateway.write(lines),
        }
    }
}

impl Files {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let mut head = format!("files root={}", quote_path(&self.root));
        if let Some(fallback) = &self.fallback {
            head += &format!(" fallback={}", quote(fallback));
        }
        head += &format!(
            " strip-prefix={} listing={} precompressed={}",
            flag(self.strip_prefix),
            flag(self.listing),
            flag(self.precompressed)
        );
        lines.braces(head, |lines| {
            lines.line(format_args!("index {}", quoted(&self.index)))?;
            lines.line(format_args!("try-files {}", quoted(&self.try_files)))?;
            lines.line(format_args!("clean-urls {}", flag(self.clean_urls)))?;
            lines.line(format_args!("trailing-slash {}", self.trailing_slash.word()))
        })
    }
}

/// Quotes each value, separated by spaces.
pub(super) fn quoted<T: Display>(values: &[T]) -> String {
    values.iter().map(|value| quote(&value.to_string())).collect::<Vec<_>>().join(" ")
}
