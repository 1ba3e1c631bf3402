//! Finds rewrites to a path that no route serves.
//!
//! Only paths without placeholders are followed: the others depend on the request.

use super::{Builder, MachineRequirementKind, PageUse};
use crate::config::model::{Action, Files, Route, Switch, When};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::tree::Block;
use crate::syntax::{TryPath, absolute_path};
use selvedge::proto::path::SafePath;

/// Most rewrites of a site that are followed. Each is compared with all routes.
const FOLLOWED_MAX: usize = 256;

/// Follows the rewrites of a site.
pub(super) fn check_rewrites(build: &mut Builder<'_, '_>, site: &Block, routes: &[Route]) {
    let items: Vec<_> = site.all("route").collect();
    // A route with a problem may be the one that a rewrite leads to.
    if site.has_any_invalid(&["route"]) || items.iter().any(|item| item.has_problem) {
        return;
    }
    let rewrites = items.iter().zip(routes).filter_map(|(item, route)| match &route.action {
        Action::Rewrite { target } => {
            let at = item.block().get("rewrite")?.first().at;
            Some((at, item.at, SafePath::decode(target.as_static_path()?.as_bytes()).ok()?))
        }
        _ => None,
    });
    let places: Vec<Span> = items.iter().map(|item| item.at).collect();
    for (at, own_place, path) in rewrites.take(FOLLOWED_MAX) {
        follow(build, (at, own_place), &path, (routes, &places));
    }
}

fn follow(
    build: &mut Builder<'_, '_>,
    (at, own_place): (Span, Span),
    path: &SafePath,
    (routes, places): (&[Route], &[Span]),
) {
    let text = absolute_path(path);
    let is_match = |route: &Route| route.patterns.iter().any(|pattern| pattern.is_match(&text));
    let Some((index, route)) = routes.iter().enumerate().find(|(_, route)| is_match(route)) else {
        let problem = Problem::new(at, format!("no route serves `{text}`"));
        return build.problem(problem.suggest("add a route for it, or `root` in the site"));
    };
    if route.when != When::default() {
        return;
    }
    match &route.action {
        Action::Rewrite { .. } => {
            let problem = Problem::new(at, format!("the first route for `{text}` rewrites, too"));
            let problem = match places[index] == own_place {
                true => problem,
                false => problem.see_also(places[index], "that route"),
            };
            build.problem(problem.suggest(
                "a request is rewritten once, and gets 404 the second time; write a route for the path before",
            ));
        }
        Action::Files(files) if serves_the_path_alone(files) => {
            build.require(at, MachineRequirementKind::Page(files.root.clone(), text, PageUse::Rewrite));
        }
        _ => {}
    }
}

/// Whether files are only at the path of the request.
fn serves_the_path_alone(files: &Files) -> bool {
    files.strip_prefix == Switch::Off && files.fallback.is_none() && files.try_files == [TryPath::Request]
}
