//! Sites: names, and settings for all routes.

use super::expect::{ExpectingSite, add_expectations};
use super::rewrites::check_rewrites;
use super::status_page::restricts_clients;
use super::tls::site_tls;
use super::unreachable_routes::EarlierRoutes;
use super::values::{pattern, status, text_template};
use super::when::text_pattern;
use super::wildcards::Wildcards;
use super::{Builder, Inherited, MachineRequirementKind, PageUse, body_limit, texts};
use crate::config::model::{
    AccessSettings, Action, BodyLimit, CacheControl, ContentTypeRule, Cors, EncodedSlashRule, ErrorPage, Files,
    HeaderChange, HeaderChangeKind, ResponseSettings, Route, RouteLog, Site, Switch, TrailingSlash, When,
};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::{HostName, Pattern, ResponseSelector, TryPath};
use std::collections::HashMap;
use std::path::PathBuf;

impl Builder<'_, '_> {
    pub(super) fn sites(&mut self, top: &Block, body_bytes_max: u64) -> Vec<Site> {
        let mut names = HashMap::new();
        let sites = top.all("site").enumerate();
        sites.map(|(number, item)| self.site((number, item), body_bytes_max, &mut names)).collect()
    }

    fn site(
        &mut self,
        (number, item): (usize, &Item),
        body_bytes_max: u64,
        seen: &mut HashMap<HostName, Span>,
    ) -> Site {
        let block = item.block();
        self.require(item.at, MachineRequirementKind::Site(number));
        let names = self.names(item, seen);
        let root = self.path(block, "root");
        if let Some((path, at)) = root.clone() {
            self.require(at, MachineRequirementKind::Root(path));
        }
        // An invalid root counts as present, so that it is not reported as missing.
        let broken_root = block.has_any(&["root"]).then(PathBuf::new);
        let inherited = Inherited {
            root: root.map(|(path, _)| path).or(broken_root),
            index: texts(&block.item("index").arguments),
            listing: Switch::from(block.item("listing").first().flag()),
            precompressed: Switch::from(block.item("precompressed").first().flag()),
            clean_urls: clean_urls(block).unwrap_or(Switch::Off),
            trailing_slash: trailing_slash(block).unwrap_or(TrailingSlash::Auto),
            link_targets: link_targets(self, block),
            body_limit: body_limit(block, BodyLimit { bytes_max: body_bytes_max, dry_run_bytes_max: None }),
            compress: Switch::from(block.get("compress").is_some_and(|item| item.first().flag())),
            access: self.access(block, &AccessSettings::default()),
            restricts_clients: restricts_clients(block),
        };
        let files = inherited.root.clone().map(|root| inherited.files(root));
        let response_settings = self.response_settings(block, inherited.root.as_ref(), &Wildcards::default());
        let mut earlier_routes = EarlierRoutes::default();
        let mut routes: Vec<Route> = Vec::new();
        for item in block.all("route") {
            self.require(item.at, MachineRequirementKind::Route(number, routes.len()));
            routes.push(self.route(item, &inherited, &mut earlier_routes));
        }
        if let Some(files) = &files
            && !earlier_routes.matches_every_path()
        {
            routes.push(last_route(files.clone(), &inherited));
        }
        check_rewrites(self, block, &routes);
        let tls = site_tls(self, block, &names);
        add_expectations(self, block, Some(ExpectingSite { names: &names, tls: &tls }));
        let log = block.get("log").map(Item::block);
        // A site's `log` inherits from the server's, so its defaults do not apply.
        let written = |name| log.and_then(|log| log.get(name).filter(|item| item.first().at != log.at));
        Site {
            names,
            access_log: written("access").map(|item| self.access_log(item)),
            error_log: written("error").map(|item| self.error_log(item)),
            files,
            tls,
            encoded_slash: match block.item("encoded-slash").first().text() {
                "separator" => EncodedSlashRule::Separator,
                "files" => EncodedSlashRule::Files,
                _ => EncodedSlashRule::Data,
            },
            link_targets: inherited.link_targets.clone(),
            access: inherited.access.clone(),
            response_settings,
            routes,
        }
    }

    fn names(&mut self, item: &Item, seen: &mut HashMap<HostName, Span>) -> Vec<HostName> {
        let mut names = Vec::with_capacity(item.arguments.len());
        for given in &item.arguments {
            let Value::Host(name) = &given.value else { unreachable!("the table requires a host") };
            match seen.get(name) {
                Some(&first) => {
                    let problem = Problem::new(given.at, format!("site name `{name}` is repeated"))
                        .see_also(first, "the first one");
                    self.problem(problem.suggest("merge both sites, or remove the name from one"));
                }
                None => drop(seen.insert(name.clone(), given.at)),
            }
            names.push(name.clone());
        }
        names
    }

    /// Builds the response settings of a site or route.
    pub(super) fn response_settings(
        &mut self,
        block: &Block,
        root: Option<&PathBuf>,
        wildcards: &Wildcards<'_>,
    ) -> ResponseSettings {
        let mut response_settings = ResponseSettings::default();
        let mut statuses = HashMap::new();
        let mut earlier_rules = EarlierRoutes::default();
        for item in &block.items {
            let text = |number: usize| item.arguments[number].text().to_owned();
            match item.setting.name {
                "header" | "header-add" => {
                    let value = text_template(&item.arguments[1]);
                    self.reader.problems.extend(wildcards.check(&value, item.arguments[1].at));
                    let kind = match item.setting.name {
                        "header" => HeaderChangeKind::Set(value),
                        _ => HeaderChangeKind::Add(value),
                    };
                    response_settings.headers.push(HeaderChange {
                        name: text(0),
                        kind,
                        only_for: only_for(item, &mut self.reader.problems),
                    });
                }
                "header-remove" => {
                    let only_for = only_for(item, &mut self.reader.problems);
                    let change = HeaderChange { name: text(0), kind: HeaderChangeKind::Remove, only_for };
                    response_settings.headers.push(change);
                }
                "cache-control" => {
                    let selector = with_case(item, selector(&item.arguments[0]), ResponseSelector::ignoring_case);
                    if let ResponseSelector::Path(pattern) = &selector {
                        let at = item.arguments[0].at;
                        self.reader.problems.extend(earlier_rules.add(pattern, Some(&When::default()), at));
                    }
                    response_settings.cache_control.push(CacheControl { selector, value: text(1) });
                }
                "content-type" => {
                    let pattern = with_case(item, pattern(&item.arguments[0]), Pattern::ignoring_case);
                    response_settings.content_types.push(ContentTypeRule { pattern, media_type: text(1) });
                }
                "types" => {
                    for given in &item.arguments[1..] {
                        let suffix = given.text();
                        match Pattern::parse(&format!("*.{suffix}")) {
                            Ok(pattern) => response_settings
                                .content_types
                                .push(ContentTypeRule { pattern: pattern.ignoring_case(), media_type: text(0) }),
                            Err(error) => self.problem(Problem::new(given.at, error.message).suggest(error.suggestion)),
                        }
                    }
                }
                "cors" => response_settings.cors = Some(cors(item, &mut self.reader.problems)),
                "error-page" => {
                    let status = status(&item.arguments[0]);
                    if let Some(first) = statuses.insert(status, item.at) {
                        let problem = Problem::new(item.at, format!("a second error page for status {status}"));
                        self.problem(problem.see_also(first, "the first one"));
                    }
                    match root {
                        Some(root) => {
                            let page = MachineRequirementKind::Page(root.clone(), text(1), PageUse::Error);
                            self.require(item.arguments[1].at, page);
                        }
                        None => {
                            let problem = Problem::new(item.at, "an error page needs a root");
                            self.problem(problem.suggest("set `root` in the site; the page is a file below it"));
                        }
                    }
                    response_settings.error_pages.push(ErrorPage { status, path: text(1) });
                }
                _ => {}
            }
        }
        response_settings
    }
}

/// Returns the folders that links may lead to.
fn link_targets(builder: &mut Builder<'_, '_>, block: &Block) -> Vec<PathBuf> {
    let Some(item) = block.get("link-targets") else { return Vec::new() };
    for given in &item.arguments {
        builder.require(given.at, MachineRequirementKind::LinkTarget(given.path().to_owned()));
    }
    item.arguments.iter().map(|given| given.path().to_owned()).collect()
}

/// Returns the value of `clean-urls`, if it is set.
pub(super) fn clean_urls(block: &Block) -> Option<Switch> {
    block.get("clean-urls").map(|item| Switch::from(item.arguments.first().is_none_or(SpannedValue::flag)))
}

/// Returns the value of `trailing-slash`, if it is set.
pub(super) fn trailing_slash(block: &Block) -> Option<TrailingSlash> {
    block.get("trailing-slash").map(|item| match item.first().text() {
        "add" => TrailingSlash::Add,
        "remove" => TrailingSlash::Remove,
        _ => TrailingSlash::Auto,
    })
}

fn cors(item: &Item, problems: &mut Vec<Problem>) -> Cors {
    let cors = Cors {
        origins: item.arguments.iter().map(text_pattern).collect(),
        methods: item.required("methods").text().to_owned(),
        headers: item.required("headers").text().to_owned(),
        credentials: Switch::from(item.required("credentials").flag()),
        max_age: item.required("max-age").time(),
    };
    if cors.allows_any() && cors.credentials == Switch::On {
        let problem = Problem::new(item.at, "credentials for every origin");
        problems.push(problem.suggest("name the origins: browsers refuse `*` with credentials"));
    } else if cors.allows_any() && cors.origins.len() > 1 {
        let problem = Problem::new(item.at, "`*` beside other origins");
        problems.push(problem.suggest("write `*` alone, or remove it"));
    }
    cors
}

/// Builds the property `for` of a change of a field.
fn only_for(item: &Item, problems: &mut Vec<Problem>) -> Option<ResponseSelector> {
    let Some(given) = item.property("for") else {
        if item.required("ignore-case").flag() {
            let problem = Problem::new(item.at, "`ignore-case` without `for` has no effect");
            problems.push(problem.suggest("remove it"));
        }
        return None;
    };
    Some(with_case(item, selector(given), ResponseSelector::ignoring_case))
}

/// Returns a pattern of an item, which may ignore the case of letters.
fn with_case<P>(item: &Item, pattern: P, ignoring_case: impl Fn(&P) -> P) -> P {
    if item.required("ignore-case").flag() { ignoring_case(&pattern) } else { pattern }
}

fn selector(given: &SpannedValue) -> ResponseSelector {
    let Value::Selector(selector) = &given.value else { unreachable!("the table requires a selector") };
    selector.clone()
}

impl Inherited {
    pub(super) fn files(&self, root: PathBuf) -> Files {
        Files {
            root,
            strip_prefix: Switch::Off,
            index: self.index.clone(),
            fallback: None,
            listing: self.listing,
            precompressed: self.precompressed,
            clean_urls: self.clean_urls,
            trailing_slash: self.trailing_slash,
            link_targets: self.link_targets.clone(),
            try_files: vec![TryPath::Request],
        }
    }
}

/// The route of a site with a root, for paths that no other route matches.
fn last_route(files: Files, inherited: &Inherited) -> Route {
    Route {
        name: None,
        patterns: vec![Pattern::everything()],
        when: When::default(),
        access: inherited.access.clone(),
        body_limit: inherited.body_limit,
        compress: inherited.compress,
        action: Action::Files(files),
        response_settings: ResponseSettings::default(),
        log: RouteLog::All,
    }
}
