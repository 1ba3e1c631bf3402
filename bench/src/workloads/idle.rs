//! The memory of an idle connection after one request.

use crate::bench::{Bench, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::closed::{ClosedLoop, Until};
use crate::load::mix::{Mix, Persistence};
use crate::process::server_process::ServerProcess;
use crate::process::tree;
use crate::servers::ContentKind;
use crate::site::SMALL;
use anyhow::Result;
use std::time::Duration;

const FULL: [usize; 4] = [1_000, 2_500, 5_000, 10_000];
const QUICK: [usize; 2] = [200, 1_000];
/// How long to wait until servers have freed their buffers.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn plans() -> Vec<Plan> {
    let path = format!("/{}", SMALL.name);
    let mix = Mix::one(&path, Persistence::KeepAlive);
    let load = mix.clone();
    vec![Plan {
        workload: "idle",
        name: "idle".to_owned(),
        title: "Private memory per idle keep-alive connection, each after one request".to_owned(),
        content: ContentKind::File,
        path,
        mix,
        connections: 1,
        workers: 1,
        rounds_min: 1,
        probe: Probe::None,
        upstream: None,
        measure: Box::new(move |bench, server| measure(bench, server, &load)),
    }]
}

fn measure(bench: &Bench, server: &ServerProcess, mix: &Mix) -> Result<Vec<Sample>> {
    let pids = server.pids();
    let base = tree::memory(&pids).private;
    let (mut open_loops, mut count, mut samples) = (Vec::new(), 0, Vec::new());
    for level in bench.effort.pick(&QUICK[..], &FULL[..]) {
        let mut open_loop = ClosedLoop::connect(server.address(), mix.clone(), level - count)?;
        let window = open_loop.run(Until::Requests((level - count) as u64))?;
        open_loops.push(open_loop);
        count = *level;
        std::thread::sleep(bench.effort.pick(SETTLE / 8, SETTLE));
        let memory = tree::memory(&pids);
        let figures = Figures::from([
            (Figure::BytesPerConnection, memory.private.saturating_sub(base) as f64 / count as f64),
            (Figure::PrivateMib, memory.private as f64 / 1_048_576.0),
            (Figure::ResidentMib, memory.resident as f64 / 1_048_576.0),
            (Figure::Errors, window.errors as f64),
        ]);
        samples.push(Sample { condition: format!("{count} connections"), figures });
    }
    Ok(samples)
}
