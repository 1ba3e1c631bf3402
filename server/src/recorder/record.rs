//! A record of a request: 24 numbers.

use super::labels::{from_numbers, name_and_pattern, text_of, to_number};
use super::layout::RECORD_NUMBERS;
use selvedge::Request;
use selvedge::proto::head::Version;
use selvedge::proto::limits::METHOD_BYTES_MAX;
use selvedge::service::{
    CacheUse, DryRun, Exchange, PhaseTimes, RequestPhase, ResponseOutcome, UpstreamFacts, authority, cache_use, dry_run,
};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The first number of the target.
const TARGET: usize = 15;
/// Longest target in bytes, with the host and the rest of a long method before it. Longer ones are cut.
const TARGET_BYTES_MAX: usize = (RECORD_NUMBERS - TARGET) * 8;
/// Longest host in bytes that is recorded, so that a part of the path is recorded, too.
const HOST_BYTES_MAX: usize = 40;
/// Bytes of a method in a number of its own. The rest of a longer one is before the target.
const METHOD_BYTES: usize = 8;
/// The byte behind the rest of a long method. No host begins with it, and no target has it.
const METHOD_END: u8 = b' ';
const _: () = assert!(METHOD_BYTES_MAX - METHOD_BYTES + 1 + HOST_BYTES_MAX < TARGET_BYTES_MAX);
/// The first of the numbers of the phases, two in each.
const PHASES: usize = 10;
const _: () = assert!(PHASES + RequestPhase::ALL.len().div_ceil(2) == TARGET);

const ABORTED: u64 = 1;
const RESET: u64 = 2;
const TLS: u64 = 4;
const CACHED: u64 = 8;
const TARGET_CUT: u64 = 16;
const HOST_OMITTED: u64 = 32;
const METHOD_LONG: u64 = 64;
const DRY_RUN_REFUSED: u64 = 128;
/// The version of a refused head.
const NO_VERSION: u64 = Version::ALL.len() as u64;

/// The numbers of the texts of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordLabels<'a> {
    /// The first name of the site, which most hosts are.
    pub(super) site_name: &'a str,
    pub(super) site: u32,
    pub(super) route: u32,
    pub(super) reason: u32,
    pub(super) upstream: u32,
}

/// The numbers of a record after the first, which the ring has, and how many are in use.
pub(super) struct RecordNumbers {
    pub(super) numbers: [u64; RECORD_NUMBERS],
    pub(super) used: usize,
}

impl RecordNumbers {
    /// Makes the record of a request that was complete at a time since 1970.
    #[inline]
    pub(super) fn of(exchange: &Exchange<'_>, labels: RecordLabels<'_>, completed: Duration) -> Self {
        let mut numbers = [0; RECORD_NUMBERS];
        let client = exchange.request.map_or_else(|| exchange.peer.ip(), |request| request.client());
        let client = match client {
            IpAddr::V4(client) => client.to_ipv6_mapped(),
            IpAddr::V6(client) => client,
        };
        let version = exchange.request.map_or(NO_VERSION, |request| request.version() as u64);
        let RequestTexts { method, host, mut target, mut flags } = RequestTexts::of(exchange, labels.site_name);
        flags |= flags_of(exchange);
        let rest_of_method = method.get(METHOD_BYTES..).unwrap_or_default();
        let joined;
        let mut is_cut = target.len() > TARGET_BYTES_MAX;
        if host.is_empty() && rest_of_method.is_empty() {
            target = &target[..target.len().min(TARGET_BYTES_MAX)];
        } else {
            joined = JoinedText::of(rest_of_method, host, target);
            (target, is_cut) = (&joined.bytes[..joined.length], joined.is_cut);
        }
        if is_cut {
            flags |= TARGET_CUT;
        }
        if !rest_of_method.is_empty() {
            flags |= METHOD_LONG;
        }
        let (tries, upstream_status) = exchange.upstream.map_or((0, 0), |record| tries_and_status(&record.facts()));
        numbers[1] = u64::try_from(completed.as_micros()).unwrap_or(u64::MAX);
        let client = client.to_bits();
        (numbers[2], numbers[3]) = ((client >> 64) as u64, client as u64);
        numbers[4] = u64::from(exchange.status.code())
            | version << 16
            | flags << 24
            | tries << 32
            | (target.len() as u64) << 40
            | upstream_status << 48;
        numbers[5] = u64::from(labels.site) | u64::from(labels.route) << 32;
        numbers[6] = u64::from(labels.reason) | u64::from(labels.upstream) << 32;
        numbers[7] = exchange.content_bytes;
        numbers[8] = to_number(method);
        let micros = exchange.elapsed.map_or(0, |elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        numbers[9] = micros.min(u32::MAX.into()) | u64::from(exchange.requests) << 32;
        set_phases(&exchange.phases, &mut numbers);
        for (number, piece) in numbers[TARGET..].iter_mut().zip(target.chunks(8)) {
            *number = to_number(piece);
        }
        Self { numbers, used: TARGET + target.len().div_ceil(8) }
    }
}

/// The texts of a request, as far as a record has them, and the flags that tell what is left out.
struct RequestTexts<'r> {
    method: &'r [u8],
    /// Empty if it is the first name of the site, or too long.
    host: &'r [u8],
    target: &'r [u8],
    flags: u64,
}

impl<'r> RequestTexts<'r> {
    #[inline]
    fn of(exchange: &Exchange<'r>, site_name: &str) -> Self {
        let Some(request) = exchange.request else {
            let target = without_secrets(exchange.request_line);
            let flags = if target.len() < exchange.request_line.len() { TARGET_CUT } else { 0 };
            return Self { method: b"", host: b"", target, flags };
        };
        let target = match request.path_bytes() {
            b"" => request.target().as_bytes(),
            path => path,
        };
        let method = request.method_text().as_bytes();
        match host_before(request, site_name, target) {
            host if host.len() > HOST_BYTES_MAX => Self { method, host: b"", target, flags: HOST_OMITTED },
            host => Self { method, host, target, flags: 0 },
        }
    }
}

/// Returns the flags of a response and of its connection.
#[inline]
fn flags_of(exchange: &Exchange<'_>) -> u64 {
    let is_hit = |request| cache_use(request) == CacheUse::Hit;
    [
        (exchange.outcome == ResponseOutcome::Aborted, ABORTED),
        (exchange.reset.is_some(), RESET),
        (exchange.request.is_some_and(|request| request.tls().is_some()), TLS),
        (exchange.request.is_some_and(is_hit), CACHED),
        (exchange.request.is_some_and(|request| dry_run(request) == DryRun::Refused), DRY_RUN_REFUSED),
    ]
    .iter()
    .fold(0, |flags, (is_set, flag)| if *is_set { flags | flag } else { flags })
}

/// Returns the begin of a request line, up to its query, or to the authority of a target that may name a user.
fn without_secrets(line: &[u8]) -> &[u8] {
    const AFTER_SCHEME: &[u8] = b"://";
    let authority = line.windows(AFTER_SCHEME.len()).position(|part| part == AFTER_SCHEME);
    match authority.map(|at| at + AFTER_SCHEME.len()) {
        Some(at) if line[at..].contains(&b'@') => &line[..at],
        _ => &line[..line.iter().position(|&byte| byte == b'?').unwrap_or(line.len())],
    }
}

/// What a record has in place of a target: texts before it, and the part of the target that fits.
struct JoinedText {
    bytes: [u8; TARGET_BYTES_MAX],
    length: usize,
    is_cut: bool,
}

impl JoinedText {
    fn of(rest_of_method: &[u8], host: &[u8], target: &[u8]) -> Self {
        let mut joined = Self { bytes: [0; TARGET_BYTES_MAX], length: 0, is_cut: false };
        if !rest_of_method.is_empty() {
            joined.push(rest_of_method);
            joined.push(&[METHOD_END]);
        }
        joined.push(host);
        joined.push(target);
        joined
    }

    fn push(&mut self, part: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let count = part.len().min(room.len());
        room[..count].copy_from_slice(&part[..count]);
        self.length += count;
        self.is_cut |= count < part.len();
    }
}

/// Returns the host to record before a path: an empty one if it is the first name of the site.
fn host_before<'r>(request: &'r Request, site_name: &str, target: &[u8]) -> &'r [u8] {
    let host = authority(request).unwrap_or_default();
    let is_site_name = host.eq_ignore_ascii_case(site_name.as_bytes());
    if is_site_name || !target.starts_with(b"/") { b"" } else { host }
}

fn tries_and_status(facts: &UpstreamFacts) -> (u64, u64) {
    (u64::from(facts.tries.min(u8::MAX.into())), facts.status.map_or(0, |status| u64::from(status.code())))
}

#[inline]
fn set_phases(phases: &PhaseTimes, numbers: &mut [u64; RECORD_NUMBERS]) {
    if *phases == PhaseTimes::default() {
        return;
    }
    for (index, phase) in RequestPhase::ALL.into_iter().enumerate() {
        numbers[PHASES + index / 2] |= u64::from(phases.micros(phase)) << (32 * (index % 2));
    }
}

/// What ranks a request among others, without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordRank {
    /// As that of [`RequestRecord`].
    pub(crate) id: (usize, u64),
    /// When the response was complete, in microseconds since 1970.
    pub(crate) completed_micros: u64,
    pub(crate) status: u16,
    /// As [`RequestRecord::response_micros`].
    pub(crate) response_micros: u32,
}

impl RecordRank {
    /// Reads the rank of a record from its numbers.
    pub(super) fn of(id: (usize, u64), numbers: &[u64; RECORD_NUMBERS]) -> Self {
        Self {
            id,
            completed_micros: numbers[1],
            status: numbers[4] as u16,
            response_micros: (numbers[9] as u32).saturating_sub(phase_micros(numbers, RequestPhase::Send)),
        }
    }
}

/// Returns the time of a phase from the numbers of a record.
fn phase_micros(numbers: &[u64; RECORD_NUMBERS], phase: RequestPhase) -> u32 {
    let index = phase as usize;
    (numbers[PHASES + index / 2] >> (32 * (index % 2))) as u32
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestRecord {
    /// The number of the worker, and that of the request among those of the worker.
    pub(crate) id: (usize, u64),
    /// When the response was complete, in microseconds since 1970.
    pub(crate) completed_micros: u64,
    pub(crate) client: IpAddr,
    pub(crate) status: u16,
    /// `None` for a head that was refused.
    pub(crate) version: Option<Version>,
    pub(crate) method: String,
    /// The host, with its port if the client has sent one; empty if it is not recorded.
    pub(crate) host: String,
    /// The path of the target, percent-encoded and cut; the request line of a refused head.
    pub(crate) target: String,
    pub(crate) is_target_cut: bool,
    /// Whether the connection or the stream ended before the response was complete.
    pub(crate) is_aborted: bool,
    pub(crate) is_reset: bool,
    pub(crate) is_tls: bool,
    /// Whether the response was in the cache of files.
    pub(crate) is_cached: bool,
    /// Whether a rule in dry-run mode would have refused the request.
    pub(crate) is_dry_run_refused: bool,
    pub(crate) site: String,
    pub(crate) route: String,
    /// The first pattern of the route.
    pub(crate) pattern: String,
    pub(crate) reason: String,
    /// The group and the address of the upstream that was tried last.
    pub(crate) upstream: String,
    pub(crate) upstream_status: Option<u16>,
    pub(crate) tries: u8,
    pub(crate) content_bytes: u64,
    /// Number of requests on the connection, including this one.
    pub(crate) requests: u32,
    /// Time from the complete head to the complete response in microseconds; at most 71 minutes.
    pub(crate) elapsed_micros: u32,
    pub(crate) phases: PhaseTimes,
}

impl RequestRecord {
    /// Reads a record from its numbers.
    pub(super) fn of(id: (usize, u64), numbers: &[u64; RECORD_NUMBERS], memory: &[AtomicU64]) -> Self {
        let low = |number: u64| number as u32;
        let high = |number: u64| (number >> 32) as u32;
        let [_, micros, client_high, client_low, packed, places, texts, content_bytes, method, times] =
            *numbers.first_chunk().expect("a record has more numbers");
        let client = Ipv6Addr::from_bits(u128::from(client_high) << 64 | u128::from(client_low));
        let (flags, length) = (packed >> 24 & 0xff, (packed >> 40 & 0xff) as usize);
        let mut phases = PhaseTimes::default();
        for phase in RequestPhase::ALL {
            phases.set(phase, Duration::from_micros(phase_micros(numbers, phase).into()));
        }
        let version = Version::ALL.get((packed >> 16 & 0xff) as usize).copied();
        let (site, route) = (text_of(low(places), memory), text_of(high(places), memory));
        let (route, pattern) = name_and_pattern(&route);
        let mut text = from_numbers(numbers[TARGET..].iter().copied(), length);
        let method_length = method.to_le_bytes().iter().take_while(|byte| **byte != 0).count();
        let mut method = from_numbers(std::iter::once(method), method_length);
        if flags & METHOD_LONG > 0
            && let Some((rest, after)) = text.split_once(char::from(METHOD_END))
        {
            method.push_str(rest);
            text = after.to_owned();
        }
        let (host, target) = match text.find('/').filter(|_| version.is_some()) {
            Some(at @ 1..) => (text[..at].to_owned(), text[at..].to_owned()),
            // A wildcard is no host.
            _ if version.is_none() || flags & HOST_OMITTED > 0 || site.starts_with('*') => (String::new(), text),
            _ => (site.clone(), text),
        };
        Self {
            id,
            completed_micros: micros,
            client: IpAddr::V6(client).to_canonical(),
            status: packed as u16,
            version,
            method,
            host,
            target,
            is_target_cut: flags & TARGET_CUT > 0,
            is_aborted: flags & ABORTED > 0,
            is_reset: flags & RESET > 0,
            is_tls: flags & TLS > 0,
            is_cached: flags & CACHED > 0,
            is_dry_run_refused: flags & DRY_RUN_REFUSED > 0,
            site,
            route: route.to_owned(),
            pattern: pattern.to_owned(),
            reason: text_of(low(texts), memory),
            upstream: text_of(high(texts), memory),
            upstream_status: Some((packed >> 48) as u16).filter(|status| *status > 0),
            tries: (packed >> 32) as u8,
            content_bytes,
            requests: high(times),
            elapsed_micros: low(times),
            phases,
        }
    }

    /// Returns the time from the complete head to the begin of the response in microseconds. The client has no part in it,
    /// unless it sends content slowly.
    pub(crate) fn response_micros(&self) -> u32 {
        self.elapsed_micros.saturating_sub(self.phases.micros(RequestPhase::Send))
    }
}
