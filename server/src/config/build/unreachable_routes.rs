//! Finds routes that can never match because an earlier route matches all their requests.

use crate::config::model::When;
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::syntax::Pattern;
use std::collections::HashMap;

/// The patterns of a site so far. A look-up is linear in the segments of the pattern; patterns with inner wildcards
/// are few and are compared one by one.
#[derive(Debug, Default)]
pub(super) struct EarlierRoutes {
    /// Every pattern with its conditions.
    all: HashMap<Pattern, Vec<(When, Span)>>,
    /// Prefixes without conditions.
    prefixes: HashMap<String, Span>,
    /// Patterns with inner wildcards and without conditions.
    globs: Vec<(Pattern, Span)>,
}

/// Most patterns with inner wildcards that are compared.
const GLOBS_MAX: usize = 256;
/// Most routes of one pattern that are compared.
const ROUTES_PER_PATTERN_MAX: usize = 64;

impl EarlierRoutes {
    /// Adds a pattern with its conditions; `None` for those of a list, which change while the server runs. Returns why it can
    /// never match, if so.
    pub(super) fn add(&mut self, pattern: &Pattern, when: Option<&When>, at: Span) -> Option<Problem> {
        if let Some((earlier, place)) = self.find_earlier(pattern, when) {
            let problem = Problem::new(at, format!("`{pattern}` can never match"));
            return Some(
                problem
                    .see_also(place, "an earlier line matches all of its requests")
                    .suggest(format!("move it before `{earlier}`, or remove it")),
            );
        }
        let when = when?;
        let is_free = *when == When::default();
        let routes = self.all.entry(pattern.clone()).or_default();
        if routes.len() < ROUTES_PER_PATTERN_MAX {
            routes.push((when.clone(), at));
        }
        match pattern.as_prefix() {
            Some(path) if is_free => drop(self.prefixes.insert(path.to_owned(), at)),
            None if is_free && pattern.as_exact().is_none() && self.globs.len() < GLOBS_MAX => {
                self.globs.push((pattern.clone(), at));
            }
            _ => {}
        }
        None
    }

    /// Whether a route matches every path.
    pub(super) fn matches_every_path(&self) -> bool {
        self.prefixes.contains_key("")
    }

    fn find_earlier(&self, pattern: &Pattern, when: Option<&When>) -> Option<(String, Span)> {
        let has_no_further_conditions =
            |(earlier, _): &&(When, Span)| Some(earlier) == when || *earlier == When::default();
        if let Some((_, place)) = self.all.get(pattern).and_then(|routes| routes.iter().find(has_no_further_conditions))
        {
            return Some((pattern.to_string(), *place));
        }
        // The longest path above everything that the pattern matches.
        let start = pattern.literal_start();
        let common = match pattern.as_exact() {
            Some(path) => path,
            None => start.rsplit_once('/').map_or("", |(folder, _)| folder),
        };
        let mut above = common;
        loop {
            if let Some(&place) = self.prefixes.get(above) {
                return Some((format!("{above}/*"), place));
            }
            match above.rfind('/') {
                Some(slash) => above = &above[..slash],
                None => break,
            }
        }
        let path = pattern.as_exact()?;
        let glob = self.globs.iter().find(|(glob, _)| glob.matches(path).is_some());
        glob.map(|(glob, place)| (glob.to_string(), *place))
    }
}
