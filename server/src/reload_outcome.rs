//! The result of a reload, as lines for the operator: what serves the configuration, and what has changed.

/// Why a new process serves a configuration.
const NEW_SANDBOX: &str = "the earlier process may not use all files of the configuration";

/// Why the changes of a configuration are not listed.
const UNREADABLE: &str = "it may not read the configuration, so the changes are not known";

/// The result of a reload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    /// This process serves another configuration.
    Applied {
        /// Its number.
        generation: u64,
        /// Number of earlier configurations with connections.
        earlier: usize,
        /// One line for each difference to the previous configuration.
        changes: Vec<String>,
        /// One line for each changed setting, with its value before and now.
        details: Vec<String>,
        /// Changed settings that take effect at the next start.
        at_next_start: Vec<&'static str>,
    },
    /// The configuration needs files outside of the sandbox, so a new process serves it.
    InNewProcess {
        /// Which process.
        text: String,
        /// One line for each difference to the previous configuration; `None` if this process may not read the new one.
        changes: Option<Vec<String>>,
        /// One line for each changed setting, with its value before and now.
        details: Vec<String>,
    },
}

impl ReloadOutcome {
    /// Returns the result as lines, and each changed setting behind them.
    pub(crate) fn report(&self) -> String {
        let mut lines = self.lines();
        let (Self::Applied { details, .. } | Self::InNewProcess { details, .. }) = self;
        lines.extend(details.iter().map(|line| format!("  {line}")));
        lines.join("\n")
    }

    /// Returns the result as lines, the most important first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = match self {
            Self::InNewProcess { text, .. } => vec![text.clone(), NEW_SANDBOX.to_owned()],
            Self::Applied { generation, earlier: 0, .. } => vec![format!("configuration {generation}")],
            Self::Applied { generation, earlier, .. } => {
                vec![format!("configuration {generation}, {earlier} earlier with connections")]
            }
        };
        match self {
            Self::Applied { at_next_start, .. } if !at_next_start.is_empty() => {
                lines.push(format!("changes to {} take effect after a restart", at_next_start.join(", ")));
            }
            _ => {}
        }
        match self {
            Self::InNewProcess { changes: None, .. } => lines.push(UNREADABLE.to_owned()),
            Self::InNewProcess { changes: Some(changes), .. } | Self::Applied { changes, .. } => {
                lines.extend_from_slice(changes);
                let has_more = matches!(self, Self::Applied { at_next_start, .. } if !at_next_start.is_empty());
                if changes.is_empty() && !has_more {
                    lines.push("the settings are unchanged, and files were read again".to_owned());
                }
            }
        }
        lines
    }
}
