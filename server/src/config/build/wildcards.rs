//! The wildcards of a route, which its targets and texts may use.

use crate::config::model::{Condition, When};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::suggest::suggestion;
use crate::syntax::{Needs, Pattern, TextTemplate, foreign_placeholder, list_variables};

/// The wildcards that every pattern of a route has, which a target or text may use.
#[derive(Debug, Default)]
pub(super) struct Wildcards<'r> {
    stars: usize,
    numbers: usize,
    names: Vec<&'r str>,
    /// Names of the host.
    pub(super) host_names: Vec<&'r str>,
}

impl<'r> Wildcards<'r> {
    pub(super) fn of(patterns: &'r [Pattern], when: &'r When) -> Self {
        let mut wildcards = Self {
            stars: patterns.iter().map(Pattern::stars).min().unwrap_or(0),
            numbers: patterns.iter().map(Pattern::wildcards).min().unwrap_or(0),
            ..Self::default()
        };
        if let Some((first, others)) = patterns.split_first() {
            let is_in_all = |name: &&str| others.iter().all(|other| has(other.names(), name));
            wildcards.names.extend(named(first.names()).filter(is_in_all));
        }
        host_names(&when.conditions, &mut wildcards.host_names);
        wildcards
    }

    /// Returns the problem of a text that needs something that is missing.
    pub(super) fn check(&self, text: &TextTemplate, at: Span) -> Option<Problem> {
        self.missing(&text.needs()).map(|(what, instead)| Problem::new(at, what).suggest(instead))
    }

    /// Returns a problem and its solution if something that is needed is missing.
    pub(super) fn missing(&self, needs: &Needs<'_>) -> Option<(String, String)> {
        if needs.stars > self.stars {
            let what = format!("{} in the target, {} in the pattern", stars(needs.stars), self.stars);
            return Some((what, "each `*` of the target needs one in the pattern".to_owned()));
        }
        if needs.numbers > self.numbers {
            let what = format!("`{{{}}}` is not in every pattern of the route", needs.numbers);
            let has = match self.numbers {
                0 => "the pattern has no wildcard".to_owned(),
                1 => "the pattern has one wildcard, {1}".to_owned(),
                some => format!("the pattern has {some} wildcards"),
            };
            return Some((what, has));
        }
        let is_known = |name: &&&str| self.names.contains(name) || self.host_names.contains(name);
        let unknown = needs.names.iter().find(|name| !is_known(name))?;
        let own: Vec<&str> = self.names.iter().chain(&self.host_names).copied().collect();
        let instead = match foreign_placeholder(unknown) {
            Some(ours) => format!("write {ours}"),
            None if own.is_empty() => {
                format!("name a wildcard of the pattern {{{unknown}}}, or write {}", list_variables())
            }
            None => suggestion(unknown, own.into_iter()),
        };
        Some((format!("`{{{unknown}}}` is not a wildcard of every pattern of the route"), instead))
    }

    /// Returns the number of the first `*` of the pattern that a target with stars leaves out.
    pub(super) fn dropped_star(&self, needs: &Needs<'_>) -> Option<usize> {
        let has_only_stars = needs.stars > 0 && needs.numbers == 0 && needs.names.is_empty();
        (has_only_stars && needs.stars < self.stars).then_some(needs.stars + 1)
    }
}

fn stars(count: usize) -> String {
    if count == 1 { "one `*`".to_owned() } else { format!("{count} `*`") }
}

/// Adds the names of wildcards of hosts that have to match.
fn host_names<'w>(conditions: &'w [Condition], names: &mut Vec<&'w str>) {
    for condition in conditions {
        match condition {
            Condition::Host(patterns) => {
                // Any of the patterns may match, so a name counts if all have it.
                let (first, others) = patterns.split_first().expect("the table requires a host");
                let is_in_all = |name: &&str| others.iter().all(|other| has(other.names(), name));
                names.extend(named(first.names()).filter(is_in_all));
            }
            Condition::All(conditions) => host_names(conditions, names),
            _ => {}
        }
    }
}

/// Returns the names that are not empty.
fn named(names: &[Box<str>]) -> impl Iterator<Item = &str> {
    names.iter().map(|name| &**name).filter(|name| !name.is_empty())
}

fn has(names: &[Box<str>], name: &str) -> bool {
    names.iter().any(|known| **known == *name)
}
