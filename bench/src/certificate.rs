//! The certificate of all servers with TLS, made for the run by openssl.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate for 127.0.0.1 and its private key, as PEM files.
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Returns the paths in `folder`, without creating the files.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        // HAProxy finds the key by this name.
        Self { chain: folder.join("certificate.pem"), key: folder.join("certificate.pem.key") }
    }

    /// Creates a P-256 key and a certificate that is valid for 30 days.
    ///
    /// # Errors
    /// If openssl is not installed or fails.
    pub(crate) fn create(&self) -> Result<()> {
        let out = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
            .arg(&self.key)
            .arg("-out")
            .arg(&self.chain)
            .output()
            .context("cannot run openssl (install it with: apt-get install openssl)")?;
        ensure!(out.status.success(), "openssl failed: {}", String::from_utf8_lossy(&out.stderr).trim());
        Ok(())
    }
}
