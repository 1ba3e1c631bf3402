//! Where clients may come from.

use super::{Mode, Tally, Verdict};
use crate::site::network::{Network, any_contains};
use selvedge::{Response, Status};
use std::net::IpAddr;

/// Whether clients pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Allow,
    Deny,
}

/// The networks whose clients pass, and those whose clients do not.
#[derive(Debug)]
pub(crate) struct NetworkGate {
    /// The first of these that the client is in decides.
    pub(crate) rules: Vec<(Access, Vec<Network>)>,
    /// What holds for whoever is in none.
    pub(crate) otherwise: Access,
    /// What happens to whoever does not.
    pub(crate) mode: Mode,
    /// How many did not.
    pub(crate) tally: Tally,
}

impl NetworkGate {
    /// How many requests it was against, where it only observes.
    pub(super) fn observed(&self) -> Option<u64> {
        self.tally.observed(self.mode)
    }

    pub(super) fn admit(&self, client: IpAddr) -> Verdict {
        let decisive = self.rules.iter().find(|(_, networks)| any_contains(networks, client));
        if decisive.map_or(self.otherwise, |(access, _)| *access) == Access::Allow {
            return Verdict::Pass;
        }
        let (reason, observed) = match client.is_unspecified() {
            false => ("the client's network is not allowed", "the client's network is not allowed (only observed)"),
            true => ("a proxy did not say who the client is", "a proxy did not say who the client is (only observed)"),
        };
        Verdict::against(self.mode, &self.tally, observed, || Response::error(Status::FORBIDDEN).because(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(rules: &[(Access, &str)], otherwise: Access, mode: Mode) -> NetworkGate {
        let rules = rules.iter().map(|(access, network)| (*access, vec![network.parse().unwrap()])).collect();
        NetworkGate { rules, otherwise, mode, tally: Tally::default() }
    }

    #[test]
    fn the_first_rule_decides() {
        use Access::{Allow, Deny};
        let inner = &[(Deny, "192.0.2.1"), (Allow, "192.0.2.0/24")][..];
        let outer = &[(Allow, "192.0.2.0/24"), (Deny, "192.0.2.1")][..];
        for (rules, otherwise, client, passes) in [
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
            let enforcing = gate(rules, otherwise, Mode::Enforce);
            assert_eq!(matches!(enforcing.admit(client), Verdict::Pass), passes, "{rules:?} {otherwise:?} {client}");
            assert_eq!(enforcing.tally.get(), u64::from(!passes));
            let observing = gate(rules, otherwise, Mode::Observe);
            assert_eq!(matches!(observing.admit(client), Verdict::Observed(_)), !passes);
            assert_eq!(observing.tally.get(), u64::from(!passes));
        }
    }
}
