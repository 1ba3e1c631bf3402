//! Sites: their names, what they say for all of their routes.

use super::reach::Reach;
use super::route::Inherited;
use super::{Build, Claimed, texts};
use crate::config::model::{
    Action, CacheControl, ErrorPage, Files, Gate, HeaderChange, Replies, Route, Site, Switch, When,
};
use crate::config::place::Span;
use crate::config::problem::Problem;
use crate::config::tree::{Block, Given, Item};
use crate::config::value::{HostPattern, PathPattern, Value};
use std::collections::HashMap;
use std::path::PathBuf;

impl Build<'_, '_> {
    pub(super) fn sites(&mut self, top: &Block, body_bytes_max: u64) -> Vec<Site> {
        let mut names = HashMap::new();
        let sites = top.all("site").enumerate();
        sites.map(|(number, item)| self.site((number, item), body_bytes_max, &mut names)).collect()
    }

    fn site(
        &mut self,
        (number, item): (usize, &Item),
        body_bytes_max: u64,
        known: &mut HashMap<HostPattern, Span>,
    ) -> Site {
        let block = item.inside();
        self.claim(item.at, Claimed::Site(number));
        let names = self.names(item, known);
        let root = self.path(block, "root");
        if let Some((path, at)) = root.clone() {
            self.claim(at, Claimed::Root(path));
        }
        // A root that is wrong still is one, so that nobody is told that it is missing.
        let broken_root = block.says_any(&["root"]).then(PathBuf::new);
        let inherited = Inherited {
            root: root.map(|(path, _)| path).or(broken_root),
            index: texts(&block.one("index").arguments),
            listing: Switch::from(block.one("listing").first().flag()),
            sidecars: Switch::from(block.one("sidecars").first().flag()),
            body_bytes_max: block.get("body-bytes-max").map_or(body_bytes_max, |item| item.first().number()),
            gate: self.gate(block, &Gate::default()),
        };
        let files = inherited.root.clone().map(|root| inherited.files(root));
        let replies = self.replies(block, inherited.root.as_ref());
        let mut reach = Reach::default();
        let mut routes: Vec<Route> = Vec::new();
        for item in block.all("route") {
            self.claim(item.at, Claimed::Route(number, routes.len()));
            routes.push(self.route(item, &inherited, &mut reach));
        }
        if let Some(files) = &files
            && !reach.takes_everything()
        {
            routes.push(last_route(files.clone(), &inherited));
        }
        let log = block.get("log").map(Item::inside);
        // What a site's `log` does not say is the server's, so its defaults do not count.
        let said = |name| log.and_then(|log| log.get(name).filter(|item| item.first().at != log.at));
        Site {
            names,
            access_log: said("access").map(|item| self.access_log(item)),
            error_log: said("error").map(|item| self.error_log(item)),
            files,
            gate: inherited.gate.clone(),
            replies,
            routes,
        }
    }

    fn names(&mut self, item: &Item, known: &mut HashMap<HostPattern, Span>) -> Vec<HostPattern> {
        let mut names = Vec::with_capacity(item.arguments.len());
        for given in &item.arguments {
            let Value::Host(name) = &given.value else { unreachable!("the table says that it is a host") };
            match known.get(name) {
                Some(&first) => {
                    let problem = Problem::new(given.at, format!("a second site `{name}`")).beside(first, "the first");
                    self.problem(problem.instead("a name belongs to one site; put both into one"));
                }
                None => drop(known.insert(name.clone(), given.at)),
            }
            names.push(name.clone());
        }
        names
    }

    /// What a site or a route says of its responses.
    pub(super) fn replies(&mut self, block: &Block, root: Option<&PathBuf>) -> Replies {
        let mut replies = Replies::default();
        let mut statuses = HashMap::new();
        for item in &block.items {
            let text = |number: usize| item.arguments[number].text().to_owned();
            match item.setting.name {
                "header" => replies.headers.push(HeaderChange::Set { name: text(0), value: text(1) }),
                "header-add" => replies.headers.push(HeaderChange::Add { name: text(0), value: text(1) }),
                "header-remove" => replies.headers.push(HeaderChange::Remove { name: text(0) }),
                "cache-control" => {
                    replies.cache_control.push(CacheControl { pattern: pattern(&item.arguments[0]), value: text(1) })
                }
                "error-page" => {
                    let status = status(&item.arguments[0]);
                    if let Some(first) = statuses.insert(status, item.at) {
                        let problem = Problem::new(item.at, format!("a second page for {status}"));
                        self.problem(problem.beside(first, "the first"));
                    }
                    match root {
                        Some(root) => self.claim(item.arguments[1].at, Claimed::Page(root.clone(), text(1))),
                        None => {
                            let problem = Problem::new(item.at, "an error page of a site without a root");
                            self.problem(problem.instead("say `root` in the site: the page is looked for beneath it"));
                        }
                    }
                    replies.error_pages.push(ErrorPage { status, path: text(1) });
                }
                _ => {}
            }
        }
        replies
    }
}

impl Inherited {
    pub(super) fn files(&self, root: PathBuf) -> Files {
        Files {
            root,
            index: self.index.clone(),
            fallback: None,
            listing: self.listing,
            sidecars: self.sidecars,
            attempts: vec![crate::config::value::Template::whole()],
        }
    }
}

/// What a site with a root does with what no route takes.
fn last_route(files: Files, inherited: &Inherited) -> Route {
    Route {
        patterns: vec![PathPattern::Prefix(String::new())],
        when: When::default(),
        gate: inherited.gate.clone(),
        body_bytes_max: inherited.body_bytes_max,
        action: Action::Files(files),
        replies: Replies::default(),
    }
}

pub(super) fn pattern(given: &Given) -> PathPattern {
    let Value::Pattern(pattern) = &given.value else { unreachable!("the table says that it is a pattern") };
    pattern.clone()
}

pub(super) fn status(given: &Given) -> u16 {
    u16::try_from(given.number()).expect("a status has three digits")
}
