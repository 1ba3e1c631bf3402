//! Counts that outlive the process: it hands them to its supervisor, and gets those of all processes from there.

use super::request::receive;
use super::{Parent, ServingProcess};
use crate::log::Totals;
use crate::process::link::{FromChild, Link, ToChild};
use crate::process::lock::{lock, try_lock};
use std::sync::Mutex;

/// Hands what a process has counted to its supervisor.
pub(crate) fn hand_over_counts(serving: &ServingProcess, own: &Totals) {
    if let Some((link, _)) = keeper_of_counts(serving) {
        lock(&serving.counts).hand_over(own, link);
    }
}

/// Returns the counts of all serving processes since the supervisor started; `own` are those of this one.
pub(crate) fn all_counts(serving: &ServingProcess, own: Totals) -> Totals {
    let Some((link, request_lock)) = keeper_of_counts(serving) else { return own };
    let counts = &mut *lock(&serving.counts);
    counts.hand_over(&own, link);
    // While another request is in progress, such as a replacement, the last known counts have to do.
    if let Some(_one_at_a_time) = try_lock(request_lock)
        && let Some(all) = request_counts(link)
    {
        counts.others = all.since(&counts.own);
    }
    let mut all = counts.others.clone();
    all.add(&counts.own);
    all
}

/// Reports the number of the configuration in force, after which the next process goes on.
pub(crate) fn report_configuration(serving: &ServingProcess, number: u64) {
    if let Parent::Supervisor { link, .. } = &serving.parent {
        let _ = link.send(&FromChild::Configuration { number });
    }
}

fn keeper_of_counts(serving: &ServingProcess) -> Option<(&Link, &Mutex<()>)> {
    match &serving.parent {
        Parent::Supervisor { link, request_lock } if serving.start_info.keeps_counts => Some((link, request_lock)),
        Parent::Supervisor { .. } | Parent::None { .. } => None,
    }
}

/// Requests the counts of all processes, which arrive in parts. `None` if the supervisor has ended.
fn request_counts(link: &Link) -> Option<Totals> {
    link.send(&FromChild::Counts).ok()?;
    let mut all = Totals::default();
    loop {
        match receive(link).ok()?.0 {
            ToChild::Counts { totals } => all.add(&totals),
            ToChild::Done { .. } | ToChild::Refused { .. } => return Some(all),
            ToChild::Listener { .. } | ToChild::Control | ToChild::Start(_) => {}
        }
    }
}
