//! Routes: when they apply, and what they do.

use super::reach::Reach;
use super::site::{pattern, status};
use super::{Build, Claimed, networks, texts};
use crate::config::model::{Action, Condition, Files, Gate, Route, Switch, When};
use crate::config::problem::Problem;
use crate::config::settings::ACTIONS;
use crate::config::tree::{Block, Given, Item};
use crate::config::value::{PathPattern, Template, Value};
use std::path::PathBuf;

/// What a route takes from its site.
pub(super) struct Inherited {
    pub(super) root: Option<PathBuf>,
    pub(super) index: Vec<String>,
    pub(super) listing: Switch,
    pub(super) sidecars: Switch,
    pub(super) body_bytes_max: u64,
    pub(super) gate: Gate,
}

impl Build<'_, '_> {
    pub(super) fn route(&mut self, item: &Item, site: &Inherited, reach: &mut Reach) -> Route {
        let block = item.inside();
        let patterns: Vec<_> = item.arguments.iter().map(pattern).collect();
        let when = block.get("when").map_or_else(When::default, |item| when(item.inside()));
        for (pattern, given) in patterns.iter().zip(&item.arguments) {
            if let Some(problem) = reach.add(pattern, &when, given.at) {
                self.problem(problem);
            }
        }
        Route {
            gate: self.gate(block, &site.gate),
            body_bytes_max: block.get("body-bytes-max").map_or(site.body_bytes_max, |item| item.first().number()),
            action: self.action(item, &patterns, site),
            replies: self.replies(block, site.root.as_ref()),
            patterns,
            when,
        }
    }

    fn action(&mut self, route: &Item, patterns: &[PathPattern], site: &Inherited) -> Action {
        let mut actions = route.inside().items.iter().filter(|item| ACTIONS.contains(&item.setting.name));
        let Some(item) = actions.next() else {
            if !route.inside().says_any(&ACTIONS) {
                let problem = Problem::new(route.at, "a route without an action");
                self.problem(problem.instead(format!("say one of {}", ACTIONS.join(", "))));
            }
            // The model is of no use any more; this only fills the place.
            return Action::Deny { status: 404 };
        };
        for other in actions {
            let problem = Problem::new(other.at, "a second action of a route").beside(item.at, "the first");
            self.problem(problem.instead("a route does one thing; make another route"));
        }
        match item.setting.name {
            "files" => Action::Files(self.files(item, site)),
            "redirect" => {
                let target = self.target(item.first(), patterns);
                if patterns.iter().any(|pattern| pattern.to_string() == target.to_string()) {
                    let problem = Problem::new(item.first().at, "a redirect that leads to itself");
                    self.problem(problem.instead("the client would come back for ever"));
                }
                Action::Redirect { target, status: status(item.the("status")) }
            }
            "rewrite" => Action::Rewrite { target: self.target(item.first(), patterns) },
            "respond" => self.respond(item),
            _ => Action::Deny { status: status(item.the("status")) },
        }
    }

    fn files(&mut self, item: &Item, site: &Inherited) -> Files {
        let root = match item.property("root") {
            Some(given) => {
                self.claim(given.at, Claimed::Root(given.path().to_owned()));
                given.path().to_owned()
            }
            None => site.root.clone().unwrap_or_else(|| {
                if !item.broken.contains(&"root") {
                    let problem = Problem::new(item.at, "files without a root");
                    self.problem(problem.instead("say `root PATH` in the site, or root=PATH here"));
                }
                PathBuf::new()
            }),
        };
        let block = item.inside();
        Files {
            root,
            index: block.get("index").map_or_else(|| site.index.clone(), |item| texts(&item.arguments)),
            fallback: item.property("fallback").map(|given| given.text().to_owned()),
            listing: item.property("listing").map_or(site.listing, |given| Switch::from(given.flag())),
            sidecars: item.property("sidecars").map_or(site.sidecars, |given| Switch::from(given.flag())),
            attempts: block.one("try").arguments.iter().map(template).collect(),
        }
    }

    /// A target, of which no star may be without its counterpart in a pattern.
    fn target(&mut self, given: &Given, patterns: &[PathPattern]) -> Template {
        let target = template(given);
        let fewest = patterns.iter().map(PathPattern::captures).min().unwrap_or(0);
        if target.captures() > fewest {
            let what = format!("{} in the target, {fewest} in the pattern", stars(target.captures()));
            self.problem(Problem::new(given.at, what).instead("each `*` here is what one in the pattern stands for"));
        }
        target
    }

    fn respond(&mut self, item: &Item) -> Action {
        let status = status(item.first());
        let body = item.arguments.get(1).map_or("", |given| given.text());
        // RFC 9110 §15.3.5, §15.4.5: these never have content.
        if matches!(status, 204 | 304) && !body.is_empty() {
            self.problem(
                Problem::new(item.at, format!("{status} with a body")).instead("take the body out, or say 200"),
            );
        }
        Action::Respond { status, body: body.to_owned(), content_type: item.the("content-type").text().to_owned() }
    }
}

fn stars(count: usize) -> String {
    if count == 1 { "one `*`".to_owned() } else { format!("{count} `*`") }
}

fn template(given: &Given) -> Template {
    let Value::Template(template) = &given.value else { unreachable!("the table says that it is a template") };
    template.clone()
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
