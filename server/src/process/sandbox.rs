//! What files the serving process can reach once it serves (Landlock): it reads beneath some
//! folders, writes to some others, and touches nothing else, whatever happens to it.
//!
//! What holds for a process cannot be widened later. A configuration that needs more needs
//! another process ([`Sandbox::covers`], [`super::Post::renew`]).

use crate::config::{Claimed, Configuration};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// What may be read and what may be written, each with all that is beneath it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sandbox {
    read: Folders,
    write: Folders,
}

/// Folders, none of which is within another. There may be as many as sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Folders(BTreeSet<PathBuf>);

impl Folders {
    fn hold(&self, path: &Path) -> bool {
        path.ancestors().any(|folder| self.0.contains(folder))
    }

    fn insert(&mut self, folder: PathBuf) {
        if self.hold(&folder) {
            return;
        }
        // By the order of paths, what is within a folder follows it.
        let behind = self.0.range::<Path, _>((Bound::Excluded(folder.as_path()), Bound::Unbounded));
        let within: Vec<PathBuf> = behind.take_while(|other| other.starts_with(&folder)).cloned().collect();
        for other in within {
            self.0.remove(&other);
        }
        self.0.insert(folder);
    }

    fn extend(&mut self, folders: impl IntoIterator<Item = PathBuf>) {
        folders.into_iter().for_each(|folder| self.insert(folder));
    }

    fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }
}

/// What the system and the runtime read of their own accord: names of hosts and accounts, the
/// number of cores, time zones, and the spare descriptor.
const READ_BY_THE_SYSTEM: [&str; 6] =
    ["/etc", "/run/systemd/resolve", "/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu", "/dev/null"];
/// The newest rights that are asked for; an older kernel grants fewer.
const RIGHTS: ABI = ABI::V5;

/// How much of a sandbox is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// All of it.
    Whole,
    /// What this kernel knows of it.
    Partial,
    /// Nothing: this kernel has no Landlock, or it is turned off.
    None,
}

impl Confinement {
    /// What to say of it, where there is something to say.
    pub(crate) fn remark(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Partial => Some("this kernel knows only a part of the sandbox (Landlock), which is in force"),
            Self::None => Some("this kernel has no sandbox (Landlock); files are kept apart by their modes alone"),
        }
    }
}

impl Sandbox {
    /// What a configuration needs.
    pub(crate) fn of(configuration: &Configuration) -> Self {
        let mut sandbox = Self::default();
        configuration.texts.files().for_each(|file| sandbox.read_file(file));
        for claim in &configuration.claims {
            match &claim.claimed {
                Claimed::Root(root) => sandbox.read_root(root),
                Claimed::UserFile(file) => sandbox.read_file(file),
                Claimed::Written(file) => sandbox.write_file(file),
                // Bound and looked up by whoever is not in it.
                Claimed::SocketFolder(_)
                | Claimed::PidFile(_)
                | Claimed::Listens(_)
                | Claimed::User(_)
                | Claimed::Group(_)
                | Claimed::Page(..)
                | Claimed::Site(_)
                | Claimed::Route(..) => {}
            }
        }
        sandbox
    }

    /// A root, which is read. It may be put in place by a swap of its folder or of a link to
    /// it, so what stands beside it is read, too, unless that is everything.
    fn read_root(&mut self, root: &Path) {
        for path in [Some(root.to_owned()), root.canonicalize().ok()].into_iter().flatten() {
            let beside = path.parent().filter(|folder| folder.parent().is_some());
            let folder = beside.map_or_else(|| path.clone(), Path::to_owned);
            self.read.insert(folder);
        }
    }

    /// A file that is read, and may be replaced: its folder is read.
    fn read_file(&mut self, file: &Path) {
        self.read.insert(folder_of(file));
        self.read.extend(folder_led_to(file));
    }

    /// A file that is written, put aside and made anew: its folder is written to.
    pub(super) fn write_file(&mut self, file: &Path) {
        self.write.insert(folder_of(file));
        self.write.extend(folder_led_to(file));
    }

    /// The folders that it holds for.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.read.iter().chain(self.write.iter())
    }

    /// Whether everything that another may, this one may as well.
    pub(crate) fn covers(&self, other: &Self) -> Coverage {
        let is_read = |path: &Path| self.read.hold(path) || self.write.hold(path);
        match other.read.iter().all(is_read) && other.write.iter().all(|path| self.write.hold(path)) {
            true => Coverage::Enough,
            false => Coverage::TooNarrow,
        }
    }

    /// Puts it in force for the calling thread and all that it starts: so it is to be the
    /// only one.
    pub(super) fn enter(&self) -> Result<Confinement, String> {
        match self.restrict() {
            Ok(RestrictionStatus { ruleset: RulesetStatus::FullyEnforced, .. }) => Ok(Confinement::Whole),
            Ok(RestrictionStatus { ruleset: RulesetStatus::PartiallyEnforced, .. }) => Ok(Confinement::Partial),
            Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) => Ok(Confinement::None),
            Err(error) => Err(format!("cannot enter the sandbox: {error}")),
        }
    }

    fn restrict(&self) -> Result<RestrictionStatus, RulesetError> {
        let reading = AccessFs::ReadFile | AccessFs::ReadDir;
        let system = READ_BY_THE_SYSTEM.iter().map(Path::new);
        // Folders that are not there yet cannot be named; whoever needs them says so itself.
        let read = self.read.iter().chain(system);
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .create()?
            .add_rules(path_beneath_rules(read, reading))?
            .add_rules(path_beneath_rules(self.write.iter(), AccessFs::from_all(RIGHTS) & !AccessFs::Execute))?
            .restrict_self()
    }
}

/// Whether one sandbox is enough for what another is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    Enough,
    TooNarrow,
}

/// Where a file is that symbolic links lead to: what can be reached is judged there. Only of a regular
/// file, since beside a device there are others.
fn folder_led_to(file: &Path) -> Option<PathBuf> {
    let file = file.canonicalize().ok().filter(|file| file.is_file())?;
    Some(folder_of(&file))
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "// The files that the serving process can reach, beside those of the system, where there is Landlock:"
        )?;
        for (what, folders) in [("read", &self.read), ("write", &self.write)] {
            for folder in folders.iter() {
                writeln!(f, "//   {what} beneath {}", folder.display().to_string().escape_debug())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn folders_within_others_are_named_once() {
        let mut sandbox = Sandbox::default();
        sandbox.read_root(Path::new("/nowhere/a/site"));
        sandbox.read_root(Path::new("/nowhere/a/other"));
        sandbox.read_root(Path::new("/alone-at-the-top"));
        sandbox.read_root(Path::new("/nowhere/b/c/site"));
        sandbox.read_root(Path::new("/nowhere/b.old/site"));
        sandbox.read_root(Path::new("/nowhere/b/site"));
        sandbox.read_file(Path::new("/nowhere/a/b/users"));
        sandbox.write_file(Path::new("/nowhere/logs/a.log"));
        sandbox.write_file(Path::new("/nowhere/logs/b.log"));
        let text = sandbox.to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "read beneath /alone-at-the-top",
            "read beneath /nowhere/a",
            "read beneath /nowhere/b",
            "read beneath /nowhere/b.old",
            "write beneath /nowhere/logs",
        ];
        assert_eq!(lines, expected.map(|line| format!("//   {line}")));
        let mut other = Sandbox::default();
        other.read_file(Path::new("/nowhere/logs/x"));
        other.read_root(Path::new("/nowhere/a/new"));
        assert_eq!(sandbox.covers(&other), Coverage::Enough, "what may be written may be read");
        other.write_file(Path::new("/nowhere/a/x"));
        assert_eq!(sandbox.covers(&other), Coverage::TooNarrow);
    }

    #[test]
    fn links_are_reached_where_they_lead() {
        let base = std::env::temp_dir().join(format!("selvedge-sandbox-links-{}", std::process::id()));
        for name in ["config", "secrets", "logs"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        for (link, target) in [("config/users", "secrets/users"), ("config/log", "logs/log")] {
            fs::write(base.join(target), "").unwrap();
            std::os::unix::fs::symlink(base.join(target), base.join(link)).unwrap();
        }
        let mut sandbox = Sandbox::default();
        sandbox.read_file(&base.join("config/users"));
        sandbox.write_file(&base.join("config/log"));
        sandbox.write_file(Path::new("/dev/null"));
        let base = base.canonicalize().unwrap();
        let folders = |folders: &Folders| folders.iter().map(Path::to_owned).collect::<Vec<_>>();
        assert_eq!(folders(&sandbox.read), [base.join("config"), base.join("secrets")]);
        assert_eq!(folders(&sandbox.write), [Path::new("/dev"), &base.join("config"), &base.join("logs")]);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn only_what_is_named_can_be_reached() {
        let base = std::env::temp_dir().join(format!("selvedge-sandbox-{}", std::process::id()));
        let file = |name: &str| base.join(name).join("file");
        for name in ["read/site", "write", "hidden"] {
            fs::create_dir_all(base.join(name)).unwrap();
            fs::write(file(name), name).unwrap();
        }
        let mut sandbox = Sandbox::default();
        sandbox.read_root(&base.join("read/site"));
        sandbox.write_file(&file("write"));
        // It holds for the thread that enters it, which is not the one that cleans up.
        let paths = ["read/site", "write", "hidden"].map(file);
        let seen = std::thread::spawn(move || {
            let confinement = sandbox.enter().unwrap();
            let [read, write, hidden] = &paths;
            let renamed = write.with_extension("1").to_owned();
            let outcomes = [
                fs::read(read).is_ok(),
                fs::write(write, "new").is_ok() && fs::rename(write, &renamed).is_ok() && fs::read(renamed).is_ok(),
                fs::read(hidden).is_ok(),
                fs::write(read, "new").is_ok(),
                fs::write(hidden, "new").is_ok(),
            ];
            (confinement, outcomes)
        });
        let (confinement, outcomes) = seen.join().unwrap();
        fs::remove_dir_all(&base).unwrap();
        let expected = match confinement {
            Confinement::None => [true; 5],
            Confinement::Partial | Confinement::Whole => [true, true, false, false, false],
        };
        assert_eq!(outcomes, expected, "{confinement:?}");
    }
}
