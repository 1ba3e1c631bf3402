//! Allows and denies clients by their network.

use super::{AccessDecision, DenialCounter, RuleMode};
use crate::site::network::any_contains;
use crate::site::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::Network;
use selvedge::{Response, StatusCode};
use std::net::IpAddr;

/// What a rule does with the clients of its networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Allow,
    Deny,
}

/// Allows and denies clients by their network.
#[derive(Debug)]
pub(crate) struct IpFilter {
    /// The rules. The first with a network of the client decides.
    pub(crate) rules: Vec<(Permission, Vec<Network>)>,
    /// The decision on clients that no rule matches.
    pub(crate) default_permission: Permission,
    /// The status of a denial.
    pub(crate) status: StatusCode,
    /// What happens to clients that are denied.
    pub(crate) mode: RuleMode,
    /// The number of denied requests.
    pub(crate) denials: DenialCounter,
}

impl IpFilter {
    /// Returns the counter of denials if the filter is in dry-run mode.
    pub(super) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        self.denials.in_dry_run(self.mode)
    }

    /// Finds the rule that decides on a client.
    fn matching_rule(&self, client: IpAddr) -> Option<usize> {
        self.rules.iter().position(|(_, networks)| any_contains(networks, client))
    }

    /// Whether a client has access.
    pub(super) fn allows(&self, client: IpAddr) -> bool {
        self.matching_rule(client).map_or(self.default_permission, |rule| self.rules[rule].0) == Permission::Allow
    }

    pub(super) fn check(&self, client: IpAddr, recorder: Option<&StepRecorder>) -> AccessDecision {
        if let Some(recorder) = recorder {
            self.record(client, recorder);
        }
        if self.allows(client) {
            return AccessDecision::Allow;
        }
        let (reason, dry_run_reason) = match client.is_unspecified() {
            false => ("the client's network is not allowed", "the client's network is not allowed (dry run)"),
            true => ("a trusted proxy sent no client address", "a trusted proxy sent no client address (dry run)"),
        };
        AccessDecision::denied(self.mode, self.denials.unless_recorded(recorder), dry_run_reason, || {
            Response::error(self.status).log_reason(reason)
        })
    }

    /// Records which rule decides on a client, and how.
    fn record(&self, client: IpAddr, recorder: &StepRecorder) {
        let rule = self.matching_rule(client);
        let (origin, of) = match rule {
            Some(rule) => (StepOrigin::Inner("ip-access", rule), "a rule has the network of"),
            None => (StepOrigin::Setting("ip-access"), "no rule has the network of"),
        };
        let (verdict, outcome) = match (self.allows(client), self.mode) {
            (true, _) => (StepVerdict::Yes, "it is allowed".to_owned()),
            (false, RuleMode::Enforce) => (StepVerdict::Denied, format!("it is denied: {}", self.status.code())),
            (false, RuleMode::DryRun) => (StepVerdict::DryRun, "it would be denied without `dry-run`".to_owned()),
        };
        recorder.step(Stage::Access, verdict, origin, format!("ip-access: {of} {client}, so {outcome}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[(Permission, &str)], default_permission: Permission, mode: RuleMode) -> IpFilter {
        let rules = rules.iter().map(|(permission, network)| (*permission, vec![network.parse().unwrap()])).collect();
        IpFilter { rules, default_permission, status: StatusCode::FORBIDDEN, mode, denials: DenialCounter::default() }
    }

    #[test]
    fn first_matching_rule_decides() {
        use Permission::{Allow, Deny};
        let inner = &[(Deny, "192.0.2.1"), (Allow, "192.0.2.0/24")][..];
        let outer = &[(Allow, "192.0.2.0/24"), (Deny, "192.0.2.1")][..];
        for (rules, default_permission, client, is_allowed) in [
            (&[][..], Allow, "192.0.2.1", true),
            (&[], Deny, "192.0.2.1", false),
            (inner, Deny, "192.0.2.1", false),
            (inner, Deny, "192.0.2.2", true),
            (inner, Deny, "198.51.100.1", false),
            (inner, Deny, "2001:db8::1", false),
            (inner, Allow, "2001:db8::1", true),
            (outer, Deny, "192.0.2.1", true),
            (&[(Allow, "0.0.0.0/0")], Deny, "0.0.0.0", false),
            (&[(Deny, "2001:db8::/32")], Allow, "2001:db8::1", false),
            (&[(Deny, "2001:db8::/32")], Allow, "192.0.2.1", true),
        ] {
            let client = client.parse().unwrap();
            let enforced = filter(rules, default_permission, RuleMode::Enforce);
            assert_eq!(
                matches!(enforced.check(client, None), AccessDecision::Allow),
                is_allowed,
                "{rules:?} {default_permission:?} {client}"
            );
            assert_eq!(enforced.denials.get(), u64::from(!is_allowed));
            let dry_run = filter(rules, default_permission, RuleMode::DryRun);
            assert_eq!(matches!(dry_run.check(client, None), AccessDecision::DryRunDenied(_)), !is_allowed);
            assert_eq!(dry_run.denials.get(), u64::from(!is_allowed));
            let recorder = StepRecorder::default();
            assert_eq!(matches!(enforced.check(client, Some(&recorder)), AccessDecision::Allow), is_allowed);
            assert_eq!(enforced.denials.get(), u64::from(!is_allowed), "an explanation counts nothing");
            assert_eq!(recorder.take().0.len(), 1);
        }
    }
}
