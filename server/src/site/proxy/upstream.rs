//! A group of servers and its state, which all workers share: a few atomic numbers for each server.

use super::balance::{self, Candidate, Random, Turns, WEIGHT_UNIT};
use super::capacity::{Entered, Places};
use super::failure_history::Failure;
use super::health::{Availability, CheckResult, GroupHealth};
use super::retry_budget;
use super::rules::{Balance, HashKey, ServerRules, UpstreamRules};
use super::sticky::{StickyCookie, cookie};
use super::wait_queue::{Acceptable, NoPlace, WaitQueue};
use crate::durations::DurationCounters;
use selvedge::Request;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use choice_effect::{ChoiceEffect, Explain, Forward};

/// A group of servers of one application. It outlives a reload that does not change its rules.
pub(crate) struct Upstream {
    /// Distinguishes groups of one process, also of earlier configurations.
    id: u64,
    rules: UpstreamRules,
    servers: Box<[ServerState]>,
    health: GroupHealth,
    /// Requests that wait for a place at any server.
    queue: WaitQueue,
    sticky: Option<StickyCookie>,
    turns: Turns,
    /// Requests at work that are repetitions.
    retrying: AtomicU32,
    /// The start of its time.
    began: Instant,
    observer: Mutex<Option<UpstreamObserver>>,
    /// Whether a worker checks the servers.
    is_checked: Arc<AtomicBool>,
    /// Whether no more checks are sent.
    pub(super) ends_checks: AtomicBool,
}

/// The shared state of one server.
#[derive(Debug)]
struct ServerState {
    /// The hash of its name, for consistent hashing.
    identity: u64,
    places: Places,
    /// Requests that wait for a place at this server only, because a cookie names it.
    queue: WaitQueue,
    /// The index of the address that worked last.
    address: AtomicUsize,
    counters: Arc<ServerCounters>,
}

/// What a server has done so far, also for earlier groups of this name.
#[derive(Debug, Default)]
struct ServerCounters {
    failures: AtomicU64,
    tries: AtomicU64,
    /// Times to the heads of responses.
    response_times: DurationCounters,
}

/// Which server a request prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    /// The less loaded one of two.
    LeastLoaded,
    /// The next one in turn.
    NextInTurn,
    /// The one of this hash.
    Hash(u64),
    /// This one, even if the request has to wait for it.
    Server(usize),
}

/// What a worker remembers between its choices.
#[derive(Debug)]
pub(super) struct Chooser {
    random: Random,
}

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    /// Returns 64 random bits.
    pub(super) fn random_bits(&mut self) -> u64 {
        self.random.next()
    }
}

/// Why no server takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoServer {
    /// All servers are full, and the request may not wait or has waited.
    Full(NoPlace),
    /// Every server has been tried.
    AllTried,
    /// Every server fails its checks.
    AllFailChecks,
}

/// The result of one attempt to get a place.
enum Attempt {
    Entered(usize, Entered),
    /// Servers that would take the request are full: this one, or all.
    Full(Option<usize>),
    AllTried,
}

/// The place of a request at a server, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    upstream: Arc<Upstream>,
    pub(super) server: usize,
    pub(super) entered: Entered,
}

impl Drop for Place {
    fn drop(&mut self) {
        let server = &self.upstream.servers[self.server];
        server.places.leave();
        if !server.queue.wake_one() {
            self.upstream.queue.wake_one();
        }
    }
}

/// The duty of one worker to check the servers of a group, until it is dropped.
#[derive(Debug)]
pub(super) struct CheckClaim(Arc<AtomicBool>);

impl Drop for CheckClaim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The right of a request to be repeated, until it is dropped.
#[derive(Debug)]
pub(super) struct RetryPermit(Arc<Upstream>);

impl Drop for RetryPermit {
    fn drop(&mut self) {
        self.0.retrying.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("rules", &self.rules).field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Creates a group whose servers are all in use.
    ///
    /// # Panics
    /// If the group has no server.
    pub(crate) fn new(rules: UpstreamRules) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        assert!(!rules.servers.is_empty(), "a group has at least one server");
        let server = |server: &ServerRules| ServerState {
            identity: balance::hash(server.name.as_bytes()),
            places: Places::new(&rules.capacity),
            queue: WaitQueue::default(),
            address: AtomicUsize::new(0),
            counters: Arc::default(),
        };
        let names = rules.servers.iter().map(|server| &*server.name);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            servers: rules.servers.iter().map(server).collect(),
            health: GroupHealth::new(rules.servers.len(), rules.failures, rules.slow_start),
            queue: WaitQueue::default(),
            sticky: match &rules.balance {
                Balance::Sticky(sticky) => Some(StickyCookie::new(sticky, &rules.name, names)),
                _ => None,
            },
            turns: Turns::default(),
            retrying: AtomicU32::new(0),
            began: Instant::now(),
            observer: Mutex::default(),
            is_checked: Arc::default(),
            ends_checks: AtomicBool::new(false),
            rules,
        }
    }

    /// Sets who receives changes of the servers, in place of an earlier one.
    pub(crate) fn set_observer(&self, observer: UpstreamObserver) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &UpstreamRules {
        &self.rules
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the rules of a server.
    pub(super) fn server(&self, server: usize) -> &ServerRules {
        &self.rules.servers[server]
    }

    /// Returns the index of the address of a server that worked last.
    pub(super) fn working_address(&self, server: usize) -> usize {
        self.servers[server].address.load(Ordering::Relaxed)
    }

    /// Records which address of a server worked.
    pub(super) fn set_working_address(&self, server: usize, index: usize) {
        let address = &self.servers[server].address;
        // Without a write if nothing changes, because other workers read it.
        if address.load(Ordering::Relaxed) != index {
            address.store(index, Ordering::Relaxed);
        }
    }

    /// Returns the time since the start of the group.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the cookie that keeps clients at servers.
    pub(super) fn sticky(&self) -> Option<&StickyCookie> {
        self.sticky.as_ref()
    }

    /// Returns which server a request prefers.
    pub(super) fn preference(&self, request: &Request, client: IpAddr) -> Preference {
        let key = match &self.rules.balance {
            Balance::LeastLoaded => return Preference::LeastLoaded,
            Balance::RoundRobin => return Preference::NextInTurn,
            Balance::Sticky(_) => {
                let sticky = self.sticky.as_ref();
                let named = sticky.and_then(|sticky| sticky.server_of(cookie(request, sticky.name())?));
                return named.map_or(Preference::LeastLoaded, Preference::Server);
            }
            Balance::Hash(HashKey::Path) => Some(balance::hash(request.path_bytes())),
            Balance::Hash(HashKey::Field(name)) => request.field(name).map(balance::hash),
            Balance::Hash(HashKey::Cookie(name)) => cookie(request, name).map(balance::hash),
            Balance::Hash(HashKey::Client) => Some(match client {
                IpAddr::V4(client) => balance::hash(&client.to_bits().to_be_bytes()),
                IpAddr::V6(client) => balance::hash(&client.to_bits().to_be_bytes()),
            }),
        };
        key.map_or(Preference::LeastLoaded, Preference::Hash)
    }

    /// Takes a place at a server that was not tried yet, and waits for one if the rules permit it.
    pub(super) async fn place(
        self: &Arc<Self>,
        preference: Preference,
        chooser: &std::cell::RefCell<Chooser>,
        tried: &[usize],
    ) -> Result<Place, NoServer> {
        let try_enter = |preference| self.enter(&Forward, preference, &mut chooser.borrow_mut(), tried);
        let own = self.own_server(preference, tried);
        let full_server = if own.map_or(&self.queue, |server| &self.servers[server].queue).is_used() {
            own
        } else {
            match try_enter(preference) {
                Attempt::Entered(server, entered) => return Ok(self.place_at(server, entered)),
                Attempt::AllTried => return Err(self.no_server()),
                Attempt::Full(server) => server,
            }
        };
        let queue = full_server.map_or(&self.queue, |server| &self.servers[server].queue);
        if self.has_place(full_server) {
            // A limit rose, or a server returned, and requests wait.
            queue.wake_one();
        }
        let acceptable = if tried.is_empty() { Acceptable::AnyServer } else { Acceptable::OtherServers };
        let entered = queue.wait(&self.rules.capacity, acceptable, || match try_enter(preference) {
            Attempt::Entered(server, entered) => Some(Ok(self.place_at(server, entered))),
            Attempt::AllTried => Some(Err(self.no_server())),
            Attempt::Full(_) => None,
        });
        let place = entered.await.map_err(NoServer::Full)?;
        // A response wakes one request. If a limit rose or a server returned, more of them have a place.
        if self.has_place(full_server) {
            queue.wake_one();
        }
        place
    }

    /// Returns why no server is left.
    fn no_server(&self) -> NoServer {
        match (0..self.servers.len()).all(|server| self.health.fails_check(server)) {
            true => NoServer::AllFailChecks,
            false => NoServer::AllTried,
        }
    }

    /// Returns the only server that takes a request with this preference, as long as it is in use.
    fn own_server(&self, preference: Preference, tried: &[usize]) -> Option<usize> {
        let Preference::Server(server) = preference else { return None };
        let is_usable = self.health.availability(server, self.now()) == Availability::InUse && !tried.contains(&server);
        is_usable.then_some(server)
    }

    /// Whether this server, or one of all, is in use and not full.
    fn has_place(&self, server: Option<usize>) -> bool {
        let now = self.now();
        let mut servers = server.map_or(0..self.servers.len(), |server| server..server + 1);
        servers.any(|server| {
            self.health.availability(server, now) == Availability::InUse && !self.servers[server].places.is_full()
        })
    }

    fn place_at(self: &Arc<Self>, server: usize, entered: Entered) -> Place {
        Place { upstream: self.clone(), server, entered }
    }

    /// Takes a place at a server at once.
    fn enter(
        &self,
        effect: &impl ChoiceEffect,
        preference: Preference,
        chooser: &mut Chooser,
        tried: &[usize],
    ) -> Attempt {
        let now = self.now();
        match self.enter_by_health(effect, preference, chooser, (tried, self.health.is_ignored(now), now)) {
            // One server is out and the others are on trial: any is better than none.
            Attempt::AllTried if tried.is_empty() => {
                self.enter_by_health(effect, preference, chooser, (tried, true, now))
            }
            attempt => attempt,
        }
    }

    fn enter_by_health(
        &self,
        effect: &impl ChoiceEffect,
        preference: Preference,
        chooser: &mut Chooser,
        (tried, ignores_health, now): (&[usize], bool, Duration),
    ) -> Attempt {
        let count = self.servers.len();
        let weight = |index: usize| -> u32 {
            let availability = self.health.availability(index, now);
            let is_usable = match availability {
                _ if tried.contains(&index) => false,
                _ if self.health.fails_check(index) => false,
                _ if ignores_health => true,
                Availability::InUse => true,
                Availability::Trial => self.servers[index].places.at_work() == 0,
                Availability::Out => false,
            };
            // A weight is at most 65,535 and a share at most 1,000, so the product fits.
            let share = self.health.share(index, now) * WEIGHT_UNIT / 1000;
            if is_usable { u32::from(self.rules.servers[index].weight.get()) * share } else { 0 }
        };
        let weight_if_free = |index: usize| if self.servers[index].places.is_full() { 0 } else { weight(index) };
        let candidate =
            |index: usize| Candidate { at_work: self.servers[index].places.at_work(), weight: weight_if_free(index) };
        // Another worker can take the last place of a server in between; then the next choice is without it.
        for _ in 0..=count {
            let chosen = match preference {
                Preference::Server(server) if weight(server) > 0 => match effect.enter(&self.servers[server].places) {
                    Some(entered) => return Attempt::Entered(server, entered),
                    None => return Attempt::Full(Some(server)),
                },
                Preference::LeastLoaded | Preference::Server(_) => {
                    balance::least_loaded(count, candidate, &mut chooser.random)
                }
                Preference::NextInTurn => effect.next(&self.turns, count, candidate),
                Preference::Hash(key) => {
                    let own_weight = |index: usize| match weight_if_free(index) {
                        0 => 0,
                        _ => u32::from(self.rules.servers[index].weight.get()),
                    };
                    balance::by_hash(count, key, |index| self.servers[index].identity, own_weight)
                }
            };
            let Some(server) = chosen else { break };
            if let Some(entered) = effect.enter(&self.servers[server].places) {
                return Attempt::Entered(server, entered);
            }
        }
        if (0..count).any(|index| weight(index) > 0) { Attempt::Full(None) } else { Attempt::AllTried }
    }

    /// Whether its servers are to be checked, and no worker does.
    pub(super) fn needs_checks(&self) -> bool {
        self.rules.check.is_some() && !self.is_checked.load(Ordering::Relaxed)
    }

    /// Reserves the checks for this worker, unless another one has them.
    pub(super) fn claim_checks(&self) -> Option<CheckClaim> {
        if self.ends_checks.load(Ordering::Relaxed) {
            return None;
        }
        (!self.is_checked.swap(true, Ordering::Relaxed)).then(|| CheckClaim(self.is_checked.clone()))
    }

    /// Permits a repetition, if few of the requests at work are repetitions.
    pub(super) fn permit_retry(self: &Arc<Self>) -> Option<RetryPermit> {
        let at_work = self.servers.iter().map(|server| server.places.at_work()).fold(0, u32::saturating_add);
        let retrying = self.retrying.fetch_add(1, Ordering::Relaxed);
        let permit = RetryPermit(self.clone());
        retry_budget::allows(retrying, at_work).then_some(permit)
    }

    /// Returns the adaptive limit of a server, and the number of requests that it would have held back so far.
    pub(super) fn observed_limit(&self, server: usize) -> (u32, u64) {
        let places = &self.servers[server].places;
        (places.adaptive_limit(), places.beyond_observed())
    }

    /// Records a response of a working server, which took this time.
    pub(super) fn succeeded(&self, server: usize, took: Duration) {
        let now = self.now();
        self.servers[server].places.responded(Some(took), now);
        if self.health.succeeded(server, now) {
            self.report(server, ServerChange::Returned);
        }
    }

    /// Records a failure.
    pub(super) fn failed(&self, server: usize, failure: Failure, reason: &str) {
        let now = self.now();
        self.servers[server].counters.failures.fetch_add(1, Ordering::Relaxed);
        self.servers[server].places.responded(None, now);
        if let Some(time) = self.health.failed(server, failure, now) {
            self.report(server, ServerChange::TakenOut { time, reason });
        }
    }

    /// Records the result of a check.
    pub(super) fn checked(&self, server: usize, result: Result<(), &str>) {
        let (kind, change) = match result {
            Ok(()) => (CheckResult::Passed, ServerChange::CheckPassed),
            Err(reason) => (CheckResult::Failed, ServerChange::CheckFailed { reason }),
        };
        if kind == CheckResult::Failed {
            self.servers[server].counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        if self.health.checked(server, kind, self.now()) {
            self.report(server, change);
        }
    }

    fn report(&self, server: usize, change: ServerChange<'_>) {
        let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(&UpstreamEvent { group: &self.rules.name, server: &self.rules.servers[server].name, change });
        }
    }
}

/// Returns the server of a group that a request would get now. Nothing changes.
pub(super) fn would_choose(
    upstream: &Upstream,
    preference: Preference,
    chooser: &mut Chooser,
) -> Result<usize, NoServer> {
    match upstream.enter(&Explain, preference, chooser, &[]) {
        Attempt::Entered(server, _) => Ok(server),
        Attempt::Full(_) => Err(NoServer::Full(NoPlace::QueueFull)),
        Attempt::AllTried => Err(upstream.no_server()),
    }
}

mod choice_effect;
mod event;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use event::{ServerChange, UpstreamEvent, UpstreamObserver};
pub(super) use status::count_try;
pub(crate) use status::{ServerCondition, ServerStatus, continue_counters};
