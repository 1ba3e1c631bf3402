//! Figure 1 of the paper on the Haskell web server: a new connection for each request at a fixed rate, from a quarter
//! of the server's capacity to three times the capacity. Shows whether the response rate drops under overload.

use super::throughput::add_times;
use crate::bench::{Bench, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::closed::{ClosedLoop, Until};
use crate::load::mix::{Mix, Persistence};
use crate::load::open::{self, IdleGaps, NoBackgroundLoad, Schedule};
use crate::load::window::Window;
use crate::process::quota::Quota;
use crate::process::server_process::ServerProcess;
use crate::servers::ContentKind;
use crate::site::KIB;
use anyhow::{Context, Result};
use std::time::Duration;

/// The offered rates as shares of the capacity.
const FULL: [f64; 8] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0];
const QUICK: [f64; 3] = [0.5, 1.0, 3.0];
/// The timeout of a client in the paper.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The number of connections that measure the capacity.
const CAPACITY_CONNECTIONS: usize = 64;
/// The maximum number of connections, which the limit of file descriptors bounds.
const CONNECTIONS_MAX: usize = 18_000;
/// The time after an overload until the queues are empty.
const PAUSE: Duration = Duration::from_millis(1_500);

pub(super) fn plans() -> Vec<Plan> {
    let path = format!("/{}", KIB.name);
    let mix = Mix::one(&path, Persistence::Close);
    let load = mix.clone();
    vec![Plan {
        workload: "load-curve",
        name: "load-curve".to_owned(),
        title:
            "Response rate and latencies against the offered rate: 1 KiB, a new connection for each request, client \
                timeout 1 s, the server limited to a sixth of a core"
                .to_owned(),
        content: ContentKind::File,
        path,
        mix,
        connections: CAPACITY_CONNECTIONS,
        workers: 1,
        rounds_min: 1,
        probe: Probe::None,
        upstream: None,
        measure: Box::new(move |bench, server| measure(bench, server, &load)),
    }]
}

fn measure(bench: &Bench, server: &ServerProcess, mix: &Mix) -> Result<Vec<Sample>> {
    let quota = Quota::new()
        .context("cannot limit the server to a share of a core: no writable cgroup with the processor controller")?;
    quota.add_processes(&server.pids())?;
    let mut closed = ClosedLoop::connect(server.address(), mix.clone(), CAPACITY_CONNECTIONS)?;
    closed.run(Until::Elapsed(bench.effort.warm_up()))?;
    let capacity = closed.run(Until::Elapsed(bench.effort.window()))?.completed_per_second();
    drop(closed);
    let mut samples = Vec::new();
    for share in bench.effort.pick(&QUICK[..], &FULL[..]) {
        std::thread::sleep(bench.effort.pick(PAUSE / 5, PAUSE));
        let schedule = Schedule {
            rate: (capacity * share).max(1.0),
            duration: bench.effort.overload_window(),
            timeout: TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            idle_gaps: IdleGaps::None,
        };
        let seen = open::run(server.address(), mix, schedule, &mut NoBackgroundLoad)?;
        let mut figures = figures(&seen.window, schedule.rate);
        figures.insert(Figure::GeneratorLimited, f64::from(u8::from(seen.generator_limited)));
        samples.push(Sample { condition: format!("{share:.2} × capacity"), figures });
    }
    Ok(samples)
}

fn figures(window: &Window, rate: f64) -> Figures {
    let mut figures = Figures::from([
        (Figure::OfferedPerSecond, rate),
        (Figure::RequestsPerSecond, window.completed_per_second()),
        (Figure::Errors, (window.errors + window.unsent) as f64),
        (Figure::Timeouts, window.timeouts as f64),
        (Figure::GeneratorBusy, window.generator_busy),
        (Figure::P99CompletedUs, window.completed_quantile_us(0.99)),
    ]);
    add_times(&mut figures, window);
    figures
}
