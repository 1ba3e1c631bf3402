//! The Haskell Web Server's Figure 1: a new connection for each request, at a fixed rate, from a
//! quarter of what the server can do to three times that. Does it keep its rate when overloaded?

use super::throughput::add_times;
use crate::bench::{Bench, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::closed::{Closed, Until};
use crate::load::mix::{Afterwards, Mix};
use crate::load::open::{self, Alone, Rests, Schedule};
use crate::load::window::Window;
use crate::process::quota::Quota;
use crate::process::running::Running;
use crate::servers::Content;
use crate::site::KIB;
use anyhow::{Context, Result};
use std::time::Duration;

/// What is offered, in parts of the capacity.
const FULL: [f64; 8] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0];
const QUICK: [f64; 3] = [0.5, 1.0, 3.0];
/// As in the paper.
const TIMEOUT: Duration = Duration::from_secs(1);
/// So many connections find out the capacity.
const CAPACITY_CONNECTIONS: usize = 64;
/// As many as the load may have descriptors for.
const CONNECTIONS_MAX: usize = 18_000;
/// After an overload, the time until the queues are empty.
const PAUSE: Duration = Duration::from_millis(1_500);

pub(super) fn plans() -> Vec<Plan> {
    let path = format!("/{}", KIB.name);
    let mix = Mix::one(&path, Afterwards::Close);
    let load = mix.clone();
    vec![Plan {
        workload: "load-curve",
        name: "load-curve".to_owned(),
        title: "Reply rate and times against the offered rate: 1 KiB, a new connection for each request, client timeout 1 s, \
                the server held to a sixth of a core"
            .to_owned(),
        content: Content::File,
        path,
        mix,
        connections: CAPACITY_CONNECTIONS,
        workers: 1,
        rounds_min: 1,
        probe: Probe::Nothing,
        measure: Box::new(move |bench, server| measure(bench, server, &load)),
    }]
}

fn measure(bench: &Bench, server: &Running, mix: &Mix) -> Result<Vec<Sample>> {
    let quota = Quota::new().context("no cgroup in which a server could be held to a part of a core")?;
    quota.hold(&server.pids())?;
    let mut closed = Closed::connect(server.address(), mix.clone(), CAPACITY_CONNECTIONS)?;
    closed.run(Until::Elapsed(bench.effort.warm()))?;
    let capacity = closed.run(Until::Elapsed(bench.effort.window()))?.rate();
    drop(closed);
    let mut samples = Vec::new();
    for part in bench.effort.pick(&QUICK[..], &FULL[..]) {
        std::thread::sleep(bench.effort.pick(PAUSE / 5, PAUSE));
        let schedule = Schedule {
            rate: (capacity * part).max(1.0),
            duration: bench.effort.window_of_overload(),
            timeout: TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            rests: Rests::None,
        };
        let seen = open::run(server.address(), mix, schedule, &mut Alone)?;
        let mut figures = figures(&seen.window, schedule.rate);
        figures.insert(Figure::GeneratorLimited, f64::from(u8::from(seen.generator_limited)));
        samples.push(Sample { at: format!("{part:.2} × capacity"), figures });
    }
    Ok(samples)
}

fn figures(window: &Window, rate: f64) -> Figures {
    let mut figures = Figures::from([
        (Figure::OfferedPerSecond, rate),
        (Figure::RequestsPerSecond, window.rate()),
        (Figure::Errors, (window.errors + window.unsent) as f64),
        (Figure::Timeouts, window.timeouts as f64),
        (Figure::GeneratorBusy, window.generator_busy),
        (Figure::P99AnsweredUs, window.answered_quantile_us(0.99)),
    ]);
    add_times(&mut figures, window);
    figures
}
