//! Compiles sites and their routes.

use super::access::denial_counter;
use super::headers::header_edits;
use super::{Compiler, RouteIndex};
use crate::config::MachineRequirementKind;
use crate::config::model::{self, ResponseSettings};
use crate::site::{
    AccessRules, AllowedOrigins, BodyDryRun, Compress, Condition, CorsCredentials, CorsRules, ErrorPages,
    FileFieldRules, FlagFile, HeaderEdits, NamedCondition, PlainRequests, Route as SiteRoute, SiteRules,
};
use crate::syntax::{Pattern, TextTemplate};
use selvedge::StatusCode;
use selvedge::proto::path::{EncodedSlash, SafePath};
use selvedge::service::LogRule;
use std::sync::Arc;

impl<'a> Compiler<'a> {
    /// Compiles a site. If it has problems, they are reported and the result must not be used.
    pub(super) fn site(&mut self, (number, site): (usize, &'a model::Site)) -> SiteRules {
        let at = RouteIndex { site: number, route: usize::MAX };
        let mut rules = SiteRules {
            names: site.names.clone(),
            // Tag 0 means no site.
            site_tag: u32::try_from(number + 1).expect("a configuration has fewer sites"),
            proxies: super::trusted_proxies(&self.settings().trusted_proxies),
            access: self.access_rules(
                &site.access,
                (number, &format!("{:?}", site.names)),
                &[MachineRequirementKind::Site(number)],
            ),
            headers: self.site_headers(at, site),
            #[cfg(feature = "program")]
            host_tag: super::tls::tls_host(self, site),
            validates_by_http: site.tls.automatic == model::Switch::On,
            plain_requests: match site.tls.https_redirect {
                model::Switch::On => PlainRequests::Redirect,
                model::Switch::Off => PlainRequests::Serve,
            },
            file_fields: self.file_fields(at, &site.response_settings),
            cors: site.response_settings.cors.as_ref().map(cors),
            encoded_slash: match site.encoded_slash {
                model::EncodedSlashRule::Separator => EncodedSlash::Separator,
                model::EncodedSlashRule::Data | model::EncodedSlashRule::Files => EncodedSlash::Data,
            },
            encoded_slash_of_files: match site.encoded_slash {
                model::EncodedSlashRule::Data => EncodedSlash::Data,
                model::EncodedSlashRule::Files | model::EncodedSlashRule::Separator => EncodedSlash::Separator,
            },
            ..SiteRules::default()
        };
        for (place, route) in site.routes.iter().enumerate() {
            let routes = self.route(RouteIndex { site: number, route: place }, (site, &rules.access), route);
            rules.routes.extend(routes);
        }
        let pages = self.error_pages(at, &site.response_settings);
        let has_pages = !pages.is_empty() || rules.routes.iter().any(|route| !route.error_pages.is_empty());
        if let Some(files) = site.files.as_ref().filter(|_| has_pages) {
            rules.error_pages = self.root(&files.root, &files.link_targets).map(|root| ErrorPages { root, pages });
        }
        rules
    }

    /// Compiles a route into one for each of its patterns.
    fn route(&mut self, at: RouteIndex, site: (&model::Site, &AccessRules), route: &model::Route) -> Vec<SiteRoute> {
        let (site_settings, site_rules) = site;
        let own_rules = (route.access != site_settings.access).then(|| {
            let of = format!("{:?} {:?} {:?}", site_settings.names, route.patterns, route.when);
            let places = [MachineRequirementKind::Route(at.site, at.route), MachineRequirementKind::Site(at.site)];
            self.route_access_rules(&route.access, (at.site, &site_settings.access, site_rules), &of, &places)
        });
        let conditions: Vec<_> = route.when.conditions.iter().map(condition).collect();
        let (headers, file_fields) =
            (header_edits(self, at, &route.response_settings.headers), self.file_fields(at, &route.response_settings));
        let pages = self.error_pages(at, &route.response_settings);
        let Some(action) = self.action(at, &route.action) else { return Vec::new() };
        #[cfg(feature = "program")]
        let lease = super::proxy::route_lease(self, at, route);
        #[cfg(not(feature = "program"))]
        let lease = None;
        let body_dry_run = route.body_limit.dry_run_bytes_max.map(|bytes_max| {
            Arc::new(BodyDryRun::new(bytes_max, denial_counter(self, Some(at.site), "body-bytes-max")))
        });
        // Tag 0 means no route.
        let tag = u32::try_from(at.route + 1).expect("a site has fewer routes");
        let of = |pattern: &Pattern| SiteRoute {
            tag,
            pattern: pattern.clone(),
            conditions: conditions.clone(),
            access: own_rules.clone(),
            body_bytes_max: route.body_limit.bytes_max,
            body_dry_run: body_dry_run.clone(),
            compress: if route.compress == model::Switch::On { Compress::On } else { Compress::Off },
            headers: headers.clone(),
            file_fields: file_fields.clone(),
            cors: route.response_settings.cors.as_ref().or(site_settings.response_settings.cors.as_ref()).map(cors),
            error_pages: pages.clone(),
            action: action.clone(),
            lease: lease.clone(),
            log_rule: match route.log {
                model::RouteLog::All => LogRule::All,
                model::RouteLog::None => LogRule::None,
                model::RouteLog::Statuses(first, last) => LogRule::Statuses(first, last),
            },
        };
        route.patterns.iter().map(of).collect()
    }

    /// Compiles the changes of a site, which begin with Strict-Transport-Security.
    fn site_headers(&mut self, at: RouteIndex, site: &model::Site) -> HeaderEdits {
        let mut edits = HeaderEdits::default();
        if let Some(hsts) = &site.tls.hsts {
            let text = TextTemplate::parse(&hsts_value(hsts)).expect("the value has no placeholder");
            let result = edits.set("strict-transport-security", text, None);
            self.checked(at, result);
        }
        edits.concat(&header_edits(self, at, &site.response_settings.headers))
    }

    fn file_fields(&mut self, at: RouteIndex, settings: &ResponseSettings) -> FileFieldRules {
        let mut rules = FileFieldRules::default();
        for rule in &settings.cache_control {
            self.checked(at, rules.add(rule.selector.clone(), &rule.value));
        }
        for rule in &settings.content_types {
            rules.add_content_type(rule.pattern.clone(), &rule.media_type);
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

/// Returns the value of Strict-Transport-Security (RFC 6797 §6.1).
fn hsts_value(hsts: &model::Hsts) -> String {
    let flag = |switch, name| if switch == model::Switch::On { name } else { "" };
    let subdomains = flag(hsts.subdomains, "; includeSubDomains");
    format!("max-age={}{subdomains}{}", hsts.max_age.as_secs(), flag(hsts.preload, "; preload"))
}

fn cors(cors: &model::Cors) -> Arc<CorsRules> {
    Arc::new(CorsRules {
        origins: if cors.allows_any() { AllowedOrigins::Any } else { AllowedOrigins::Some(cors.origins.clone()) },
        methods: cors.methods.as_str().into(),
        headers: cors.headers.as_str().into(),
        credentials: match cors.credentials {
            model::Switch::On => CorsCredentials::Allowed,
            model::Switch::Off => CorsCredentials::NotAllowed,
        },
        max_age: cors.max_age.as_secs(),
    })
}

/// Compiles a condition.
fn condition(condition: &model::Condition) -> Condition {
    let named = |condition: &model::NamedCondition| NamedCondition {
        name: condition.name.as_str().into(),
        values: condition.values.clone(),
    };
    let all = |conditions: &[model::Condition]| conditions.iter().map(self::condition).collect();
    match condition {
        model::Condition::Method(methods) => {
            Condition::Method(methods.iter().map(|method| method.as_str().into()).collect())
        }
        model::Condition::Query(condition) => Condition::Query(named(condition)),
        model::Condition::Header(condition) => Condition::Field(named(condition)),
        model::Condition::Cookie(condition) => Condition::Cookie(named(condition)),
        model::Condition::Client(networks) => Condition::Client(networks.clone()),
        model::Condition::Host(hosts) => Condition::Host(hosts.clone()),
        model::Condition::ClientCertificate(subjects) => Condition::ClientCertificate(subjects.clone()),
        model::Condition::Scheme(scheme) => Condition::Scheme(scheme.as_str().into()),
        model::Condition::FileExists(path) => Condition::FileExists(Arc::new(FlagFile::new(path.clone()))),
        model::Condition::Not(inner) => Condition::Not(Box::new(self::condition(inner))),
        model::Condition::Any(conditions) => Condition::Any(all(conditions)),
        model::Condition::All(conditions) => Condition::All(all(conditions)),
    }
}
