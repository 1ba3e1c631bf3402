//! What changes between two configurations within limits, listeners, upstreams and sites: each setting with its value
//! before and now.

use crate::config::model::{Route, Settings, Site};
use std::collections::{HashMap, HashSet};

/// Most lines; beyond that the number is given.
const LINES_MAX: usize = 200;

/// Returns one line for each changed setting.
pub(crate) fn details(before: &Settings, now: &Settings) -> Vec<String> {
    let mut lines = listeners(before, now);
    lines.extend(Changes::between(&before.limits.statements(), &now.limits.statements()).lines("limits"));
    for upstream in &now.upstreams {
        if let Some(known) = before.upstream(&upstream.name) {
            let changes = Changes::between(&known.statements(), &upstream.statements());
            lines.extend(changes.lines(&format!("upstream {}", upstream.name)));
        }
    }
    // No two sites share a name, so the first one identifies a site.
    let known: HashMap<String, &Site> = before.sites.iter().map(|site| (site.names[0].to_string(), site)).collect();
    for site in &now.sites {
        let known = known.get(&site.names[0].to_string()).filter(|known| **known != site);
        lines.extend(known.into_iter().flat_map(|known| of_site(known, site)));
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("{more} more changed settings"));
    }
    lines
}

fn listeners(before: &Settings, now: &Settings) -> Vec<String> {
    let changed = now.listeners.iter().filter_map(|listener| {
        let known = before.listeners.iter().find(|known| known.address == listener.address)?;
        (known != listener).then(|| format!("now {listener}, before {known}"))
    });
    changed.collect()
}

fn of_site(before: &Site, now: &Site) -> Vec<String> {
    let site = format!("site {}", now.names[0]);
    let changes = Changes::between(&before.statements(), &now.statements());
    let mut lines = changes.lines(&site);
    lines.extend(of_routes((&site, &changes), &before.routes, &now.routes));
    lines
}

/// Returns what changes of the routes of a site. What a route inherits from the site is not repeated.
fn of_routes((site, of_site): (&str, &Changes), before: &[Route], now: &[Route]) -> Vec<String> {
    let (known, current) = (numbered(before), numbered(now));
    let by_requests: HashMap<_, _> = known.iter().map(|(requests, route)| (requests, *route)).collect();
    let kept: HashSet<_> = current.iter().map(|(requests, _)| requests).collect();
    let mut lines = Vec::new();
    for (requests, route) in &current {
        match by_requests.get(requests) {
            Some(before) => {
                let changes = Changes::between(&before.statements(), &route.statements()).without(of_site);
                lines.extend(changes.lines(&format!("{site}: {}", requests.0)));
            }
            None => lines.push(format!("{site}: new: {}: {}", requests.0, route.action_statement())),
        }
    }
    let removed = known.iter().filter(|(requests, _)| !kept.contains(requests));
    lines.extend(
        removed.map(|((requests, _), route)| format!("{site}: removed: {requests}: {}", route.action_statement())),
    );
    let order_before = known.iter().map(|(requests, _)| requests).filter(|requests| kept.contains(requests));
    let order_now = current.iter().map(|(requests, _)| requests).filter(|requests| by_requests.contains_key(requests));
    if !order_before.eq(order_now) {
        lines.push(format!("{site}: the order of routes has changed, and the first match decides"));
    }
    lines
}

/// Returns each route with its requests, and how many routes for these are before it.
fn numbered(routes: &[Route]) -> Vec<((String, usize), &Route)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let numbered = routes.iter().map(|route| {
        let requests = route.requests();
        let count = counts.entry(requests.clone()).or_default();
        *count += 1;
        ((requests, *count), route)
    });
    numbered.collect()
}

/// The settings that were removed and added.
struct Changes {
    removed: Vec<String>,
    added: Vec<String>,
}

impl Changes {
    fn between(before: &[String], now: &[String]) -> Self {
        let without = |some: &[String], others: &[String]| {
            let others: HashSet<_> = others.iter().collect();
            some.iter().filter(|statement| !others.contains(statement)).cloned().collect()
        };
        Self { removed: without(before, now), added: without(now, before) }
    }

    /// Returns the changes that are not among others.
    fn without(mut self, others: &Self) -> Self {
        self.removed.retain(|statement| !others.removed.contains(statement));
        self.added.retain(|statement| !others.added.contains(statement));
        self
    }

    /// Returns a line for each change. A setting that is removed and added has both values in one line.
    fn lines(&self, of: &str) -> Vec<String> {
        let name = |statement: &str| statement.split(' ').next().unwrap_or_default().to_owned();
        let mut removed: Vec<&String> = self.removed.iter().collect();
        let mut lines = Vec::new();
        for statement in &self.added {
            let earlier = removed.iter().position(|earlier| name(earlier) == name(statement));
            lines.push(match earlier.map(|at| removed.remove(at)) {
                Some(earlier) => format!("{of}: now {}, before {}", public(statement), public(earlier)),
                None => format!("{of}: new: {}", public(statement)),
            });
        }
        lines.extend(removed.iter().map(|statement| format!("{of}: removed: {}", public(statement))));
        lines
    }
}

/// Returns a setting without the hashes of passwords.
fn public(statement: &str) -> &str {
    let end = statement.find(" {").filter(|_| statement.starts_with("basic-auth "));
    &statement[..end.unwrap_or(statement.len())]
}
