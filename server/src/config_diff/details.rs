//! What changes between two configurations: each setting with its value before and now. What is compared is the printed
//! form, so each setting that is printed is compared.

use crate::config::model::{Route, Settings, Site, Statement};
use std::collections::{HashMap, HashSet};

/// Most lines; beyond that the number is given.
const LINES_MAX: usize = 200;

/// Returns one line for each changed setting.
pub(crate) fn details(before: &Settings, now: &Settings) -> Vec<String> {
    let mut lines = listeners(before, now);
    let changes = Changes::between(&before.server_statements(), &now.server_statements());
    lines.extend(changes.lines("", &Changes::default()));
    for upstream in &now.upstreams {
        if let Some(known) = before.upstream(&upstream.name) {
            let changes = Changes::between(&known.statements(), &upstream.statements());
            lines.extend(changes.lines(&format!("upstream {}: ", upstream.name), &Changes::default()));
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
    let mut lines = changes.lines(&format!("{site}: "), &Changes::default());
    lines.extend(of_routes((&site, &changes), &before.routes, now));
    lines
}

/// Returns what changes of the routes of a site. What a route inherits from the site is not repeated.
fn of_routes((site, of_site): (&str, &Changes), before: &[Route], now: &Site) -> Vec<String> {
    let (known, current) = (numbered(before), numbered(&now.routes));
    let statements_of_site = now.statements();
    let by_requests: HashMap<_, _> = known.iter().map(|(requests, route)| (requests, *route)).collect();
    let kept: HashSet<_> = current.iter().map(|(requests, _)| requests).collect();
    let mut lines = Vec::new();
    for (requests, route) in &current {
        match by_requests.get(requests) {
            Some(before) => {
                let changes = Changes::between(&before.statements(), &route.statements()).without(of_site);
                lines.extend(changes.lines(&format!("{site}: {}: ", requests.0), of_site));
            }
            None => {
                // The rules of the site are not repeated.
                let own = route.access_and_action();
                let own = own.iter().filter(|statement| !statements_of_site.contains(statement));
                let own: Vec<_> = own.map(Statement::without_secrets).collect();
                lines.push(format!("{site}: new: {}: {}", requests.0, own.join("; ")));
            }
        }
    }
    let removed = known.iter().filter(|(requests, _)| !kept.contains(requests));
    lines.extend(
        removed
            .map(|((requests, _), route)| format!("{site}: removed: {requests}: {}", route.action_without_secrets())),
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
#[derive(Default)]
struct Changes {
    removed: Vec<Statement>,
    added: Vec<Statement>,
    /// Those that were kept and have another place among the kept ones, in their order now.
    moved: Vec<Statement>,
}

impl Changes {
    fn between(before: &[Statement], now: &[Statement]) -> Self {
        let (known, current): (HashSet<_>, HashSet<_>) = (before.iter().collect(), now.iter().collect());
        let (kept_before, removed): (Vec<_>, Vec<_>) = before.iter().partition(|statement| current.contains(statement));
        let (kept_now, added): (Vec<_>, Vec<_>) = now.iter().partition(|statement| known.contains(statement));
        let moved = kept_now.iter().zip(&kept_before).filter(|(now, before)| now != before);
        Self {
            moved: moved.map(|(now, _)| (*now).clone()).collect(),
            removed: removed.into_iter().cloned().collect(),
            added: added.into_iter().cloned().collect(),
        }
    }

    /// Returns the changes that are not among others.
    fn without(mut self, others: &Self) -> Self {
        self.removed.retain(|statement| !others.removed.contains(statement));
        self.added.retain(|statement| !others.added.contains(statement));
        self.moved.retain(|statement| !others.moved.contains(statement));
        self
    }

    /// Returns a line for each change beside the inherited ones, behind the name of its block. A setting that is removed and
    /// added has both values in one line, or a line for each part of it that changes.
    fn lines(&self, of: &str, inherited: &Self) -> Vec<String> {
        let mut removed: Vec<&Statement> = self.removed.iter().collect();
        let mut lines = Vec::new();
        for statement in &self.added {
            match self.earlier(statement, &removed) {
                Some(at) => lines.extend(changed(of, (removed.remove(at), statement), inherited)),
                None => lines.push(format!("{of}new: {}", statement.without_secrets())),
            }
        }
        lines.extend(removed.iter().map(|statement| format!("{of}removed: {}", statement.without_secrets())));
        if !self.moved.is_empty() {
            let moved: Vec<_> = self.moved.iter().map(Statement::without_secrets).collect();
            lines.push(format!("{of}another order: now {}", moved.join("; ")));
        }
        lines
    }

    /// Returns which removed setting an added one replaces: one with an equal name and first argument, else one with an
    /// equal name that no other setting replaces.
    fn earlier(&self, statement: &Statement, removed: &[&Statement]) -> Option<usize> {
        let is_replaced = |earlier: &Statement| self.added.iter().any(|other| other.begin(2) == earlier.begin(2));
        let equal = removed.iter().position(|earlier| earlier.begin(2) == statement.begin(2));
        equal.or_else(|| {
            let named = |earlier: &&Statement| earlier.begin(1) == statement.begin(1) && !is_replaced(earlier);
            removed.iter().position(named)
        })
    }
}

/// Returns the lines of a setting that was changed.
fn changed(of: &str, (before, now): (&Statement, &Statement), inherited: &Changes) -> Vec<String> {
    let (known, current) = (before.without_secrets(), now.without_secrets());
    if !before.has_block() || !now.has_block() {
        return vec![match known == current {
            true => format!("{of}changed: {current}, whose value is not shown"),
            false => format!("{of}now {current}, before {known}"),
        }];
    }
    let parts = Changes::between(&before.parts(), &now.parts());
    let mut lines = Vec::new();
    if before.label() != now.label() {
        lines.push(format!("{of}now {}, before {}", now.label(), before.label()));
    }
    lines.extend(parts.without(inherited).lines(&format!("{of}{}: ", now.label()), inherited));
    lines
}
