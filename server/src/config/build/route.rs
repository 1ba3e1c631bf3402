//! Routes: conditions and actions.

use super::unreachable_routes::EarlierRoutes;
use super::values::{pattern, status};
use super::{Builder, MachineRequirementKind, networks, texts};
use crate::config::model::{AccessSettings, Action, Condition, Files, NamedCondition, Route, Switch, When};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::settings::ACTIONS;
use crate::config::suggest::suggestion;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::{
    Needs, Pattern, Template, TextPattern, TextTemplate, TryPath, foreign_placeholder, list_variables,
};
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
        let ignores_case = item.required("ignore-case").flag();
        let pattern = |given| if ignores_case { pattern(given).ignoring_case() } else { pattern(given) };
        let patterns: Vec<_> = item.arguments.iter().map(pattern).collect();
        let when = block.get("when").map_or_else(When::default, |item| self.when(item.block()));
        let wildcards = Wildcards::of(&patterns, &when);
        for (pattern, given) in patterns.iter().zip(&item.arguments) {
            if let Some(problem) = earlier_routes.add(pattern, &when, given.at) {
                self.problem(problem);
            }
        }
        Route {
            access: self.access(block, &site.access),
            body_bytes_max: block.get("body-bytes-max").map_or(site.body_bytes_max, |item| item.first().number()),
            action: self.action(item, (&patterns, &wildcards), site),
            response_settings: self.response_settings(block, site.root.as_ref(), &wildcards),
            patterns,
            when,
        }
    }

    fn action(
        &mut self,
        route: &Item,
        (patterns, wildcards): (&[Pattern], &Wildcards<'_>),
        site: &Inherited,
    ) -> Action {
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
            "files" => Action::Files(self.files(item, patterns, site)),
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
            _ => Action::Deny { status: status(item.required("status")) },
        }
    }

    fn files(&mut self, item: &Item, patterns: &[Pattern], site: &Inherited) -> Files {
        let strip_prefix = item.property("strip-prefix");
        if let Some(given) = strip_prefix.filter(|given| given.flag())
            && let Some(pattern) = patterns.iter().find(|pattern| !pattern.ends_with_rest())
        {
            let problem = Problem::new(given.at, format!("`{pattern}` has no prefix to strip"));
            self.problem(problem.suggest("a pattern with a prefix ends with `/*` or `/{name...}`"));
        }
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
        }
    }

    /// Builds a target. Each of its wildcards is one of every pattern.
    fn target(&mut self, given: &SpannedValue, wildcards: &Wildcards<'_>) -> Template {
        let target = template(given);
        if let Some((what, instead)) = wildcards.missing(&target.needs()) {
            self.problem(Problem::new(given.at, what).suggest(instead));
        } else if let Some(name) = target.host_names().into_iter().find(|name| !wildcards.host_names.contains(name)) {
            let problem = Problem::new(given.at, format!("`{{{name}}}` of the path in the place of a host"));
            self.problem(problem.suggest("a host is written out, or is {host} or a wildcard of `when { host ... }`"));
        } else if let Some(star) = wildcards.dropped_star(&target.needs()) {
            let problem = Problem::new(given.at, format!("the pattern's `*` number {star} is not in the target"));
            self.problem(problem.suggest("write {1}, {2} and so on to say which of them the target has"));
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
            self.check_template(&text, given.at, wildcards);
        }
        Action::Respond { status, body: text, content_type: item.required("content-type").text().to_owned() }
    }

    /// Reports wildcards of a text that a pattern does not fill.
    pub(super) fn check_template(&mut self, text: &TextTemplate, at: Span, wildcards: &Wildcards<'_>) {
        if let Some((what, instead)) = wildcards.missing(&text.needs()) {
            self.problem(Problem::new(at, what).suggest(instead));
        }
    }
}

/// The wildcards that every pattern of a route has, which a target or text may use.
#[derive(Debug, Default)]
pub(super) struct Wildcards<'r> {
    stars: usize,
    numbers: usize,
    names: Vec<&'r str>,
    /// Names of the host.
    host_names: Vec<&'r str>,
}

impl<'r> Wildcards<'r> {
    fn of(patterns: &'r [Pattern], when: &'r When) -> Self {
        let mut wildcards = Self {
            stars: patterns.iter().map(Pattern::stars).min().unwrap_or(0),
            numbers: patterns.iter().map(Pattern::wildcards).min().unwrap_or(0),
            ..Self::default()
        };
        if let Some((first, others)) = patterns.split_first() {
            let is_in_all = |name: &&Box<str>| others.iter().all(|other| other.names().contains(name));
            let named = first.names().iter().filter(|name| !name.is_empty()).filter(is_in_all);
            wildcards.names.extend(named.map(|name| &**name));
        }
        host_names(&when.conditions, &mut wildcards.host_names);
        wildcards
    }

    /// Returns a problem and its solution if something that is needed is missing.
    fn missing(&self, needs: &Needs<'_>) -> Option<(String, String)> {
        if needs.stars > self.stars {
            let what = format!("{} in the target, {} in the pattern", stars(needs.stars), self.stars);
            return Some((what, "each `*` of the target needs one in the pattern".to_owned()));
        }
        if needs.numbers > self.numbers {
            let what = format!("`{{{}}}` is not in every pattern of the route", needs.numbers);
            return Some((what, format!("the pattern has {} wildcards", self.numbers)));
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
    fn dropped_star(&self, needs: &Needs<'_>) -> Option<usize> {
        let has_only_stars = needs.stars > 0 && needs.numbers == 0 && needs.names.is_empty();
        (has_only_stars && needs.stars < self.stars).then_some(needs.stars + 1)
    }
}

fn stars(count: usize) -> String {
    if count == 1 { "one `*`".to_owned() } else { format!("{count} `*`") }
}

pub(super) fn text_template(given: &SpannedValue) -> TextTemplate {
    let Value::TextTemplate(text) = &given.value else { unreachable!("the table requires a text") };
    text.clone()
}

fn template(given: &SpannedValue) -> Template {
    let Value::Template(template) = &given.value else { unreachable!("the table requires a template") };
    template.clone()
}

fn try_path(given: &SpannedValue) -> TryPath {
    let Value::TryPath(path) = &given.value else { unreachable!("the table requires such a path") };
    path.clone()
}

impl Builder<'_, '_> {
    fn when(&mut self, block: &Block) -> When {
        When { conditions: self.conditions(block) }
    }

    /// Builds the conditions of a block, in the written order.
    fn conditions(&mut self, block: &Block) -> Vec<Condition> {
        let mut conditions = Vec::with_capacity(block.items.len());
        for item in &block.items {
            conditions.push(match item.setting.name {
                "method" => Condition::Method(texts(&item.arguments)),
                "query" => Condition::Query(named_condition(item)),
                "header" => Condition::Header(named_condition(item)),
                "cookie" => Condition::Cookie(named_condition(item)),
                "client" => Condition::Client(networks(&item.arguments)),
                "host" => Condition::Host(item.arguments.iter().map(text_pattern).collect()),
                "scheme" => Condition::Scheme(item.first().text().to_owned()),
                "file-exists" => Condition::FileExists(item.first().path().to_owned()),
                "not" => match self.group(item).as_slice() {
                    [condition] => Condition::Not(Box::new(condition.clone())),
                    [] => continue,
                    [..] => {
                        let problem = Problem::new(item.at, "several conditions in `not`");
                        self.problem(problem.suggest("write `not { any { ... } }` or `not { all { ... } }`"));
                        continue;
                    }
                },
                "any" => Condition::Any(self.group(item)),
                _ => Condition::All(self.group(item)),
            });
        }
        conditions
    }

    /// Builds the conditions of a group, which has at least one.
    fn group(&mut self, item: &Item) -> Vec<Condition> {
        let block = item.block();
        if block.items.is_empty() && block.invalid.is_empty() {
            let problem = Problem::new(item.at, format!("`{}` without a condition", item.setting.name));
            self.problem(problem.suggest("write a condition in its block, or remove it"));
        }
        self.conditions(block)
    }
}

fn named_condition(item: &Item) -> NamedCondition {
    let ignores_case = item.required("ignore-case").flag();
    let pattern = |given: &SpannedValue| match text_pattern(given) {
        pattern if ignores_case => pattern.ignoring_case(),
        pattern => pattern,
    };
    NamedCondition { name: item.first().text().to_owned(), values: item.arguments[1..].iter().map(pattern).collect() }
}

fn text_pattern(given: &SpannedValue) -> TextPattern {
    let Value::TextPattern(pattern) = &given.value else { unreachable!("the table requires a text pattern") };
    pattern.clone()
}

/// Adds the names of wildcards of hosts that have to match.
fn host_names<'w>(conditions: &'w [Condition], names: &mut Vec<&'w str>) {
    for condition in conditions {
        match condition {
            Condition::Host(patterns) => {
                // Any of the patterns may match, so a name counts if all have it.
                let (first, others) = patterns.split_first().expect("the table requires a host");
                let is_in_all = |name: &&Box<str>| others.iter().all(|other| other.names().contains(name));
                names
                    .extend(first.names().iter().filter(|name| !name.is_empty()).filter(is_in_all).map(|name| &**name));
            }
            Condition::All(conditions) => host_names(conditions, names),
            _ => {}
        }
    }
}
