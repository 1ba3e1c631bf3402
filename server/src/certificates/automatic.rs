//! Certificates that the server gets by itself: from a certificate authority for public names, from its own for others.

use super::acme::{AcmeSettings, ChallengeChoice, IssueError, Issuing, ValidationMethod};
use super::approval::{Approval, RunProgram};
use super::challenges::Challenges;
use super::folder::{CertificateFolder, FolderLock, JOURNAL};
use super::journal::{self, JournalEvent};
use super::name_entry::{NameEntry, file_of};
use super::on_demand::OnDemand;
use super::unix_now;
use crate::syntax::{HostName, NameReach};
use instant_acme::CertificateIdentifier;
use selvedge::tls::{Certificates, Preparation};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often certificates are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Seconds until a certificate authority is queried again about a renewal: after a query that failed, and the bounds of what
/// it can demand.
const QUERY_INTERVAL: i64 = 6 * 3600;
const QUERY_INTERVAL_MIN: i64 = 60;
const QUERY_INTERVAL_MAX: i64 = 24 * 3600;
/// Seconds until the next attempt after a failed check, which doubles up to the maximum.
const CHECK_DELAY_MIN: i64 = 10;
const CHECK_DELAY_MAX: i64 = 600;
/// Seconds until the next order if a new certificate has to be renewed already. With one order every two days, an order
/// from before the clock was changed and those after it are within the budget.
const RENEWED_AT_ONCE_DELAY: i64 = 2 * 24 * 3600;
/// Most lines that wait for the log.
const EVENTS_MAX: usize = 1000;

/// All names, and what they need.
#[derive(Default)]
pub(crate) struct AutomaticCertificates {
    state: Mutex<State>,
    challenges: Challenges,
    /// Runs the programs of the configuration.
    programs: OnceLock<Arc<dyn RunProgram>>,
    /// Notified when something is to be done.
    wake: Notify,
    /// Names that the configuration does not have.
    on_demand: OnDemand,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<CertificateFolder>,
    settings: AcmeSettings,
    names: BTreeMap<String, NameEntry>,
    events: Vec<CertificateEvent>,
}

/// What happened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateEvent {
    Received(String),
    Failed(String),
    /// A name that a client wants was not approved.
    NotApproved(String),
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
    /// The record that the owner of the name has to set, for validations by such a record.
    pub(crate) record: Option<String>,
}

impl std::fmt::Debug for AutomaticCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AutomaticCertificates").field("state", &self.lock()).finish_non_exhaustive()
    }
}

impl AutomaticCertificates {
    /// Sets what runs the programs of the configuration.
    pub(crate) fn run_programs_with(&self, programs: Arc<dyn RunProgram>) {
        // It never changes within a process.
        let _ = self.programs.set(programs);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Uses a folder. Call it before [`AutomaticCertificates::certificates`].
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn use_folder(&self, folder: &Path) -> Result<(), String> {
        let state = &mut *self.lock();
        if state.folder.as_ref().is_none_or(|open| open.path() != folder) {
            let opened = CertificateFolder::open(folder);
            let opened = opened.map_err(|error| format!("cannot use {}: {error}", folder.display()))?;
            self.challenges.share(&opened);
            state.folder = Some(opened);
        }
        Ok(())
    }

    /// Returns the certificates of a name, which are filled when they exist. Internal names have one at once.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn certificates(&self, name: &str, reach: NameReach) -> Result<Certificates, String> {
        let state = &mut *self.lock();
        let folder = state.folder.as_ref().ok_or("no folder is in use")?;
        let entry = state.names.entry(name.to_owned()).or_insert_with(|| NameEntry::new(reach));
        entry.load(folder, name);
        if reach == NameReach::Internal && entry.is_due(name, unix_now()) {
            entry.sign(folder, name)?;
        }
        Ok(entry.certificates.clone())
    }

    /// Sets the names and settings of the configuration in force.
    pub(crate) fn apply(&self, settings: AcmeSettings, (wanted, approvals): (&[String], &[Approval])) {
        let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
        let mut state = self.lock();
        state.settings = settings;
        for (name, entry) in &mut state.names {
            let is_approved = entry.approval.as_ref().is_some_and(|approval| approvals.contains(approval));
            entry.is_wanted = is_approved || wanted.contains(name.as_str());
            // What a check refused may have been corrected. The journal still limits orders.
            entry.next_attempt = None;
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
            record: entry.wanted_record.clone(),
        };
        state.names.iter().filter(|(_, entry)| entry.is_wanted).map(status).collect()
    }

    /// Gets and renews certificates until the process ends.
    pub(crate) fn run(self: &Arc<Self>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let automatic = self.clone();
        runtime.spawn(async move {
            loop {
                for (name, approval) in automatic.on_demand.next().await {
                    let automatic = automatic.clone();
                    tokio::spawn(async move { automatic.approve(&name, &approval).await });
                }
            }
        });
        runtime.block_on(async {
            loop {
                let due: Vec<(String, NameReach)> = self.due_names(unix_now());
                for (name, reach) in due {
                    self.renew(&name, reach).await;
                    self.on_demand.finish(&name);
                }
                self.plan_renewals().await;
                let _ = tokio::time::timeout(LOOK_INTERVAL, self.wake.notified()).await;
            }
        })
    }

    /// Adds a name that was approved. Its certificate may be in the folder.
    fn add_approved(&self, name: &str, approval: Arc<Approval>) {
        let state = &mut *self.lock();
        let Some(folder) = &state.folder else { return };
        let reach = name.parse().map_or(NameReach::Unknown, |name: HostName| name.reach());
        let entry = state.names.entry(name.to_owned()).or_insert_with(|| NameEntry::new(reach));
        entry.approval = Some((*approval).clone());
        entry.is_wanted = true;
        entry.load(folder, name);
        if entry.is_due(name, unix_now()) {
            self.wake.notify_one();
        } else {
            self.on_demand.finish(name);
        }
    }

    /// Returns the certificates of a name that was approved.
    pub(crate) fn approved(&self, name: &str) -> Option<Certificates> {
        self.with_entry(name, |entry| entry.is_wanted.then(|| entry.certificates.clone())).flatten()
    }

    /// Prepares a handshake for a name that the configuration does not have. `None` if its certificate is there, or if it
    /// gets none.
    pub(crate) fn prepare(&self, name: &str, approval: &Arc<Approval>) -> Option<Preparation> {
        let is_name = matches!(name.parse(), Ok(parsed @ HostName::Exact(_))
            if matches!(HostName::reach(&parsed), NameReach::Public | NameReach::Internal));
        if !is_name || self.with_entry(name, |entry| entry.is_wanted && entry.valid.is_some()) == Some(true) {
            return None;
        }
        let mut receiver = self.on_demand.wait(name, approval, unix_now())?;
        Some(Box::pin(async move {
            // It ends with the sender.
            let _ = receiver.changed().await;
        }))
    }

    /// Decides about a name, and lets a certificate be ordered if it was approved.
    async fn approve(&self, name: &str, approval: &Arc<Approval>) {
        match approval.decide(name, self.programs.get().cloned()).await {
            Ok(()) => self.add_approved(name, approval.clone()),
            Err(why) => {
                self.on_demand.refuse(name, unix_now());
                self.note(CertificateEvent::NotApproved(format!("{name} gets no certificate: {why}")));
            }
        }
    }

    fn note(&self, event: CertificateEvent) {
        push(&mut self.lock().events, event);
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
        let Some((folder, settings, failures)) = self.order_state(name) else { return };
        let now = unix_now();
        let lock = match folder.lock(now) {
            Ok(Some(lock)) => lock,
            // Another server with this folder gets certificates; its result is found in the folder.
            Ok(None) => return,
            Err(error) => return self.postpone(name, format!("cannot lock {}: {error}", folder.path().display())),
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
                self.postpone(name, why);
            }
            return;
        }
        let text = folder.read(JOURNAL).unwrap_or_default().unwrap_or_default();
        let earliest = journal::earliest_order(&text, name, now);
        if earliest > now {
            self.with_entry(name, |entry| entry.next_attempt = Some(earliest));
            return;
        }
        // A name that was approved once may have been withdrawn since.
        let approval =
            self.with_entry(name, |entry| entry.approval.clone().filter(|_| entry.valid.is_some())).flatten();
        if let Some(approval) = approval
            && let Err(why) = approval.decide(name, self.programs.get().cloned()).await
        {
            return self.postpone(name, why);
        }
        let _ = folder.write(JOURNAL, &journal::recent(&text, now));
        let issuing = self.issuing((&settings, &folder), failures);
        let replaced = self.with_entry(name, |entry| entry.renewal.directory.clone().zip(entry.renewal_id())).flatten();
        let issued = issue(&issuing, &lock, (name, replaced)).await;
        let record = issuing.wanted_record.take();
        self.with_entry(name, |entry| entry.wanted_record = record);
        match issued {
            Ok(pem) => self.receive(&folder, name, &pem),
            Err(IssueError::NotReady(why)) => self.postpone(name, why),
            Err(IssueError::Failed { why, not_before }) => self.fail(name, &folder, (why, not_before)),
        }
    }

    /// Returns what an order of a name needs: the folder, the settings, and the number of failures in a row.
    fn order_state(&self, name: &str) -> Option<(CertificateFolder, AcmeSettings, u32)> {
        let state = self.lock();
        let failures = state.names.get(name).map_or(0, |entry| entry.failures);
        Some((state.folder.clone()?, state.settings.clone(), failures))
    }

    fn issuing<'a>(
        &'a self,
        (settings, folder): (&'a AcmeSettings, &'a CertificateFolder),
        failures: u32,
    ) -> Issuing<'a> {
        let method = match &settings.challenges {
            ChallengeChoice::Http => ValidationMethod::Http,
            ChallengeChoice::Tls => ValidationMethod::Tls,
            ChallengeChoice::Dns(program) => ValidationMethod::Dns(program),
            ChallengeChoice::DnsPersist => ValidationMethod::DnsPersist,
            // A validation that failed is tried in the other way.
            ChallengeChoice::Any if settings.has_plain_listener && failures.is_multiple_of(2) => ValidationMethod::Http,
            ChallengeChoice::Any => ValidationMethod::Tls,
        };
        let programs = self.programs.get().cloned();
        Issuing { settings, folder, challenges: &self.challenges, method, programs, wanted_record: RefCell::default() }
    }

    /// Queries certificate authorities when their certificates should be renewed.
    async fn plan_renewals(&self) {
        let now = unix_now();
        let due: Vec<(String, CertificateIdentifier<'static>)> = {
            let state = self.lock();
            let due = state.names.iter().filter(|(_, entry)| entry.is_wanted && entry.is_query_due(now));
            due.filter_map(|(name, entry)| Some((name.clone(), entry.renewal_id()?))).collect()
        };
        for (name, id) in due {
            let Some((folder, settings, failures)) = self.order_state(&name) else { return };
            let issuing = self.issuing((&settings, &folder), failures);
            let mut next_query = now + QUERY_INTERVAL;
            for directory in &settings.directories {
                let Some(authority) = issuing.known_authority(directory).await else { continue };
                if let Ok((window, delay)) = authority.renewal_window(&id).await {
                    next_query = now + delay.clamp(QUERY_INTERVAL_MIN, QUERY_INTERVAL_MAX);
                    self.with_entry(&name, |entry| entry.plan_renewal((&name, directory), window, next_query));
                    break;
                }
            }
            self.with_entry(&name, |entry| entry.renewal.next_query = next_query);
        }
    }

    fn receive(&self, folder: &CertificateFolder, name: &str, pem: &str) {
        let now = unix_now();
        let stored = folder.write(&file_of(name), pem);
        let _ = folder.append(JOURNAL, &journal::line(now, name, JournalEvent::Received));
        let text = match stored {
            Ok(()) => format!("{name} has a new certificate"),
            Err(error) => format!("{name} has a new certificate, which cannot be stored: {error}"),
        };
        let still_due = self.with_entry(name, |entry| {
            entry.accept(pem);
            (entry.failures, entry.last_error, entry.next_attempt) = (0, None, None);
            entry.is_due(name, now).then_some(entry.valid)
        });
        self.note(CertificateEvent::Received(text));
        if let Some(Some(valid)) = still_due {
            self.defer(name, folder, (now, valid));
        }
    }

    /// Notes that a new certificate has to be renewed already, so that no certificate is ordered after the other.
    fn defer(&self, name: &str, folder: &CertificateFolder, (now, valid): (i64, Option<(i64, i64)>)) {
        let next = now + RENEWED_AT_ONCE_DELAY;
        let _ = folder.append(JOURNAL, &journal::line(now, name, JournalEvent::DeferredUntil(next)));
        let left = valid.map_or(0, |(_, until)| (until - now) / 3600);
        let why = format!(
            "the new certificate has to be renewed already: by the clock of this machine, it is valid for {left} more \
             hours. Check the clock"
        );
        self.note_failure(name, why, next);
    }

    /// Notes that an order failed. The delay until the next one is in the journal.
    fn fail(&self, name: &str, folder: &CertificateFolder, (why, not_before): (String, Option<i64>)) {
        let now = unix_now();
        let deferred = not_before.filter(|at| *at > now).map(JournalEvent::DeferredUntil);
        for event in [JournalEvent::Failed].into_iter().chain(deferred) {
            let _ = folder.append(JOURNAL, &journal::line(now, name, event));
        }
        let text = folder.read(JOURNAL).unwrap_or_default().unwrap_or_default();
        self.note_failure(name, why, journal::earliest_order(&text, name, now).max(now + 1));
    }

    /// Notes that a check failed before anything was ordered. The next attempt is soon, and at once after a reload.
    fn postpone(&self, name: &str, why: String) {
        let failures = self.with_entry(name, |entry| entry.failures).unwrap_or_default();
        let delay =
            CHECK_DELAY_MIN.checked_shl(failures).unwrap_or(CHECK_DELAY_MAX).clamp(CHECK_DELAY_MIN, CHECK_DELAY_MAX);
        self.note_failure(name, why, unix_now() + delay);
    }

    fn note_failure(&self, name: &str, why: String, next: i64) {
        let state = &mut *self.lock();
        let text = format!("{name} gets no certificate; the next attempt is in {} s: {why}", next - unix_now());
        if let Some(entry) = state.names.get_mut(name) {
            entry.failures = entry.failures.saturating_add(1);
            entry.last_error = Some(why);
            entry.next_attempt = Some(next);
        }
        push(&mut state.events, CertificateEvent::Failed(text));
    }

    fn with_entry<T>(&self, name: &str, change: impl FnOnce(&mut NameEntry) -> T) -> Option<T> {
        self.lock().names.get_mut(name).map(change)
    }
}

/// Orders a certificate: from the first directory, or from the next one if that fails. `replaced` is the certificate that
/// it replaces, with the directory that knows it.
async fn issue(
    issuing: &Issuing<'_>,
    lock: &FolderLock,
    (name, replaced): (&str, Option<(String, CertificateIdentifier<'static>)>),
) -> Result<String, IssueError> {
    issuing.check_reach(name).map_err(IssueError::NotReady)?;
    let mut failed = IssueError::NotReady("no directory of a certificate authority is configured".to_owned());
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
        let known = replaced.as_ref().filter(|(knows, _)| knows == directory).map(|(_, id)| id.clone());
        match (issuing.issue(directory, (name, known), before_order).await, &failed) {
            (Ok(pem), _) => return Ok(pem),
            // The delay after an order that failed remains.
            (Err(IssueError::NotReady(why)), IssueError::Failed { not_before, .. }) => {
                failed = IssueError::Failed { why, not_before: *not_before };
            }
            (Err(IssueError::Failed { why, not_before }), _) => {
                failed = IssueError::Failed { why: format!("{directory}: {why}"), not_before };
            }
            (Err(error), _) => failed = error,
        }
    }
    Err(failed)
}

fn push(events: &mut Vec<CertificateEvent>, event: CertificateEvent) {
    if events.len() < EVENTS_MAX {
        events.push(event);
    }
}
