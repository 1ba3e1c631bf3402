//! Certificates of sites: files that are read again when they change, and facts about certificates.
//!
//! Never names the configuration, a site or the log.

mod acme;
mod approval;
mod authority_client;
mod automatic;
mod challenges;
mod facts;
mod files;
mod folder;
mod journal;
mod local_authority;
mod name_entry;
mod name_records;
mod on_demand;
mod private_files;
mod validation;

pub(crate) use acme::{AcmeSettings, ChallengeChoice, ExternalAccount, ReachCheck};
pub(crate) use approval::{Approval, RunProgram};
pub(crate) use automatic::{AutomaticCertificates, CertificateEvent, CertificateStatus};
pub(crate) use challenges::CHALLENGE_PATH;
pub(crate) use facts::{CertificateFacts, is_covered};
pub(crate) use files::{CertificatePaths, CertificateSet, LoadError, Refreshed, load};
pub(crate) use folder::{CertificateFolder, ROOT_FILE, folder_of_user};
pub(crate) use local_authority::{AUTHORITY_NAME, create_local_authority};
pub(crate) use private_files::{OpenFile, open_files_with, read_file};

use std::time::SystemTime;

/// Returns the current time in Unix seconds.
pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
