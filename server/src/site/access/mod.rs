//! Controls access to sites and routes: by network, rate and user.
//!
//! The rules run in this order: the IP filter, which is cheapest; the rate limit, so that it also limits
//! password guesses; basic authentication.

#[cfg(feature = "configuration")]
mod basic_auth;
mod connection_limiter;
#[cfg(feature = "configuration")]
mod guess_limiter;
mod ip_filter;
#[cfg(feature = "configuration")]
mod live_users;
#[cfg(not(feature = "configuration"))]
mod no_auth;
#[cfg(feature = "configuration")]
mod password_cache;
#[cfg(feature = "configuration")]
mod password_hash;
mod rate_limiter;
#[cfg(feature = "configuration")]
mod users;

#[cfg(feature = "configuration")]
pub(crate) use basic_auth::BasicAuthenticator;
pub(crate) use connection_limiter::ConnectionLimiter;
#[cfg(feature = "configuration")]
pub(crate) use guess_limiter::GuessLimiter;
pub(crate) use ip_filter::{IpFilter, Permission};
#[cfg(feature = "configuration")]
pub(crate) use live_users::{LiveUsers, UsersRefreshed};
#[cfg(not(feature = "configuration"))]
pub(super) use no_auth::Verifier;
#[cfg(not(feature = "configuration"))]
pub(crate) use no_auth::{BasicAuthenticator, PasswordCache};
#[cfg(feature = "configuration")]
pub(super) use password_cache::Verifier;
#[cfg(feature = "configuration")]
pub(crate) use password_cache::{CHECKS_AT_ONCE_MAX as PASSWORD_CHECKS_AT_ONCE_MAX, PasswordCache};
pub(crate) use rate_limiter::{Rate, RateLimiter};
#[cfg(feature = "configuration")]
pub(crate) use users::UserProblem;
#[cfg(all(test, feature = "configuration"))]
pub(crate) use users::Users;

use super::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use selvedge::service::{Admission, hold_until_sent};
use selvedge::{Request, Response, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a rule does with a request that it denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleMode {
    /// It denies the request.
    Enforce,
    /// It counts and logs the request and allows it, so that an operator can try out the rule.
    DryRun,
}

/// Counts the requests that rules denied, or would have denied in dry-run mode, on all workers. Its clones count together:
/// the rules of one kind in a site, also of the next configurations.
#[derive(Clone, Debug, Default)]
pub(crate) struct DenialCounter(Arc<AtomicU64>);

impl DenialCounter {
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counter for a request; `None` for one that is only explained.
    fn unless_recorded(&self, recorder: Option<&StepRecorder>) -> Option<&Self> {
        recorder.is_none().then_some(self)
    }

    /// Returns the counter if its rule is in dry-run mode.
    fn in_dry_run(&self, mode: RuleMode) -> Option<&Self> {
        (mode == RuleMode::DryRun).then_some(self)
    }

    /// Adds up the counters of rules. `None` without any.
    pub(super) fn sum<'c>(counters: impl Iterator<Item = &'c Self>) -> Option<u64> {
        let mut counters: Vec<_> = counters.collect();
        counters.sort_unstable_by_key(|counter| Arc::as_ptr(&counter.0));
        counters.dedup_by(|one, other| Arc::ptr_eq(&one.0, &other.0));
        counters.into_iter().map(Self::get).reduce(|sum, count| sum + count)
    }

    /// Returns the count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The denials of one kind of rule in dry-run mode, for one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DryRunCount {
    /// The index of the site, from 0.
    pub(crate) site: usize,
    /// The name of the setting.
    pub(crate) rule: &'static str,
    /// The number of requests that would have been denied.
    pub(crate) count: u64,
}

/// The access rules of a site or a route. A rule whose settings do not change is shared with the next
/// configuration, so it keeps its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessRules {
    /// Allows clients by their network.
    pub(crate) ip_access: Option<Arc<IpFilter>>,
    /// Limits the request rate of each client.
    pub(crate) rate_limit: Option<Arc<RateLimiter>>,
    /// Limits the requests of each client that are in progress.
    pub(crate) requests_at_once: Option<Arc<ConnectionLimiter>>,
    /// Authenticates users.
    pub(crate) basic_auth: Option<Arc<BasicAuthenticator>>,
    /// Whether a client has to pass the filter and the authentication, or one of them.
    pub(crate) satisfy: Satisfy,
}

/// Which rules a client has to pass. The rate limit always applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Satisfy {
    /// The IP filter and the authentication.
    #[default]
    All,
    /// The IP filter or the authentication.
    Any,
}

/// The decision of a rule on a request.
#[derive(Debug)]
pub(super) enum AccessDecision {
    /// The request is allowed.
    Allow,
    /// The request is allowed because the rule is in dry-run mode. Has the log reason of the denial.
    DryRunDenied(&'static str),
    /// The request is denied with this response.
    Deny(Response),
    /// A rule in dry-run mode, whose log reason this is, would have denied the request, and another one denies it with
    /// this response.
    DenyAfterDryRun(&'static str, Response),
}

impl AccessDecision {
    /// Counts a denial, if the request counts, and returns the decision that `mode` makes of it.
    fn denied(
        mode: RuleMode,
        denials: Option<&DenialCounter>,
        reason: &'static str,
        response: impl FnOnce() -> Response,
    ) -> Self {
        if let Some(denials) = denials {
            denials.increment();
        }
        match mode {
            RuleMode::Enforce => Self::Deny(response()),
            RuleMode::DryRun => Self::DryRunDenied(reason),
        }
    }

    /// Records the decision of a rule in words: of the client if it is allowed, else why not.
    fn record(&self, recorder: Option<&StepRecorder>, setting: &'static str, client: impl FnOnce() -> String) {
        let Some(recorder) = recorder else { return };
        let (verdict, text) = match self {
            Self::Allow => (StepVerdict::Yes, client()),
            Self::DryRunDenied(reason) => (StepVerdict::DryRun, (*reason).to_owned()),
            Self::Deny(refused) | Self::DenyAfterDryRun(_, refused) => {
                let why = refused.reason().map_or_else(client, str::to_owned);
                (StepVerdict::Denied, format!("{why}: {}", refused.status.code()))
            }
        };
        recorder.step(Stage::Access, verdict, StepOrigin::Setting(setting), format!("{setting}: {text}"));
    }

    /// Returns this decision if it denies, otherwise that of the next rule. The reason of a dry-run denial is
    /// kept.
    fn and_then(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Allow => next(),
            Self::DryRunDenied(reason) => match next() {
                Self::Allow => Self::DryRunDenied(reason),
                Self::Deny(response) => Self::DenyAfterDryRun(reason, response),
                other => other,
            },
            denied @ (Self::Deny(_) | Self::DenyAfterDryRun(..)) => denied,
        }
    }
}

impl AccessRules {
    /// Returns the rules that are not among `passed`, which a request has passed already.
    pub(super) fn minus(&self, passed: &Self) -> Self {
        fn unpassed<T>(own: &Option<Arc<T>>, passed: &Option<Arc<T>>) -> Option<Arc<T>> {
            own.clone().filter(|own| !passed.as_ref().is_some_and(|passed| Arc::ptr_eq(own, passed)))
        }
        let rate_limit = unpassed(&self.rate_limit, &passed.rate_limit);
        let requests_at_once = unpassed(&self.requests_at_once, &passed.requests_at_once);
        let (ip_access, basic_auth) =
            (unpassed(&self.ip_access, &passed.ip_access), unpassed(&self.basic_auth, &passed.basic_auth));
        let is_same_choice = self.satisfy == passed.satisfy;
        match self.satisfy {
            Satisfy::All if is_same_choice => {
                Self { ip_access, rate_limit, requests_at_once, basic_auth, satisfy: self.satisfy }
            }
            // A client that passed one of two rules may not have passed the other.
            Satisfy::Any if is_same_choice && ip_access.is_none() && basic_auth.is_none() => {
                Self { rate_limit, requests_at_once, satisfy: self.satisfy, ..Self::default() }
            }
            _ => Self { rate_limit, requests_at_once, ..self.clone() },
        }
    }

    /// Sums the denials of the rules in dry-run mode, by setting.
    pub(super) fn dry_run_counts<'g>(
        all: impl Iterator<Item = &'g Self> + Clone,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let filters = all.clone().filter_map(|rules| rules.ip_access.as_deref()?.dry_run_counter());
        let rates = all.clone().filter_map(|rules| rules.rate_limit.as_deref()?.dry_run_counter());
        let limits = all.clone().filter_map(|rules| rules.requests_at_once.as_deref()?.dry_run_counter());
        let users = all.filter_map(|rules| rules.basic_auth.as_deref()?.dry_run_counter());
        let (filters, rate, at_once, basic) = (
            DenialCounter::sum(filters),
            DenialCounter::sum(rates),
            DenialCounter::sum(limits),
            DenialCounter::sum(users),
        );
        let kinds = [("ip-access", filters), ("rate-limit", rate), (REQUESTS_AT_ONCE, at_once), ("basic-auth", basic)];
        kinds.into_iter().filter_map(|(kind, count)| Some((kind, count?)))
    }

    /// Returns the maximum memory of one password check in bytes, if users are authenticated.
    pub(super) fn password_check_bytes_max(&self) -> Option<u64> {
        self.basic_auth.as_ref().map(|rule| rule.check_bytes_max())
    }

    /// Checks the rules that never wait: the IP filter and the rate limit.
    pub(super) fn check_client(&self, client: IpAddr, recorder: Option<&StepRecorder>) -> AccessDecision {
        if self.ip_access.is_none() && self.rate_limit.is_none() {
            return AccessDecision::Allow;
        }
        let filters = match (&self.ip_access, self.satisfy, &self.basic_auth) {
            // A client of another network may have a password.
            (None, ..) | (Some(_), Satisfy::Any, Some(_)) => AccessDecision::Allow,
            (Some(rule), ..) => rule.check(client, recorder),
        };
        filters.and_then(|| self.rate_limit.as_ref().map_or(AccessDecision::Allow, |rule| rule.check(client, recorder)))
    }

    /// Counts a request that is in progress until its response is sent.
    fn check_requests_at_once(&self, request: &mut Request, recorder: Option<&StepRecorder>) -> AccessDecision {
        let Some(limiter) = &self.requests_at_once else { return AccessDecision::Allow };
        let admission = match recorder {
            None => limiter.admit(request.client()),
            Some(_) => limiter.would_admit(request.client()),
        };
        let decision = match admission {
            Admission::Serve(permit) => {
                hold_until_sent(request, permit);
                AccessDecision::Allow
            }
            Admission::ServeOverLimit(permit) => {
                hold_until_sent(request, permit);
                AccessDecision::DryRunDenied("too many requests of this client at once (dry run)")
            }
            Admission::Refuse => {
                let response = Response::error(StatusCode::TOO_MANY_REQUESTS).field("retry-after", "1");
                AccessDecision::Deny(response.log_reason("too many requests of this client at once"))
            }
        };
        decision.record(recorder, REQUESTS_AT_ONCE, || "the client has fewer requests in progress".to_owned());
        decision
    }

    /// Authenticates the user. Runs last.
    pub(super) async fn check_user(
        &self,
        request: &mut Request,
        verifier: &Verifier,
        recorder: Option<&StepRecorder>,
    ) -> AccessDecision {
        let at_once = self.check_requests_at_once(request, recorder);
        if matches!(at_once, AccessDecision::Deny(_)) {
            return at_once;
        }
        let user = match &self.basic_auth {
            Some(rule) => match &self.ip_access {
                Some(filter) if self.satisfy == Satisfy::Any && filter.allows(request.client()) => {
                    let decision = AccessDecision::Allow;
                    decision.record(recorder, "satisfy", || "the network of the client is allowed".to_owned());
                    decision
                }
                _ => rule.check(request, verifier, recorder).await,
            },
            None => AccessDecision::Allow,
        };
        at_once.and_then(|| user)
    }
}

/// The name of the setting.
const REQUESTS_AT_ONCE: &str = "requests-at-once-max";
