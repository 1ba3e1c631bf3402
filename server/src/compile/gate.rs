//! Who may come in: gates of sites and routes, and of connections.
//!
//! A gate that counts is taken over from the configuration before, when that said the same of
//! the same sites.

use super::{Compiler, networks};
use crate::config::model::{BasicAuth, ClientRules, Enforcement, Gate, RateLimit, Verdict};
use crate::config::value::Kind;
use crate::config::{Claimed, Passage, Problem};
use crate::site::{
    Access, BasicGate, ConnectionGate, Gates, Mode, NetworkGate, Rate, RateGate, Tally, UserProblem, Users,
};
use std::sync::Arc;

/// Clients that a rate is kept of at a time: 128 KiB for each rate.
pub(crate) const RATE_CLIENTS: usize = 16 << 10;

impl Compiler<'_> {
    pub(super) fn connection_gate(&mut self) {
        let settings = self.settings();
        let Some(limit) = &settings.limits.connections_per_client else { return };
        let exempt = &settings.trusted_proxies.networks;
        let said = format!("{limit:?} {exempt:?}");
        let gate = match &self.earlier.connections {
            Some((same, gate)) if *same == said => gate.clone(),
            _ => {
                let most = u32::try_from(limit.connections_max).unwrap_or(u32::MAX);
                ConnectionGate::new(most, networks(exempt), mode(limit.enforcement))
            }
        };
        self.kept.connections = Some((said, gate));
    }

    /// The gates of a site or a route; `of` tells them from those of others, and `places` is
    /// where they may be written.
    pub(super) fn gates(&mut self, gate: &Gate, of: &str, places: &[Claimed]) -> Gates {
        Gates {
            networks: gate.clients.as_ref().map(network_gate),
            rate: gate.rate_limit.as_ref().and_then(|limit| self.rate_gate(limit, of, places)),
            basic: gate.basic_auth.as_ref().and_then(|auth| self.basic_gate(auth, places)),
        }
    }

    /// Those of a route, as far as they are not its site's, which they share.
    pub(super) fn gates_of_route(&mut self, gate: &Gate, site: (&Gate, &Gates), of: &str, places: &[Claimed]) -> Gates {
        let (said, gates) = site;
        let own = Gate {
            clients: gate.clients.clone().filter(|own| said.clients.as_ref() != Some(own)),
            rate_limit: gate.rate_limit.clone().filter(|own| said.rate_limit.as_ref() != Some(own)),
            basic_auth: gate.basic_auth.clone().filter(|own| said.basic_auth.as_ref() != Some(own)),
        };
        let own = self.gates(&own, of, places);
        Gates {
            networks: own.networks.or_else(|| gates.networks.clone()),
            rate: own.rate.or_else(|| gates.rate.clone()),
            basic: own.basic.or_else(|| gates.basic.clone()),
        }
    }

    fn rate_gate(&mut self, limit: &RateLimit, of: &str, places: &[Claimed]) -> Option<Arc<RateGate>> {
        let said = format!("{of} {limit:?}");
        if let Some(gate) = self.kept.rates.get(&said).or_else(|| self.earlier.rates.get(&said)).cloned() {
            self.kept.rates.insert(said, gate.clone());
            return Some(gate);
        }
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let rate = Rate { requests: number(limit.requests), period: limit.per, burst: number(limit.burst) };
        match RateGate::new(rate, RATE_CLIENTS, mode(limit.enforcement)) {
            Ok(gate) => {
                let gate = Arc::new(gate);
                self.kept.rates.insert(said, gate.clone());
                Some(gate)
            }
            Err(error) => {
                self.problem(places, error);
                None
            }
        }
    }

    fn basic_gate(&mut self, auth: &BasicAuth, places: &[Claimed]) -> Option<Arc<BasicGate>> {
        let users = self.users(auth, places)?;
        match BasicGate::new(&auth.realm, Arc::new(users), Mode::Enforce) {
            Ok(gate) => Some(Arc::new(gate)),
            Err(error) => {
                self.problem(places, error);
                None
            }
        }
    }

    /// The users of the file, and those that are written in the configuration.
    fn users(&mut self, auth: &BasicAuth, places: &[Claimed]) -> Option<Users> {
        let (mut text, mut lines_of_file) = (String::new(), 0);
        if let Some(path) = &auth.file {
            match self.sources.text(path) {
                Ok(read) => (lines_of_file, text) = (read.lines().count(), read),
                Err(error) => {
                    let what = format!("cannot read {}: {error}", path.display());
                    self.problem(&[Claimed::UserFile(path.clone())], what);
                    return None;
                }
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.extend(auth.users.iter().map(|user| format!("{}:{}\n", user.name, user.hash)));
        let problems = match Users::parse(&text) {
            Ok(users) => return Some(users),
            Err(problems) => problems,
        };
        for problem in problems {
            // Those of the configuration have a line each, behind those of the file.
            let own = problem.line.checked_sub(lines_of_file + 1).and_then(|place| auth.users.get(place));
            match (own, &auth.file) {
                (Some(user), _) if problem.is_of_hash() => self.problem_of_hash(&user.hash, places, problem),
                (Some(_), _) | (None, None) => self.problem(places, problem),
                (None, Some(path)) => {
                    let what = format!("line {} of {}: {problem}", problem.line, path.display());
                    self.problem(&[Claimed::UserFile(path.clone())], what);
                }
            }
        }
        None
    }

    /// Notes a problem with a user wherever the hash is written.
    fn problem_of_hash(&mut self, hash: &str, places: &[Claimed], problem: UserProblem) {
        let is_it = |passage: &&Passage| passage.kind == Kind::PasswordHash && passage.text == hash;
        let mut written = self.configuration.passages.iter().filter(is_it).map(|passage| passage.at).peekable();
        if written.peek().is_none() {
            return self.problem(places, problem);
        }
        self.problems.extend(written.map(|at| Problem::of_world(at, problem.to_string(), String::new())));
    }
}

fn network_gate(rules: &ClientRules) -> Arc<NetworkGate> {
    let access = |verdict| match verdict {
        Verdict::Allow => Access::Allow,
        Verdict::Deny => Access::Deny,
    };
    Arc::new(NetworkGate {
        rules: rules.rules.iter().map(|rule| (access(rule.verdict), networks(&rule.networks))).collect(),
        otherwise: access(rules.otherwise),
        mode: mode(rules.enforcement),
        tally: Tally::default(),
    })
}

fn mode(enforcement: Enforcement) -> Mode {
    match enforcement {
        Enforcement::Enforce => Mode::Enforce,
        Enforcement::Observe => Mode::Observe,
    }
}
