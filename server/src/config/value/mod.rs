//! The kinds of values: name, range, and parser of each.

mod address;
mod name;
mod number;
mod path;
mod server_address;

pub(crate) use address::{Address, Descriptor};
pub(crate) use name::is_password_hash;
pub(crate) use number::{write_size, write_time};
pub(crate) use server_address::{ServerAddress, ServerPlace, ServerScheme};
pub(super) use server_address::{is_address, read_url};

use super::text::Scalar;
pub(crate) use crate::syntax::ValueError;
use crate::syntax::{
    CaseSensitivity, HostName, Network, Pattern, PlaceholderNames, ResponseSelector, Template, TextPattern,
    TextTemplate, TryPath, check_no_placeholder,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kind of a value, as the table of settings uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Flag,
    Count {
        min: u64,
        max: u64,
    },
    Size {
        min: u64,
        max: u64,
    },
    Time {
        min: Duration,
        max: Duration,
    },
    /// A number from 0 to 1.
    Ratio,
    Text,
    /// A name that reports show.
    Label,
    Choice(&'static [&'static str]),
    /// Of a file or folder; a relative one starts at the folder of its configuration file.
    Path,
    /// A path, or a URL of http or https.
    PathOrUrl,
    FileName,
    /// The end of file names, without its dot.
    Suffix,
    Include,
    Account,
    FileMode,
    Listen,
    Network,
    /// A network, or `unix`.
    Proxy,
    Host,
    Pattern,
    /// A path pattern or a media type.
    Selector,
    MediaType,
    /// Of a value that is no path.
    TextPattern,
    /// Of the origin of a page.
    Origin,
    /// Of a host in a condition.
    HostPattern,
    RedirectTarget,
    RewriteTarget,
    /// A text with placeholders.
    TextTemplate,
    /// A field value with placeholders.
    FieldTemplate,
    TryPath,
    UrlPath,
    /// The path of a request that this server sends, with or without a query.
    RequestPath,
    Status {
        min: u16,
        max: u16,
    },
    OneOfStatuses(&'static [u16]),
    /// A status, or a range of them.
    Statuses,
    Method,
    FieldName,
    RequestFieldName,
    FieldValue,
    UserName,
    PasswordHash,
    LogTarget,
    LogFormat,
    /// The URL of a server of an upstream.
    Server,
    /// The name of an upstream, or the URL of a server. The builder reads it, because it knows the names.
    ProxyTarget,
    /// The address of a server that runs scripts.
    ScriptServer,
    /// The host of requests to an upstream: `keep`, `upstream` or a host with or without a port.
    ForwardedHost,
    /// The name of a field that requests to an upstream may have.
    ForwardedFieldName,
    /// The name of a variable of a script or program.
    VariableName,
    CookieName,
    /// What requests are distributed by.
    HashKey,
}

/// A parsed value. [`read`] documents the variant of each kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Number(u64),
    Time(Duration),
    Ratio(f64),
    Text(String),
    Path(PathBuf),
    Listen(Address),
    Network(Network),
    Unix,
    Host(HostName),
    Pattern(Pattern),
    Selector(ResponseSelector),
    TextPattern(TextPattern),
    Template(Template),
    TextTemplate(TextTemplate),
    TryPath(TryPath),
    LogTarget(LogTarget),
    /// The first and the last of a range.
    Statuses(u16, u16),
    Server(ServerAddress),
    ScriptServer(ServerPlace),
}

/// Where log lines are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogTarget {
    Off,
    Stdout,
    Stderr,
    Syslog,
    Journald,
    File(PathBuf),
}

impl ValueKind {
    /// Refuses a placeholder in a value that would keep it as it is. Names of files may have braces, so only names of
    /// placeholders are refused in them.
    fn check_placeholders(self, text: &str) -> Result<(), ValueError> {
        match self {
            // They have placeholders, named wildcards, or a grammar of their own, whose parser checks braces.
            Self::RedirectTarget
            | Self::RewriteTarget
            | Self::TryPath
            | Self::TextTemplate
            | Self::FieldTemplate
            | Self::Pattern
            | Self::Selector
            | Self::TextPattern
            | Self::Origin
            | Self::HostPattern
            | Self::LogFormat
            | Self::PasswordHash => Ok(()),
            Self::Path | Self::PathOrUrl | Self::FileName | Self::Suffix | Self::Include | Self::LogTarget => {
                check_no_placeholder(text, PlaceholderNames::Known)
            }
            Self::Text
            | Self::Server
            | Self::ProxyTarget
            | Self::ScriptServer
            | Self::ForwardedHost
            | Self::ForwardedFieldName
            | Self::VariableName
            | Self::CookieName
            | Self::HashKey
            | Self::Choice(_)
            | Self::Account
            | Self::FileMode
            | Self::Listen
            | Self::Network
            | Self::Proxy
            | Self::Host
            | Self::MediaType
            | Self::UrlPath
            | Self::RequestPath
            | Self::Method
            | Self::FieldName
            | Self::RequestFieldName
            | Self::FieldValue
            | Self::UserName
            | Self::Label
            | Self::Flag
            | Self::Count { .. }
            | Self::Size { .. }
            | Self::Time { .. }
            | Self::Ratio
            | Self::Status { .. }
            | Self::Statuses
            | Self::OneOfStatuses(_) => check_no_placeholder(text, PlaceholderNames::Any),
        }
    }

    /// Returns the name in sentences and in the reference.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flag => "#true or #false",
            Self::Count { .. } => "a whole number",
            Self::Size { .. } => "a size",
            Self::Time { .. } => "a time",
            Self::Ratio => "a ratio",
            Self::Text => "a text",
            Self::Choice(_) => "a word",
            Self::Path => "a path",
            Self::PathOrUrl => "a path or URL",
            Self::FileName => "a file name",
            Self::Suffix => "a suffix",
            Self::Include => "a path, which may have wildcards",
            Self::Account => "a name",
            Self::FileMode => "an octal file mode",
            Self::Listen => "an address to listen on",
            Self::Network => "a network or an address",
            Self::Proxy => "a network, an address or `unix`",
            Self::Host => "a host name",
            Self::Pattern => "a path pattern",
            Self::Selector => "a path pattern or a media type",
            Self::MediaType => "a media type",
            Self::TextPattern => "a text, which may have wildcards",
            Self::Origin => "an origin",
            Self::HostPattern => "a host name, which may have wildcards",
            Self::TextTemplate => "a text",
            Self::FieldTemplate => "a field value",
            Self::RedirectTarget => "a path or a URL",
            Self::RewriteTarget | Self::UrlPath => "a path of the site",
            Self::TryPath => "a path of the site, with or without a `*`",
            Self::RequestPath => "a path, with or without a query",
            Self::Status { .. } | Self::OneOfStatuses(_) => "a status",
            Self::Statuses => "a status or a range",
            Self::Method => "a method",
            Self::FieldName | Self::RequestFieldName => "a field name",
            Self::FieldValue => "a field value",
            Self::UserName => "a user name",
            Self::Label => "a name",
            Self::PasswordHash => "an argon2 or bcrypt hash",
            Self::LogTarget => "a log target",
            Self::LogFormat => "a log format",
            Self::Server => "the URL of a server",
            Self::ProxyTarget => "the name of an upstream or the URL of a server",
            Self::ScriptServer => "the address of a server",
            Self::ForwardedHost => "`keep`, `upstream` or a host",
            Self::ForwardedFieldName => "a field name",
            Self::VariableName => "the name of a variable",
            Self::CookieName => "the name of a cookie",
            Self::HashKey => "`path`, `client`, `header:NAME` or `cookie:NAME`",
        }
    }

    /// Whether its values are numbers without a unit.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Count { .. } | Self::Ratio | Self::Status { .. } | Self::OneOfStatuses(_))
    }

    /// Returns the unit of its numbers.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Size { .. } => "bytes",
            Self::Time { .. } => "seconds",
            _ => "",
        }
    }

    /// Returns the range in words, if it has one.
    pub(crate) fn range(self) -> String {
        match self {
            Self::Count { min, max } => format!("{min} to {max}"),
            Self::Size { min, max } => format!("{} to {}", write_size(min), write_size(max)),
            Self::Time { min, max } => format!("{} to {}", write_time(min), write_time(max)),
            Self::Ratio => "0 to 1".to_owned(),
            Self::Status { min, max } => format!("{min} to {max}"),
            Self::OneOfStatuses(statuses) => statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
            Self::Choice(words) => words.join(", "),
            _ => String::new(),
        }
    }
}

/// Checks the URL of a server, relative to the current folder.
///
/// # Errors
/// If it is no URL of a server.
#[cfg(feature = "program")]
pub(crate) fn check_server(text: &str) -> Result<(), ValueError> {
    ValueKind::Server.check_placeholders(text)?;
    read_url(text, Path::new("")).map(drop)
}

/// Checks an address to listen on.
///
/// # Errors
/// If it is none.
#[cfg(feature = "program")]
pub(crate) fn check_listen(text: &str) -> Result<(), ValueError> {
    address::read(text, Path::new("")).map(drop)
}

/// Checks the host of requests to an upstream, and returns it in lower case.
///
/// # Errors
/// If it is neither `keep`, `upstream`, nor a host.
#[cfg(feature = "program")]
pub(crate) fn check_forwarded_host(text: &str) -> Result<String, ValueError> {
    name::read_forwarded_host(text).map(|_| text.to_ascii_lowercase())
}

/// Parses a scalar as a value of a kind. Relative paths start at `base`.
///
/// # Errors
/// If the scalar is no valid value.
pub(in crate::config) fn read(kind: ValueKind, scalar: &Scalar, base: &Path) -> Result<Value, ValueError> {
    match (kind, scalar) {
        (ValueKind::Flag, Scalar::Flag(flag)) => Ok(Value::Flag(*flag)),
        (ValueKind::Flag, _) => Err(ValueError::new("this is not a flag", "write #true or #false")),
        (ValueKind::Count { min, max }, _) => number::read_count(scalar, min, max),
        (ValueKind::Size { min, max }, _) => number::read_size(scalar, min, max),
        (ValueKind::Time { min, max }, _) => number::read_time(scalar, min, max),
        (ValueKind::Ratio, _) => number::read_ratio(scalar),
        (ValueKind::Status { min, max }, _) => {
            number::read_status(scalar, &|status| (min..=max).contains(&status), kind)
        }
        (ValueKind::OneOfStatuses(statuses), _) => {
            number::read_status(scalar, &|status| statuses.contains(&status), kind)
        }
        (ValueKind::Server | ValueKind::ProxyTarget | ValueKind::ScriptServer, Scalar::Integer(port)) => {
            Err(ValueError::new("a port without a host", format!("write \"localhost:{port}\"")))
        }
        (ValueKind::Statuses, _) => number::read_statuses(scalar),
        // A port alone is the only unquoted address that is common.
        (ValueKind::Listen, Scalar::Integer(port)) => address::read(&port.to_string(), base).map(Value::Listen),
        (_, Scalar::Text(text)) => read_text(kind, text, base),
        _ => Err(ValueError::new(format!("this is not {}", kind.name()), "put it in \"quotes\"")),
    }
}

fn read_text(kind: ValueKind, text: &str, base: &Path) -> Result<Value, ValueError> {
    kind.check_placeholders(text)?;
    let owned = || Value::Text(text.to_owned());
    match kind {
        ValueKind::Text | ValueKind::LogFormat => Ok(owned()),
        ValueKind::Choice(words) => name::read_choice(text, words),
        ValueKind::Path => path::read_path(text, base).map(Value::Path),
        ValueKind::PathOrUrl if text.starts_with("http://") || text.starts_with("https://") => Ok(owned()),
        ValueKind::PathOrUrl => path::read_path(text, base).map(Value::Path),
        ValueKind::FileName => path::read_file_name(text),
        ValueKind::Suffix => path::read_suffix(text),
        ValueKind::Include => path::check_no_nul(text).map(|()| owned()),
        ValueKind::Account => name::read_account(text),
        ValueKind::FileMode => number::read_file_mode(text),
        ValueKind::Listen => address::read(text, base).map(Value::Listen),
        ValueKind::Proxy if text == "unix" => Ok(Value::Unix),
        ValueKind::Network | ValueKind::Proxy => text.parse().map(Value::Network),
        ValueKind::Host => text.parse().map(Value::Host),
        ValueKind::Pattern => Pattern::parse(text).map(Value::Pattern),
        ValueKind::Selector => ResponseSelector::parse(text, CaseSensitivity::Sensitive).map(Value::Selector),
        ValueKind::MediaType => name::read_media_type(text),
        ValueKind::TextPattern => TextPattern::parse(text, CaseSensitivity::Sensitive).map(Value::TextPattern),
        ValueKind::Origin => TextPattern::parse_origin(text).map(Value::TextPattern),
        ValueKind::HostPattern => TextPattern::parse_host(text).map(Value::TextPattern),
        ValueKind::TextTemplate => TextTemplate::parse(text).map(Value::TextTemplate),
        ValueKind::FieldTemplate => {
            let value = name::read_field_value(text)?;
            TextTemplate::parse(&value).map(Value::TextTemplate)
        }
        ValueKind::RedirectTarget => Template::parse(text).map(Value::Template),
        ValueKind::RewriteTarget => Template::parse_path(text).map(Value::Template),
        ValueKind::TryPath => TryPath::parse(text).map(Value::TryPath),
        ValueKind::UrlPath => path::read_url_path(text).map(Value::Text),
        ValueKind::RequestPath => path::read_request_path(text).map(Value::Text),
        ValueKind::Method => name::read_method(text),
        ValueKind::FieldName => name::read_field_name(text),
        ValueKind::RequestFieldName => name::read_request_field_name(text),
        ValueKind::FieldValue => name::read_field_value(text).map(Value::Text),
        ValueKind::UserName => name::read_user_name(text),
        ValueKind::Label => name::read_label(text),
        ValueKind::PasswordHash => name::read_password_hash(text),
        ValueKind::LogTarget => path::read_log_target(text, base).map(Value::LogTarget),
        ValueKind::Server => read_url(text, base).map(Value::Server),
        ValueKind::ProxyTarget => Ok(owned()),
        ValueKind::ScriptServer => server_address::read_plain(text, base).map(Value::ScriptServer),
        ValueKind::ForwardedHost => name::read_forwarded_host(text),
        ValueKind::ForwardedFieldName => name::read_forwarded_field_name(text),
        ValueKind::VariableName => name::read_variable_name(text),
        ValueKind::CookieName => name::read_cookie_name(text),
        ValueKind::HashKey => name::read_hash_key(text),
        ValueKind::Flag
        | ValueKind::Count { .. }
        | ValueKind::Size { .. }
        | ValueKind::Time { .. }
        | ValueKind::Ratio
        | ValueKind::Status { .. }
        | ValueKind::Statuses
        | ValueKind::OneOfStatuses(_) => Err(ValueError::new(format!("this is not {}", kind.name()), "")),
    }
}
