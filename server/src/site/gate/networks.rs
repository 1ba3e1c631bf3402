//! Where clients may come from.

use super::{Mode, Tally, Verdict};
use crate::site::network::{Network, any_contains};
use selvedge::{Response, Status};
use std::net::IpAddr;

/// The networks whose clients pass, and those whose clients do not.
#[derive(Debug)]
pub(crate) struct NetworkGate {
    /// Whoever is from one of these passes; if there are none, everybody.
    pub(crate) allow: Vec<Network>,
    /// Whoever is from one of these does not, even if allowed above.
    pub(crate) deny: Vec<Network>,
    /// What happens to whoever does not.
    pub(crate) mode: Mode,
    /// How many did not.
    pub(crate) tally: Tally,
}

impl NetworkGate {
    pub(super) fn admit(&self, client: IpAddr) -> Verdict {
        let is_allowed = self.allow.is_empty() || any_contains(&self.allow, client);
        if is_allowed && !any_contains(&self.deny, client) {
            return Verdict::Pass;
        }
        const OBSERVED: &str = "the client's network is not allowed (only observed)";
        Verdict::against(self.mode, &self.tally, OBSERVED, || {
            Response::error(Status::FORBIDDEN).because("the client's network is not allowed")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(allow: &[&str], deny: &[&str], mode: Mode) -> NetworkGate {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        NetworkGate { allow: read(allow), deny: read(deny), mode, tally: Tally::default() }
    }

    #[test]
    fn allow_and_deny() {
        for (allow, deny, client, passes) in [
            (&[][..], &[][..], "192.0.2.1", true),
            (&["192.0.2.0/24"], &[], "192.0.2.1", true),
            (&["192.0.2.0/24"], &[], "198.51.100.1", false),
            (&["192.0.2.0/24"], &[], "2001:db8::1", false),
            (&["192.0.2.0/24"], &["192.0.2.1"], "192.0.2.1", false),
            (&["192.0.2.0/24"], &["192.0.2.1"], "192.0.2.2", true),
            (&[], &["2001:db8::/32"], "2001:db8::1", false),
            (&[], &["2001:db8::/32"], "192.0.2.1", true),
        ] {
            let client = client.parse().unwrap();
            let enforcing = gate(allow, deny, Mode::Enforce);
            assert_eq!(matches!(enforcing.admit(client), Verdict::Pass), passes, "{allow:?} {deny:?} {client}");
            assert_eq!(enforcing.tally.get(), u64::from(!passes));
            let observing = gate(allow, deny, Mode::Observe);
            assert_eq!(matches!(observing.admit(client), Verdict::Observed(_)), !passes);
            assert_eq!(observing.tally.get(), u64::from(!passes));
        }
    }
}
