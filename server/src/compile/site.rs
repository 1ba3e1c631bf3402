//! Sites and their routes.

use super::{Compiler, Route};
use crate::config::Claimed;
use crate::config::model::{self, Condition as Asked, HeaderChange, Replies, When};
use crate::site::{
    CacheRules, Condition, ErrorPages, FieldCondition, FieldTest, Gates, HeaderEdits, HostName, Pattern,
    Route as SiteRoute, SiteRules,
};
use selvedge::Status;
use selvedge::proto::path::SafePath;

impl Compiler<'_> {
    /// A site. Where it has problems it is of no use, and they are noted.
    pub(super) fn site(&mut self, (number, site): (usize, &model::Site)) -> SiteRules {
        let at = Route { site: number, route: usize::MAX };
        let mut rules = SiteRules {
            names: site.names.iter().filter_map(|name| self.judged(at, name.to_string().parse::<HostName>())).collect(),
            // 0 is what belongs to no site.
            label: u32::try_from(number + 1).expect("a configuration has fewer sites"),
            proxies: self.proxies(),
            gates: self.gates(&site.gate, &format!("{:?}", site.names), &[Claimed::Site(number)]),
            headers: self.headers(at, &site.replies),
            cache: self.cache_rules(at, &site.replies),
            ..SiteRules::default()
        };
        for (place, route) in site.routes.iter().enumerate() {
            let routes = self.route(Route { site: number, route: place }, (site, &rules.gates), route);
            rules.routes.extend(routes);
        }
        let pages = self.error_pages(at, &site.replies);
        let has_pages = !pages.is_empty() || rules.routes.iter().any(|route| !route.pages.is_empty());
        if let Some(files) = site.files.as_ref().filter(|_| has_pages) {
            rules.error_pages = self.root(&files.root).map(|root| ErrorPages { root, pages });
        }
        rules
    }

    /// What a route is: one for each of its patterns.
    fn route(&mut self, at: Route, site: (&model::Site, &Gates), route: &model::Route) -> Vec<SiteRoute> {
        let (said, gates) = site;
        let own_gates = (route.gate != said.gate).then(|| {
            let of = format!("{:?} {:?} {:?}", said.names, route.patterns, route.when);
            let places = [Claimed::Route(at.site, at.route), Claimed::Site(at.site)];
            self.gates_of_route(&route.gate, (&said.gate, gates), &of, &places)
        });
        let conditions = self.conditions(at, &route.when);
        let (headers, cache) = (self.headers(at, &route.replies), self.cache_rules(at, &route.replies));
        let pages = self.error_pages(at, &route.replies);
        let Some(action) = self.action(at, &route.action) else { return Vec::new() };
        let patterns =
            route.patterns.iter().filter_map(|pattern| self.judged(at, Pattern::parse(&pattern.to_string())));
        let patterns: Vec<_> = patterns.collect();
        let of = |pattern| SiteRoute {
            pattern,
            conditions: conditions.clone(),
            gates: own_gates.clone(),
            body_bytes_max: route.body_bytes_max,
            headers: headers.clone(),
            cache: cache.clone(),
            pages: pages.clone(),
            action: action.clone(),
        };
        patterns.into_iter().map(of).collect()
    }

    fn conditions(&mut self, at: Route, when: &When) -> Vec<Condition> {
        let mut conditions = Vec::new();
        if !when.methods.is_empty() {
            conditions.push(Condition::Method(when.methods.iter().map(|method| method.as_str().into()).collect()));
        }
        for Asked { name, value } in &when.queries {
            conditions.push(Condition::Query { name: name.as_str().into(), value: value.as_deref().map(Box::from) });
        }
        for Asked { name, value } in &when.headers {
            let test = value.as_deref().map_or(FieldTest::Present, |value| FieldTest::Equals(value.into()));
            let condition = self.judged(at, FieldCondition::new(name, test));
            conditions.extend(condition.map(Condition::Field));
        }
        if !when.clients.is_empty() {
            conditions.push(Condition::Client(super::networks(&when.clients)));
        }
        conditions
    }

    fn headers(&mut self, at: Route, replies: &Replies) -> HeaderEdits {
        let mut edits = HeaderEdits::default();
        for change in &replies.headers {
            let (name, made) = match change {
                HeaderChange::Set { name, value } => (name, edits.set(name, value)),
                HeaderChange::Add { name, value } => (name, edits.add(name, value)),
                HeaderChange::Remove { name } => (name, edits.remove(name)),
            };
            self.judged(at, made.map_err(|error| format!("`{name}`: {error}")));
        }
        edits
    }

    fn cache_rules(&mut self, at: Route, replies: &Replies) -> CacheRules {
        let mut rules = CacheRules::default();
        for rule in &replies.cache_control {
            if let Some(pattern) = self.judged(at, Pattern::parse(&rule.pattern.to_string())) {
                self.judged(at, rules.add(pattern, &rule.value));
            }
        }
        rules
    }

    fn error_pages(&mut self, at: Route, replies: &Replies) -> Vec<(Status, SafePath)> {
        let page = |page: &model::ErrorPage| {
            let path = self.path(at, &page.path)?;
            Some((Status::new(page.status).expect("reading saw to its range"), path))
        };
        replies.error_pages.iter().filter_map(page).collect()
    }

    /// A path of the site.
    pub(super) fn path(&mut self, at: Route, text: &str) -> Option<SafePath> {
        let decoded = SafePath::decode(text.as_bytes());
        self.judged(at, decoded.map_err(|error| format!("`{text}`: {}", error.text())))
    }
}
