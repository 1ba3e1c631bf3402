//! Warnings about the certificates of a configuration: validity, names, chain.

use crate::certificates::{CertificateFacts, CertificatePaths, is_covered, load, unix_now};
use crate::config::model::{CertificateFiles, Site};
use crate::config::{Configuration, MachineRequirementKind, Problem};
use crate::syntax::HostName;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A certificate that is valid for less is reported.
pub(crate) const EXPIRES_SOON: Duration = Duration::from_secs(14 * DAY_SECONDS as u64);
const DAY_SECONDS: i64 = 24 * 3600;

/// Returns the warnings of a configuration.
pub(crate) fn warnings(configuration: &Configuration) -> Vec<Problem> {
    let now = unix_now();
    let mut sites_of: HashMap<&CertificateFiles, Vec<&Site>> = HashMap::new();
    for site in &configuration.settings.sites {
        if let Some(first) = site.tls.certificates.first() {
            sites_of.entry(first).or_default().push(site);
        }
    }
    let (mut problems, mut known) = (Vec::new(), HashSet::new());
    for requirement in &configuration.requirements {
        let MachineRequirementKind::Certificate(files) = &requirement.kind else { continue };
        // Problems are reported elsewhere.
        let Some(facts) = facts_of(files) else { continue };
        let sites = sites_of.get(files).into_iter().flatten();
        let uncovered: Vec<String> = sites.flat_map(|site| uncovered_names(site)).collect();
        let path = files.chain.display();
        let mut warn = |text: String, instead: &str| {
            // Several sites may share a certificate.
            if known.insert(text.clone()) {
                let message = format!("warning: {text}");
                problems.push(Problem::with_suggestion(requirement.at, message, instead.to_owned()));
            }
        };
        if let Some(text) = validity_warning(&facts, now) {
            warn(format!("{path} {text}"), "renew it; a changed file is used within seconds");
        }
        if !uncovered.is_empty() {
            let text =
                format!("no certificate is for {}; {path} is for {}", uncovered.join(", "), facts.names.join(", "));
            warn(text, "browsers refuse such a site");
        }
        if facts.chain_length == 1 && !facts.is_self_signed {
            let text = format!("{path} has no certificate of its issuer");
            warn(text, "append those of the issuers, except the root's; many clients do not find them otherwise");
        }
    }
    problems
}

/// Returns what is wrong with the time in which a certificate is valid.
pub(crate) fn validity_warning(facts: &CertificateFacts, now: i64) -> Option<String> {
    let (from, until) = facts.valid;
    let soon = EXPIRES_SOON.as_secs() as i64;
    match until - now {
        _ if now < from => Some(format!("is valid only in {}", days(from - now))),
        left if left < 0 => Some(format!("expired {} ago", days(-left))),
        // A certificate for a week is renewed by its issuer's client in time.
        left if left < soon && left < (until - from) / 3 => Some(format!("expires in {}", days(left))),
        _ => None,
    }
}

fn days(seconds: i64) -> String {
    match seconds / DAY_SECONDS {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

fn facts_of(files: &CertificateFiles) -> Option<CertificateFacts> {
    let paths = CertificatePaths { chain: files.chain.clone(), key: files.key.clone() };
    CertificateFacts::of(&load(&paths).ok()?)
}

/// Returns the names of a site that none of its certificates is for.
fn uncovered_names(site: &Site) -> Vec<String> {
    let covered: Vec<String> =
        site.tls.certificates.iter().filter_map(facts_of).flat_map(|facts| facts.names).collect();
    let names = site.names.iter().filter(|name| **name != HostName::Any).map(ToString::to_string);
    names.filter(|name| !is_covered(&covered, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_judged_by_time() {
        const NOW: i64 = 1_800_000_000;
        let text = |from_days: i64, until_days: i64| {
            let valid = (NOW + from_days * DAY_SECONDS, NOW + until_days * DAY_SECONDS);
            validity_warning(&CertificateFacts { valid, chain_length: 1, ..CertificateFacts::default() }, NOW)
        };
        assert_eq!(text(-80, 10).as_deref(), Some("expires in 10 days"));
        assert_eq!(text(-80, 0).as_deref(), Some("expires in less than a day"));
        assert_eq!(text(-80, -3).as_deref(), Some("expired 3 days ago"));
        assert_eq!(text(1, 90).as_deref(), Some("is valid only in 1 day"));
        assert_eq!(text(-60, 30), None);
        assert_eq!(text(-2, 4), None, "a certificate for six days is renewed in time");
    }
}
