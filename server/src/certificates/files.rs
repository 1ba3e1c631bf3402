//! Certificates in files. A set is read again when one of its files changes; an invalid file never replaces a valid
//! certificate.

use super::private_files::{metadata, read_file};
use selvedge::tls::{Certificate, Certificates};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The files of a certificate chain and its private key, which may be one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CertificatePaths {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Why a certificate cannot be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The content of a file is invalid.
    Invalid(PathBuf, selvedge::tls::CertificateError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => "it does not exist".to_owned(),
                    io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                    _ => error.to_string(),
                };
                write!(f, "cannot read {}: {reason}", path.display())
            }
            Self::Invalid(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

/// Loads a certificate.
///
/// # Errors
/// If a file cannot be read, or its content is invalid.
pub(crate) fn load(paths: &CertificatePaths) -> Result<Certificate, LoadError> {
    let read = |path: &Path| read_file(path).map_err(|error| LoadError::Unreadable(path.to_owned(), error));
    Certificate::from_pem(&read(&paths.chain)?, &read(&paths.key)?).map_err(|error| {
        let path = if error.is_about_key() { &paths.key } else { &paths.chain };
        LoadError::Invalid(path.clone(), error)
    })
}

/// The state of a file, which changes with its content, its permissions, or the target of a link.
type FileState = Option<(u64, u64, u64, i64, i64)>;

/// The certificates of a host.
#[derive(Debug)]
pub(crate) struct CertificateSet {
    paths: Vec<CertificatePaths>,
    certificates: Certificates,
    state: Mutex<SetState>,
}

#[derive(Debug)]
struct SetState {
    /// The files when they were last loaded.
    loaded: Vec<FileState>,
    /// The files when they could not be loaded, and whether that was reported.
    refused: Option<(Vec<FileState>, bool)>,
}

/// The result of a look at the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refreshed {
    Unchanged,
    /// The certificates of these files are in use now.
    Replaced(PathBuf),
    /// The files have changed and cannot be used, for this reason. Reported once.
    Refused(String),
}

impl CertificateSet {
    /// Loads the certificates of all paths.
    ///
    /// # Errors
    /// For each path that cannot be loaded, its index and why.
    pub(crate) fn load(paths: &[CertificatePaths]) -> Result<Self, Vec<(usize, LoadError)>> {
        // The state precedes the content, so a change in between is seen as one.
        let loaded = states(paths);
        let (mut certificates, mut errors) = (Vec::new(), Vec::new());
        for (index, paths) in paths.iter().enumerate() {
            match load(paths) {
                Ok(certificate) => certificates.push(certificate),
                Err(error) => errors.push((index, error)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let state = Mutex::new(SetState { loaded, refused: None });
        Ok(Self { paths: paths.to_vec(), certificates: Certificates::new(certificates), state })
    }

    /// Returns the certificates, which follow the files.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Loads the certificates again if a file has changed. The files of a pair change one after the other, so a failure
    /// is reported only if a second look finds the files as they were.
    pub(crate) fn refresh(&self) -> Refreshed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = states(&self.paths);
        if now == state.loaded {
            state.refused = None;
            return Refreshed::Unchanged;
        }
        let is_known = match &state.refused {
            Some((refused, true)) if *refused == now => return Refreshed::Unchanged,
            Some((refused, false)) => *refused == now,
            _ => false,
        };
        match self.paths.iter().map(load).collect::<Result<Vec<_>, _>>() {
            Ok(certificates) => {
                self.certificates.replace(certificates);
                *state = SetState { loaded: now, refused: None };
                Refreshed::Replaced(self.paths[0].chain.clone())
            }
            Err(error) => {
                state.refused = Some((now, is_known));
                if is_known { Refreshed::Refused(error.to_string()) } else { Refreshed::Unchanged }
            }
        }
    }
}

fn states(paths: &[CertificatePaths]) -> Vec<FileState> {
    paths.iter().flat_map(|paths| [&paths.chain, &paths.key]).map(|path| state_of(path)).collect()
}

fn state_of(path: &Path) -> FileState {
    let metadata = metadata(path).ok()?;
    let changed = metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec());
    let modified = metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec());
    Some((metadata.dev(), metadata.ino(), metadata.len(), modified, changed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;

    struct Pair {
        folder: PathBuf,
        paths: CertificatePaths,
    }

    impl Pair {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("selvedge-certificates-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let paths = CertificatePaths { chain: folder.join("chain.pem"), key: folder.join("key.pem") };
            let pair = Self { folder, paths };
            let (chain, key) = generate();
            pair.write(&chain, &key);
            pair
        }

        fn write(&self, chain: &str, key: &str) {
            fs::write(&self.paths.chain, chain).unwrap();
            fs::write(&self.paths.key, key).unwrap();
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn generate() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn first(set: &CertificateSet) -> Vec<u8> {
        set.certificates().current()[0].chain().next().unwrap().to_vec()
    }

    #[test]
    fn changed_files_are_used() {
        let pair = Pair::new("changed");
        let set = CertificateSet::load(std::slice::from_ref(&pair.paths)).unwrap();
        assert_eq!(set.refresh(), Refreshed::Unchanged);
        let (before, (chain, key)) = (first(&set), generate());
        // The key follows the chain: in between, both do not belong together.
        fs::write(&pair.paths.chain, chain).unwrap();
        assert_eq!(set.refresh(), Refreshed::Unchanged);
        assert_eq!(first(&set), before);
        fs::write(&pair.paths.key, key).unwrap();
        assert_eq!(set.refresh(), Refreshed::Replaced(pair.paths.chain.clone()));
        assert_ne!(first(&set), before);
        assert_eq!(set.refresh(), Refreshed::Unchanged);
    }

    #[test]
    fn a_link_to_another_file_is_a_change() {
        let pair = Pair::new("link");
        let (chain, key) = generate();
        let [current, next] = ["current.pem", "next.pem"].map(|name| pair.folder.join(name));
        fs::write(&next, [chain, key].concat()).unwrap();
        let both = [&pair.paths.chain, &pair.paths.key].map(|path| fs::read_to_string(path).unwrap());
        let first_file = pair.folder.join("first.pem");
        fs::write(&first_file, both.concat()).unwrap();
        std::os::unix::fs::symlink(&first_file, &current).unwrap();
        let set = CertificateSet::load(&[CertificatePaths { chain: current.clone(), key: current.clone() }]).unwrap();
        let before = first(&set);
        let link = pair.folder.join("link");
        std::os::unix::fs::symlink(&next, &link).unwrap();
        fs::rename(link, &current).unwrap();
        assert_eq!(set.refresh(), Refreshed::Replaced(current));
        assert_ne!(first(&set), before);
    }

    #[test]
    fn invalid_files_are_reported_once_and_never_used() {
        let pair = Pair::new("invalid");
        let set = CertificateSet::load(std::slice::from_ref(&pair.paths)).unwrap();
        let before = first(&set);
        fs::write(&pair.paths.key, "no key").unwrap();
        assert_eq!(set.refresh(), Refreshed::Unchanged);
        let Refreshed::Refused(text) = set.refresh() else { panic!("a second look finds the files unchanged") };
        assert!(text.contains("key.pem: no private key found"), "{text}");
        assert_eq!(set.refresh(), Refreshed::Unchanged);
        fs::remove_file(&pair.paths.chain).unwrap();
        assert_eq!(set.refresh(), Refreshed::Unchanged);
        assert!(matches!(set.refresh(), Refreshed::Refused(text) if text.contains("it does not exist")));
        assert_eq!(first(&set), before);
        let errors = CertificateSet::load(std::slice::from_ref(&pair.paths)).unwrap_err();
        assert!(matches!(errors[..], [(0, LoadError::Unreadable(..))]), "{errors:?}");
    }
}
