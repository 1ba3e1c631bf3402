//! What a configuration needs of the machine: its files, its environment, and whether what
//! it claims of roots, folders, names and accounts holds. Looks, and changes nothing.

use crate::compile::Kept;
use crate::config::value::Address;
use crate::config::{Claim, Claimed, Problem, Sources};
use crate::site::Root;
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
        let octets = read_regular(file).map_err(|error| reason(&error))?;
        String::from_utf8(octets).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
            format!("line {line} is not UTF-8")
        })
    }

    fn matches(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let folder = folder.to_str().ok_or("a pattern in a folder whose name is not UTF-8")?;
        let whole = Path::new(&glob::Pattern::escape(folder)).join(pattern);
        let whole = whole.to_str().expect("both parts are UTF-8");
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        let paths = glob::glob_with(whole, options).map_err(|error| format!("no pattern: {}", error.msg))?;
        let mut files = Vec::new();
        for path in paths {
            files.push(path.map_err(|error| format!("{}: {}", error.path().display(), reason(error.error())))?);
            if files.len() > MATCHES_MAX {
                return Err(format!("it names more than {MATCHES_MAX} files"));
            }
        }
        Ok(files)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Reads a file that is one: whoever opens a FIFO waits for somebody to write to it.
pub(crate) fn read_regular(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)?;
    Ok(octets)
}

/// Who is about to need what is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A program that starts.
    OfAll,
    /// An application that serves its sites, and has nothing to do with the rest.
    SitesAlone,
    /// A process that serves already. What needs the rights of its supervisor is tried by that one.
    OfServing,
}

/// Every claim that does not hold and has to.
pub(crate) fn problems(claims: &[Claim], needs: Needs) -> Vec<Problem> {
    let meant = claims.iter().filter(|claim| match claim.claimed {
        Claimed::SocketFolder(_) | Claimed::PidFile(_) | Claimed::Listens(_) | Claimed::User(_) | Claimed::Group(_) => {
            needs == Needs::OfAll
        }
        Claimed::Written(_) => needs != Needs::SitesAlone,
        _ => true,
    });
    failing(meant, judge)
}

/// What does not hold and keeps nothing from being served: it may come while the server runs.
pub(crate) fn warnings(claims: &[Claim], opened: &Kept) -> Vec<Problem> {
    let pages = claims.iter().filter(|claim| matches!(claim.claimed, Claimed::Page(..)));
    failing(pages, |claimed| match claimed {
        Claimed::Page(root, path) => opened.root(root).map_or(Ok(()), |open| judge_page(open, root, path)),
        _ => Ok(()),
    })
}

fn failing<'a>(
    claims: impl Iterator<Item = &'a Claim>,
    judge: impl Fn(&Claimed) -> Result<(), (String, String)>,
) -> Vec<Problem> {
    // Many sites share a log or a root; each is looked at once.
    let mut known: HashMap<&Claimed, Option<(String, String)>> = HashMap::new();
    let judged = claims.filter_map(|claim| {
        let verdict = known.entry(&claim.claimed).or_insert_with(|| judge(&claim.claimed).err());
        verdict.clone().map(|(what, instead)| Problem::of_world(claim.at, what, instead))
    });
    judged.collect()
}

/// What does not hold, and what to do about it.
fn judge(claimed: &Claimed) -> Result<(), (String, String)> {
    match claimed {
        Claimed::Root(path) => judge_root(path),
        Claimed::Written(path) | Claimed::PidFile(path) => judge_written(path),
        Claimed::SocketFolder(path) => judge_folder(folder_of(path)),
        Claimed::UserFile(path) => judge_user_file(path),
        Claimed::Listens(address) => judge_address(address),
        Claimed::User(name) => judge_account(name, Path::new("/etc/passwd"), "user"),
        Claimed::Group(name) => judge_account(name, Path::new("/etc/group"), "group"),
        // What is compiled of them tells, and for pages `warnings`.
        Claimed::Page(..) | Claimed::Site(_) | Claimed::Route(..) => Ok(()),
    }
}

fn wrong<T>(what: String, instead: &str) -> Result<T, (String, String)> {
    Err((what, instead.to_owned()))
}

fn judge_root(path: &Path) -> Result<(), (String, String)> {
    match std::fs::read_dir(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            wrong(format!("{} is no directory", path.display()), "a root is a directory")
        }
        Err(error) => wrong(format!("cannot read {}: {}", path.display(), reason(&error)), ""),
    }
}

fn judge_page(open: &Root, root: &Path, path: &str) -> Result<(), (String, String)> {
    // One that is no path is a problem of what is compiled.
    let Ok(decoded) = SafePath::decode(path.as_bytes()) else { return Ok(()) };
    match open.look(&decoded) {
        Ok(()) => Ok(()),
        Err(error) => {
            let what = format!("warning: cannot read {path} beneath {}: {}", root.display(), reason(&error));
            wrong(what, "until it can be read, visitors get a short text in its place")
        }
    }
}

fn judge_written(path: &Path) -> Result<(), (String, String)> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => wrong(format!("{} is a directory", path.display()), "name a file in it"),
        Ok(_) => match access(path, Access::WRITE_OK) {
            Ok(()) => Ok(()),
            Err(error) => wrong(format!("cannot write {}: {}", path.display(), reason(&error.into())), ""),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => judge_folder(folder_of(path)),
        Err(error) => wrong(format!("cannot look at {}: {}", path.display(), reason(&error)), ""),
    }
}

fn judge_folder(folder: &Path) -> Result<(), (String, String)> {
    match std::fs::metadata(folder) {
        Ok(facts) if !facts.is_dir() => wrong(format!("{} is no directory", folder.display()), ""),
        Ok(_) => match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(error) => wrong(format!("cannot make files in {}: {}", folder.display(), reason(&error.into())), ""),
        },
        Err(error) => {
            let what = format!("the folder {}: {}", folder.display(), reason(&error));
            Err((what, format!("make it: mkdir -p {}", folder.display())))
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Each line of an htpasswd file is empty, a comment, or a name, a colon and a hash.
fn judge_user_file(path: &Path) -> Result<(), (String, String)> {
    let text = match Disk.text(path) {
        Ok(text) => text,
        Err(error) => {
            return wrong(format!("cannot read {}: {error}", path.display()), "`htpasswd -cB FILE NAME` makes one");
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
            let what = format!("line {} of {} is no user with an argon2 or bcrypt hash", number + 1, path.display());
            return wrong(what, "`htpasswd -B FILE NAME` writes such a line");
        }
    }
    Ok(())
}

fn judge_address(address: &Address) -> Result<(), (String, String)> {
    match address {
        Address::Inet(_) | Address::Inherited(_) => Ok(()),
        Address::Unix(path) => judge_folder(folder_of(path)),
        Address::Name { host, port } => match (host.as_str(), *port).to_socket_addrs().map(|mut found| found.next()) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => wrong(format!("{host} has no address"), ""),
            Err(error) => {
                wrong(format!("{host} cannot be resolved: {error}"), "write an address, as in \"0.0.0.0:8080\"")
            }
        },
    }
}

/// Looks in the file itself: accounts of a service are there, and asking the system would
/// need its C library.
fn judge_account(name: &str, file: &Path, what: &str) -> Result<(), (String, String)> {
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(());
    }
    let Ok(text) = Disk.text(file) else { return Ok(()) };
    let is_known = text.lines().any(|line| line.split_once(':').is_some_and(|(known, _)| known == name));
    if is_known {
        Ok(())
    } else {
        wrong(format!("there is no {what} {name}"), &format!("{} does not name it", file.display()))
    }
}

/// Why the system refused, without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}
