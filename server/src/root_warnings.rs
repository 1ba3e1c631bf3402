//! Warnings about what is in the roots of sites: links that lead out of a root, and PHP files that would be sent as
//! their source.
//!
//! Only the first levels are looked at, so that `check` is fast for any number of files.

use crate::config::model::{Action, Settings, Site};
use crate::config::{Configuration, MachineRequirementKind, Problem};
use std::fs;
use std::path::{Path, PathBuf};

/// Levels of folders below a root that are looked at.
const DEPTH_MAX: usize = 2;
/// Most entries of one root that are looked at.
const ENTRIES_MAX: usize = 5_000;
/// Most links of one root that are reported.
const LINKS_MAX: usize = 5;

/// What was found in a root.
#[derive(Debug, Default)]
struct RootContent {
    links_out: Vec<PathBuf>,
    php_file: Option<PathBuf>,
    entries: usize,
}

/// Returns the warnings of a configuration.
pub(crate) fn warnings(configuration: &Configuration) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut known: Vec<&Path> = Vec::new();
    let targets = configuration.requirements.iter().filter_map(|requirement| match &requirement.kind {
        MachineRequirementKind::LinkTarget(target) => fs::canonicalize(target).ok(),
        _ => None,
    });
    let targets: Vec<PathBuf> = targets.collect();
    for requirement in &configuration.requirements {
        let MachineRequirementKind::Root(root) = &requirement.kind else { continue };
        if known.contains(&root.as_path()) {
            continue;
        }
        known.push(root);
        let content = content_of(root, &targets);
        for link in &content.links_out {
            let message = format!("warning: {} leads out of the root, so it counts as missing", link.display());
            let suggestion = "name its target in `link-targets`, or copy it".to_owned();
            problems.push(Problem::with_suggestion(requirement.at, message, suggestion));
        }
        if let Some(file) = content.php_file.filter(|_| sends_php(&configuration.settings, root)) {
            let message = format!("warning: {} would be sent as its source", file.display());
            let suggestion =
                "PHP is not run; write `route \"*.php\" ignore-case=#true { deny status=404; }`".to_owned();
            problems.push(Problem::with_suggestion(requirement.at, message, suggestion));
        }
    }
    problems
}

/// Whether a site sends the PHP files of a root.
fn sends_php(settings: &Settings, root: &Path) -> bool {
    let serves = |site: &&Site| {
        site.routes.iter().any(|route| matches!(&route.action, Action::Files(files) if files.root == *root))
    };
    settings.sites.iter().filter(serves).any(|site| {
        let first = site.routes.iter().find(|route| {
            route.when.conditions.is_empty()
                && route.patterns.iter().any(|pattern| pattern.matches("/x/index.php").is_some())
        });
        first.is_some_and(|route| matches!(route.action, Action::Files(_)))
    })
}

fn content_of(root: &Path, targets: &[PathBuf]) -> RootContent {
    let mut content = RootContent::default();
    if let Ok(real) = fs::canonicalize(root) {
        let allowed = [std::slice::from_ref(&real), targets].concat();
        look_at(root, &allowed, 0, &mut content);
    }
    content
}

fn look_at(folder: &Path, allowed: &[PathBuf], depth: usize, content: &mut RootContent) {
    // An unreadable folder is no reason for a warning.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        content.entries += 1;
        if content.entries > ENTRIES_MAX {
            return;
        }
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_symlink() {
            // A link to nothing gets 404 anyway.
            let is_allowed = |target: &PathBuf| allowed.iter().any(|folder| target.starts_with(folder));
            let leads_out = fs::canonicalize(&path).is_ok_and(|target| !is_allowed(&target));
            if leads_out && content.links_out.len() < LINKS_MAX {
                content.links_out.push(path);
            }
        } else if kind.is_dir() && depth < DEPTH_MAX {
            look_at(&path, allowed, depth + 1, content);
        } else if content.php_file.is_none() && path.extension().is_some_and(|end| end.eq_ignore_ascii_case("php")) {
            content.php_file = Some(path);
        }
    }
}
