//! HTTP/2 and TLS, with h2load as the load generator.

use super::throughput::{MIB as BYTES_PER_MIB, SATURATED_SHARE};
use crate::bench::{Bench, Measure, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::h2load::{Clients, H2LOAD, Protocol};
use crate::load::handshakes;
use crate::load::mix::{Mix, Persistence};
use crate::load::window::Window;
use crate::process::probe::is_installed;
use crate::process::server_process::ServerProcess;
use crate::process::tree;
use crate::servers::ContentKind;
use crate::site::{MIB, SIZES, SMALL, SizedFile};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// The factor between the requests of two runs of the warm-up.
const WARM_UP_GROWTH: u64 = 3;
/// A warm-up with more requests is the last.
const WARM_UP_REQUESTS_MAX: u64 = 10_000_000;
/// The connections that one run of h2load opens for full handshakes.
const HANDSHAKES_PER_RUN: usize = 200;
const IDLE_CONNECTIONS: usize = 1_000;
/// How long to wait until servers have freed their buffers.
const SETTLE: Duration = Duration::from_secs(2);

/// Returns the plans of HTTP/2, and creates the certificate.
pub(super) fn http2(bench: &Bench) -> Result<Vec<Plan>> {
    prepare(bench)?;
    let small = |name: &str, title: &str, protocol, connections, streams| {
        let title = format!("151 bytes over {title}");
        throughput("http2", name, &title, clients(protocol, &SMALL, connections, streams))
    };
    let mib = |name: &str, title: &str, protocol| {
        let title = format!("1 MiB over {title}, 8 connections with 4 streams");
        throughput("http2", name, &title, clients(protocol, &MIB, 8, 4))
    };
    let (h2c, h2) = (Protocol::H2c, Protocol::Http2OverTls);
    let plain = "HTTP/2 without TLS";
    Ok(vec![
        small("h2c-100x100", &format!("{plain}, 100 connections with 100 streams"), h2c, 100, 100),
        small("h2c-1x100", &format!("{plain}, one connection with 100 streams"), h2c, 1, 100),
        small("h2c-100x1", &format!("{plain}, 100 connections with one stream"), h2c, 100, 1),
        small("h2-tls-100x100", "HTTP/2 and TLS, 100 connections with 100 streams", h2, 100, 100),
        small("h2-tls-100x1", "HTTP/2 and TLS, 100 connections with one stream", h2, 100, 1),
        mib("h2c-1m", plain, h2c),
        mib("h2-tls-1m", "HTTP/2 and TLS", h2),
        idle("h2c-idle", plain, h2c),
        idle("h2-tls-idle", "HTTP/2 and TLS", h2),
    ])
}

/// Returns the plans of HTTP/1.1 over TLS and of handshakes, and creates the certificate.
pub(super) fn tls(bench: &Bench) -> Result<Vec<Plan>> {
    prepare(bench)?;
    let mut plans = Vec::new();
    for (file, name, size, connections) in
        [(&SMALL, "tls-small", "151 bytes", 64), (&SIZES[2], "tls-64k", "64 KiB", 16), (&MIB, "tls-1m", "1 MiB", 8)]
    {
        let title = format!("{size} over HTTP/1.1 and TLS, {connections} keep-alive connections");
        plans.push(throughput("tls", name, &title, clients(Protocol::Http1OverTls, file, connections, 1)));
    }
    let new = clients(Protocol::Http1OverTls, &SMALL, HANDSHAKES_PER_RUN, 1);
    let title = format!("Full handshakes of TLS 1.3 (P-256), {HANDSHAKES_PER_RUN} at a time, each with one request");
    let load = new.clone();
    plans.push(plan("tls", "tls-full-handshakes", title, &new, move |bench, server| {
        full_handshakes(bench, server, &load)
    }));
    let title = "Resumed handshakes of TLS 1.2, one at a time, without a request".to_owned();
    plans.push(plan("tls", "tls-resumed-handshakes", title, &new, resumed_handshakes));
    Ok(plans)
}

fn prepare(bench: &Bench) -> Result<()> {
    ensure!(is_installed(H2LOAD), "h2load is not installed (install it with: apt-get install nghttp2-client)");
    bench.certificate.create()
}

fn clients(protocol: Protocol, file: &SizedFile, connections: usize, streams: usize) -> Clients {
    Clients { protocol, path: format!("/{}", file.name), file_bytes: file.bytes, connections, streams }
}

fn plan(
    workload: &'static str,
    name: &str,
    title: String,
    clients: &Clients,
    measure: impl Fn(&Bench, &ServerProcess) -> Result<Figures> + 'static,
) -> Plan {
    let is_small = clients.path.trim_start_matches('/') == SMALL.name;
    let content = match (clients.protocol, is_small) {
        (Protocol::H2c, true) => ContentKind::SmallFileOverHttp2,
        (Protocol::H2c, false) => ContentKind::FilesOverHttp2,
        (Protocol::Http2OverTls | Protocol::Http1OverTls, true) => ContentKind::SmallFileOverTls,
        (Protocol::Http2OverTls | Protocol::Http1OverTls, false) => ContentKind::FilesOverTls,
    };
    let (protocol, path) = (clients.protocol, clients.path.clone());
    let measure: Measure = Box::new(move |bench, server| {
        server.wait_for_listener(protocol.port(server.ports()))?;
        Ok(vec![Sample { condition: String::new(), figures: measure(bench, server)? }])
    });
    Plan {
        workload,
        name: name.to_owned(),
        title,
        content,
        mix: Mix::one(&path, Persistence::KeepAlive),
        path,
        connections: clients.connections,
        workers: 1,
        rounds_min: 1,
        probe: Probe::None,
        upstream: None,
        measure,
    }
}

fn throughput(workload: &'static str, name: &str, title: &str, clients: Clients) -> Plan {
    let load = clients.clone();
    plan(workload, name, title.to_owned(), &clients, move |bench, server| measure(bench, server, &load))
}

fn idle(name: &str, title: &str, protocol: Protocol) -> Plan {
    let clients = clients(protocol, &SMALL, IDLE_CONNECTIONS, 1);
    let title = format!("Private memory per idle connection of {title}, 1,000 connections, each after one request");
    let load = clients.clone();
    plan("http2", name, title, &clients, move |bench, server| idle_memory(bench, server, &load))
}

/// Measures requests over open connections. h2load opens them in every run, so the processor time of a run with one
/// request for each connection is subtracted.
fn measure(bench: &Bench, server: &ServerProcess, clients: &Clients) -> Result<Figures> {
    let ports = server.ports();
    let rate = warm_up(bench, server, clients)?;
    let pids = server.pids();
    let before = tree::cpu(&pids);
    let opened = clients.run(ports, clients.connections as u64)?;
    let (cpu_to_open, _) = tree::cpu(&pids).since(before);
    let opening = Opening { requests: opened.completed, cpu: cpu_to_open };
    let requests = ((rate * bench.effort.window().as_secs_f64()) as u64).max(clients.fewest_requests());
    measured(server, &opening, || clients.run(ports, requests))
}

/// Sends requests for at least the duration of the warm-up. Returns the requests per second over open connections.
fn warm_up(bench: &Bench, server: &ServerProcess, clients: &Clients) -> Result<f64> {
    let opening = clients.run(server.ports(), clients.connections as u64)?.elapsed;
    let mut requests = clients.fewest_requests();
    loop {
        let window = clients.run(server.ports(), requests)?;
        let elapsed = window.elapsed.saturating_sub(opening);
        if elapsed >= bench.effort.warm_up() || requests > WARM_UP_REQUESTS_MAX {
            return Ok(requests as f64 / elapsed.as_secs_f64().max(1e-3));
        }
        requests *= WARM_UP_GROWTH;
    }
}

/// The part of a load that opens the connections.
#[derive(Default)]
struct Opening {
    requests: u64,
    cpu: Duration,
}

/// Runs a load, and returns the server's processor time for each of its requests without the opening.
fn measured(server: &ServerProcess, opening: &Opening, load: impl FnOnce() -> Result<Window>) -> Result<Figures> {
    let pids = server.pids();
    let (began, before, machine) = (Instant::now(), tree::cpu(&pids), tree::machine_cpu());
    let window = load()?;
    let (cpu, user_share) = tree::cpu(&pids).since(before);
    let elapsed = began.elapsed().as_secs_f64();
    let machine = (tree::machine_cpu() - machine).as_secs_f64() / elapsed;
    let memory = tree::memory(&pids);
    let server_busy = cpu.as_secs_f64() / elapsed;
    let requests = window.completed.saturating_sub(opening.requests);
    ensure!(requests > 0, "no request got a response");
    let cpu_us = cpu.saturating_sub(opening.cpu).as_secs_f64() * 1e6 / requests as f64;
    let limited = window.generator_busy > SATURATED_SHARE && server_busy < SATURATED_SHARE;
    Ok(Figures::from([
        (Figure::RequestsPerSecond, window.completed_per_second()),
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_share),
        (Figure::SystemUs, cpu_us * (1.0 - user_share)),
        (Figure::ServerBusy, server_busy),
        (Figure::GeneratorBusy, window.generator_busy),
        (Figure::OtherProcessesBusy, (machine - server_busy - window.generator_busy).max(0.0)),
        (Figure::GeneratorLimited, f64::from(u8::from(limited))),
        (Figure::PrivateMib, memory.private as f64 / BYTES_PER_MIB),
        (Figure::ResidentMib, memory.resident as f64 / BYTES_PER_MIB),
    ]))
}

/// Measures runs of h2load that open new connections. It never resumes a session.
fn full_handshakes(bench: &Bench, server: &ServerProcess, clients: &Clients) -> Result<Figures> {
    let run = || clients.run(server.ports(), clients.connections as u64);
    run()?;
    let began = Instant::now();
    let mut figures = measured(server, &Opening::default(), || {
        let mut total = run()?;
        while began.elapsed() < bench.effort.window() {
            total.add(&run()?);
        }
        Ok(total)
    })?;
    add_handshakes(&mut figures);
    Ok(figures)
}

fn resumed_handshakes(bench: &Bench, server: &ServerProcess) -> Result<Figures> {
    let port = server.ports().tls;
    let pids = server.pids();
    // openssl takes whole seconds.
    let seconds = (bench.effort.seconds.round() as u64).max(1);
    let before = tree::cpu(&pids);
    let resumed = handshakes::resume(port, seconds)?;
    let (cpu, user_share) = tree::cpu(&pids).since(before);
    let cpu_us = cpu.as_secs_f64() * 1e6 / resumed as f64;
    let mut figures = Figures::from([
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_share),
        (Figure::SystemUs, cpu_us * (1.0 - user_share)),
    ]);
    add_handshakes(&mut figures);
    Ok(figures)
}

fn add_handshakes(figures: &mut Figures) {
    if let Some(cpu_us) = figures.get(&Figure::CpuUs).filter(|us| **us > 0.0) {
        figures.insert(Figure::HandshakesPerCpuSecond, 1e6 / cpu_us);
    }
}

fn idle_memory(bench: &Bench, server: &ServerProcess, clients: &Clients) -> Result<Figures> {
    let pids = server.pids();
    let base = tree::memory(&pids).private;
    let open = clients.open_idle(server.ports())?;
    std::thread::sleep(bench.effort.pick(SETTLE / 8, SETTLE));
    let memory = tree::memory(&pids);
    drop(open);
    Ok(Figures::from([
        (Figure::BytesPerConnection, memory.private.saturating_sub(base) as f64 / clients.connections as f64),
        (Figure::PrivateMib, memory.private as f64 / BYTES_PER_MIB),
        (Figure::ResidentMib, memory.resident as f64 / BYTES_PER_MIB),
    ]))
}
