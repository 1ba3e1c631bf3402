//! Compiles sites and their routes.

use super::{Compiler, RouteIndex};
use crate::config::MachineRequirementKind;
use crate::config::model::{self, HeaderChange, ResponseSettings, When};
use crate::site::{
    AccessRules, CacheControlRules, Condition, ErrorPages, FieldCondition, FieldTest, HeaderEdits, Route as SiteRoute,
    SiteRules,
};
use crate::syntax::Pattern;
use selvedge::StatusCode;
use selvedge::proto::path::SafePath;

impl Compiler<'_> {
    /// Compiles a site. If it has problems, they are reported and the result must not be used.
    pub(super) fn site(&mut self, (number, site): (usize, &model::Site)) -> SiteRules {
        let at = RouteIndex { site: number, route: usize::MAX };
        let mut rules = SiteRules {
            names: site.names.clone(),
            // Tag 0 means no site.
            site_tag: u32::try_from(number + 1).expect("a configuration has fewer sites"),
            proxies: super::trusted_proxies(&self.settings().trusted_proxies),
            access: self.access_rules(
                &site.access,
                &format!("{:?}", site.names),
                &[MachineRequirementKind::Site(number)],
            ),
            headers: self.headers(at, &site.response_settings),
            cache_control: self.cache_rules(at, &site.response_settings),
            ..SiteRules::default()
        };
        for (place, route) in site.routes.iter().enumerate() {
            let routes = self.route(RouteIndex { site: number, route: place }, (site, &rules.access), route);
            rules.routes.extend(routes);
        }
        let pages = self.error_pages(at, &site.response_settings);
        let has_pages = !pages.is_empty() || rules.routes.iter().any(|route| !route.error_pages.is_empty());
        if let Some(files) = site.files.as_ref().filter(|_| has_pages) {
            rules.error_pages = self.root(&files.root).map(|root| ErrorPages { root, pages });
        }
        rules
    }

    /// Compiles a route into one for each of its patterns.
    fn route(&mut self, at: RouteIndex, site: (&model::Site, &AccessRules), route: &model::Route) -> Vec<SiteRoute> {
        let (site_settings, site_rules) = site;
        let own_rules = (route.access != site_settings.access).then(|| {
            let of = format!("{:?} {:?} {:?}", site_settings.names, route.patterns, route.when);
            let places = [MachineRequirementKind::Route(at.site, at.route), MachineRequirementKind::Site(at.site)];
            self.route_access_rules(&route.access, (&site_settings.access, site_rules), &of, &places)
        });
        let conditions = self.conditions(at, &route.when);
        let (headers, cache) =
            (self.headers(at, &route.response_settings), self.cache_rules(at, &route.response_settings));
        let pages = self.error_pages(at, &route.response_settings);
        let Some(action) = self.action(at, &route.action) else { return Vec::new() };
        let of = |pattern: &Pattern| SiteRoute {
            pattern: pattern.clone(),
            conditions: conditions.clone(),
            access: own_rules.clone(),
            body_bytes_max: route.body_bytes_max,
            headers: headers.clone(),
            cache_control: cache.clone(),
            error_pages: pages.clone(),
            action: action.clone(),
        };
        route.patterns.iter().map(of).collect()
    }

    fn conditions(&mut self, at: RouteIndex, when: &When) -> Vec<Condition> {
        let mut conditions = Vec::new();
        if !when.methods.is_empty() {
            conditions.push(Condition::Method(when.methods.iter().map(|method| method.as_str().into()).collect()));
        }
        for model::Condition { name, value } in &when.queries {
            conditions.push(Condition::Query { name: name.as_str().into(), value: value.as_deref().map(Box::from) });
        }
        for model::Condition { name, value } in &when.headers {
            let test = value.as_deref().map_or(FieldTest::Present, |value| FieldTest::Equals(value.into()));
            let condition = self.checked(at, FieldCondition::new(name, test));
            conditions.extend(condition.map(Condition::Field));
        }
        if !when.clients.is_empty() {
            conditions.push(Condition::Client(when.clients.clone()));
        }
        conditions
    }

    fn headers(&mut self, at: RouteIndex, settings: &ResponseSettings) -> HeaderEdits {
        let mut edits = HeaderEdits::default();
        for change in &settings.headers {
            let (name, result) = match change {
                HeaderChange::Set { name, value } => (name, edits.set(name, value)),
                HeaderChange::Add { name, value } => (name, edits.add(name, value)),
                HeaderChange::Remove { name } => (name, edits.remove(name)),
            };
            self.checked(at, result.map_err(|error| format!("`{name}`: {error}")));
        }
        edits
    }

    fn cache_rules(&mut self, at: RouteIndex, settings: &ResponseSettings) -> CacheControlRules {
        let mut rules = CacheControlRules::default();
        for rule in &settings.cache_control {
            self.checked(at, rules.add(rule.pattern.clone(), &rule.value));
        }
        rules
    }

    fn error_pages(&mut self, at: RouteIndex, settings: &ResponseSettings) -> Vec<(StatusCode, SafePath)> {
        let page = |page: &model::ErrorPage| {
            let path = self.path(at, &page.path)?;
            Some((StatusCode::new(page.status).expect("the parser checked the range"), path))
        };
        settings.error_pages.iter().filter_map(page).collect()
    }

    /// Parses a path of the site.
    pub(super) fn path(&mut self, at: RouteIndex, text: &str) -> Option<SafePath> {
        let decoded = SafePath::decode(text.as_bytes());
        self.checked(at, decoded.map_err(|error| format!("`{text}`: {}", error.message())))
    }
}
