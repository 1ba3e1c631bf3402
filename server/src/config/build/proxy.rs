//! The route action `proxy`.

use super::Builder;
use super::upstream::proxy_target;
use super::values::{check_prefix, text_template};
use super::wildcards::Wildcards;
use crate::config::model::{FieldNames, ForwardedFields, ForwardedHost, HeaderChange, HeaderChangeKind, Proxy, Switch};
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::syntax::{Pattern, TextTemplate};

pub(super) fn proxy(
    builder: &mut Builder<'_, '_>,
    item: &Item,
    (patterns, wildcards): (&[Pattern], &Wildcards<'_>),
) -> Proxy {
    let block = item.block();
    let strip_prefix = item.required("strip-prefix");
    builder.reader.problems.extend(check_prefix(strip_prefix, patterns));
    let path = block.get("path").map(|item| builder.target(item.first(), wildcards));
    if let Some(path) = block.get("path").filter(|_| strip_prefix.flag()) {
        let problem = Problem::new(path.at, "`path` beside `strip-prefix`");
        let problem = problem.see_also(strip_prefix.at, "`strip-prefix`");
        builder.problem(problem.suggest("remove one of them; `path \"/*\"` is the path without the prefix"));
    }
    let flag = |name: &str| Switch::from(block.item(name).first().flag());
    Proxy {
        upstream: proxy_target(builder, item, patterns),
        strip_prefix: Switch::from(strip_prefix.flag()),
        host: match block.item("host").first().text() {
            "keep" => ForwardedHost::Keep,
            "upstream" => ForwardedHost::Upstream,
            host => ForwardedHost::Fixed(host.to_owned()),
        },
        path,
        request_headers: changes(builder, block, "header-up", wildcards),
        response_headers: changes(builder, block, "header-down", wildcards),
        forwarded: match block.item("forwarded").first().text() {
            "forwarded" => ForwardedFields::Forwarded,
            "both" => ForwardedFields::Both,
            "off" => ForwardedFields::Off,
            _ => ForwardedFields::XForwarded,
        },
        via: flag("via"),
        field_names: match block.item("field-names").first().text() {
            "any" => FieldNames::Any,
            _ => FieldNames::Strict,
        },
        buffered_bytes_max: u32::try_from(block.item("buffer-request").first().number())
            .expect("its range is within u32"),
        rewrite_location: flag("rewrite-location"),
        proxy_status: flag("proxy-status"),
    }
}

/// Builds the changes of fields in one direction, in the written order.
fn changes(
    builder: &mut Builder<'_, '_>,
    block: &Block,
    direction: &str,
    wildcards: &Wildcards<'_>,
) -> Vec<HeaderChange> {
    let mut changes = Vec::new();
    for item in &block.items {
        let Some(kind) = item.setting.name.strip_prefix(direction) else { continue };
        let kind = match (kind, item.arguments.get(1)) {
            ("", Some(given)) => HeaderChangeKind::Set(field_text(builder, given, wildcards)),
            (_, Some(given)) => HeaderChangeKind::Add(field_text(builder, given, wildcards)),
            (_, None) => HeaderChangeKind::Remove,
        };
        changes.push(HeaderChange { name: item.first().text().to_owned(), kind, only_for: None });
    }
    changes
}

fn field_text(builder: &mut Builder<'_, '_>, given: &SpannedValue, wildcards: &Wildcards<'_>) -> TextTemplate {
    let text = text_template(given);
    builder.reader.problems.extend(wildcards.check(&text, given.at));
    text
}

/// Reports settings for files in a route that forwards requests or runs scripts.
pub(super) fn check_file_settings(block: &Block, action: &Item, problems: &mut Vec<Problem>) {
    for item in block.items.iter().filter(|item| ["cache-control", "content-type"].contains(&item.setting.name)) {
        let name = item.setting.name;
        let what = format!("`{name}` is for files, and has no effect in a route with `{}`", action.setting.name);
        let instead = match name {
            "cache-control" => "write `header \"Cache-Control\" VALUE`, or remove it",
            _ => "write `header \"Content-Type\" VALUE`, or remove it",
        };
        problems.push(Problem::new(item.at, what).see_also(action.at, "the action").suggest(instead));
    }
}
