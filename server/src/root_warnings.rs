//! Warnings about what is in the roots of sites: links that lead out of a root, PHP files that would be sent as their
//! source. Files of the server itself, such as its configuration, logs and keys, should be in no root, either.
//!
//! Only the first levels are looked at for links and PHP files, so that `check` is fast for any number of files.

use crate::config::model::{Action, Settings, Site};
use crate::config::{Configuration, MachineRequirementKind, Problem};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

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
    let own_files = own_files(configuration);
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
        if let Some(file) = content.php_file.filter(|_| sends(&configuration.settings, root, "/x/index.php")) {
            let message = format!("warning: {} would be sent as its source", file.display());
            let suggestion =
                "PHP is not run; write `route \"*.php\" ignore-case=#true { deny status=404; }`".to_owned();
            problems.push(Problem::with_suggestion(requirement.at, message, suggestion));
        }
        for (what, file) in &own_files {
            let Some(path) = request_path(&configuration.settings, root, file) else { continue };
            let message =
                format!("warning: {}, {what}, is within the root, so clients get it at {path}", file.display());
            let suggestion = format!("move it out of the root, or write `route \"{path}\" {{ deny status=404; }}`");
            problems.push(Problem::with_suggestion(requirement.at, message, suggestion));
        }
    }
    problems
}

/// Returns the files of the server itself, each once, with what they are.
fn own_files(configuration: &Configuration) -> BTreeSet<(&'static str, PathBuf)> {
    let of_requirements = configuration.requirements.iter().filter_map(|requirement| match &requirement.kind {
        MachineRequirementKind::UserFile(path) => Some(("a file of users", path.as_path())),
        MachineRequirementKind::WritableFile(path) => Some(("a log", path.as_path())),
        MachineRequirementKind::KeyFile(path) | MachineRequirementKind::TicketKeys(path) => {
            Some(("a key", path.as_path()))
        }
        MachineRequirementKind::Certificate(files) => Some(("a private key", files.key.as_path())),
        _ => None,
    });
    let texts = configuration.texts.files().map(|path| ("a file of the configuration", path));
    let real = |(what, path): (_, &Path)| {
        // A log may not exist yet.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = fs::canonicalize(path)
            .or_else(|_| Ok::<_, io::Error>(fs::canonicalize(folder)?.join(path.file_name().unwrap_or_default())));
        Some((what, file.ok()?))
    };
    of_requirements.chain(texts).filter_map(real).collect()
}

/// Returns the path of the request that gets a file within a root. `None` if it is elsewhere, hidden or not served by path.
fn request_path(settings: &Settings, root: &Path, file: &Path) -> Option<String> {
    let below = file.strip_prefix(fs::canonicalize(root).ok()?).ok()?.to_str()?;
    let is_hidden = below.split('/').any(|segment| segment.starts_with('.'));
    let path = format!("/{below}");
    (!is_hidden && sends(settings, root, &path)).then_some(path)
}

/// Whether a site that serves a root sends the file at a path.
fn sends(settings: &Settings, root: &Path, path: &str) -> bool {
    let serves = |site: &&Site| {
        site.routes.iter().any(|route| matches!(&route.action, Action::Files(files) if files.root == *root))
    };
    settings.sites.iter().filter(serves).any(|site| {
        let first = site.routes.iter().find(|route| {
            route.when.conditions.is_empty() && route.patterns.iter().any(|pattern| pattern.matches(path).is_some())
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
