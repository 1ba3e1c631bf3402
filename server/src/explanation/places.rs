//! Finds the settings that steps follow from.

use super::explained::{Explainable, PlacedStep, StepPlace};
use crate::config::model::{Route, Site};
use crate::config::{PlacedSetting, SettingLine};
use crate::site::{Stage, Step, StepOrigin, printable};
use crate::syntax::Pattern;

/// The settings that change fields, in the order of their effect.
const FIELD_CHANGES: [&str; 3] = ["header", "header-add", "header-remove"];

/// The part of a configuration that a request is about.
pub(super) struct PlacedPart<'a> {
    of: &'a Explainable,
    site: Option<(&'a Site, Option<PlacedSetting<'a>>)>,
}

impl<'a> PlacedPart<'a> {
    pub(super) fn new(of: &'a Explainable, site: Option<usize>) -> Self {
        let site = site.and_then(|number| Some((of.settings.sites.get(number)?, of.places.top("site", number))));
        Self { of, site }
    }

    /// Returns the first name of the site.
    pub(super) fn site_name(&self) -> Option<String> {
        self.site.map(|(site, _)| site.names[0].to_string())
    }

    /// Returns the pattern of a compiled route.
    pub(super) fn pattern(&self, route: usize) -> Option<String> {
        self.configured_route(route).map(|(_, pattern)| pattern.to_string())
    }

    /// Returns the name of a compiled route in metrics and in the flight recorder.
    pub(super) fn route_name(&self, route: usize) -> Option<String> {
        self.model_of(route).map(Route::label)
    }

    /// Adds the place to a step, and the name to that about a route.
    pub(super) fn placed(&self, step: Step) -> PlacedStep {
        let place = self.find(step.origin, step.route).map(|placed| placed.place().into());
        let route = step.route.filter(|_| step.stage == Stage::Route).and_then(|route| self.model_of(route));
        let text = match route.and_then(|route| route.name.as_ref()) {
            Some(name) => format!("{}, {}", printable(name), step.text),
            None => step.text,
        };
        PlacedStep { stage: step.stage.name(), verdict: step.verdict, text, place }
    }

    fn model_of(&self, compiled: usize) -> Option<&'a Route> {
        let (number, _) = self.configured_route(compiled)?;
        self.site.and_then(|(site, _)| site.routes.get(number))
    }

    /// Returns the number of the configured route of a compiled one, which has one of its patterns.
    fn configured_route(&self, compiled: usize) -> Option<(usize, &'a Pattern)> {
        let (site, _) = self.site?;
        let routes = site.routes.iter().enumerate();
        routes.flat_map(|(number, route)| route.patterns.iter().map(move |pattern| (number, pattern))).nth(compiled)
    }

    fn find(&self, origin: StepOrigin, route: Option<usize>) -> Option<PlacedSetting<'a>> {
        let (model, site) = self.site.map_or((None, None), |(model, site)| (Some(model), site));
        let route = route.and_then(|route| {
            let (number, _) = self.configured_route(route)?;
            // The last route of a site with a root is not written.
            site?.inner("route", number).or_else(|| site?.inner("root", 0))
        });
        match origin {
            StepOrigin::None => None,
            StepOrigin::Site => site,
            StepOrigin::Route => route,
            StepOrigin::Top(name) => self.of.places.top(name, 0),
            StepOrigin::Setting(name) => {
                let of = |block: Option<PlacedSetting<'a>>| block.and_then(|block| only(block, name));
                of(route).or_else(|| of(site)).or(route).or(site)
            }
            StepOrigin::Inner(name, number) => {
                let of = |block: Option<PlacedSetting<'a>>| block.and_then(|block| block.inner(name, 0));
                let outer = of(route).or_else(|| of(site))?;
                Some(outer.inner_of(&[], number).unwrap_or(outer))
            }
            StepOrigin::Condition(number) => {
                let when = route?.inner("when", 0)?;
                Some(when.inner_of(&[], number).unwrap_or(when))
            }
            StepOrigin::FieldChange(number) => {
                let site = site?;
                let number = match model?.tls.hsts {
                    Some(_) if number == 0 => return site.inner("hsts", 0),
                    Some(_) => number - 1,
                    None => number,
                };
                let of_site = site.count_of(&FIELD_CHANGES);
                match number.checked_sub(of_site) {
                    Some(of_route) => route?.inner_of(&FIELD_CHANGES, of_route),
                    None => site.inner_of(&FIELD_CHANGES, number),
                }
            }
        }
    }
}

/// Returns the setting of this name in a block, unless several have it.
fn only<'a>(block: PlacedSetting<'a>, name: &'a str) -> Option<PlacedSetting<'a>> {
    block.inner(name, 0).filter(|_| block.inner(name, 1).is_none())
}

impl From<SettingLine<'_>> for StepPlace {
    fn from(place: SettingLine<'_>) -> Self {
        Self { file: place.file.to_owned(), line: place.line }
    }
}
