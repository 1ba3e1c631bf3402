//! Preflight checks: reads the files of a configuration, and checks what it requires of the machine (roots, folders,
//! names, accounts). Changes nothing.

#[cfg(feature = "program")]
use crate::certificates::{CertificatePaths, LoadError, load};
use crate::compile::CarriedState;
use crate::config::value::Address;
use crate::config::{MachineRequirement, MachineRequirementKind, PageUse, Problem, Sources};
use crate::site::{LiveUsers, Root};
use rustix::fs::{Access, OFlags, access};
use selvedge::proto::path::SafePath;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The files and the environment of this process.
pub(crate) struct Disk;

/// Most files that one pattern may name.
const MATCHES_MAX: usize = 100_000;

impl Sources for Disk {
    fn text(&self, file: &Path) -> Result<String, String> {
        let bytes = read_regular(file).map_err(|error| reason(&error))?;
        String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
            format!("line {line} is not UTF-8")
        })
    }

    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let folder = folder.to_str().ok_or("the name of the folder is not UTF-8")?;
        let whole = Path::new(&glob::Pattern::escape(folder)).join(pattern);
        let whole = whole.to_str().expect("both parts are UTF-8");
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        let paths = glob::glob_with(whole, options).map_err(|error| format!("not a pattern: {}", error.msg))?;
        let mut files = Vec::new();
        for path in paths {
            files.push(path.map_err(|error| format!("{}: {}", error.path().display(), reason(error.error())))?);
            if files.len() > MATCHES_MAX {
                return Err(format!("it matches more than {MATCHES_MAX} files"));
            }
        }
        Ok(files)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Reads a regular file. Opening a FIFO would block.
pub(crate) fn read_regular(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Which requirements are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckScope {
    /// All, for a program that starts.
    All,
    /// All except files of users, for a process that its supervisor starts: a line that another program has written must
    /// not prevent a restart.
    Supervised,
    /// Those of sites, for an application that embeds them.
    Sites,
    /// Those of a process that serves already. Its supervisor checks what needs privileges.
    ServingProcess,
}

/// Returns a problem for each requirement that does not hold.
pub(crate) fn problems(requirements: &[MachineRequirement], scope: CheckScope) -> Vec<Problem> {
    let in_scope = requirements.iter().filter(|requirement| match requirement.kind {
        MachineRequirementKind::SocketDirectory(_)
        | MachineRequirementKind::PidFile(_)
        | MachineRequirementKind::ListenAddress(_)
        | MachineRequirementKind::User(_)
        | MachineRequirementKind::Group(_)
        | MachineRequirementKind::ProgramUser(_)
        | MachineRequirementKind::Program(_) => matches!(scope, CheckScope::All | CheckScope::Supervised),
        MachineRequirementKind::UserFile(_) => matches!(scope, CheckScope::All | CheckScope::Sites),
        MachineRequirementKind::WritableFile(_) => scope != CheckScope::Sites,
        _ => true,
    });
    failing(in_scope, check_requirement)
}

/// Returns warnings for what may be added while the server runs.
pub(crate) fn warnings(requirements: &[MachineRequirement], opened: &CarriedState) -> Vec<Problem> {
    let pages = requirements.iter().filter(|requirement| matches!(requirement.kind, MachineRequirementKind::Page(..)));
    failing(pages, |kind| match kind {
        MachineRequirementKind::Page(root, path, page_use) => {
            opened.root(root).map_or(Ok(()), |open| check_page(open, (root, path), *page_use))
        }
        _ => Ok(()),
    })
}

fn failing<'a>(
    requirements: impl Iterator<Item = &'a MachineRequirement>,
    check: impl Fn(&MachineRequirementKind) -> Result<(), (String, String)>,
) -> Vec<Problem> {
    // Several sites may share a log or root; each is checked once.
    let mut known: HashMap<&MachineRequirementKind, Option<(String, String)>> = HashMap::new();
    let problems = requirements.filter_map(|requirement| {
        let error = known.entry(&requirement.kind).or_insert_with(|| check(&requirement.kind).err());
        error.clone().map(|(what, instead)| Problem::with_suggestion(requirement.at, what, instead))
    });
    problems.collect()
}

/// Checks a requirement. Returns what is wrong and what to do.
fn check_requirement(kind: &MachineRequirementKind) -> Result<(), (String, String)> {
    match kind {
        MachineRequirementKind::Root(path) | MachineRequirementKind::LinkTarget(path) => check_root(path),
        MachineRequirementKind::CgiPrograms(programs) => check_root(&programs.folder),
        MachineRequirementKind::WritableFile(path) | MachineRequirementKind::PidFile(path) => check_writable_file(path),
        MachineRequirementKind::SocketDirectory(path) => {
            check_socket_folder(folder_of(path)).map_err(|(what, instead)| {
                let what = format!("the control socket {} cannot be created: {what}", path.display());
                (
                    what,
                    if instead.is_empty() {
                        "write `control PATH` with a folder of the server".to_owned()
                    } else {
                        instead
                    },
                )
            })
        }
        MachineRequirementKind::UserFile(path) => check_user_file(path),
        MachineRequirementKind::Program(program) => check_program(&program.path),
        MachineRequirementKind::KeyFile(path) => match read_regular(path) {
            Ok(_) => Ok(()),
            Err(error) => unmet(format!("cannot read {}: {error}", path.display()), "name a file with the key"),
        },
        #[cfg(feature = "program")]
        MachineRequirementKind::Certificate(files) => check_certificate(files),
        #[cfg(feature = "program")]
        MachineRequirementKind::CertificateFolder(path) => check_certificate_folder(path),
        #[cfg(feature = "program")]
        MachineRequirementKind::ClientAuthorities(path) => {
            match crate::compile::read_authorities(selvedge::tls::ClientAuth::Required, path) {
                Ok(_) => Ok(()),
                Err(what) => unmet(what, "it has to have the certificates of the authorities in PEM"),
            }
        }
        #[cfg(feature = "program")]
        MachineRequirementKind::TicketKeys(path) => match crate::compile::read_secrets(path) {
            Ok(_) => Ok(()),
            Err(what) => unmet(what, "`openssl rand -out FILE 48` writes one"),
        },
        MachineRequirementKind::ListenAddress(address) => check_address(address),
        #[cfg(feature = "program")]
        MachineRequirementKind::User(name) => check_account(crate::process::find_user(name)),
        #[cfg(feature = "program")]
        MachineRequirementKind::Group(name) => check_account(crate::process::find_group(name)),
        #[cfg(feature = "program")]
        MachineRequirementKind::ProgramUser(name) => check_program_user(name.as_deref()),
        // An application that embeds sites keeps its own user.
        #[cfg(not(feature = "program"))]
        MachineRequirementKind::User(_)
        | MachineRequirementKind::Group(_)
        | MachineRequirementKind::ProgramUser(_)
        | MachineRequirementKind::Certificate(_)
        | MachineRequirementKind::CertificateFolder(_)
        | MachineRequirementKind::ClientAuthorities(_)
        | MachineRequirementKind::TicketKeys(_) => Ok(()),
        // The compiler, `warnings` and `expectations` check these.
        MachineRequirementKind::Page(..)
        | MachineRequirementKind::Expectation(_)
        | MachineRequirementKind::Site(_)
        | MachineRequirementKind::Upstream(_)
        | MachineRequirementKind::Route(..) => Ok(()),
    }
}

fn unmet<T>(what: String, instead: &str) -> Result<T, (String, String)> {
    Err((what, instead.to_owned()))
}

fn check_root(path: &Path) -> Result<(), (String, String)> {
    match std::fs::read_dir(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            unmet(format!("{} is not a directory", path.display()), "a root must be a directory")
        }
        Err(error) => unmet(format!("cannot read {}: {}", path.display(), reason(&error)), ""),
    }
}

fn check_page(open: &Root, (root, path): (&Path, &str), page_use: PageUse) -> Result<(), (String, String)> {
    // An invalid path is reported by the compiler.
    let Ok(decoded) = SafePath::decode(path.as_bytes()) else { return Ok(()) };
    match open.check_readable(&decoded) {
        Ok(()) => Ok(()),
        // A folder can be the target of a rewrite.
        Err(error) if page_use == PageUse::Rewrite && error.kind() != io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let what = format!("warning: cannot read {path} below {}: {}", root.display(), reason(&error));
            unmet(
                what,
                match page_use {
                    PageUse::Error => "until it can be read, clients get a short text instead",
                    PageUse::Fallback => "until it can be read, page navigations to missing files get 404",
                    PageUse::Rewrite => "until it can be read, the requests that are rewritten get 404",
                },
            )
        }
    }
}

fn check_writable_file(path: &Path) -> Result<(), (String, String)> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => unmet(format!("{} is a directory", path.display()), "name a file in it"),
        Ok(_) => match access(path, Access::WRITE_OK) {
            Ok(()) => Ok(()),
            Err(error) => unmet(format!("cannot write {}: {}", path.display(), reason(&error.into())), ""),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_writable_folder(folder_of(path)),
        Err(error) => unmet(format!("cannot access {}: {}", path.display(), reason(&error)), ""),
    }
}

fn check_writable_folder(folder: &Path) -> Result<(), (String, String)> {
    match std::fs::metadata(folder) {
        Ok(metadata) if !metadata.is_dir() => unmet(format!("{} is not a directory", folder.display()), ""),
        Ok(_) => match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(error) => unmet(format!("cannot create files in {}: {}", folder.display(), reason(&error.into())), ""),
        },
        Err(error) => {
            let what = format!("cannot access the folder {}: {}", folder.display(), reason(&error));
            Err((what, format!("create it: mkdir -p {}", folder.display())))
        }
    }
}

/// Checks the folder of the control socket, which the server creates in an existing folder.
fn check_socket_folder(folder: &Path) -> Result<(), (String, String)> {
    match folder.parent() {
        Some(parent) if !folder.exists() && parent.is_dir() => check_writable_folder(parent),
        _ => check_writable_folder(folder),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks that the folder of certificates can be written, or created by the server.
#[cfg(feature = "program")]
fn check_certificate_folder(path: &Path) -> Result<(), (String, String)> {
    if path.exists() {
        return check_writable_folder(path);
    }
    let parent = path.ancestors().skip(1).find(|folder| folder.exists() || folder.as_os_str().is_empty());
    match parent {
        Some(folder) if !folder.as_os_str().is_empty() => check_writable_folder(folder),
        _ => check_writable_folder(Path::new(".")),
    }
}

#[cfg(feature = "program")]
fn check_certificate(files: &crate::config::model::CertificateFiles) -> Result<(), (String, String)> {
    let paths = CertificatePaths { chain: files.chain.clone(), key: files.key.clone() };
    match load(&paths) {
        Ok(_) => Ok(()),
        Err(error @ LoadError::Unreadable(..)) => {
            unmet(error.to_string(), "the user that starts the server has to be able to read it")
        }
        Err(error) => unmet(error.to_string(), ""),
    }
}

/// A program is a file that may be executed.
fn check_program(path: &Path) -> Result<(), (String, String)> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => unmet(format!("{} cannot be executed", path.display()), "`chmod +x FILE`"),
        Err(error) => unmet(format!("cannot run {}: {error}", path.display()), "name a program"),
    }
}

/// Checks that the programs of requests do not run as root, which the server refuses at its start.
#[cfg(feature = "program")]
fn check_program_user(name: Option<&str>) -> Result<(), (String, String)> {
    let is_root = match name {
        // A name that is not known is another problem.
        Some(name) => crate::process::find_user(name).is_ok_and(|user| user.uid.is_root()),
        None => rustix::process::geteuid().is_root(),
    };
    match is_root {
        true => unmet("the programs would run as root".to_owned(), "write user=\"NAME\" behind the folder"),
        false => Ok(()),
    }
}

/// Each line of an htpasswd file is empty, a comment, or a name, a colon and a hash.
fn check_user_file(path: &Path) -> Result<(), (String, String)> {
    let text = match Disk.text(path) {
        Ok(text) => text,
        Err(error) => {
            return unmet(format!("cannot read {}: {error}", path.display()), "`htpasswd -cB FILE NAME` creates one");
        }
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_user = match line.split_once(':') {
            Some((name, hash)) => !name.is_empty() && crate::config::value::is_password_hash(hash),
            None => false,
        };
        if !is_user {
            // The line may hold a password, so it is not repeated.
            let what = format!("line {} of {} is not a user with an argon2 or bcrypt hash", number + 1, path.display());
            return unmet(what, "`selvedge hash-password --name NAME` prints such a line");
        }
    }
    match LiveUsers::problem_of(path, &text) {
        Some(what) => unmet(what, "`selvedge hash-password --name NAME` prints a valid line"),
        None => Ok(()),
    }
}

fn check_address(address: &Address) -> Result<(), (String, String)> {
    match address {
        Address::Inet(_) | Address::Inherited(_) => Ok(()),
        Address::Unix(path) => check_writable_folder(folder_of(path)),
        Address::Name { host, port } => match (host.as_str(), *port).to_socket_addrs().map(|mut found| found.next()) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => unmet(format!("{host} has no address"), ""),
            Err(error) => {
                unmet(format!("cannot resolve {host}: {error}"), "write an address, for example \"0.0.0.0:8080\"")
            }
        },
    }
}

/// Checks that the name service knows a user or group.
#[cfg(feature = "program")]
fn check_account<T>(found: Result<T, String>) -> Result<(), (String, String)> {
    match found {
        Ok(_) => Ok(()),
        Err(error) => unmet(error, "`getent passwd` and `getent group` list the names that this machine knows"),
    }
}

/// Returns the reason of an error without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(all(test, feature = "program"))]
mod tests {
    use super::*;

    #[test]
    fn programs_of_requests_never_run_as_root() {
        assert_eq!(check_program_user(Some("root")).unwrap_err().0, "the programs would run as root");
        assert_eq!(check_program_user(Some("nobody")), Ok(()));
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(check_program_user(None).is_err(), is_root, "that of the server is this one");
    }
}
