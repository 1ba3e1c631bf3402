//! Finds the configuration that a command is about.

use crate::cli::ConfigArgs;
use std::path::{Path, PathBuf};

/// The environment variable with the path of the configuration.
pub(crate) const VARIABLE: &str = "SELVEDGE_CONFIG";

/// The configuration of a system.
const OF_SYSTEM: &str = "/etc/selvedge/selvedge.kdl";

/// The configuration in the current folder.
const OF_FOLDER: &str = "selvedge.kdl";

/// Returns the absolute path of the configuration: the one that is named, that of the environment, or the first that
/// exists of `selvedge.kdl` and `/etc/selvedge/selvedge.kdl`.
///
/// # Errors
/// If none is named and none exists.
pub(crate) fn find(options: &ConfigArgs) -> Result<PathBuf, String> {
    let named = options.file.clone().or_else(|| options.config.clone());
    let of_environment = || std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    match named.or_else(of_environment) {
        Some(path) => absolute(&path),
        None => {
            let own = absolute(Path::new(OF_FOLDER))?;
            match [own.as_path(), Path::new(OF_SYSTEM)].into_iter().find(|path| path.exists()) {
                Some(found) => Ok(found.to_owned()),
                None => Err(format!(
                    "no configuration: neither {} nor {OF_SYSTEM} exists; name a file, or set {VARIABLE}",
                    own.display()
                )),
            }
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("cannot find {}: {error}", path.display()))
}
