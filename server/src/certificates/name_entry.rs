//! A name whose certificate the server gets by itself.

use super::approval::Approval;
use super::facts::CertificateFacts;
use super::folder::CertificateFolder;
use super::local_authority::LocalAuthority;
use crate::syntax::NameReach;
use instant_acme::CertificateIdentifier;
use selvedge::tls::{Certificate, Certificates};

/// A certificate is renewed when this part of its life is left, even if the certificate authority wants it later.
const LATEST_RENEWAL: i64 = 20;

/// A name with its certificate.
#[derive(Debug)]
pub(super) struct NameEntry {
    pub(super) certificates: Certificates,
    pub(super) reach: NameReach,
    /// Whether the configuration in force has it.
    pub(super) is_wanted: bool,
    /// First and last second in which the certificate is valid.
    pub(super) valid: Option<(i64, i64)>,
    /// The content of its file, to notice when another server has replaced it.
    pub(super) content: String,
    pub(super) failures: u32,
    pub(super) last_error: Option<String>,
    pub(super) next_attempt: Option<i64>,
    /// What has approved the name, if the configuration does not have it.
    pub(super) approval: Option<Approval>,
    /// The record that the owner of the name has to set.
    pub(super) wanted_record: Option<String>,
    pub(super) renewal: Renewal,
}

/// When the certificate authority wants a certificate to be renewed (RFC 9773).
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// Key identifier of the issuer and serial number of the certificate.
    pub(super) id: Option<(Vec<u8>, Vec<u8>)>,
    /// The directory that knows the certificate.
    pub(super) directory: Option<String>,
    /// When it should be renewed.
    pub(super) at: Option<i64>,
    /// The time of the next query.
    pub(super) next_query: i64,
}

impl NameEntry {
    pub(super) fn new(reach: NameReach) -> Self {
        Self {
            certificates: Certificates::new(Vec::new()),
            reach,
            is_wanted: false,
            valid: None,
            content: String::new(),
            failures: 0,
            last_error: None,
            next_attempt: None,
            approval: None,
            wanted_record: None,
            renewal: Renewal::default(),
        }
    }

    /// Uses the certificate in the folder, if it has changed and is valid longer.
    pub(super) fn load(&mut self, folder: &CertificateFolder, name: &str) {
        if let Ok(Some(text)) = folder.read(&file_of(name))
            && text != self.content
        {
            self.accept(&text);
        }
    }

    /// Uses a certificate, unless it is invalid.
    pub(super) fn accept(&mut self, pem: &str) {
        let Ok(certificate) = Certificate::from_pem(pem.as_bytes(), pem.as_bytes()) else { return };
        let Some(facts) = CertificateFacts::of(&certificate) else { return };
        if self.valid.is_some_and(|(_, until)| until > facts.valid.1) {
            return;
        }
        self.valid = Some(facts.valid);
        self.renewal = Renewal { id: facts.renewal_id, ..Renewal::default() };
        pem.clone_into(&mut self.content);
        self.certificates.replace(vec![certificate]);
    }

    /// Signs a certificate with the local authority.
    pub(super) fn sign(&mut self, folder: &CertificateFolder, name: &str) -> Result<(), String> {
        let signed = LocalAuthority::open(folder).and_then(|authority| authority.sign(name));
        let pem = signed.map_err(|error| format!("cannot sign a certificate for {name}: {error}"))?;
        folder.write(&file_of(name), &pem).map_err(|error| format!("cannot store a certificate: {error}"))?;
        self.accept(&pem);
        Ok(())
    }

    /// Whether a certificate is needed now: none exists, the certificate authority wants it to be renewed, or a third of its
    /// life or less is left.
    pub(super) fn is_due(&self, name: &str, now: i64) -> bool {
        let Some((from, until)) = self.valid else { return true };
        let life = until - from;
        match self.renewal.at {
            Some(at) => now >= at.min(until - life / LATEST_RENEWAL),
            // Names of one start are not renewed at once.
            None => now >= until - life / 3 - share(name, life / 48),
        }
    }

    /// Whether the certificate authority should be queried about the renewal.
    pub(super) fn is_query_due(&self, now: i64) -> bool {
        self.reach != NameReach::Internal && self.renewal.id.is_some() && self.renewal.next_query <= now
    }

    /// Returns how the certificate authority knows the certificate.
    pub(super) fn renewal_id(&self) -> Option<CertificateIdentifier<'static>> {
        let (issuer_key, serial) = self.renewal.id.as_ref()?;
        Some(CertificateIdentifier::new(issuer_key.as_slice().into(), serial.as_slice().into()).into_owned())
    }

    /// Notes the window in which the certificate should be renewed, and the seconds until the next query. The time within
    /// the window differs between names.
    pub(super) fn plan_renewal(&mut self, (name, directory): (&str, &str), (from, until): (i64, i64), next_query: i64) {
        self.renewal.directory = Some(directory.to_owned());
        self.renewal.at = Some(from + share(name, (until - from).max(0)));
        self.renewal.next_query = next_query;
    }
}

/// Returns a part of a number of seconds that depends on a name.
fn share(name: &str, seconds: i64) -> i64 {
    let spread = name.bytes().fold(0i64, |sum, byte| (sum * 31 + i64::from(byte)) % 1000);
    seconds / 1000 * spread + seconds % 1000 * spread / 1000
}

/// Returns the file of a name: without the characters of an IPv6 address and a wildcard.
pub(super) fn file_of(name: &str) -> String {
    format!("{}.pem", name.replace(':', "_").replace('*', "wildcard"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn entry(valid: (i64, i64)) -> NameEntry {
        NameEntry { valid: Some(valid), ..NameEntry::new(NameReach::Public) }
    }

    #[test]
    fn a_third_of_every_life_is_left_at_the_renewal() {
        for life in [3600, 6 * DAY, 45 * DAY, 90 * DAY] {
            let entry = entry((0, life));
            let due =
                (0..life).step_by(usize::try_from(life / 600).unwrap()).find(|now| entry.is_due("a.example", *now));
            let left = life - due.unwrap();
            assert!(left >= life * 64 / 192 && left <= life * 68 / 192, "{life}: {left}");
        }
        assert!(NameEntry::new(NameReach::Public).is_due("a", 0));
    }

    #[test]
    fn the_certificate_authority_decides_when_to_renew() {
        let mut entry = entry((0, 90 * DAY));
        entry.plan_renewal(("a.example", "https://ca.example/"), (10 * DAY, 11 * DAY), 20 * DAY);
        assert!(!entry.is_due("a.example", 10 * DAY - 1) && entry.is_due("a.example", 11 * DAY));
        entry.plan_renewal(("a.example", "https://ca.example/"), (80 * DAY, 80 * DAY), 20 * DAY);
        assert!(!entry.is_due("a.example", 80 * DAY - 1) && entry.is_due("a.example", 80 * DAY));
        // Not too late.
        entry.plan_renewal(("a.example", "https://ca.example/"), (100 * DAY, 101 * DAY), 20 * DAY);
        assert!(!entry.is_due("a.example", 85 * DAY) && entry.is_due("a.example", 86 * DAY));
    }

    #[test]
    fn windows_of_any_length_are_shared() {
        for seconds in [0, 1, 999, 1000, i64::MAX] {
            let share = share("some.name.example", seconds);
            assert!((0..=seconds).contains(&share), "{seconds}: {share}");
        }
    }
}
