//! `selvedge selftest`, from top to bottom: known attacks at small scale against one's own server.
//!
//! Each attack is bounded in size, and all of them in time. Attacks run one after the other, and a usual request follows
//! each; those of slow clients run at once, since each waits for a time limit.

mod attack;
mod attack_connection;
mod client_hello;
mod framing;
mod http2_attacks;
mod http2_client;
mod http2_floods;
mod http2_slow;
mod http2_violations;
mod limits;
mod received_responses;
mod report;
mod request_attack;
mod running_server;
mod slow_clients;
mod target;
mod tested_server;
mod tls_attacks;
mod tls_client;

use crate::cli::SelftestArgs;
use crate::log::print_line;
use attack::{Attack, AttackArea, AttackOutcome, AttackText, AttackVerdict};
use http2_client::{Http2Client, SettingsReply};
use report::{Report, ReportEnd, ReportFormat};
use running_server::{RunningServer, TimeLimits};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use target::{AttackTarget, OwnerConsent, TargetUrl};
use tested_server::{Http2Support, TestedServer, request_usually};

/// Time between two usual requests beside slow clients.
const USUAL_REQUEST_INTERVAL: Duration = Duration::from_millis(500);
/// Attacks without slow clients may take all of the time divided by this.
const QUICK_DIVISOR: u32 = 2;

/// The usual requests beside slow clients, for the report.
const USUAL_REQUESTS: AttackText = AttackText {
    name: "usual-requests",
    sends: "a usual request each half second beside these clients",
    expects: "its usual status within 5 s",
    limit: "slow clients delay no other",
};

/// Attacks a server, and reports what held.
pub(crate) fn run(options: &SelftestArgs) -> ExitCode {
    match attack_all(options) {
        Ok(report) if report.has_failures() => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(problem) => {
            print_line(&format!("selvedge: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs all attacks.
///
/// # Errors
/// If the URL is not permitted, or a usual request fails before any attack.
fn attack_all(options: &SelftestArgs) -> Result<Report, String> {
    let url = TargetUrl::read(&options.url)?;
    let consent = if options.i_own_this_host { OwnerConsent::Given } else { OwnerConsent::Missing };
    let running = RunningServer::find(&options.control);
    let target = AttackTarget::find(url, running.as_ref().map_err(String::as_str), consent)?;
    let before = running.ok().filter(|running| running.listens_on(target.address));
    let (began, time) = (Instant::now(), Duration::from_secs(options.seconds));
    let target = target.until(began + time);
    let server = TestedServer {
        usual: request_usually(&target)?,
        limits: before.as_ref().map_or_else(TimeLimits::default, RunningServer::time_limits),
        http2: http2_support(&target),
        ends_at: began + time,
        target,
    };
    let format = if options.json { ReportFormat::Json } else { ReportFormat::Text };
    let (url, address) = (server.target.url.to_string(), server.target.address.to_string());
    let mut report = Report::begin(format, &url, &address);
    let quick = TestedServer { ends_at: began + time / QUICK_DIVISOR, ..server.clone() };
    for attack in quick_attacks() {
        let began = Instant::now();
        let outcome = run_quick(&attack, &quick);
        report.add(attack.area, attack.text, outcome, began.elapsed());
    }
    run_slow(&slow_attacks(), &server, &mut report);
    let now = before.as_ref().and_then(|_| RunningServer::find(&options.control).ok());
    let counted = before.zip(now).map(|(before, now)| now.counted_since(&before));
    report.end(&ReportEnd { url: &url, address: &address, time: began.elapsed(), counted: counted.as_ref() });
    Ok(report)
}

fn http2_support(target: &AttackTarget) -> Http2Support {
    match Http2Client::open(target, &[], SettingsReply::Acknowledged) {
        Ok(Some(_)) => Http2Support::Accepted,
        Ok(None) | Err(_) => Http2Support::Missing,
    }
}

fn quick_attacks() -> Vec<Attack> {
    let framing = framing::ATTACKS.iter().map(|attack| attack.attack(AttackArea::Framing));
    let limits = limits::ATTACKS.iter().map(|attack| attack.attack(AttackArea::Limits)).chain([limits::ranges()]);
    let violations = http2_violations::ATTACKS.iter().map(|attack| attack.attack());
    let floods = http2_floods::ATTACKS.iter().map(|attack| attack.attack()).chain([http2_floods::too_many_streams()]);
    framing.chain(limits).chain(violations).chain(floods).chain(tls_attacks::attacks()).collect()
}

fn slow_attacks() -> Vec<Attack> {
    slow_clients::attacks().into_iter().chain(http2_slow::attacks()).chain(tls_attacks::slow_attacks()).collect()
}

/// Runs an attack, and a usual request after it.
fn run_quick(attack: &Attack, server: &TestedServer) -> AttackOutcome {
    if Instant::now() >= server.ends_at {
        return AttackOutcome::not_applicable("not run: earlier attacks took all of the time; see --seconds");
    }
    let outcome = (attack.run)(server);
    if outcome.verdict == AttackVerdict::NotApplicable {
        return outcome;
    }
    match server.check_usual_request() {
        Ok(()) => outcome,
        Err(problem) => AttackOutcome::failed(format!("{}; then {problem}", outcome.seen)),
    }
}

/// Runs the attacks of slow clients at once, with usual requests beside them.
fn run_slow(attacks: &[Attack], server: &TestedServer, report: &mut Report) {
    let began = Instant::now();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for attack in attacks {
            let thread = scope.spawn(move || {
                let began = Instant::now();
                ((attack.run)(server), began.elapsed())
            });
            running.push((attack, thread));
        }
        let (mut requests, mut slowest, mut problem) = (0, Duration::ZERO, None);
        while !running.is_empty() {
            let request_began = Instant::now();
            // A request that the end of the test interrupts shows nothing.
            let failure = server.check_usual_request().err().filter(|_| Instant::now() < server.ends_at);
            problem = problem.or(failure);
            slowest = slowest.max(request_began.elapsed());
            requests += 1;
            let (ended, still_running): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(_, thread)| thread.is_finished());
            running = still_running;
            for (attack, thread) in ended {
                let outcome = thread.join().unwrap_or_else(|_| (AttackOutcome::failed("panic"), Duration::ZERO));
                report.add(attack.area, attack.text, outcome.0, outcome.1);
            }
            if !running.is_empty() {
                thread::sleep(USUAL_REQUEST_INTERVAL);
            }
        }
        let outcome = match problem {
            None => AttackOutcome::held(format!("{requests} requests, the slowest took {} ms", slowest.as_millis())),
            Some(problem) => AttackOutcome::failed(problem),
        };
        report.add(AttackArea::SlowClients, USUAL_REQUESTS, outcome, began.elapsed());
    });
}
