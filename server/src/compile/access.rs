//! Compiles the access rules of sites and routes, and the limit on connections.
//!
//! A rate limit with its counts is taken over from the previous configuration if its text is unchanged.

use super::Compiler;
use crate::config::model::{self, AccessSettings, ConfiguredAccess, Enforcement};
use crate::config::value::ValueKind;
use crate::config::{MachineRequirementKind, Problem, RawValue};
use crate::site::{
    AccessRules, BasicAuthenticator, ConnectionLimiter, DenialCounter, GuessLimiter, IpFilter, LiveUsers, Permission,
    Rate, RateLimiter, RuleMode, Satisfy, UserProblem,
};
use selvedge::StatusCode;
use std::sync::Arc;

/// Clients for which a rate is stored: 128 KiB for each rate limit.
pub(crate) const RATE_CLIENTS: usize = 16 << 10;

impl Compiler<'_> {
    pub(super) fn connection_limit(&mut self) {
        let settings = self.settings();
        let Some(limit) = &settings.limits.connections_per_client else { return };
        let exempt = &settings.trusted_proxies.networks;
        let text = format!("{limit:?} {exempt:?}");
        let limiter = match &self.earlier.connections {
            Some((same, limiter)) if *same == text => limiter.clone(),
            _ => {
                let most = u32::try_from(limit.connections_max).unwrap_or(u32::MAX);
                let denials = denial_counter(self, None, "connections-per-client-max");
                ConnectionLimiter::new(most, exempt.clone(), mode(limit.enforcement), denials)
            }
        };
        self.carried.connections = Some((text, limiter));
    }

    /// Compiles the access rules of a site, by its number, or of a route of it. `of` identifies it, and `places` are positions
    /// for problems.
    pub(super) fn access_rules(
        &mut self,
        settings: &AccessSettings,
        (site, of): (usize, &str),
        places: &[MachineRequirementKind],
    ) -> AccessRules {
        AccessRules {
            ip_access: settings.ip_access.as_ref().map(|rules| {
                let denials = denial_counter(self, Some(site), "ip-access");
                ip_filter(rules, denials)
            }),
            rate_limit: settings.rate_limit.as_ref().and_then(|limit| self.rate_limiter(limit, (site, of), places)),
            requests_at_once: settings.requests_at_once.as_ref().map(|limit| {
                let most = u32::try_from(limit.connections_max).unwrap_or(u32::MAX);
                let denials = denial_counter(self, Some(site), "requests-at-once-max");
                ConnectionLimiter::new(most, Vec::new(), mode(limit.enforcement), denials)
            }),
            basic_auth: settings.basic_auth.as_ref().and_then(|auth| self.basic_authenticator(auth, site, places)),
            satisfy: match settings.satisfy {
                model::Satisfy::All => Satisfy::All,
                model::Satisfy::Any => Satisfy::Any,
            },
        }
    }

    /// Compiles a route's rules, and shares those that equal its site's.
    pub(super) fn route_access_rules(
        &mut self,
        settings: &AccessSettings,
        (number, site_settings, site_rules): (usize, &AccessSettings, &AccessRules),
        of: &str,
        places: &[MachineRequirementKind],
    ) -> AccessRules {
        let own = AccessSettings {
            ip_access: settings.ip_access.clone().filter(|own| site_settings.ip_access.as_ref() != Some(own)),
            rate_limit: settings.rate_limit.clone().filter(|own| site_settings.rate_limit.as_ref() != Some(own)),
            requests_at_once: settings
                .requests_at_once
                .clone()
                .filter(|own| site_settings.requests_at_once.as_ref() != Some(own)),
            basic_auth: settings.basic_auth.clone().filter(|own| site_settings.basic_auth.as_ref() != Some(own)),
            satisfy: settings.satisfy,
        };
        let own = self.access_rules(&own, (number, of), places);
        AccessRules {
            ip_access: own.ip_access.or_else(|| site_rules.ip_access.clone()),
            rate_limit: own.rate_limit.or_else(|| site_rules.rate_limit.clone()),
            requests_at_once: own.requests_at_once.or_else(|| site_rules.requests_at_once.clone()),
            basic_auth: own.basic_auth.or_else(|| site_rules.basic_auth.clone()),
            satisfy: own.satisfy,
        }
    }

    fn rate_limiter(
        &mut self,
        limit: &model::RateLimit,
        (site, of): (usize, &str),
        places: &[MachineRequirementKind],
    ) -> Option<Arc<RateLimiter>> {
        let text = format!("{of} {limit:?}");
        let denials = denial_counter(self, Some(site), "rate-limit");
        if let Some(limiter) = self.carried.rates.get(&text).or_else(|| self.earlier.rates.get(&text)).cloned() {
            self.carried.rates.insert(text, limiter.clone());
            return Some(limiter);
        }
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let rate = Rate { requests: number(limit.requests), period: limit.per, burst: number(limit.burst) };
        match RateLimiter::new(rate, RATE_CLIENTS, mode(limit.enforcement)) {
            Ok(limiter) => {
                let limiter = Arc::new(limiter.counted_by(denials));
                self.carried.rates.insert(text, limiter.clone());
                Some(limiter)
            }
            Err(error) => {
                self.problem(places, error);
                None
            }
        }
    }

    fn basic_authenticator(
        &mut self,
        auth: &model::BasicAuth,
        site: usize,
        places: &[MachineRequirementKind],
    ) -> Option<Arc<BasicAuthenticator>> {
        let users = Arc::new(self.users(auth, places)?);
        self.carried.users.push(users.clone());
        let guesses = self.guess_limiter(auth, site, places)?;
        match BasicAuthenticator::new(&auth.realm, users, guesses, RuleMode::Enforce) {
            Ok(authenticator) => Some(Arc::new(authenticator)),
            Err(error) => {
                self.problem(places, error);
                None
            }
        }
    }

    /// Returns the counts of wrong passwords, which a reload keeps. Rules with one file and one limit share them.
    fn guess_limiter(
        &mut self,
        auth: &model::BasicAuth,
        site: usize,
        places: &[MachineRequirementKind],
    ) -> Option<Arc<GuessLimiter>> {
        let denials = denial_counter(self, Some(site), "basic-auth");
        let model::BasicAuth { realm, file, wrong_max, wrong_time, enforcement, .. } = auth;
        let text = format!("{realm} {file:?} {wrong_max} {wrong_time:?} {enforcement:?}");
        let known = self.carried.guesses.get(&text).or_else(|| self.earlier.guesses.get(&text)).cloned();
        let limiter = match known {
            Some(limiter) => limiter,
            None => match GuessLimiter::new(*wrong_max, *wrong_time, mode(*enforcement)) {
                Ok(limiter) => Arc::new(limiter.counted_by(denials)),
                Err(error) => {
                    self.problem(places, error);
                    return None;
                }
            },
        };
        self.carried.guesses.insert(text, limiter.clone());
        Some(limiter)
    }

    /// Reads the users of the file and of the configuration. A program that starts has checked the lines of the file; later,
    /// a line with a problem costs only its user.
    fn users(&mut self, auth: &model::BasicAuth, places: &[MachineRequirementKind]) -> Option<LiveUsers> {
        let text = match &auth.file {
            Some(path) => match self.sources.text(path).or_else(|_| LiveUsers::read_file(path)) {
                Ok(text) => Some(text),
                Err(error) => {
                    let what = format!("cannot read {}: {error}", path.display());
                    self.problem(&[MachineRequirementKind::UserFile(path.clone())], what);
                    return None;
                }
            },
            None => None,
        };
        let file = auth.file.as_deref().zip(text.as_deref());
        let configured = auth.users.iter().map(|user| format!("{}:{}\n", user.name, user.hash)).collect();
        let problems = match LiveUsers::parse(file, configured) {
            Ok(users) => return Some(users),
            Err(problems) => problems,
        };
        for problem in problems {
            match auth.users.get(problem.line - 1) {
                Some(user) if problem.is_hash_problem() => self.report_hash_problem(&user.hash, places, problem),
                _ => self.problem(places, problem),
            }
        }
        None
    }

    /// Reports a problem with a user at its hash.
    fn report_hash_problem(&mut self, hash: &str, places: &[MachineRequirementKind], problem: UserProblem) {
        let is_it = |passage: &&RawValue| passage.kind == ValueKind::PasswordHash && passage.text == hash;
        let mut written = self.configuration.raw_values.iter().filter(is_it).map(|passage| passage.at).peekable();
        if written.peek().is_none() {
            return self.problem(places, problem);
        }
        self.problems.extend(written.map(|at| Problem::with_suggestion(at, problem.to_string(), String::new())));
    }
}

/// Returns the counter of a kind of rules in dry-run mode of a site, or of the server. The next configurations continue with
/// it, whatever else changes.
pub(super) fn denial_counter(compiler: &mut Compiler<'_>, site: Option<usize>, rule: &'static str) -> DenialCounter {
    let name = site.map(|site| compiler.settings().sites[site].names[0].to_string());
    let key = (name, rule);
    let (carried, earlier) = (&compiler.carried.denials, &compiler.earlier.denials);
    let counter = carried.get(&key).or_else(|| earlier.get(&key)).cloned().unwrap_or_default();
    compiler.carried.denials.insert(key, counter.clone());
    counter
}

fn ip_filter(rules: &model::IpAccess, denials: DenialCounter) -> Arc<IpFilter> {
    let permission = |access| match access {
        ConfiguredAccess::Allow => Permission::Allow,
        ConfiguredAccess::Deny => Permission::Deny,
    };
    Arc::new(IpFilter {
        rules: rules.rules.iter().map(|rule| (permission(rule.access), rule.networks.clone())).collect(),
        default_permission: permission(rules.default_access),
        status: StatusCode::new(rules.status).expect("the parser checked the range"),
        mode: mode(rules.enforcement),
        denials,
    })
}

fn mode(enforcement: Enforcement) -> RuleMode {
    match enforcement {
        Enforcement::Enforce => RuleMode::Enforce,
        Enforcement::DryRun => RuleMode::DryRun,
    }
}
