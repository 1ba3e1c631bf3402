//! Who may pass: networks, rates and users. A gate lets a request pass or has an answer for it.
//!
//! The order is: the network, which costs nothing; the rate, so that passwords cannot be
//! tried faster than it allows; the user.

#[cfg(feature = "configuration")]
mod basic;
mod connections;
#[cfg(feature = "configuration")]
mod hashes;
mod networks;
#[cfg(not(feature = "configuration"))]
mod nobody;
mod rate;
#[cfg(feature = "configuration")]
mod users;
#[cfg(feature = "configuration")]
mod verified;

#[cfg(feature = "configuration")]
pub(crate) use basic::BasicGate;
pub(crate) use connections::ConnectionGate;
pub(crate) use networks::{Access, NetworkGate};
#[cfg(not(feature = "configuration"))]
pub(super) use nobody::Verifier;
#[cfg(not(feature = "configuration"))]
pub(crate) use nobody::{BasicGate, Passwords};
pub(crate) use rate::{Rate, RateGate};
#[cfg(feature = "configuration")]
pub(crate) use users::{UserProblem, Users};
#[cfg(feature = "configuration")]
pub(super) use verified::Verifier;
#[cfg(feature = "configuration")]
pub(crate) use verified::{AT_ONCE_MAX as PASSWORDS_AT_ONCE_MAX, Passwords};

use selvedge::{Request, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a gate does with a request that it is against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It refuses it.
    Enforce,
    /// It counts it and says so in the log, and lets it pass: how a rule is tried out.
    Observe,
}

/// How often a gate was against a request, on all workers.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often so far, where the gate only observes.
    fn observed(&self, mode: Mode) -> Option<u64> {
        (mode == Mode::Observe).then(|| self.get())
    }

    /// How often so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the gates of one kind have counted that stand before a site and only observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The site, the first being 0.
    pub(crate) site: usize,
    /// What they are called in the configuration.
    pub(crate) gate: &'static str,
    /// How often they were against a request.
    pub(crate) count: u64,
}

/// What stands before a site, or a route of it. Shared, so that a rule that stays the same
/// from one configuration to the next keeps what it knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    /// Where clients may come from.
    pub(crate) networks: Option<Arc<NetworkGate>>,
    /// How often they may ask.
    pub(crate) rate: Option<Arc<RateGate>>,
    /// Who they have to be.
    pub(crate) basic: Option<Arc<BasicGate>>,
}

/// What becomes of a request at a gate.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It passes.
    Pass,
    /// It passes because the gate only observes; why it would not have.
    Observed(&'static str),
    /// It does not.
    Refused(Response),
}

impl Verdict {
    /// A refusal, or what is left of one where the gate only observes.
    fn against(mode: Mode, tally: &Tally, observed: &'static str, refusal: impl FnOnce() -> Response) -> Self {
        tally.count();
        match mode {
            Mode::Enforce => Self::Refused(refusal()),
            Mode::Observe => Self::Observed(observed),
        }
    }

    /// This one, unless it lets pass; then the next one.
    fn then(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Pass => next(),
            Self::Observed(reason) => match next() {
                Self::Pass => Self::Observed(reason),
                other => other,
            },
            refused @ Self::Refused(_) => refused,
        }
    }
}

impl Gates {
    /// Those that are not among gates which a request has passed already.
    pub(super) fn beyond(&self, passed: &Self) -> Self {
        fn other<T>(own: &Option<Arc<T>>, passed: &Option<Arc<T>>) -> Option<Arc<T>> {
            own.clone().filter(|own| !passed.as_ref().is_some_and(|passed| Arc::ptr_eq(own, passed)))
        }
        Self {
            networks: other(&self.networks, &passed.networks),
            rate: other(&self.rate, &passed.rate),
            basic: other(&self.basic, &passed.basic),
        }
    }

    /// What those of all of these have counted that only observe, by kind. Gates that are among
    /// them twice are one.
    pub(super) fn observed<'g>(
        all: impl Iterator<Item = &'g Self> + Clone,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        fn sum<'g, T: 'g>(gates: impl Iterator<Item = &'g Arc<T>>, count: fn(&T) -> Option<u64>) -> Option<u64> {
            let mut gates: Vec<_> = gates.collect();
            gates.sort_unstable_by_key(|gate| Arc::as_ptr(gate));
            gates.dedup_by(|gate, other| Arc::ptr_eq(gate, other));
            gates.into_iter().filter_map(|gate| count(gate)).reduce(|sum, count| sum + count)
        }
        let networks = sum(all.clone().filter_map(|gates| gates.networks.as_ref()), NetworkGate::observed);
        let rate = sum(all.clone().filter_map(|gates| gates.rate.as_ref()), RateGate::observed);
        let basic = sum(all.filter_map(|gates| gates.basic.as_ref()), BasicGate::observed);
        let kinds = [("clients", networks), ("rate-limit", rate), ("basic-auth", basic)];
        kinds.into_iter().filter_map(|(kind, count)| Some((kind, count?)))
    }

    /// The most memory that checking a password takes, if any has to be.
    pub(super) fn password_bytes_max(&self) -> Option<u64> {
        self.basic.as_ref().map(|gate| gate.bytes_of_check_max())
    }

    /// What the gates say that need not wait for anything: all but the one of users.
    pub(super) fn admit_client(&self, client: IpAddr) -> Verdict {
        if self.networks.is_none() && self.rate.is_none() {
            return Verdict::Pass;
        }
        let networks = self.networks.as_ref().map_or(Verdict::Pass, |gate| gate.admit(client));
        networks.then(|| self.rate.as_ref().map_or(Verdict::Pass, |gate| gate.admit(client)))
    }

    /// What the gate of users says. It is the last one.
    pub(super) async fn admit_user(&self, request: &mut Request, verifier: &Verifier) -> Verdict {
        match &self.basic {
            Some(gate) => gate.admit(request, verifier).await,
            None => Verdict::Pass,
        }
    }
}
