//! The kinds of values: what each is called, what it may be, and how it is read.

mod address;
mod host;
mod name;
mod network;
mod number;
mod path;
mod pattern;

pub(crate) use address::{Address, Descriptor};
pub(crate) use host::HostPattern;
pub(crate) use name::is_password_hash;
pub(crate) use network::Network;
pub(crate) use number::{write_size, write_time};
pub(crate) use pattern::{PathPattern, Piece, Template};

use super::text::Scalar;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a value is. The table of settings is made of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    Text,
    Choice(&'static [&'static str]),
    /// Of a file or a folder; a relative one begins at the file it is written in.
    Path,
    FileName,
    Include,
    Account,
    FileMode,
    Listen,
    Network,
    /// A network, or `unix`.
    Proxy,
    Host,
    Pattern,
    RedirectTarget,
    RewriteTarget,
    TryPath,
    UrlPath,
    Status {
        min: u16,
        max: u16,
    },
    OneOfStatuses(&'static [u16]),
    Method,
    FieldName,
    RequestFieldName,
    FieldValue,
    UserName,
    PasswordHash,
    LogTarget,
    LogFormat,
}

/// A value that was read. Which variant a kind gives is said at [`read`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Number(u64),
    Time(Duration),
    Text(String),
    Path(PathBuf),
    Listen(Address),
    Network(Network),
    Unix,
    Host(HostPattern),
    Pattern(PathPattern),
    Template(Template),
    LogTarget(LogTarget),
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogTarget {
    Off,
    Stdout,
    Stderr,
    Syslog,
    Journald,
    File(PathBuf),
}

/// Why a value cannot be read: what is wrong, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) instead: String,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { what: what.into(), instead: instead.into() }
    }
}

impl Kind {
    /// What it is called in a sentence and in the reference.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flag => "#true or #false",
            Self::Count { .. } => "a whole number",
            Self::Size { .. } => "a size",
            Self::Time { .. } => "a time",
            Self::Text => "a text",
            Self::Choice(_) => "a word",
            Self::Path => "a path",
            Self::FileName => "a file name",
            Self::Include => "a path, which may have wildcards",
            Self::Account => "a name",
            Self::FileMode => "an octal file mode",
            Self::Listen => "an address to listen on",
            Self::Network => "a network or an address",
            Self::Proxy => "a network, an address or `unix`",
            Self::Host => "a host name",
            Self::Pattern => "a path pattern",
            Self::RedirectTarget => "a path or a URL",
            Self::RewriteTarget | Self::UrlPath => "a path of the site",
            Self::TryPath => "a path of the site with a `*`",
            Self::Status { .. } | Self::OneOfStatuses(_) => "a status",
            Self::Method => "a method",
            Self::FieldName | Self::RequestFieldName => "a field name",
            Self::FieldValue => "a field value",
            Self::UserName => "a user name",
            Self::PasswordHash => "an argon2 or bcrypt hash",
            Self::LogTarget => "a log target",
            Self::LogFormat => "a log format",
        }
    }

    /// The unit of its numbers.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Size { .. } => "bytes",
            Self::Time { .. } => "seconds",
            _ => "",
        }
    }

    /// What it may be, in words, where that is bounded.
    pub(crate) fn range(self) -> String {
        match self {
            Self::Count { min, max } => format!("{min} to {max}"),
            Self::Size { min, max } => format!("{} to {}", write_size(min), write_size(max)),
            Self::Time { min, max } => format!("{} to {}", write_time(min), write_time(max)),
            Self::Status { min, max } => format!("{min} to {max}"),
            Self::OneOfStatuses(statuses) => statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
            Self::Choice(words) => words.join(", "),
            _ => String::new(),
        }
    }
}

/// Reads a value of a kind that was written as a scalar. Relative paths begin at `base`.
///
/// # Errors
/// When it is none.
pub(in crate::config) fn read(kind: Kind, scalar: &Scalar, base: &Path) -> Result<Value, Wrong> {
    match (kind, scalar) {
        (Kind::Flag, Scalar::Flag(flag)) => Ok(Value::Flag(*flag)),
        (Kind::Flag, _) => Err(Wrong::new("this is no flag", "write #true or #false")),
        (Kind::Count { min, max }, _) => number::read_count(scalar, min, max),
        (Kind::Size { min, max }, _) => number::read_size(scalar, min, max),
        (Kind::Time { min, max }, _) => number::read_time(scalar, min, max),
        (Kind::Status { min, max }, _) => number::read_status(scalar, &|status| (min..=max).contains(&status), kind),
        (Kind::OneOfStatuses(statuses), _) => number::read_status(scalar, &|status| statuses.contains(&status), kind),
        // A port alone, which is most of what is written without quotes.
        (Kind::Listen, Scalar::Integer(port)) => address::read(&port.to_string(), base).map(Value::Listen),
        (_, Scalar::Text(text)) => read_text(kind, text, base),
        _ => Err(Wrong::new(format!("this is not {}", kind.name()), "put it in \"quotes\"")),
    }
}

fn read_text(kind: Kind, text: &str, base: &Path) -> Result<Value, Wrong> {
    let owned = || Value::Text(text.to_owned());
    match kind {
        Kind::Text | Kind::LogFormat => Ok(owned()),
        Kind::Choice(words) => name::read_choice(text, words),
        Kind::Path => path::read_path(text, base).map(Value::Path),
        Kind::FileName => path::read_file_name(text),
        Kind::Include => path::check_no_nul(text).map(|()| owned()),
        Kind::Account => name::read_account(text),
        Kind::FileMode => number::read_file_mode(text),
        Kind::Listen => address::read(text, base).map(Value::Listen),
        Kind::Proxy if text == "unix" => Ok(Value::Unix),
        Kind::Network | Kind::Proxy => network::read(text).map(Value::Network),
        Kind::Host => host::read(text).map(Value::Host),
        Kind::Pattern => pattern::read_pattern(text).map(Value::Pattern),
        Kind::RedirectTarget => pattern::read_redirect_target(text).map(Value::Template),
        Kind::RewriteTarget => pattern::read_rewrite_target(text).map(Value::Template),
        Kind::TryPath => pattern::read_try_path(text).map(Value::Template),
        Kind::UrlPath => pattern::read_url_path(text).map(Value::Text),
        Kind::Method => name::read_method(text),
        Kind::FieldName => name::read_field_name(text),
        Kind::RequestFieldName => name::read_request_field_name(text),
        Kind::FieldValue => name::read_field_value(text),
        Kind::UserName => name::read_user_name(text),
        Kind::PasswordHash => name::read_password_hash(text),
        Kind::LogTarget => path::read_log_target(text, base).map(Value::LogTarget),
        Kind::Flag
        | Kind::Count { .. }
        | Kind::Size { .. }
        | Kind::Time { .. }
        | Kind::Status { .. }
        | Kind::OneOfStatuses(_) => Err(Wrong::new(format!("this is not {}", kind.name()), "")),
    }
}
