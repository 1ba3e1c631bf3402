//! Certificates that the server gets by itself: from a certificate authority for public names, from its own for others.

use super::acme::{AcmeSettings, ChallengeChoice, Issuing};
use super::challenges::Challenges;
use super::facts::CertificateFacts;
use super::folder::{CertificateFolder, FolderLock};
use super::journal::{self, JournalEvent};
use super::local_authority::LocalAuthority;
use crate::syntax::NameReach;
use selvedge::tls::{Certificate, Certificates};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

const JOURNAL: &str = "journal";
/// How often certificates are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Most lines that wait for the log.
const EVENTS_MAX: usize = 1000;

/// All names, and what they need.
#[derive(Debug, Default)]
pub(crate) struct AutomaticCertificates {
    state: Mutex<State>,
    challenges: Challenges,
    /// Notified when something is to be done.
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<CertificateFolder>,
    settings: AcmeSettings,
    names: BTreeMap<String, NameEntry>,
    events: Vec<CertificateEvent>,
}

/// A name with its certificate.
#[derive(Debug)]
struct NameEntry {
    certificates: Certificates,
    reach: NameReach,
    /// Whether the configuration in force has it.
    is_wanted: bool,
    /// First and last second in which the certificate is valid.
    valid: Option<(i64, i64)>,
    /// The content of its file, to notice when another server has replaced it.
    content: String,
    failures: u32,
    last_error: Option<String>,
    next_attempt: Option<i64>,
}

/// What happened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateEvent {
    Received(String),
    Failed(String),
}

/// The state of a name, for `selvedge certificates`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CertificateStatus {
    pub(crate) name: String,
    pub(crate) source: &'static str,
    /// Last second in which it is valid, in Unix time.
    pub(crate) expires: Option<i64>,
    pub(crate) last_error: Option<String>,
    /// Time of the next attempt in Unix time, if one failed.
    pub(crate) next_attempt: Option<i64>,
}

impl AutomaticCertificates {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Returns the certificates of a name, which are filled when they exist. Internal names have one at once.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn certificates(&self, folder: &Path, (name, reach): (&str, NameReach)) -> Result<Certificates, String> {
        let state = &mut *self.lock();
        if state.folder.as_ref().is_none_or(|open| open.path() != folder) {
            let opened = CertificateFolder::open(folder);
            let opened = opened.map_err(|error| format!("cannot use {}: {error}", folder.display()))?;
            self.challenges.share(&opened);
            state.folder = Some(opened);
        }
        let folder = state.folder.as_ref().expect("it was opened");
        let entry = state.names.entry(name.to_owned()).or_insert_with(|| NameEntry::new(reach));
        entry.load(folder, name);
        if reach == NameReach::Internal && entry.is_due(name, unix_now()) {
            entry.sign(folder, name)?;
        }
        Ok(entry.certificates.clone())
    }

    /// Sets the names and settings of the configuration in force.
    pub(crate) fn apply(&self, settings: AcmeSettings, wanted: &[String]) {
        let mut state = self.lock();
        state.settings = settings;
        for (name, entry) in &mut state.names {
            entry.is_wanted = wanted.contains(name);
        }
        self.wake.notify_one();
    }

    /// Returns what has happened since the last call.
    pub(crate) fn take_events(&self) -> Vec<CertificateEvent> {
        std::mem::take(&mut self.lock().events)
    }

    /// Returns the state of each wanted name.
    pub(crate) fn status(&self) -> Vec<CertificateStatus> {
        let state = self.lock();
        let status = |(name, entry): (&String, &NameEntry)| CertificateStatus {
            name: name.clone(),
            source: match entry.reach {
                NameReach::Internal => "local",
                _ => "acme",
            },
            expires: entry.valid.map(|(_, until)| until),
            last_error: entry.last_error.clone(),
            next_attempt: entry.next_attempt,
        };
        state.names.iter().filter(|(_, entry)| entry.is_wanted).map(status).collect()
    }

    /// Gets and renews certificates until the process ends.
    pub(crate) fn run(&self) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            loop {
                let due: Vec<(String, NameReach)> = self.due_names(unix_now());
                for (name, reach) in due {
                    self.renew(&name, reach).await;
                }
                let _ = tokio::time::timeout(LOOK_INTERVAL, self.wake.notified()).await;
            }
        })
    }

    fn due_names(&self, now: i64) -> Vec<(String, NameReach)> {
        let state = &mut *self.lock();
        let Some(folder) = &state.folder else { return Vec::new() };
        let mut due = Vec::new();
        for (name, entry) in state.names.iter_mut().filter(|(_, entry)| entry.is_wanted) {
            entry.load(folder, name);
            if entry.is_due(name, now) && entry.next_attempt.is_none_or(|at| at <= now) {
                due.push((name.clone(), entry.reach));
            }
        }
        due
    }

    async fn renew(&self, name: &str, reach: NameReach) {
        let (folder, settings, by_http) = {
            let state = self.lock();
            let Some(folder) = state.folder.clone() else { return };
            let failures = state.names.get(name).map_or(0, |entry| entry.failures);
            let by_http = match state.settings.challenges {
                ChallengeChoice::Http => true,
                ChallengeChoice::Tls => false,
                // A validation that failed is tried in the other way.
                ChallengeChoice::Any => state.settings.has_plain_listener && failures.is_multiple_of(2),
            };
            (folder, state.settings.clone(), by_http)
        };
        let now = unix_now();
        let lock = match folder.lock(now) {
            Ok(Some(lock)) => lock,
            // Another server with this folder gets certificates; its result is found in the folder.
            Ok(None) => return,
            Err(error) => return self.fail(name, None, format!("cannot lock {}: {error}", folder.path().display())),
        };
        let is_done = self.with_entry(name, |entry| {
            entry.load(&folder, name);
            !entry.is_due(name, now)
        });
        if is_done != Some(false) {
            return;
        }
        if reach == NameReach::Internal {
            if let Some(Err(why)) = self.with_entry(name, |entry| entry.sign(&folder, name)) {
                self.fail(name, None, why);
            }
            return;
        }
        let text = folder.read(JOURNAL).unwrap_or_default().unwrap_or_default();
        let earliest = journal::earliest_order(&text, name);
        if earliest > now {
            self.with_entry(name, |entry| entry.next_attempt = Some(earliest));
            return;
        }
        let _ = folder.write(JOURNAL, &journal::recent(&text, now));
        let issuing = Issuing { settings: &settings, folder: &folder, challenges: &self.challenges, by_http };
        match issue(&issuing, &lock, name).await {
            Ok(pem) => self.receive(&folder, name, &pem),
            Err(why) => self.fail(name, Some(&folder), why),
        }
    }

    fn receive(&self, folder: &CertificateFolder, name: &str, pem: &str) {
        let stored = folder.write(&file_of(name), pem);
        let _ = folder.append(JOURNAL, &journal::line(unix_now(), name, JournalEvent::Received));
        let state = &mut *self.lock();
        if let Some(entry) = state.names.get_mut(name) {
            entry.accept(pem);
            (entry.failures, entry.last_error, entry.next_attempt) = (0, None, None);
        }
        let text = match stored {
            Ok(()) => format!("{name} has a new certificate"),
            Err(error) => format!("{name} has a new certificate, which cannot be stored: {error}"),
        };
        push(&mut state.events, CertificateEvent::Received(text));
    }

    fn fail(&self, name: &str, folder: Option<&CertificateFolder>, why: String) {
        let now = unix_now();
        let next = folder.map_or(now + 60, |folder| {
            let _ = folder.append(JOURNAL, &journal::line(now, name, JournalEvent::Failed));
            let text = folder.read(JOURNAL).unwrap_or_default().unwrap_or_default();
            journal::earliest_order(&text, name).max(now + 1)
        });
        let state = &mut *self.lock();
        if let Some(entry) = state.names.get_mut(name) {
            entry.failures = entry.failures.saturating_add(1);
            entry.last_error = Some(why.clone());
            entry.next_attempt = Some(next);
        }
        let text = format!("{name} gets no certificate; the next attempt is in {} s: {why}", next - now);
        push(&mut state.events, CertificateEvent::Failed(text));
    }

    fn with_entry<T>(&self, name: &str, change: impl FnOnce(&mut NameEntry) -> T) -> Option<T> {
        self.lock().names.get_mut(name).map(change)
    }
}

/// Orders a certificate: from the first directory, or from the next one if that fails.
async fn issue(issuing: &Issuing<'_>, lock: &FolderLock, name: &str) -> Result<String, String> {
    issuing.check_reach(name)?;
    let mut why = "no directory of a certificate authority is configured".to_owned();
    for directory in &issuing.settings.directories {
        let before_order = || {
            let now = unix_now();
            match lock.renew(now) {
                Ok(true) => {}
                Ok(false) => return Err("another server orders certificates".to_owned()),
                Err(error) => return Err(format!("the folder cannot be written: {error}")),
            }
            let text = issuing.folder.read(JOURNAL).map_err(|error| error.to_string())?.unwrap_or_default();
            if journal::orders_left(&text, name, now) == 0 {
                return Err("the orders of a week are used up".to_owned());
            }
            let line = journal::line(now, name, JournalEvent::Ordered);
            issuing.folder.append(JOURNAL, &line).map_err(|error| format!("the journal cannot be written: {error}"))
        };
        match issuing.issue(directory, name, before_order).await {
            Ok(pem) => return Ok(pem),
            Err(error) => why = error,
        }
    }
    Err(why)
}

impl NameEntry {
    fn new(reach: NameReach) -> Self {
        Self {
            certificates: Certificates::new(Vec::new()),
            reach,
            is_wanted: false,
            valid: None,
            content: String::new(),
            failures: 0,
            last_error: None,
            next_attempt: None,
        }
    }

    /// Uses the certificate in the folder, if it has changed and is valid longer.
    fn load(&mut self, folder: &CertificateFolder, name: &str) {
        if let Ok(Some(text)) = folder.read(&file_of(name))
            && text != self.content
        {
            self.accept(&text);
        }
    }

    /// Uses a certificate, unless it is invalid.
    fn accept(&mut self, pem: &str) {
        let Ok(certificate) = Certificate::from_pem(pem.as_bytes(), pem.as_bytes()) else { return };
        let Some(facts) = CertificateFacts::of(&certificate) else { return };
        if self.valid.is_some_and(|(_, until)| until > facts.valid.1) {
            return;
        }
        self.valid = Some(facts.valid);
        pem.clone_into(&mut self.content);
        self.certificates.replace(vec![certificate]);
    }

    /// Signs a certificate with the local authority.
    fn sign(&mut self, folder: &CertificateFolder, name: &str) -> Result<(), String> {
        let signed = LocalAuthority::open(folder).and_then(|authority| authority.sign(name));
        let pem = signed.map_err(|error| format!("cannot sign a certificate for {name}: {error}"))?;
        folder.write(&file_of(name), &pem).map_err(|error| format!("cannot store a certificate: {error}"))?;
        self.accept(&pem);
        Ok(())
    }

    /// Whether a certificate is needed now: none exists, or a third of its life or less is left.
    fn is_due(&self, name: &str, now: i64) -> bool {
        let Some((from, until)) = self.valid else { return true };
        let life = until - from;
        // Names of one start are not renewed at once.
        let spread = name.bytes().fold(0i64, |sum, byte| (sum * 31 + i64::from(byte)) % 1000);
        now >= until - life / 3 - life / 48 * spread / 1000
    }
}

fn push(events: &mut Vec<CertificateEvent>, event: CertificateEvent) {
    if events.len() < EVENTS_MAX {
        events.push(event);
    }
}

/// Returns the file of a name: without the characters of an IPv6 address and a wildcard.
fn file_of(name: &str) -> String {
    format!("{}.pem", name.replace(':', "_").replace('*', "wildcard"))
}

/// Returns the current time in Unix seconds.
pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
