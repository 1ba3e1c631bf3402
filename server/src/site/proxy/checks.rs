//! Checks the servers of groups by requests, from one worker for each group.

use super::rules::HealthCheck;
use super::upstream::{CheckClaim, Upstream};
use super::worker::ProxyWorker;
use selvedge::client::{ClientPhase, ClientTimeouts, OutgoingContent, OutgoingHead, Scheme};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak as SharedWeak};

/// Starts the checks of a group on this worker, unless another worker runs them.
pub(in crate::site) fn start_checks(worker: &Rc<ProxyWorker>, upstream: &Arc<Upstream>) {
    let Some(check) = upstream.rules().check.as_ref() else { return };
    let Some(claim) = upstream.claim_checks() else { return };
    let claim = Rc::new(claim);
    let count = upstream.rules().servers.len() as u32;
    for server in 0..count {
        let first = check.every * server / count;
        let task = CheckTask {
            worker: Rc::downgrade(worker),
            upstream: Arc::downgrade(upstream),
            server: server as usize,
            _claim: claim.clone(),
        };
        tokio::task::spawn_local(async move {
            // Not all servers at once.
            tokio::time::sleep(first).await;
            task.run().await;
        });
    }
}

/// Ends the checks of a group: another process sends them.
pub(crate) fn end_checks(upstream: &Upstream) {
    upstream.ends_checks.store(true, Ordering::Relaxed);
}

/// The checks of one server. It ends with its group or its worker.
struct CheckTask {
    worker: Weak<ProxyWorker>,
    upstream: SharedWeak<Upstream>,
    server: usize,
    /// Permits another worker to run the checks when this one ends.
    _claim: Rc<CheckClaim>,
}

impl CheckTask {
    async fn run(&self) {
        loop {
            let every = {
                let (Some(worker), Some(upstream)) = (self.worker.upgrade(), self.upstream.upgrade()) else { return };
                if upstream.ends_checks.load(Ordering::Relaxed) {
                    return;
                }
                let Some(check) = upstream.rules().check.as_ref() else { return };
                let result = check_once(&worker, &upstream, self.server, check).await;
                upstream.checked(self.server, result.as_ref().copied().map_err(|reason| &**reason));
                check.every
            };
            tokio::time::sleep(every).await;
        }
    }
}

/// Sends one check. Returns why it failed, in words.
async fn check_once(
    worker: &ProxyWorker,
    upstream: &Arc<Upstream>,
    server: usize,
    check: &HealthCheck,
) -> Result<(), String> {
    let rules = upstream.server(server);
    let host = check.host.as_deref().unwrap_or(&rules.authority);
    let head = OutgoingHead {
        method: b"GET".to_vec(),
        target: check.path.as_bytes().to_vec(),
        authority: host.as_bytes().to_vec(),
        scheme: if rules.tls.is_some() { Scheme::Https } else { Scheme::Http },
        fields: b"user-agent: selvedge-health-check\r\n".to_vec(),
        ..OutgoingHead::default()
    };
    let (connect, response, silence) = (check.timeout, check.timeout, check.timeout);
    let timeouts = ClientTimeouts { connect, response, silence, ..upstream.rules().timeouts };
    let mut failure = "the name is not resolved".to_owned();
    let mut furthest = ClientPhase::Connect;
    for target in worker.group(upstream).targets(server, rules).iter() {
        let content = &mut OutgoingContent::empty();
        match worker.client.send(&target.destination, &head, content, &timeouts, &mut |_, _| {}).await {
            Ok(response) if check.expect.contains(&response.status.code()) => return Ok(()),
            Ok(response) => return Err(format!("status {} of {}", response.status.code(), target.text)),
            Err(error) if error.phase >= furthest => {
                furthest = error.phase;
                failure = format!("{error} ({})", target.text);
            }
            // Another address got further.
            Err(_) => {}
        }
    }
    Err(failure)
}
