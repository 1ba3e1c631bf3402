//! What an attack is, and what it results in.

use super::tested_server::TestedServer;
use serde::Serialize;
use std::fmt;

/// What an attack is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AttackArea {
    Framing,
    Limits,
    SlowClients,
    Http2,
    Tls,
}

/// The description of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AttackText {
    pub(super) name: &'static str,
    pub(super) sends: &'static str,
    /// What has to be seen.
    pub(super) expects: &'static str,
    /// The limit or the rule that holds: a setting, or a section of a standard.
    pub(super) limit: &'static str,
}

/// An attack. It is bounded in time by its [`TestedServer`], and in size by itself.
pub(super) struct Attack {
    pub(super) area: AttackArea,
    pub(super) text: AttackText,
    pub(super) run: Box<dyn Fn(&TestedServer) -> AttackOutcome + Send + Sync>,
}

/// Whether the server withstood an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AttackVerdict {
    Held,
    Failed,
    NotApplicable,
}

/// The result of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttackOutcome {
    pub(super) verdict: AttackVerdict,
    pub(super) seen: String,
}

impl AttackArea {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Framing => "framing",
            Self::Limits => "limits",
            Self::SlowClients => "slow-clients",
            Self::Http2 => "http2",
            Self::Tls => "tls",
        }
    }
}

impl fmt::Display for AttackVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Held => "held",
            Self::Failed => "FAILED",
            Self::NotApplicable => "not applicable",
        })
    }
}

impl AttackOutcome {
    pub(super) fn held(seen: impl Into<String>) -> Self {
        Self { verdict: AttackVerdict::Held, seen: seen.into() }
    }

    pub(super) fn failed(seen: impl Into<String>) -> Self {
        Self { verdict: AttackVerdict::Failed, seen: seen.into() }
    }

    pub(super) fn not_applicable(seen: impl Into<String>) -> Self {
        Self { verdict: AttackVerdict::NotApplicable, seen: seen.into() }
    }

    /// Returns the failure of an attack that cannot connect.
    pub(super) fn unreachable(error: &std::io::Error) -> Self {
        Self::failed(format!("cannot connect: {error}"))
    }
}
