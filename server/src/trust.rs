//! `selvedge trust` and `selvedge untrust`: the server's own authority in the stores of the system and of browsers.

use crate::certificates::{AUTHORITY_NAME, CertificateFolder, ROOT_FILE, create_local_authority, folder_of_user};
use crate::cli::ConfigArgs;
use crate::preflight::Disk;
use crate::{config, config_path, log};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The name of the file in a store of the system.
const STORE_FILE: &str = "selvedge-local-authority";

/// A store of the system: its folder, the ending of its files, and the command that applies a change.
const SYSTEM_STORES: [(&str, &str, &[&str]); 3] = [
    ("/usr/local/share/ca-certificates", "crt", &["update-ca-certificates"]),
    ("/etc/pki/ca-trust/source/anchors", "pem", &["update-ca-trust"]),
    ("/etc/ca-certificates/trust-source/anchors", "crt", &["trust", "extract-compat"]),
];

/// What is to be done with the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustCommand {
    Trust,
    Untrust,
}

/// Installs or removes the authority, and prints what was done.
pub(crate) fn run(options: &ConfigArgs, command: TrustCommand) -> ExitCode {
    let is_named = options.file.is_some() || options.config.is_some();
    let folder = match (config_path::find(options), folder_of_user()) {
        (Ok(file), _) => config::certificate_folder(&file, &Disk),
        // That of `selvedge serve --tls`.
        (Err(_), Some(folder)) if !is_named => folder,
        (Err(problem), _) => return fail(&problem),
    };
    let root = folder.join(ROOT_FILE);
    // What is to be removed is known by its name.
    if command == TrustCommand::Trust
        && let Err(error) = CertificateFolder::open(&folder).and_then(|folder| create_local_authority(&folder))
    {
        return fail(&format!("cannot use {}: {error}", folder.display()));
    }
    let mut results = vec![in_system(&root, command)];
    results.extend(in_browsers(&root, command));
    let mut is_done = false;
    for result in results {
        match result {
            Ok(text) => {
                is_done = true;
                log::print_line(&text);
            }
            Err(text) => log::print_line(&format!("selvedge: {text}")),
        }
    }
    if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(problem: &str) -> ExitCode {
    log::print_line(&format!("selvedge: {problem}"));
    ExitCode::FAILURE
}

/// Changes the store of the system.
fn in_system(root: &Path, command: TrustCommand) -> Result<String, String> {
    let known = SYSTEM_STORES.iter().find(|(folder, ..)| Path::new(folder).is_dir());
    let Some((folder, ending, apply)) = known else {
        return Err("this system has no store of certificates that is known here".to_owned());
    };
    let file = Path::new(folder).join(format!("{STORE_FILE}.{ending}"));
    let (changed, what) = match command {
        TrustCommand::Trust => (fs::copy(root, &file).map(drop), "added to"),
        TrustCommand::Untrust => match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(format!("the system's store {folder} does not have the authority"));
            }
            removed => (removed, "removed from"),
        },
    };
    let hint = "run this command as root for the system's store";
    changed.map_err(|error| format!("cannot change {}: {error}; {hint}", file.display()))?;
    execute(apply)?;
    Ok(format!("{what} the system's store: {}", file.display()))
}

/// Changes the stores of browsers of this user, which are databases of NSS.
fn in_browsers(root: &Path, command: TrustCommand) -> Vec<Result<String, String>> {
    let Some(home) = env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let databases = databases(&home);
    if execute(&["certutil", "-H"]).is_err_and(|error| error.contains("cannot run")) {
        let text = "the browsers' stores are unchanged: `certutil` is missing (package libnss3-tools or nss-tools)";
        return vec![Err(text.to_owned())];
    }
    databases.iter().map(|database| in_browser(database, root, command)).collect()
}

/// Returns the databases of Chromium and of each profile of Firefox.
fn databases(home: &Path) -> Vec<PathBuf> {
    let profiles = [".mozilla/firefox", "snap/firefox/common/.mozilla/firefox"];
    let folders = profiles.iter().filter_map(|folder| fs::read_dir(home.join(folder)).ok()).flatten().flatten();
    let of_firefox = folders.map(|entry| entry.path()).filter(|profile| profile.join("cert9.db").is_file());
    std::iter::once(home.join(".pki/nssdb")).chain(of_firefox).collect()
}

fn in_browser(database: &Path, root: &Path, command: TrustCommand) -> Result<String, String> {
    let name = format!("sql:{}", database.display());
    let (root, shown) = (root.display().to_string(), database.display());
    match command {
        TrustCommand::Trust => {
            if !database.join("cert9.db").is_file() {
                fs::create_dir_all(database).map_err(|error| format!("cannot create {shown}: {error}"))?;
                execute(&["certutil", "-d", &name, "-N", "--empty-password"])?;
            }
            execute(&["certutil", "-d", &name, "-A", "-t", "C,,", "-n", AUTHORITY_NAME, "-i", &root])?;
            Ok(format!("added to the browser's store: {shown}"))
        }
        TrustCommand::Untrust => match execute(&["certutil", "-d", &name, "-D", "-n", AUTHORITY_NAME]) {
            Ok(()) => Ok(format!("removed from the browser's store: {shown}")),
            Err(_) => Ok(format!("the browser's store {shown} does not have the authority")),
        },
    }
}

/// Runs a command silently.
fn execute(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{} failed: {}", words.join(" "), text.trim()))
        }
        Err(error) => Err(format!("cannot run {}: {error}", words[0])),
    }
}
