//! Certificates of sites: files that are read again when they change, and facts about certificates.
//!
//! Never names the configuration, a site or the log.

mod acme;
mod automatic;
mod challenges;
mod facts;
mod files;
mod folder;
mod journal;
mod local_authority;

pub(crate) use acme::{AcmeSettings, ChallengeChoice, ReachCheck};
pub(crate) use automatic::{AutomaticCertificates, CertificateEvent, CertificateStatus, unix_now};
pub(crate) use challenges::CHALLENGE_PATH;
pub(crate) use facts::{CertificateFacts, is_covered};
pub(crate) use files::{CertificatePaths, CertificateSet, LoadError, Refreshed, load};
pub(crate) use folder::{CertificateFolder, folder_of_user};
pub(crate) use local_authority::{AUTHORITY_NAME, ROOT_FILE, create_local_authority};
