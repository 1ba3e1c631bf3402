//! Certificates of sites: files that are read again when they change, and facts about certificates.
//!
//! Never names the configuration, a site or the log.

mod facts;
mod files;

pub(crate) use facts::{CertificateFacts, is_covered};
pub(crate) use files::{CertificatePaths, CertificateSet, LoadError, Refreshed, load};
