//! Which routes can never match, because earlier ones take all that they would.

use crate::config::model::When;
use crate::config::place::Span;
use crate::config::problem::Problem;
use crate::config::value::PathPattern;
use std::collections::HashMap;

/// The patterns of a site so far. Looking one up costs as much as it has segments, however
/// many there are; patterns with stars in the middle are few, and are gone through.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Every pattern, with what else it asks for.
    all: HashMap<PathPattern, Vec<(When, Span)>>,
    /// Paths of prefixes that ask for nothing else.
    prefixes: HashMap<String, Span>,
    /// Patterns with stars in the middle that ask for nothing else.
    globs: Vec<(PathPattern, Span)>,
}

/// Most patterns with stars in the middle that are compared with each other.
const GLOBS_MAX: usize = 256;
/// Most routes of one pattern that are compared with each other.
const SAME_MAX: usize = 64;

impl Reach {
    /// Adds a pattern, or says why it can never match.
    pub(super) fn add(&mut self, pattern: &PathPattern, when: &When, at: Span) -> Option<Problem> {
        if let Some((earlier, place)) = self.earlier(pattern, when) {
            let problem = Problem::new(at, format!("`{pattern}` can never match"));
            return Some(
                problem
                    .beside(place, "an earlier route takes all of it")
                    .instead(format!("put it before `{earlier}`, or take it out")),
            );
        }
        let is_free = *when == When::default();
        let same = self.all.entry(pattern.clone()).or_default();
        if same.len() < SAME_MAX {
            same.push((when.clone(), at));
        }
        match pattern {
            PathPattern::Prefix(path) if is_free => drop(self.prefixes.insert(path.clone(), at)),
            PathPattern::Glob(_) if is_free && self.globs.len() < GLOBS_MAX => self.globs.push((pattern.clone(), at)),
            _ => {}
        }
        None
    }

    /// Whether a route takes every path.
    pub(super) fn takes_everything(&self) -> bool {
        self.prefixes.contains_key("")
    }

    fn earlier(&self, pattern: &PathPattern, when: &When) -> Option<(String, Span)> {
        let asks_no_more = |(earlier, _): &&(When, Span)| earlier == when || *earlier == When::default();
        if let Some((_, place)) = self.all.get(pattern).and_then(|same| same.iter().find(asks_no_more)) {
            return Some((pattern.to_string(), *place));
        }
        // The longest path that everything the pattern matches is beneath.
        let common = match pattern {
            PathPattern::Exact(path) | PathPattern::Prefix(path) => path.as_str(),
            PathPattern::Glob(texts) => texts[0].rsplit_once('/').map_or("", |(before, _)| before),
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
        let PathPattern::Exact(path) = pattern else { return None };
        let glob = self.globs.iter().find(|(glob, _)| glob.matches(path));
        glob.map(|(glob, place)| (glob.to_string(), *place))
    }
}
