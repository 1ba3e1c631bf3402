//! Access settings.

use super::values::status;
use super::{Builder, MachineRequirementKind, enforcement, networks};
use crate::config::model::{
    AccessSettings, BasicAuth, ClientConnectionLimit, ConfiguredAccess, IpAccess, IpRule, RateLimit, Satisfy, User,
};
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item};
use std::collections::HashMap;
use std::time::Duration;

/// Longest time to refill a burst, because clients are remembered no longer.
const BURST_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

impl Builder<'_, '_> {
    /// Builds the access settings of a site or route. What is absent is inherited.
    pub(super) fn access(&mut self, block: &Block, inherited: &AccessSettings) -> AccessSettings {
        let access = AccessSettings {
            ip_access: match block.get("ip-access") {
                Some(item) => Some(self.ip_access(item)),
                None => inherited.ip_access.clone(),
            },
            rate_limit: match block.get("rate-limit") {
                Some(item) => Some(self.rate_limit(item)),
                None => inherited.rate_limit.clone(),
            },
            requests_at_once: match block.get("requests-at-once-max") {
                Some(item) => Some(ClientConnectionLimit {
                    connections_max: usize::try_from(item.first().number()).unwrap_or(usize::MAX),
                    enforcement: enforcement(item),
                }),
                None => inherited.requests_at_once.clone(),
            },
            basic_auth: match block.get("basic-auth") {
                Some(item) => Some(self.basic_auth(item)),
                None => inherited.basic_auth.clone(),
            },
            satisfy: match block.get("satisfy").map(|item| item.first().text()) {
                Some("any") => Satisfy::Any,
                Some(_) => Satisfy::All,
                None => inherited.satisfy,
            },
        };
        if let Some(item) = block.get("satisfy")
            && access.satisfy == Satisfy::Any
            && (access.ip_access.is_none() || access.basic_auth.is_none())
            && !block.has_any_invalid(&["ip-access", "basic-auth"])
        {
            let problem = Problem::new(item.at, "`satisfy \"any\"` has no effect without `ip-access` and `basic-auth`");
            self.problem(problem.suggest("write both beside it, or remove it"));
        }
        access
    }

    fn ip_access(&mut self, item: &Item) -> IpAccess {
        let mut rules = Vec::new();
        for line in &item.block().items {
            let access = if line.setting.name == "allow" { ConfiguredAccess::Allow } else { ConfiguredAccess::Deny };
            rules.push(IpRule { access, networks: networks(&line.arguments) });
        }
        // A list may be empty.
        if !item.block().has_any(&["allow", "deny"]) && !item.block().has_list() {
            let problem = Problem::new(item.at, "`ip-access` without a rule");
            self.problem(problem.suggest("write `allow NETWORK...` or `deny NETWORK...` in its block"));
        }
        let allows = rules.iter().any(|rule| rule.access == ConfiguredAccess::Allow);
        let otherwise = if allows { ConfiguredAccess::Deny } else { ConfiguredAccess::Allow };
        IpAccess {
            rules,
            status: status(item.required("status")),
            default_access: otherwise,
            enforcement: enforcement(item),
        }
    }

    fn rate_limit(&mut self, item: &Item) -> RateLimit {
        let requests = item.first().number();
        let burst = item.property("burst").map_or(requests, |given| given.number());
        let rate = RateLimit { requests, per: item.required("per").time(), burst, enforcement: enforcement(item) };
        let token = rate.per.as_micros() / u128::from(requests.max(1));
        if token == 0 {
            let problem = Problem::new(item.at, "a limit of more than 1,000,000 requests per second");
            self.problem(problem.suggest("lower the limit, or remove it"));
        } else if token * u128::from(burst) > BURST_TIME_MAX.as_micros() {
            let problem = Problem::new(item.at, "a burst that takes more than one day to refill");
            self.problem(problem.suggest("reduce `burst`, or shorten `per`"));
        }
        rate
    }

    fn basic_auth(&mut self, item: &Item) -> BasicAuth {
        let realm = item.required("realm");
        if realm.text().contains(|c: char| c.is_control()) {
            self.problem(
                Problem::new(realm.at, "`realm` contains a control character").suggest("write one line of text"),
            );
        }
        let mut seen = HashMap::new();
        let mut users = Vec::new();
        for line in item.block().all("user") {
            let name = line.first();
            if let Some(first) = seen.insert(name.text().to_owned(), name.at) {
                let problem = Problem::new(name.at, format!("user {} is repeated", name.text()));
                self.problem(problem.see_also(first, "the first one"));
            }
            users.push(User { name: name.text().to_owned(), hash: line.arguments[1].text().to_owned() });
        }
        let file = item.property("file").map(|given| (given.path().to_owned(), given.at));
        if let Some((path, at)) = file.clone() {
            self.require(at, MachineRequirementKind::UserFile(path));
        } else if !item.block().has_any(&["user"]) && !item.block().has_list() && !item.invalid.contains(&"file") {
            let problem = Problem::new(item.at, "no user");
            self.problem(problem.suggest("write file=\"users.htpasswd\", or `user NAME HASH` in the block"));
        }
        BasicAuth {
            realm: realm.text().to_owned(),
            file: file.map(|(path, _)| path),
            users,
            wrong_max: u32::try_from(item.required("wrong-max").number()).unwrap_or(u32::MAX),
            wrong_time: item.required("wrong-time").time(),
            enforcement: enforcement(item),
        }
    }
}
