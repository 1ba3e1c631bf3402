//! The conditions of routes.

use super::{networks, texts};
use crate::config::model::{Condition, NamedCondition, When};
use crate::config::problem::Problem;
use crate::config::tree::{Block, IncludedLists, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::TextPattern;

/// Builds the conditions of a route.
pub(super) fn build_when(block: &Block, problems: &mut Vec<Problem>) -> When {
    When { conditions: conditions(block, problems) }
}

/// Builds the conditions of a block, in the written order.
fn conditions(block: &Block, problems: &mut Vec<Problem>) -> Vec<Condition> {
    let mut conditions = Vec::with_capacity(block.items.len());
    for item in &block.items {
        conditions.push(match item.setting.name {
            "method" => Condition::Method(texts(&item.arguments)),
            "query" => Condition::Query(named_condition(item)),
            "header" => Condition::Header(named_condition(item)),
            "cookie" => Condition::Cookie(named_condition(item)),
            "client" => Condition::Client(networks(&item.arguments)),
            "host" => Condition::Host(item.arguments.iter().map(text_pattern).collect()),
            "client-certificate" => Condition::ClientCertificate(text_patterns(item, &item.arguments)),
            "scheme" => Condition::Scheme(item.first().text().to_owned()),
            "file-exists" => Condition::FileExists(item.first().path().to_owned()),
            "not" => match group(item, problems).as_slice() {
                [condition] => Condition::Not(Box::new(condition.clone())),
                [] => continue,
                [..] => {
                    let problem = Problem::new(item.at, "several conditions in `not`");
                    problems.push(problem.suggest("write `not { any { ... } }` or `not { all { ... } }`"));
                    continue;
                }
            },
            "any" => Condition::Any(group(item, problems)),
            _ => Condition::All(group(item, problems)),
        });
    }
    if block.lists == IncludedLists::Empty {
        // It holds for no request, as a list with entries would hold for those of the entries only.
        conditions.push(Condition::Any(Vec::new()));
    }
    conditions
}

/// Builds the conditions of a group, which has at least one.
fn group(item: &Item, problems: &mut Vec<Problem>) -> Vec<Condition> {
    let block = item.block();
    if block.items.is_empty() && block.invalid.is_empty() && block.lists == IncludedLists::None {
        let problem = Problem::new(item.at, format!("`{}` without a condition", item.setting.name));
        problems.push(problem.suggest("write a condition in its block, or remove it"));
    }
    conditions(block, problems)
}

fn named_condition(item: &Item) -> NamedCondition {
    NamedCondition { name: item.first().text().to_owned(), values: text_patterns(item, &item.arguments[1..]) }
}

/// Builds patterns of an item, which may ignore the case of letters.
fn text_patterns(item: &Item, given: &[SpannedValue]) -> Vec<TextPattern> {
    let ignores_case = item.required("ignore-case").flag();
    let pattern = |given: &SpannedValue| match text_pattern(given) {
        pattern if ignores_case => pattern.ignoring_case(),
        pattern => pattern,
    };
    given.iter().map(pattern).collect()
}

pub(super) fn text_pattern(given: &SpannedValue) -> TextPattern {
    let Value::TextPattern(pattern) = &given.value else { unreachable!("the table requires a text pattern") };
    pattern.clone()
}
