//! Prints the settings in force as a configuration. Parsing it again gives equal settings.

use super::statement::Statement;
use super::{
    AccessLog, ConfiguredLimits, Driver, Enforcement, ErrorFormat, ErrorLog, ForwardedField, Level, Listener, Process,
    Rotation, Settings, Switch, TrustedProxies,
};
use crate::config::value::{Address, Descriptor, LogTarget, write_size, write_time};
use selvedge::proto::http2::Http2Limits;
use std::fmt::{self, Display, Formatter, Write};
use std::path::Path;
use std::time::Duration;

/// The indentation of a block.
const INDENT: usize = 4;

/// Writes indented lines.
pub(super) struct Printer<'a, 'f> {
    out: &'a mut Formatter<'f>,
    depth: usize,
}

impl Printer<'_, '_> {
    pub(super) fn line(&mut self, text: impl Display) -> fmt::Result {
        writeln!(self.out, "{:indent$}{text}", "", indent = self.depth * INDENT)
    }

    pub(super) fn braces(&mut self, head: impl Display, inside: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.line(format_args!("{head} {{"))?;
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        self.line("}")
    }
}

/// What writes lines.
struct Written<F>(F);

impl<F: Fn(&mut Printer<'_, '_>) -> fmt::Result> Display for Written<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.0)(&mut Printer { out: f, depth: 0 })
    }
}

/// Returns each setting that is written.
pub(super) fn statements(write: impl Fn(&mut Printer<'_, '_>) -> fmt::Result) -> Vec<Statement> {
    statements_within(0, write)
}

/// Returns each setting within this number of blocks.
pub(super) fn statements_within(depth: usize, write: impl Fn(&mut Printer<'_, '_>) -> fmt::Result) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    for line in Written(write).to_string().lines() {
        let text = line.trim_start();
        let own_depth = (line.len() - text.len()) / INDENT;
        match statements.last_mut() {
            _ if own_depth < depth => {}
            Some(_) if own_depth == depth && text == "}" => {}
            Some(last) if own_depth > depth => last.add_inner(own_depth - depth, text),
            _ => statements.push(Statement::new(text.strip_suffix(" {").unwrap_or(text))),
        }
    }
    statements
}

impl Display for Settings {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lines = Printer { out: f, depth: 0 };
        self.listeners.iter().try_for_each(|listener| lines.line(listener))?;
        self.write_server(&mut lines)?;
        self.upstreams.iter().try_for_each(|upstream| upstream.write(&mut lines))?;
        self.sites.iter().try_for_each(|site| site.write(&mut lines))?;
        self.expectations.iter().try_for_each(|expectation| expectation.write(&mut lines))
    }
}

impl Settings {
    /// Returns each setting of the top level beside listeners, upstreams, sites and expectations.
    pub(crate) fn server_statements(&self) -> Vec<Statement> {
        statements(|lines| self.write_server(lines))
    }

    fn write_server(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        self.process.write(lines)?;
        self.trusted_proxies.write(lines)?;
        if !self.ticket_keys.is_empty() {
            let paths: String = self.ticket_keys.iter().map(|path| format!(" {}", quote_path(path))).collect();
            lines.line(format_args!("ticket-keys{paths}"))?;
        }
        lines.line(format_args!("certificate-folder {}", quote_path(&self.certificate_folder)))?;
        if let Some(remote) = &self.remote_control {
            lines.line(remote)?;
        }
        if let Some(listener) = &self.metrics {
            lines.line(format_args!("metrics {}", quote(&listener.address.to_string())))?;
        }
        self.traces.iter().try_for_each(|traces| traces.write(lines))?;
        lines.braces("acme", |lines| self.acme.write(lines))?;
        lines.braces("limits", |lines| self.limits.write(lines))?;
        lines.braces("log", |lines| {
            self.logs.access.write(lines)?;
            self.logs.error.write(lines)
        })
    }
}

impl Display for Listener {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let address = self.address.to_string();
        match self.address {
            Address::Unix(_) => write!(f, "listen {} mode=\"{:04o}\"", quote(&address), self.mode)?,
            _ => write!(f, "listen {}", quote(&address))?,
        }
        match self.tls {
            Switch::On => f.write_str(" tls=#true")?,
            Switch::Off if self.address.has_https_port() => f.write_str(" tls=#false")?,
            Switch::Off => {}
        }
        match self.plain_http2 {
            Switch::On => f.write_str(" http2=#true")?,
            Switch::Off => {}
        }
        match self.proxy_protocol {
            Switch::On => f.write_str(" proxy-protocol=#true"),
            Switch::Off => Ok(()),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Inherited(Descriptor::Number(number)) => write!(f, "fd:{number}"),
            Self::Inherited(Descriptor::Name(name)) => write!(f, "fd:{name}"),
        }
    }
}

impl Process {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if let Some(workers) = self.workers {
            lines.line(format_args!("workers {workers}"))?;
        }
        let driver = match self.driver {
            Driver::Auto => "auto",
            Driver::Epoll => "epoll",
            Driver::IoUring => "io_uring",
        };
        lines.line(format_args!("driver \"{driver}\""))?;
        for (name, account) in [("user", &self.user), ("group", &self.group)] {
            if let Some(account) = account {
                lines.line(format_args!("{name} {}", quote(account)))?;
            }
        }
        if let Some(path) = &self.pid_file {
            lines.line(format_args!("pid-file {}", quote_path(path)))?;
        }
        lines.line(format_args!("control {}", quote_path(&self.control)))?;
        let supervision = &self.supervision;
        lines.braces("supervision", |lines| {
            lines.line(format_args!("supervised {}", flag(supervision.supervised)))?;
            lines.line(format_args!("restarts-max {}", supervision.restarts_max))?;
            lines.line(format_args!("restarts-within \"{}\"", write_time(supervision.restarts_within)))?;
            lines.line(format_args!("back-off-min \"{}\"", write_time(supervision.back_off_min)))?;
            lines.line(format_args!("back-off-max \"{}\"", write_time(supervision.back_off_max)))
        })
    }
}

impl TrustedProxies {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let mut words: Vec<_> = self.networks.iter().map(|network| format!("\"{network}\"")).collect();
        if self.unix == Switch::On {
            words.push("\"unix\"".to_owned());
        }
        if words.is_empty() {
            return Ok(());
        }
        let field = match self.field {
            ForwardedField::XForwardedFor => "x-forwarded-for",
            ForwardedField::Forwarded => "forwarded",
        };
        lines.line(format_args!("trusted-proxies {} header=\"{field}\"", words.join(" ")))
    }
}

impl ConfiguredLimits {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let size = |bytes: usize| write_size(bytes as u64);
        lines.line(format_args!("request-line-bytes-max \"{}\"", size(self.request_line_bytes_max)))?;
        lines.line(format_args!("head-bytes-max \"{}\"", size(self.head_bytes_max)))?;
        lines.line(format_args!("fields-max {}", self.fields_max))?;
        lines.line(format_args!("chunk-extension-bytes-max \"{}\"", size(self.chunk_extension_bytes_max)))?;
        lines.line(format_args!("chunk-overhead-allowance \"{}\"", write_size(self.chunk_overhead_allowance)))?;
        lines.line(format_args!("trailer-bytes-max \"{}\"", size(self.trailer_bytes_max)))?;
        lines.line(format_args!("header-timeout \"{}\"", write_time(self.header_timeout)))?;
        lines.line(format_args!("body-timeout \"{}\"", write_time(self.body_timeout)))?;
        lines.line(format_args!("body-min-rate {}", self.body_min_rate))?;
        lines.line(format_args!("send-timeout \"{}\"", write_time(self.send_timeout)))?;
        lines.line(format_args!("send-min-rate {}", self.send_min_rate))?;
        lines.line(format_args!("keep-alive-timeout \"{}\"", write_time(self.keep_alive_timeout)))?;
        lines.line(format_args!("body-bytes-max \"{}\"", write_size(self.body_bytes_max)))?;
        lines.line(format_args!("discard-bytes-max \"{}\"", write_size(self.discard_bytes_max)))?;
        if let Some(connections) = self.connections_max {
            lines.line(format_args!("connections-max {connections}"))?;
        }
        if let Some(bound) = &self.connections_per_client {
            let dry_run_text = dry_run(bound.enforcement);
            lines.line(format_args!("connections-per-client-max {}{dry_run_text}", bound.connections_max))?;
        }
        lines.line(format_args!("shutdown-timeout \"{}\"", write_time(self.shutdown_timeout)))?;
        lines.line(format_args!("shutdown-notice \"{}\"", write_time(self.shutdown_notice)))?;
        write_http2_limits(&self.http2, lines)?;
        self.upstreams.write(lines)
    }
}

fn write_http2_limits(limits: &Http2Limits, lines: &mut Printer<'_, '_>) -> fmt::Result {
    let mut number = |name: &str, value: u32| lines.line(format_args!("http2-{name} {value}"));
    number("streams-max", limits.streams_max)?;
    number("continuations-max", limits.continuation_frames_max)?;
    number("budget", limits.budget_points)?;
    number("budget-per-second", limits.budget_points_per_second)?;
    for (name, bytes) in [
        ("stream-window-bytes", limits.stream_window_bytes),
        ("connection-window-bytes", limits.connection_window_bytes),
        ("frame-bytes-max", limits.frame_bytes_max),
        ("sent-frame-bytes-max", limits.sent_frame_bytes_max),
        ("turn-bytes", limits.turn_bytes),
        ("table-bytes-max", limits.decoder_table_bytes_max),
        ("field-block-bytes-max", limits.field_block_bytes_max),
    ] {
        lines.line(format_args!("http2-{name} \"{}\"", write_size(bytes.into())))?;
    }
    for (name, milliseconds) in
        [("settings-timeout", limits.settings_timeout_ms), ("shutdown-notice", limits.shutdown_notice_ms)]
    {
        lines.line(format_args!("http2-{name} \"{}\"", write_time(Duration::from_millis(milliseconds))))?;
    }
    Ok(())
}

impl AccessLog {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        write_log(
            lines,
            format!("access {} format={}", target(&self.target), quote(&self.format)),
            self.rotation.as_ref(),
        )
    }
}

impl ErrorLog {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let level = match self.level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        };
        let format = match self.format {
            ErrorFormat::Text => "text",
            ErrorFormat::Json => "json",
        };
        let head = format!("error {} level=\"{level}\" format=\"{format}\"", target(&self.target));
        write_log(lines, head, self.rotation.as_ref())
    }
}

fn write_log(lines: &mut Printer<'_, '_>, head: String, rotation: Option<&Rotation>) -> fmt::Result {
    let Some(rotation) = rotation else { return lines.line(head) };
    let mut line = "rotate".to_owned();
    if let Some(size) = rotation.size_max {
        write!(line, " size=\"{}\"", write_size(size))?;
    }
    if let Some(age) = rotation.age_max {
        write!(line, " age=\"{}\"", write_time(age))?;
    }
    write!(line, " keep={} compress={}", rotation.files_max, flag(rotation.compress))?;
    lines.braces(head, |lines| lines.line(line))
}

fn target(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => "\"off\"".to_owned(),
        LogTarget::Stdout => "\"stdout\"".to_owned(),
        LogTarget::Stderr => "\"stderr\"".to_owned(),
        LogTarget::Syslog => "\"syslog\"".to_owned(),
        LogTarget::Journald => "\"journald\"".to_owned(),
        // With `./`, so that no file name equals another target.
        LogTarget::File(path) if path.parent() == Some(Path::new("")) => quote(&format!("./{}", path.display())),
        LogTarget::File(path) => quote_path(path),
    }
}

pub(super) fn flag(switch: Switch) -> &'static str {
    match switch {
        Switch::On => "#true",
        Switch::Off => "#false",
    }
}

pub(super) fn dry_run(enforcement: Enforcement) -> &'static str {
    match enforcement {
        Enforcement::Enforce => "",
        Enforcement::DryRun => " dry-run=#true",
    }
}

pub(super) fn quote_path(path: &Path) -> String {
    quote(&path.display().to_string())
}

/// Quotes a text for KDL. A `${` is escaped so that it is no variable.
pub(crate) fn quote(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.replace("${", "$${").chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Some characters beyond ASCII need escapes in KDL.
            ' '..='~' => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    out.push('"');
    out
}
