//! Checks that the live page of the server is not public by mistake.

use super::{Builder, Inherited};
use crate::config::model::{AccessSettings, Condition, ConfiguredAccess, Enforcement, IpAccess, Satisfy, When};
use crate::config::problem::Problem;
use crate::config::tree::Block;
use crate::syntax::contain_all_of_a_version;

/// Reports a `status-page` that every client can see and that does not state so.
pub(super) fn check_status_page(
    builder: &mut Builder<'_, '_>,
    route: &Block,
    site: &Inherited,
    (access, when): (&AccessSettings, &When),
) {
    let Some(item) = route.get("status-page") else { return };
    let is_about_client = |condition: &Condition| match condition {
        Condition::Client(networks) => !contain_all_of_a_version(networks.iter()),
        Condition::ClientCertificate(_) => true,
        _ => false,
    };
    let is_restricted = site.restricts_clients
        || lets_some_pass(access)
        || when.conditions.iter().any(is_about_client)
        // A rule with a problem counts as present.
        || route.has_any_invalid(&["basic-auth", "ip-access", "when"]);
    if is_restricted || builder.is_local || item.required("public").flag() {
        return;
    }
    let problem = Problem::new(item.at, "a `status-page` that every client can see");
    let instead =
        "write `basic-auth` or `ip-access { allow ...; }` in the route or its site, or `status-page public=#true`";
    builder.problem(problem.suggest(instead));
}

/// Whether clients of a site need a certificate, or a rule of the site about clients has a problem.
pub(super) fn restricts_clients(site: &Block) -> bool {
    let certificates = site.get("client-certificates");
    certificates.is_some_and(|item| item.first().text() != "optional")
        || site.has_any_invalid(&["basic-auth", "ip-access", "client-certificates"])
}

/// Whether access rules let only some clients pass.
fn lets_some_pass(access: &AccessSettings) -> bool {
    let by_address = access.ip_access.as_ref().is_some_and(lets_some_addresses_pass);
    let by_password = access.basic_auth.is_some();
    match access.satisfy {
        Satisfy::All => by_address || by_password,
        // A client that passes one of both rules passes.
        Satisfy::Any => by_address && by_password,
    }
}

/// Whether enforced rules allow some networks. A list that denies some and allows all others restricts nothing.
fn lets_some_addresses_pass(access: &IpAccess) -> bool {
    let allowed = access.rules.iter().filter(|rule| rule.access == ConfiguredAccess::Allow);
    access.enforcement == Enforcement::Enforce
        && access.default_access == ConfiguredAccess::Deny
        && !contain_all_of_a_version(allowed.flat_map(|rule| &rule.networks))
}
