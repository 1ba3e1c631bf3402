//! The Landlock sandbox of the serving process: it reads beneath some folders, writes to others, and reaches no other
//! file.
//!
//! A sandbox cannot be widened. A configuration that needs more needs another process ([`Sandbox::covers`],
//! [`super::ServingProcess::replace_process`]).

use crate::config::model::{CgiPrograms, Program, Settings, Traces};
use crate::config::{Configuration, MachineRequirementKind};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

/// Folders that may be read and written, each with all that is beneath it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sandbox {
    read: Folders,
    write: Folders,
    /// Folders of the configuration whose paths have links. Each leads to a folder of the others.
    linked: BTreeSet<PathBuf>,
    /// Programs that another process runs for it.
    programs: BTreeSet<Program>,
    /// Folders with programs that another process runs for requests.
    cgi: BTreeSet<CgiPrograms>,
}

/// Folders, none of which is within another. With many sites, they are as numerous as the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Folders(BTreeSet<PathBuf>);

impl Folders {
    fn contain(&self, path: &Path) -> bool {
        path.ancestors().any(|folder| self.0.contains(folder))
    }

    fn insert(&mut self, folder: PathBuf) {
        if self.contain(&folder) {
            return;
        }
        // In path order, the content of a folder follows it.
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

/// Files that the C library and the runtime read: host and account names, the number of cores, time zones, and the
/// reserve descriptor.
const SYSTEM_READ_PATHS: [&str; 6] =
    ["/etc", "/run/systemd/resolve", "/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu", "/dev/null"];
/// Where systems have the certificates of the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"];
/// The newest rights that are requested; an older kernel grants fewer.
const RIGHTS: ABI = ABI::V5;

/// How much of a sandbox is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// All of it.
    Full,
    /// What this kernel supports.
    Partial,
    /// Nothing: this kernel has no Landlock, or it is disabled.
    None,
}

impl Confinement {
    /// Returns a warning for the log, if the sandbox is not fully in force.
    pub(crate) fn warning(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::Partial => Some("this kernel supports only a part of the sandbox (Landlock); that part is in force"),
            Self::None => Some("this kernel has no sandbox (Landlock); only file modes restrict access"),
        }
    }
}

impl Sandbox {
    /// Derives the sandbox of a configuration.
    pub(crate) fn of(configuration: &Configuration) -> Self {
        let mut sandbox = Self::default();
        configuration.texts.files().for_each(|file| sandbox.allow_reading_file(file));
        for requirement in &configuration.requirements {
            match &requirement.kind {
                MachineRequirementKind::Root(root) | MachineRequirementKind::LinkTarget(root) => {
                    sandbox.allow_reading_root(root);
                }
                MachineRequirementKind::UserFile(file) => sandbox.allow_reading_file(file),
                MachineRequirementKind::Certificate(files) => {
                    sandbox.allow_reading_file(&files.chain);
                    sandbox.allow_reading_file(&files.key);
                }
                MachineRequirementKind::CertificateFolder(folder) => {
                    sandbox.allow_writing(folder);
                    sandbox.allow_reading_authorities();
                }
                MachineRequirementKind::ClientAuthorities(file) | MachineRequirementKind::KeyFile(file) => {
                    sandbox.allow_reading_file(file);
                }
                MachineRequirementKind::Program(program) => drop(sandbox.programs.insert(program.clone())),
                MachineRequirementKind::CgiPrograms(programs) => {
                    sandbox.allow_reading_root(&programs.folder);
                    sandbox.cgi.insert(programs.clone());
                }
                MachineRequirementKind::TicketKeys(path) if path.is_dir() => sandbox.allow_reading(path),
                MachineRequirementKind::TicketKeys(path) => sandbox.allow_reading_file(path),
                MachineRequirementKind::WritableFile(file) => sandbox.allow_writing_file(file),
                // Bound and looked up outside of the sandbox.
                MachineRequirementKind::SocketDirectory(_)
                | MachineRequirementKind::PidFile(_)
                | MachineRequirementKind::ListenAddress(_)
                | MachineRequirementKind::User(_)
                | MachineRequirementKind::Group(_)
                | MachineRequirementKind::ProgramUser(_)
                | MachineRequirementKind::Page(..)
                | MachineRequirementKind::Site(_)
                | MachineRequirementKind::Upstream(_)
                | MachineRequirementKind::Expectation(_)
                | MachineRequirementKind::Route(..) => {}
            }
        }
        if configuration.settings.has_gateways() {
            // Request content without a length is stored there.
            sandbox.allow_writing(&env::temp_dir());
        }
        if verifies_by_system(&configuration.settings) {
            sandbox.allow_reading_authorities();
        }
        sandbox
    }

    /// Allows reading a root. A root may be replaced by a rename or a link, so its parent folder is allowed instead,
    /// unless that is `/`. A folder above it that is a link, as in `current/public`, may lead to another folder beside its
    /// target.
    fn allow_reading_root(&mut self, root: &Path) {
        for path in [Some(root.to_owned()), root.canonicalize().ok()].into_iter().flatten() {
            let beside = path.parent().filter(|folder| folder.parent().is_some());
            let folder = beside.map_or_else(|| path.clone(), Path::to_owned);
            self.allow_reading(&folder);
        }
        self.read.extend(folders_of_link_targets(root));
    }

    /// Allows reading beneath a folder.
    fn allow_reading(&mut self, folder: &Path) {
        let resolved = self.resolve(folder);
        self.read.insert(resolved);
    }

    /// Allows writing beneath a folder.
    fn allow_writing(&mut self, folder: &Path) {
        let resolved = self.resolve(folder);
        self.write.insert(resolved);
    }

    /// Returns the folder that a path leads to, and records the path if it has links. A file that is created later has the
    /// folder that it has now.
    fn resolve(&mut self, folder: &Path) -> PathBuf {
        match folder.canonicalize() {
            Ok(resolved) if resolved != folder => {
                self.linked.insert(folder.to_owned());
                resolved
            }
            _ => folder.to_owned(),
        }
    }

    /// Allows reading the authorities that the system trusts, if the environment names another file or folder than
    /// that of the system. The links of the system lead out of `/etc` on some machines.
    fn allow_reading_authorities(&mut self) {
        let named = |variable| env::var_os(variable).map(PathBuf::from);
        let of_system = SYSTEM_AUTHORITIES.into_iter().filter_map(|path| fs::canonicalize(path).ok());
        for file in named("SSL_CERT_FILE").into_iter().chain(of_system) {
            self.allow_reading_file(&file);
        }
        named("SSL_CERT_DIR").iter().for_each(|folder| self.allow_reading(folder));
    }

    /// Allows reading the folder of a file, because the file may be replaced.
    fn allow_reading_file(&mut self, file: &Path) {
        self.allow_reading(&folder_of(file));
        self.read.extend(folder_of_target(file));
    }

    /// Allows writing to the folder of a file, because the file may be rotated.
    pub(super) fn allow_writing_file(&mut self, file: &Path) {
        self.allow_writing(&folder_of(file));
        self.write.extend(folder_of_target(file));
    }

    /// Returns the folders of the sandbox.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.read.iter().chain(self.write.iter())
    }

    /// Returns the folders of the configuration whose links lead out of the sandbox now.
    pub(super) fn folders_outside(&self) -> impl Iterator<Item = &Path> {
        let is_outside = |folder: &&PathBuf| folder.canonicalize().is_ok_and(|resolved| !self.is_readable(&resolved));
        self.linked.iter().filter(is_outside).map(PathBuf::as_path)
    }

    fn is_readable(&self, path: &Path) -> bool {
        self.read.contain(path) || self.write.contain(path)
    }

    /// Whether this sandbox permits everything that `other` permits.
    pub(crate) fn covers(&self, other: &Self) -> Coverage {
        let is_read = |path: &Path| self.is_readable(path);
        let has_programs = self.covers_programs(other) == Coverage::Enough;
        match has_programs && other.read.iter().all(is_read) && other.write.iter().all(|path| self.write.contain(path))
        {
            true => Coverage::Enough,
            false => Coverage::TooNarrow,
        }
    }

    /// Whether the programs of this sandbox are all that `other` has. They were started with the process.
    pub(crate) fn covers_programs(&self, other: &Self) -> Coverage {
        match other.programs.is_subset(&self.programs) && other.cgi.is_subset(&self.cgi) {
            true => Coverage::Enough,
            false => Coverage::TooNarrow,
        }
    }

    /// Enters the sandbox with the calling thread and all threads that it starts. Call it while the process has one
    /// thread.
    pub(super) fn enter(&self) -> Result<Confinement, String> {
        match self.restrict() {
            Ok(RestrictionStatus { ruleset: RulesetStatus::FullyEnforced, .. }) => Ok(Confinement::Full),
            Ok(RestrictionStatus { ruleset: RulesetStatus::PartiallyEnforced, .. }) => Ok(Confinement::Partial),
            Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) => Ok(Confinement::None),
            Err(error) => Err(format!("cannot enter the sandbox: {error}")),
        }
    }

    fn restrict(&self) -> Result<RestrictionStatus, RulesetError> {
        let reading = AccessFs::ReadFile | AccessFs::ReadDir;
        let system = SYSTEM_READ_PATHS.iter().map(Path::new);
        // Folders that do not exist cannot be added; their users report that themselves.
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

/// Whether one sandbox covers another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    Enough,
    TooNarrow,
}

/// Whether a server of an upstream, or the collector of traces, is verified by the authorities that the system trusts.
fn verifies_by_system(settings: &Settings) -> bool {
    settings.upstreams.iter().any(|upstream| upstream.has_tls() && upstream.tls.authorities.is_none())
        || settings.traces.as_ref().is_some_and(Traces::has_tls)
}

/// Returns the folder of the target of a symbolic link, because Landlock checks the target. `None` unless the target
/// is a regular file: the folder of a device has other devices.
fn folder_of_target(file: &Path) -> Option<PathBuf> {
    let file = file.canonicalize().ok().filter(|file| file.is_file())?;
    Some(folder_of(&file))
}

/// Most links of a path that are followed.
const LINKS_MAX: usize = 40;

/// Returns the folders of the targets of the links in a path, without `/`.
fn folders_of_link_targets(path: &Path) -> Vec<PathBuf> {
    let (mut folders, mut paths, mut links) = (Vec::new(), vec![path.to_owned()], 0);
    while let Some(path) = paths.pop() {
        for prefix in path.ancestors().filter(|prefix| prefix.is_symlink()) {
            let (Some(folder), Ok(target)) = (prefix.parent(), fs::read_link(prefix)) else { continue };
            if let Ok(target) = prefix.canonicalize() {
                folders.extend(target.parent().filter(|folder| folder.parent().is_some()).map(Path::to_owned));
            }
            links += 1;
            // The target may have links, too.
            if links <= LINKS_MAX {
                paths.push(folder.join(target));
            }
        }
    }
    folders
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
            "// The files that the serving process can reach, beside those of the system, if the kernel has Landlock:"
        )?;
        for (what, folders) in [("read", &self.read), ("write", &self.write)] {
            for folder in folders.iter() {
                writeln!(f, "//   {what} beneath {}", folder.display().to_string().escape_debug())?;
            }
        }
        for Program { path, .. } in &self.programs {
            writeln!(f, "//   run {}, in another process", path.display().to_string().escape_debug())?;
        }
        for CgiPrograms { folder, .. } in &self.cgi {
            let folder = folder.display().to_string();
            writeln!(f, "//   run programs beneath {}, in another process", folder.escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn programs_of_a_reload_are_not_covered_without_a_sandbox() {
        let programs = CgiPrograms {
            folder: "/srv/cgi".into(),
            user: None,
            program: None,
            run_timeout: std::time::Duration::from_secs(1),
            memory_bytes_max: 1,
            output_bytes_max: 1,
        };
        let (mut before, mut after) = (Sandbox::default(), Sandbox::default());
        after.allow_reading_root(Path::new("/srv/other/site"));
        assert_eq!(before.covers_programs(&after), Coverage::Enough, "files need no other process");
        after.cgi.insert(programs.clone());
        assert_eq!(before.covers_programs(&after), Coverage::TooNarrow);
        before.cgi.insert(programs);
        assert_eq!(before.covers_programs(&after), Coverage::Enough);
    }

    #[test]
    fn nested_folders_are_listed_once() {
        let mut sandbox = Sandbox::default();
        sandbox.allow_reading_root(Path::new("/nowhere/a/site"));
        sandbox.allow_reading_root(Path::new("/nowhere/a/other"));
        sandbox.allow_reading_root(Path::new("/alone-at-the-top"));
        sandbox.allow_reading_root(Path::new("/nowhere/b/c/site"));
        sandbox.allow_reading_root(Path::new("/nowhere/b.old/site"));
        sandbox.allow_reading_root(Path::new("/nowhere/b/site"));
        sandbox.allow_reading_file(Path::new("/nowhere/a/b/users"));
        sandbox.allow_writing_file(Path::new("/nowhere/logs/a.log"));
        sandbox.allow_writing_file(Path::new("/nowhere/logs/b.log"));
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
        other.allow_reading_file(Path::new("/nowhere/logs/x"));
        other.allow_reading_root(Path::new("/nowhere/a/new"));
        assert_eq!(sandbox.covers(&other), Coverage::Enough, "write access includes read access");
        other.allow_writing_file(Path::new("/nowhere/a/x"));
        assert_eq!(sandbox.covers(&other), Coverage::TooNarrow);
    }

    #[test]
    fn releases_beneath_a_linked_folder_are_swapped_within_the_sandbox() {
        let base = env::temp_dir().join(format!("selvedge-sandbox-releases-{}", std::process::id()));
        let link = |target: &str, name: &str| {
            let _ = fs::remove_file(base.join(name));
            std::os::unix::fs::symlink(target, base.join(name)).unwrap();
        };
        for folder in ["app/releases/1/public", "app/releases/2/public", "elsewhere/3/public"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        link("releases/1", "app/current");
        let of_root = || {
            let mut sandbox = Sandbox::default();
            sandbox.allow_reading_root(&base.join("app/current/public"));
            sandbox
        };
        let sandbox = of_root();
        link("releases/2", "app/current");
        let outside = |sandbox: &Sandbox| sandbox.folders_outside().count();
        assert_eq!((sandbox.covers(&of_root()), outside(&sandbox)), (Coverage::Enough, 0));
        let folders: Vec<_> = sandbox.folders().map(Path::to_owned).collect();
        assert_eq!(folders, [base.canonicalize().unwrap().join("app/releases")], "and not the folder of the link");
        link("../elsewhere/3", "app/current");
        assert_eq!((sandbox.covers(&of_root()), outside(&sandbox)), (Coverage::TooNarrow, 1));
        // A link to a link.
        link("releases/1", "app/stable");
        link("stable", "app/current");
        let sandbox = of_root();
        link("releases/2", "app/stable");
        assert_eq!((sandbox.covers(&of_root()), outside(&sandbox)), (Coverage::Enough, 0));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_file_that_is_created_later_needs_no_wider_sandbox() {
        let base = env::temp_dir().join(format!("selvedge-sandbox-first-{}", std::process::id()));
        fs::create_dir_all(base.join("logs")).unwrap();
        std::os::unix::fs::symlink("logs", base.join("link")).unwrap();
        let of_log = || {
            let mut sandbox = Sandbox::default();
            sandbox.allow_writing_file(&base.join("link/access.log"));
            sandbox
        };
        let first = of_log();
        fs::write(base.join("link/access.log"), "").unwrap();
        assert_eq!(first.covers(&of_log()), Coverage::Enough);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn link_targets_are_reachable() {
        let base = env::temp_dir().join(format!("selvedge-sandbox-links-{}", std::process::id()));
        for name in ["config", "secrets", "logs"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        for (link, target) in [("config/users", "secrets/users"), ("config/log", "logs/log")] {
            fs::write(base.join(target), "").unwrap();
            std::os::unix::fs::symlink(base.join(target), base.join(link)).unwrap();
        }
        let mut sandbox = Sandbox::default();
        sandbox.allow_reading_file(&base.join("config/users"));
        sandbox.allow_writing_file(&base.join("config/log"));
        sandbox.allow_writing_file(Path::new("/dev/null"));
        let base = base.canonicalize().unwrap();
        let folders = |folders: &Folders| folders.iter().map(Path::to_owned).collect::<Vec<_>>();
        assert_eq!(folders(&sandbox.read), [base.join("config"), base.join("secrets")]);
        assert_eq!(folders(&sandbox.write), [Path::new("/dev"), &base.join("config"), &base.join("logs")]);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn only_listed_folders_are_reachable() {
        let base = env::temp_dir().join(format!("selvedge-sandbox-{}", std::process::id()));
        let file = |name: &str| base.join(name).join("file");
        for name in ["read/site", "write", "hidden"] {
            fs::create_dir_all(base.join(name)).unwrap();
            fs::write(file(name), name).unwrap();
        }
        let mut sandbox = Sandbox::default();
        sandbox.allow_reading_root(&base.join("read/site"));
        sandbox.allow_writing_file(&file("write"));
        // The sandbox holds for the thread that enters it, which is not the one that cleans up.
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
            Confinement::Partial | Confinement::Full => [true, true, false, false, false],
        };
        assert_eq!(outcomes, expected, "{confinement:?}");
    }
}
