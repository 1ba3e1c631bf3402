//! Who may come in, and how often.

use super::{Build, Claimed, enforcement, networks};
use crate::config::model::{BasicAuth, ClientRule, ClientRules, Gate, RateLimit, User, Verdict};
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item};
use std::collections::HashMap;
use std::time::Duration;

/// How long a burst may take to come back: clients are not remembered for longer.
const BURST_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

impl Build<'_, '_> {
    /// The gate of a site or a route; what it does not say is inherited.
    pub(super) fn gate(&mut self, block: &Block, inherited: &Gate) -> Gate {
        Gate {
            clients: match block.get("clients") {
                Some(item) => Some(self.clients(item)),
                None => inherited.clients.clone(),
            },
            rate_limit: match block.get("rate-limit") {
                Some(item) => Some(self.rate_limit(item)),
                None => inherited.rate_limit.clone(),
            },
            basic_auth: match block.get("basic-auth") {
                Some(item) => Some(self.basic_auth(item)),
                None => inherited.basic_auth.clone(),
            },
        }
    }

    fn clients(&mut self, item: &Item) -> ClientRules {
        let mut rules = Vec::new();
        for line in &item.inside().items {
            let verdict = if line.setting.name == "allow" { Verdict::Allow } else { Verdict::Deny };
            rules.push(ClientRule { verdict, networks: networks(&line.arguments) });
        }
        if !item.inside().says_any(&["allow", "deny"]) {
            let problem = Problem::new(item.at, "`clients` that says nothing");
            self.problem(problem.instead("say `allow NETWORK...` or `deny NETWORK...` in its braces"));
        }
        let allows = rules.iter().any(|rule| rule.verdict == Verdict::Allow);
        let otherwise = if allows { Verdict::Deny } else { Verdict::Allow };
        ClientRules { rules, otherwise, enforcement: enforcement(item) }
    }

    fn rate_limit(&mut self, item: &Item) -> RateLimit {
        let requests = item.first().number();
        let burst = item.property("burst").map_or(requests, |given| given.number());
        let rate = RateLimit { requests, per: item.the("per").time(), burst, enforcement: enforcement(item) };
        let token = rate.per.as_micros() / u128::from(requests.max(1));
        if token == 0 {
            let problem = Problem::new(item.at, "more than a million requests a second");
            self.problem(problem.instead("a bound that high is none; leave it out"));
        } else if token * u128::from(burst) > BURST_TIME_MAX.as_micros() {
            let problem = Problem::new(item.at, "a burst that takes more than a day to come back");
            self.problem(problem.instead("make `burst` smaller, or `per` shorter"));
        }
        rate
    }

    fn basic_auth(&mut self, item: &Item) -> BasicAuth {
        let realm = item.the("realm");
        if realm.text().contains(|c: char| c.is_control()) {
            self.problem(Problem::new(realm.at, "a realm with a control character").instead("it is one line of text"));
        }
        let mut seen = HashMap::new();
        let mut users = Vec::new();
        for line in item.inside().all("user") {
            let name = line.first();
            if let Some(first) = seen.insert(name.text().to_owned(), name.at) {
                let problem = Problem::new(name.at, format!("the user {} a second time", name.text()));
                self.problem(problem.beside(first, "the first"));
            }
            users.push(User { name: name.text().to_owned(), hash: line.arguments[1].text().to_owned() });
        }
        let file = item.property("file").map(|given| (given.path().to_owned(), given.at));
        if let Some((path, at)) = file.clone() {
            self.claim(at, Claimed::UserFile(path));
        } else if !item.inside().says_any(&["user"]) && !item.broken.contains(&"file") {
            let problem = Problem::new(item.at, "nobody who could come in");
            self.problem(problem.instead("say file=\"users.htpasswd\", or `user NAME HASH` in the braces"));
        }
        BasicAuth { realm: realm.text().to_owned(), file: file.map(|(path, _)| path), users }
    }
}
