//! Routes: conditions and actions.

use super::unreachable_routes::EarlierRoutes;
use super::values::{pattern, status};
use super::{Builder, MachineRequirementKind, networks, texts};
use crate::config::model::{AccessSettings, Action, Condition, Files, Route, Switch, When};
use crate::config::problem::Problem;
use crate::config::settings::ACTIONS;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::{Pattern, Template, TryPath};
use std::path::PathBuf;

/// What a route inherits from its site.
pub(super) struct Inherited {
    pub(super) root: Option<PathBuf>,
    pub(super) index: Vec<String>,
    pub(super) listing: Switch,
    pub(super) precompressed: Switch,
    pub(super) body_bytes_max: u64,
    pub(super) access: AccessSettings,
}

impl Builder<'_, '_> {
    pub(super) fn route(&mut self, item: &Item, site: &Inherited, earlier_routes: &mut EarlierRoutes) -> Route {
        let block = item.block();
        let patterns: Vec<_> = item.arguments.iter().map(pattern).collect();
        let when = block.get("when").map_or_else(When::default, |item| when(item.block()));
        for (pattern, given) in patterns.iter().zip(&item.arguments) {
            if let Some(problem) = earlier_routes.add(pattern, &when, given.at) {
                self.problem(problem);
            }
        }
        Route {
            access: self.access(block, &site.access),
            body_bytes_max: block.get("body-bytes-max").map_or(site.body_bytes_max, |item| item.first().number()),
            action: self.action(item, &patterns, site),
            response_settings: self.response_settings(block, site.root.as_ref()),
            patterns,
            when,
        }
    }

    fn action(&mut self, route: &Item, patterns: &[Pattern], site: &Inherited) -> Action {
        let mut actions = route.block().items.iter().filter(|item| ACTIONS.contains(&item.setting.name));
        let Some(item) = actions.next() else {
            if !route.block().has_any(&ACTIONS) {
                let problem = Problem::new(route.at, "a route without an action");
                self.problem(problem.suggest(format!("write one of {}", ACTIONS.join(", "))));
            }
            // A placeholder; the model is not used after a problem.
            return Action::Deny { status: 404 };
        };
        for other in actions {
            let problem = Problem::new(other.at, "a second action in a route").see_also(item.at, "the first one");
            self.problem(problem.suggest("a route has one action; move this one to another route"));
        }
        match item.setting.name {
            "files" => Action::Files(self.files(item, site)),
            "redirect" => {
                let target = self.target(item.first(), patterns);
                if patterns.iter().any(|pattern| pattern.to_string() == target.to_string()) {
                    let problem = Problem::new(item.first().at, "a redirect to its own pattern");
                    self.problem(problem.suggest("the client would be redirected forever"));
                }
                Action::Redirect { target, status: status(item.required("status")) }
            }
            "rewrite" => Action::Rewrite { target: self.target(item.first(), patterns) },
            "respond" => self.respond(item),
            _ => Action::Deny { status: status(item.required("status")) },
        }
    }

    fn files(&mut self, item: &Item, site: &Inherited) -> Files {
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
        let block = item.block();
        Files {
            root,
            index: block.get("index").map_or_else(|| site.index.clone(), |item| texts(&item.arguments)),
            fallback: item.property("fallback").map(|given| given.text().to_owned()),
            listing: item.property("listing").map_or(site.listing, |given| Switch::from(given.flag())),
            precompressed: item
                .property("precompressed")
                .map_or(site.precompressed, |given| Switch::from(given.flag())),
            try_files: block.item("try-files").arguments.iter().map(try_path).collect(),
        }
    }

    /// Builds a target. Each of its wildcards needs one in every pattern.
    fn target(&mut self, given: &SpannedValue, patterns: &[Pattern]) -> Template {
        let target = template(given);
        let fewest = patterns.iter().map(Pattern::stars).min().unwrap_or(0);
        if target.stars() > fewest {
            let what = format!("{} in the target, {fewest} in the pattern", stars(target.stars()));
            self.problem(Problem::new(given.at, what).suggest("each `*` of the target needs one in the pattern"));
        }
        target
    }

    fn respond(&mut self, item: &Item) -> Action {
        let status = status(item.first());
        let body = item.arguments.get(1).map_or("", |given| given.text());
        // RFC 9110 §15.3.5, §15.4.5: these never have content.
        if matches!(status, 204 | 304) && !body.is_empty() {
            self.problem(
                Problem::new(item.at, format!("a response with status {status} has no body"))
                    .suggest("remove the body, or use status 200"),
            );
        }
        Action::Respond { status, body: body.to_owned(), content_type: item.required("content-type").text().to_owned() }
    }
}

fn stars(count: usize) -> String {
    if count == 1 { "one `*`".to_owned() } else { format!("{count} `*`") }
}

fn template(given: &SpannedValue) -> Template {
    let Value::Template(template) = &given.value else { unreachable!("the table requires a template") };
    template.clone()
}

fn try_path(given: &SpannedValue) -> TryPath {
    let Value::TryPath(path) = &given.value else { unreachable!("the table requires such a path") };
    path.clone()
}

fn when(block: &Block) -> When {
    let conditions = |name| {
        let condition = |item: &Item| Condition {
            name: item.first().text().to_owned(),
            value: item.arguments.get(1).map(|given| given.text().to_owned()),
        };
        block.all(name).map(condition).collect()
    };
    When {
        methods: block.get("method").map_or_else(Vec::new, |item| texts(&item.arguments)),
        queries: conditions("query"),
        headers: conditions("header"),
        clients: block.get("client").map_or_else(Vec::new, |item| networks(&item.arguments)),
    }
}
