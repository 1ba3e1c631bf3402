//! Routes: conditions and actions.

use super::gateway::gateway;
use super::proxy::{check_file_settings, proxy};
use super::site::{clean_urls, trailing_slash};
use super::status_page::check_status_page;
use super::unreachable_routes::EarlierRoutes;
use super::values::{check_prefix, pattern, status, text_template};
use super::when::build_when;
use super::wildcards::Wildcards;
use super::{Builder, Inherited, MachineRequirementKind, PageUse, body_limit, enforcement, texts};
use crate::config::model::{Action, Enforcement, Files, Route, RouteLog, Switch, When};
use crate::config::problem::Problem;
use crate::config::settings::ACTIONS;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::{Pattern, Template, TextTemplate, TryPath};
use std::path::PathBuf;

impl Builder<'_, '_> {
    pub(super) fn route(&mut self, item: &Item, site: &Inherited, earlier_routes: &mut EarlierRoutes) -> Route {
        let problems_before = self.reader.problems.len();
        let block = item.block();
        let ignores_case = item.required("ignore-case").flag();
        let pattern = |given| if ignores_case { pattern(given).ignoring_case() } else { pattern(given) };
        let patterns: Vec<_> = item.arguments.iter().map(pattern).collect();
        let when =
            block.get("when").map_or_else(When::default, |item| build_when(item.block(), &mut self.reader.problems));
        let wildcards = Wildcards::of(&patterns, &when);
        check_rewrite(block, &mut self.reader.problems);
        let access = self.access(block, &site.access);
        let action = self.action(item, (&patterns, &wildcards), site);
        check_status_page(self, block, site, (&access, &when));
        let response_settings = self.response_settings(block, site.root.as_ref(), &wildcards);
        // The conditions of a route with a problem may not be those that are meant.
        if !item.has_problem && self.reader.problems.len() == problems_before {
            // Requests that such a route matches may reach later ones.
            let is_passed_over = matches!(action, Action::Deny { enforcement: Enforcement::DryRun, .. })
                || block.get("when").is_some_and(|item| item.block().has_list());
            for (pattern, given) in patterns.iter().zip(&item.arguments) {
                let problem = earlier_routes.add(pattern, (!is_passed_over).then_some(&when), given.at);
                self.reader.problems.extend(problem);
            }
        }
        let body_limit = body_limit(block, site.body_limit);
        let compress = block.get("compress").map_or(site.compress, |item| Switch::from(item.first().flag()));
        let log = block.get("log").map_or(RouteLog::All, |item| route_log(item, &mut self.reader.problems));
        let name = block.get("name").map(|item| item.first().text().to_owned());
        Route { name, access, body_limit, compress, action, response_settings, patterns, when, log }
    }

    fn action(
        &mut self,
        route: &Item,
        (patterns, wildcards): (&[Pattern], &Wildcards<'_>),
        site: &Inherited,
    ) -> Action {
        let mut actions = route.block().items.iter().filter(|item| ACTIONS.contains(&item.setting.name));
        let Some(item) = actions.next() else {
            // A word that is not known may be meant as the action.
            if !route.has_problem {
                let problem = Problem::new(route.at, "a route without an action");
                self.problem(problem.suggest(format!("write one of {}", ACTIONS.join(", "))));
            }
            // A placeholder; the model is not used after a problem.
            return Action::Deny { status: 404, enforcement: Enforcement::Enforce };
        };
        for other in actions {
            let problem = Problem::new(other.at, "a second action in a route").see_also(item.at, "the first one");
            self.problem(problem.suggest("a route has one action; move this one to another route"));
        }
        match item.setting.name {
            "files" => {
                check_try_files(item, wildcards, &mut self.reader.problems);
                Action::Files(self.files(item, patterns, site))
            }
            "redirect" => {
                let target = self.target(item.first(), wildcards);
                if patterns.iter().any(|pattern| pattern.to_string() == target.to_string()) {
                    let problem = Problem::new(item.first().at, "a redirect to its own pattern");
                    self.problem(problem.suggest("the client would be redirected forever"));
                }
                Action::Redirect { target, status: status(item.required("status")) }
            }
            "rewrite" => Action::Rewrite { target: self.target(item.first(), wildcards) },
            "respond" => self.respond(item, wildcards),
            "metrics" => Action::Metrics,
            "status-page" => Action::StatusPage { public: Switch::from(item.required("public").flag()) },
            "proxy" => {
                check_file_settings(route.block(), item, &mut self.reader.problems);
                Action::Proxy(proxy(self, item, (patterns, wildcards)))
            }
            "php" => Action::Gateway(gateway(self, item, patterns, site)),
            "fastcgi" | "scgi" | "cgi" => {
                check_file_settings(route.block(), item, &mut self.reader.problems);
                Action::Gateway(gateway(self, item, patterns, site))
            }
            _ => Action::Deny { status: status(item.required("status")), enforcement: enforcement(item) },
        }
    }

    fn files(&mut self, item: &Item, patterns: &[Pattern], site: &Inherited) -> Files {
        let strip_prefix = item.property("strip-prefix");
        self.reader.problems.extend(strip_prefix.and_then(|given| check_prefix(given, patterns)));
        let has_root = item.property("root").is_some();
        let root = match item.property("root") {
            Some(given) => {
                self.require(given.at, MachineRequirementKind::Root(given.path().to_owned()));
                given.path().to_owned()
            }
            None => site.root.clone().unwrap_or_else(|| {
                if !item.invalid.contains(&"root") {
                    let problem = Problem::new(item.at, "`files` needs a root");
                    self.problem(problem.suggest("write `root PATH` in the site, or root=PATH here"));
                }
                PathBuf::new()
            }),
        };
        if let Some(given) = item.property("fallback") {
            let page = MachineRequirementKind::Page(root.clone(), given.text().to_owned(), PageUse::Fallback);
            self.require(given.at, page);
        }
        let block = item.block();
        Files {
            root,
            strip_prefix: Switch::from(strip_prefix.map_or(has_root, |given| given.flag())),
            index: block.get("index").map_or_else(|| site.index.clone(), |item| texts(&item.arguments)),
            fallback: item.property("fallback").map(|given| given.text().to_owned()),
            listing: item.property("listing").map_or(site.listing, |given| Switch::from(given.flag())),
            precompressed: item
                .property("precompressed")
                .map_or(site.precompressed, |given| Switch::from(given.flag())),
            try_files: block.item("try-files").arguments.iter().map(try_path).collect(),
            clean_urls: clean_urls(block).unwrap_or(site.clean_urls),
            trailing_slash: trailing_slash(block).unwrap_or(site.trailing_slash),
            link_targets: site.link_targets.clone(),
        }
    }

    /// Builds a target. Each of its wildcards is one of every pattern.
    pub(super) fn target(&mut self, given: &SpannedValue, wildcards: &Wildcards<'_>) -> Template {
        let target = template(given);
        if let Some((what, instead)) = wildcards.missing(&target.needs()) {
            self.problem(Problem::new(given.at, what).suggest(instead));
        } else if let Some(name) = target.host_names().into_iter().find(|name| !wildcards.host_names.contains(name)) {
            let problem = Problem::new(given.at, format!("`{{{name}}}` of the path in the place of a host"));
            self.problem(problem.suggest("a host is written out, or is {host} or a wildcard of `when { host ... }`"));
        } else if let Some(star) = wildcards.dropped_star(&target.needs()) {
            let problem = Problem::new(given.at, format!("the pattern's `*` number {star} is not in the target"));
            self.problem(problem.suggest("write {1}, {2} and so on to name those that the target has"));
        }
        target
    }

    fn respond(&mut self, item: &Item, wildcards: &Wildcards<'_>) -> Action {
        let status = status(item.first());
        let body = item.arguments.get(1);
        let text = body.map_or_else(|| TextTemplate::parse("").expect("it is valid"), text_template);
        // RFC 9110 §15.3.5, §15.4.5: these never have content.
        if matches!(status, 204 | 304) && text.as_static() != Some("") {
            self.problem(
                Problem::new(item.at, format!("a response with status {status} has no body"))
                    .suggest("remove the body, or use status 200"),
            );
        }
        if let Some(given) = body {
            self.reader.problems.extend(wildcards.check(&text, given.at));
        }
        Action::Respond { status, body: text, content_type: item.required("content-type").text().to_owned() }
    }
}

/// Returns which requests of a route are logged.
fn route_log(item: &Item, problems: &mut Vec<Problem>) -> RouteLog {
    match (item.first().flag(), item.property("status")) {
        (false, None) => RouteLog::None,
        (false, Some(given)) => {
            let problem = Problem::new(given.at, "`status` has no effect without lines in the log");
            problems.push(problem.suggest("remove it, or write `log #true`"));
            RouteLog::None
        }
        (true, None) => RouteLog::All,
        (true, Some(given)) => match given.value {
            Value::Statuses(first, last) => RouteLog::Statuses(first, last),
            _ => unreachable!("the table requires statuses"),
        },
    }
}

/// Reports settings of a route that rewrites: the response is that of another route.
fn check_rewrite(block: &Block, problems: &mut Vec<Problem>) {
    const WITHOUT_EFFECT: [&str; 8] =
        ["header", "header-add", "header-remove", "cache-control", "content-type", "types", "cors", "error-page"];
    let Some(rewrite) = block.get("rewrite") else { return };
    for item in block.items.iter().filter(|item| WITHOUT_EFFECT.contains(&item.setting.name)) {
        let what = format!("`{}` has no effect in a route that rewrites", item.setting.name);
        let problem = Problem::new(item.at, what).see_also(rewrite.at, "the rewrite");
        problems.push(problem.suggest("write it in the route that the new path leads to, or in the site"));
    }
}

/// Reports entries of `try-files` with wildcards that the route does not have.
fn check_try_files(item: &Item, wildcards: &Wildcards<'_>, problems: &mut Vec<Problem>) {
    for given in &item.block().item("try-files").arguments {
        if let TryPath::Path(template) = try_path(given)
            && let Some((what, instead)) = wildcards.missing(&template.needs())
        {
            problems.push(Problem::new(given.at, what).suggest(instead));
        }
    }
}

fn template(given: &SpannedValue) -> Template {
    let Value::Template(template) = &given.value else { unreachable!("the table requires a template") };
    template.clone()
}

fn try_path(given: &SpannedValue) -> TryPath {
    let Value::TryPath(path) = &given.value else { unreachable!("the table requires such a path") };
    path.clone()
}
