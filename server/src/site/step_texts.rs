//! The texts of recorded steps.

use super::action::Action;
use super::condition::{Condition, NamedCondition};
use super::files::resolve::Resolved;
use super::files::{FileError, Files};
#[cfg(feature = "configuration")]
use super::gateway::{ScriptRunner, Scripts};
use super::route_table::{Route, RouteLook};
use super::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::{RequestValues, absolute_path};
use selvedge::Response;
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use std::fmt::Display;

/// Returns a text for a terminal: quotes and backslashes stay, and characters that do not show are escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

/// Records how a route was looked at. One that matches is that of the next steps.
pub(super) fn record_route(recorder: &StepRecorder, (number, route): (usize, &Route), (path, look): (&str, RouteLook)) {
    let pattern = &route.pattern;
    let (verdict, origin, text) = match look {
        RouteLook::OtherPath => (StepVerdict::No, StepOrigin::Route, format!("{pattern}: the path is another one")),
        RouteLook::ConditionFails(failed) => {
            let condition = condition(&route.conditions[failed]);
            let text = format!("{pattern}: the path matches, but not the condition `{condition}`");
            (StepVerdict::No, StepOrigin::Condition(failed), text)
        }
        RouteLook::DryRunDenies => {
            let text = format!("{pattern}: the path matches, and `deny` would refuse the request without `dry-run`");
            (StepVerdict::DryRun, StepOrigin::Route, text)
        }
        RouteLook::Matches => {
            recorder.enter_route(Some(number));
            let conditions = if route.conditions.is_empty() { "" } else { ", and all conditions" };
            (
                StepVerdict::Yes,
                StepOrigin::Route,
                format!("{pattern}: the path {} matches{conditions}", path.escape_debug()),
            )
        }
    };
    recorder.step_of((Stage::Route, Some(number)), verdict, origin, text);
}

/// Returns a condition as the configuration states it.
fn condition(condition: &Condition) -> String {
    let all = |conditions: &[Condition]| conditions.iter().map(self::condition).collect::<Vec<_>>().join("; ");
    match condition {
        Condition::Method(methods) => format!("method {}", quoted(methods)),
        Condition::Query(condition) => named("query", condition),
        Condition::Field(condition) => named("header", condition),
        Condition::Cookie(condition) => named("cookie", condition),
        Condition::Client(networks) => format!("client {}", quoted(networks)),
        Condition::Host(hosts) => format!("host {}", quoted(hosts)),
        Condition::Scheme(scheme) => format!("scheme {scheme}"),
        Condition::ClientCertificate(subjects) => {
            format!("client-certificate {}", quoted(subjects)).trim_end().to_owned()
        }
        Condition::FileExists(file) => format!("file-exists \"{}\"", file.path().display()),
        Condition::Not(condition) => format!("not {{ {} }}", self::condition(condition)),
        Condition::Any(conditions) => format!("any {{ {} }}", all(conditions)),
        Condition::All(conditions) => format!("all {{ {} }}", all(conditions)),
    }
}

fn named(kind: &str, condition: &NamedCondition) -> String {
    format!("{kind} \"{}\" {}", condition.name, quoted(&condition.values)).trim_end().to_owned()
}

fn quoted<T: Display>(values: &[T]) -> String {
    values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(" ")
}

/// Records what the action of a route is.
pub(super) fn record_action<'v>(
    recorder: Option<&StepRecorder>,
    route: &Route,
    values: &impl Fn() -> RequestValues<'v>,
) {
    let Some(recorder) = recorder else { return };
    let (setting, text) = match &route.action {
        Action::Files(files) => ("files", format!("files beneath {}", files.root.path().display())),
        Action::Redirect(redirect) => {
            let target = redirect.target.location(&values());
            ("redirect", format!("redirect to {target} with status {}", redirect.status.code()))
        }
        Action::Rewrite(target) => {
            let path = target.path_with(&values());
            ("rewrite", format!("rewrite to {path}, whose route is looked for"))
        }
        Action::Respond(_) => ("respond", "a response of the configuration".to_owned()),
        Action::Deny(_) | Action::DryRunDeny(_) => ("deny", "the route denies every request".to_owned()),
        Action::Metrics(_) => ("metrics", "the metrics of the server".to_owned()),
        #[cfg(feature = "program")]
        Action::StatusPage(_) => ("status-page", "the live page of the server, or its events".to_owned()),
        #[cfg(feature = "configuration")]
        Action::Proxy(rules) => ("proxy", format!("forward to a server of {}", rules.upstream.rules().name)),
        #[cfg(feature = "configuration")]
        Action::Gateway(rules) => match (&rules.scripts, &rules.runner) {
            (Scripts::Php(php), ScriptRunner::FastCgi(server) | ScriptRunner::Scgi(server)) => {
                let root = php.files.root.path().display();
                ("php", format!("scripts and files beneath {root}, run by {}", server.name))
            }
            (_, ScriptRunner::FastCgi(server)) => ("fastcgi", format!("run by {}", server.name)),
            (_, ScriptRunner::Scgi(server)) => ("scgi", format!("run by {}", server.name)),
            (_, ScriptRunner::Cgi(_)) => ("cgi", "a program runs".to_owned()),
        },
    };
    let verdict = match route.action {
        Action::Deny(_) => StepVerdict::Denied,
        _ => StepVerdict::Yes,
    };
    recorder.step(Stage::Action, verdict, StepOrigin::Setting(setting), text);
}

/// Records what a path beneath a root names.
pub(super) fn record_look_up(
    recorder: &StepRecorder,
    (files, path): (&Files, &SafePath),
    resolved: &Result<Resolved, FileError>,
) {
    let (verdict, outcome) = match resolved {
        Ok(Resolved::File(resource)) => {
            let (stored, encoded) = resource.codings();
            let mut text = match path.file_name() == resource.name() {
                true => String::new(),
                false => format!("its index {}, ", resource.name()),
            };
            text += &format!("{} bytes, {}", resource.identity_length(), resource.media_type());
            for (codings, what) in [(stored, "precompressed"), (encoded, "compressed here on demand")] {
                if !codings.is_empty() {
                    let names: Vec<&str> = codings.iter().map(|coding| Coding::name(*coding)).collect();
                    text += &format!("; {what}: {}", names.join(", "));
                }
            }
            (StepVerdict::Yes, text)
        }
        Ok(Resolved::DirectoryWithoutSlash) => {
            (StepVerdict::No, "a directory, which is at the path with a slash".to_owned())
        }
        Ok(Resolved::Directory(..)) => (StepVerdict::No, "a directory without an index".to_owned()),
        Err(error) => {
            let why = match error {
                FileError::NotFound => "no file, or a hidden one",
                _ => Response::from(*error).reason().unwrap_or("it cannot be read"),
            };
            (StepVerdict::No, why.to_owned())
        }
    };
    let path = absolute_path(path);
    let text = format!("{} beneath {}: {outcome}", path.escape_debug(), files.root_path().display());
    recorder.step(Stage::File, verdict, StepOrigin::None, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{CaseSensitivity, TextPattern};

    #[test]
    fn conditions_are_written_as_in_a_configuration() {
        let pattern = |text| TextPattern::parse(text, CaseSensitivity::Sensitive).unwrap();
        let method = Condition::Method(vec!["GET".into(), "PUT".into()]);
        let query = Condition::Query(NamedCondition { name: "a".into(), values: vec![pattern("b*")] });
        let cookie = Condition::Cookie(NamedCondition { name: "c".into(), values: Vec::new() });
        let all = Condition::Not(Box::new(Condition::Any(vec![method, query, cookie])));
        assert_eq!(condition(&all), "not { any { method \"GET\" \"PUT\"; query \"a\" \"b*\"; cookie \"c\" } }");
    }

    #[test]
    fn quotes_stay_and_characters_that_do_not_show_are_escaped() {
        assert_eq!(printable("W/\"a\\'é\u{1b}[m\t"), "W/\"a\\'é\\u{1b}[m\\t");
    }
}
