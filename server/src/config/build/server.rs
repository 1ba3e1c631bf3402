//! Listeners, process, limits, proxies.

use super::acme::acme;
use super::expect::add_expectations;
use super::remote_control::{control_socket, remote_control};
use super::tls::{
    certificate_folder, check_listeners, has_public_site, https_listeners, listener_plain_http2, listener_tls,
    ticket_keys,
};
use super::traces::traces;
use super::upstream::{declared_upstreams, used_upstreams};
use super::{Builder, MachineRequirementKind, enforcement, networks};
use crate::config::model::{
    Acme, ClientConnectionLimit, ConfiguredLimits, Driver, ForwardedField, Listener, LogSettings, Process,
    RemoteControl, Settings, Supervision, Switch, TrustedProxies, UpstreamLimits,
};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::settings::BlockKind;
use crate::config::tree::{Block, Item};
use crate::config::value::{Address, Value};
use selvedge::proto::http2::Http2Limits;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Mode of a Unix socket for metrics: its owner and its group may connect.
const METRICS_SOCKET_MODE: u32 = 0o660;
/// Default mode of a Unix socket: everyone may connect, as with a port.
const SOCKET_MODE: u32 = 0o666;

impl Builder<'_, '_> {
    pub(super) fn settings(&mut self, top: &Block) -> Settings {
        let limits = match top.get("limits") {
            Some(item) => self.limits(item.block()),
            None => {
                let defaults = self.reader.block(BlockKind::Limits, &[], top.at);
                self.limits(&defaults)
            }
        };
        let default_log;
        let log = match top.get("log") {
            Some(item) => item.block(),
            None => {
                default_log = self.reader.block(BlockKind::Log, &[], top.at);
                &default_log
            }
        };
        let logs =
            LogSettings { access: self.access_log(log.item("access")), error: self.error_log(log.item("error")) };
        let acme = acme(self, top);
        self.acme = Some(acme.clone());
        let listeners = self.listeners(top, &acme);
        self.has_tls = listeners.iter().any(|listener| listener.tls == Switch::On);
        let remote_control = remote_control(self, top, (&listeners, &acme));
        let metrics = metrics(self, top, (&listeners, remote_control.as_ref()));
        let traces = traces(self, top);
        self.listeners.clone_from(&listeners);
        let are_loopback = listeners.iter().all(|listener| listener.address.is_loopback());
        self.is_local = are_loopback && !top.has_any(&["trusted-proxies"]);
        self.has_invalid_upstream = top.has_any_invalid(&["upstream"]);
        declared_upstreams(self, top);
        let sites = self.sites(top, limits.body_bytes_max);
        add_expectations(self, top, None);
        let upstreams = used_upstreams(self, top);
        check_listeners(top, &sites, &mut self.reader.problems);
        let certificate_folder = certificate_folder(self, top, (&sites, remote_control.as_ref()));
        Settings {
            listeners,
            process: self.process(top),
            trusted_proxies: trusted_proxies(top),
            ticket_keys: ticket_keys(self, top),
            certificate_folder,
            remote_control,
            metrics,
            traces,
            acme,
            upstreams,
            sites,
            expectations: std::mem::take(&mut self.expectations),
            limits,
            logs,
        }
    }

    fn listeners(&mut self, top: &Block, acme: &Acme) -> Vec<Listener> {
        let is_default = top.all("listen").all(|item| item.at == top.at);
        if is_default && has_public_site(top, acme) {
            return https_listeners();
        }
        let mut seen: HashMap<Address, Span> = HashMap::new();
        let mut listeners = Vec::new();
        for item in top.all("listen") {
            let given = item.first();
            let Value::Listen(address) = &given.value else { unreachable!("the table requires an address") };
            let is_unix = matches!(address, Address::Unix(_));
            let mode = match item.property("mode") {
                Some(mode) if !is_unix => {
                    self.problem(
                        Problem::new(mode.at, "`mode` applies to Unix sockets only")
                            .suggest("remove it, or listen on \"unix:/path\""),
                    );
                    0
                }
                Some(mode) => u32::try_from(mode.number()).expect("a mode has nine bits"),
                None if is_unix => SOCKET_MODE,
                None => 0,
            };
            // Port 0 is a different port each time.
            let is_free_port = matches!(address, Address::Inet(address) if address.port() == 0);
            match seen.insert(address.clone(), given.at) {
                Some(first) if !is_free_port => {
                    let problem = Problem::new(given.at, "this address is repeated").see_also(first, "the first one");
                    self.problem(problem.suggest("remove one of them"));
                }
                _ => self.require(given.at, MachineRequirementKind::ListenAddress(address.clone())),
            }
            let tls = listener_tls(item, address);
            let plain_http2 = listener_plain_http2(self, item, tls);
            let proxy_protocol = listener_proxy_protocol(self, top, item);
            let address = address.clone();
            listeners.push(Listener { address, mode, is_ipv6_only: false, tls, plain_http2, proxy_protocol });
        }
        check_overlaps(top, &mut self.reader.problems);
        separate_families(&mut listeners);
        listeners
    }

    fn process(&mut self, top: &Block) -> Process {
        let account = |name| top.get(name).map(|item| (item.first().text().to_owned(), item.first().at));
        let (user, group) = (account("user"), account("group"));
        if let Some((user, at)) = user.clone() {
            self.require(at, MachineRequirementKind::User(user));
        }
        if let Some((group, at)) = group.clone() {
            self.require(at, MachineRequirementKind::Group(group));
        }
        let of_server = user.as_ref().map(|(user, _)| user);
        let programs = self.requirements.iter().filter_map(|requirement| match &requirement.kind {
            MachineRequirementKind::CgiPrograms(programs) => {
                Some((requirement.at, programs.user.as_ref().or(of_server).cloned()))
            }
            _ => None,
        });
        for (at, user) in programs.collect::<Vec<_>>() {
            self.require(at, MachineRequirementKind::ProgramUser(user));
        }
        let pid_file = self.path(top, "pid-file");
        if let Some((path, at)) = pid_file.clone() {
            self.require(at, MachineRequirementKind::PidFile(path));
        }
        let control = control_socket(self, top);
        let driver = match top.item("driver").first().text() {
            "epoll" => Driver::Epoll,
            "io_uring" => Driver::IoUring,
            _ => Driver::Auto,
        };
        let supervision = match top.get("supervision") {
            Some(item) => self.supervision(item.block()),
            None => {
                let defaults = self.reader.block(BlockKind::Supervision, &[], top.at);
                self.supervision(&defaults)
            }
        };
        Process {
            workers: top.get("workers").map(|item| size(item.first().number())),
            driver,
            user: user.map(|(user, _)| user),
            group: group.map(|(group, _)| group),
            pid_file: pid_file.map(|(path, _)| path),
            control,
            supervision,
        }
    }

    fn supervision(&mut self, block: &Block) -> Supervision {
        let time = |name| block.item(name).first().time();
        let supervision = Supervision {
            supervised: Switch::from(block.item("supervised").first().flag()),
            restarts_max: block.item("restarts-max").first().number(),
            restarts_within: time("restarts-within"),
            back_off_min: time("back-off-min"),
            back_off_max: time("back-off-max"),
        };
        if supervision.back_off_min > supervision.back_off_max {
            let problem = Problem::new(block.item("back-off-min").at, "`back-off-min` is longer than `back-off-max`");
            let problem = problem.suggest("write both `back-off-min` and `back-off-max`");
            self.problem(problem.see_also(block.item("back-off-max").at, "`back-off-max`"));
        }
        supervision
    }

    fn limits(&mut self, block: &Block) -> ConfiguredLimits {
        let number = |name: &str| block.item(name).first().number();
        let time = |name: &str| -> Duration { block.item(name).first().time() };
        let rate = |name: &str| u32::try_from(number(name)).expect("its range is that of u32");
        let limits = ConfiguredLimits {
            request_line_bytes_max: size(number("request-line-bytes-max")),
            head_bytes_max: size(number("head-bytes-max")),
            fields_max: size(number("fields-max")),
            chunk_extension_bytes_max: size(number("chunk-extension-bytes-max")),
            chunk_overhead_allowance: number("chunk-overhead-allowance"),
            trailer_bytes_max: size(number("trailer-bytes-max")),
            header_timeout: time("header-timeout"),
            body_timeout: time("body-timeout"),
            body_min_rate: rate("body-min-rate"),
            send_timeout: time("send-timeout"),
            send_min_rate: rate("send-min-rate"),
            keep_alive_timeout: time("keep-alive-timeout"),
            body_bytes_max: number("body-bytes-max"),
            discard_bytes_max: number("discard-bytes-max"),
            connections_max: block.get("connections-max").map(|item| size(item.first().number())),
            connections_per_client: block.get("connections-per-client-max").map(|item| ClientConnectionLimit {
                connections_max: size(item.first().number()),
                enforcement: enforcement(item),
            }),
            shutdown_timeout: time("shutdown-timeout"),
            shutdown_notice: time("shutdown-notice"),
            http2: http2_limits(block),
            upstreams: UpstreamLimits {
                head_bytes_max: size(number("upstream-head-bytes-max")),
                idle_timeout: time("upstream-idle-timeout"),
                idle_connections_max: size(number("upstream-idle-connections-max")),
                idle_per_server_max: size(number("upstream-idle-per-server-max")),
            },
        };
        if limits.request_line_bytes_max > limits.head_bytes_max {
            let line = block.item("request-line-bytes-max").at;
            let problem = Problem::new(line, "`request-line-bytes-max` is larger than `head-bytes-max`");
            let problem = problem.suggest("write both `request-line-bytes-max` and `head-bytes-max`");
            self.problem(problem.see_also(block.item("head-bytes-max").at, "`head-bytes-max`"));
        }
        limits
    }
}

/// Returns whether connections of a listener begin with a header of the PROXY protocol.
fn listener_proxy_protocol(builder: &mut Builder<'_, '_>, top: &Block, item: &Item) -> Switch {
    let given = item.required("proxy-protocol");
    if given.flag() && !top.has_any(&["trusted-proxies"]) {
        let problem = Problem::new(given.at, "`proxy-protocol` without `trusted-proxies` closes every connection");
        builder
            .problem(problem.suggest("write `trusted-proxies NETWORK...` at the top with the addresses of the proxy"));
    }
    Switch::from(given.flag())
}

/// Reports addresses that another listener covers: the system binds only one of them.
fn check_overlaps(top: &Block, problems: &mut Vec<Problem>) {
    let address = |item: &Item| match &item.first().value {
        Value::Listen(address) => address.clone(),
        _ => unreachable!("the table requires an address"),
    };
    let all: Vec<_> = top.all("listen").map(|item| (address(item), item.first().at)).collect();
    for (own, at) in &all {
        let Address::Inet(inet) = own else { continue };
        if inet.ip().is_unspecified() {
            continue;
        }
        let covers = |other: &Address| {
            let by_family = wildcard_port(other, Family::of(inet)) == Some(inet.port());
            by_family || wildcard_port(other, Family::Ipv6) == Some(inet.port())
        };
        if let Some((other, place)) = all.iter().find(|(other, _)| covers(other)) {
            let problem = Problem::new(*at, "another listener covers this address").see_also(*place, "that listener");
            let Address::Inet(other) = other else { continue };
            problems.push(problem.suggest(format!("remove it; clients reach {inet} at {other}")));
        }
    }
}

/// Leaves IPv4 clients to a listener at `0.0.0.0` where `[::]` has its port.
fn separate_families(listeners: &mut [Listener]) {
    let ports: Vec<u16> =
        listeners.iter().filter_map(|listener| wildcard_port(&listener.address, Family::Ipv4)).collect();
    for listener in listeners {
        listener.is_ipv6_only =
            wildcard_port(&listener.address, Family::Ipv6).is_some_and(|port| ports.contains(&port));
    }
}

/// The family of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    fn of(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// Returns the port of `0.0.0.0` or `[::]`. Port 0 is a different port each time.
fn wildcard_port(address: &Address, family: Family) -> Option<u16> {
    match address {
        Address::Inet(address) if Family::of(address) == family && address.ip().is_unspecified() => {
            Some(address.port()).filter(|&port| port != 0)
        }
        _ => None,
    }
}

/// Builds the listener of metrics.
fn metrics(
    builder: &mut Builder<'_, '_>,
    top: &Block,
    (listeners, remote): (&[Listener], Option<&RemoteControl>),
) -> Option<Listener> {
    let given = top.get("metrics")?.first();
    let Value::Listen(address) = &given.value else { unreachable!("the table requires an address") };
    let address = address.clone();
    let mut others = listeners.iter().cloned().chain(remote.map(RemoteControl::listener));
    // Also for port 0: a socket is known by the address of its setting.
    if others.any(|other| other.address == address) {
        let problem = Problem::new(given.at, "another listener has this address and port");
        builder.problem(problem.suggest("write another port, or use the action `metrics` in a route"));
        return None;
    }
    builder.require(given.at, MachineRequirementKind::ListenAddress(address.clone()));
    let mode = if matches!(address, Address::Unix(_)) { METRICS_SOCKET_MODE } else { 0 };
    let (tls, plain_http2, proxy_protocol) = (Switch::Off, Switch::Off, Switch::Off);
    Some(Listener { address, mode, is_ipv6_only: false, tls, plain_http2, proxy_protocol })
}

fn trusted_proxies(top: &Block) -> TrustedProxies {
    let Some(item) = top.get("trusted-proxies") else {
        return TrustedProxies { networks: Vec::new(), unix: Switch::Off, field: ForwardedField::XForwardedFor };
    };
    TrustedProxies {
        networks: networks(&item.arguments),
        unix: Switch::from(item.arguments.iter().any(|given| given.value == Value::Unix)),
        field: match item.required("header").text() {
            "forwarded" => ForwardedField::Forwarded,
            _ => ForwardedField::XForwardedFor,
        },
    }
}

/// Converts a number. The ranges of the table keep it below `usize`.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Builds the limits of HTTP/2 connections.
fn http2_limits(block: &Block) -> Http2Limits {
    let number = |name: &str| u32::try_from(block.item(name).first().number()).expect("its range is within u32");
    let milliseconds = |name: &str| u64::try_from(block.item(name).first().time().as_millis()).unwrap_or(u64::MAX);
    Http2Limits {
        streams_max: number("http2-streams-max"),
        frame_bytes_max: number("http2-frame-bytes-max"),
        sent_frame_bytes_max: number("http2-sent-frame-bytes-max"),
        stream_window_bytes: number("http2-stream-window-bytes"),
        connection_window_bytes: number("http2-connection-window-bytes"),
        decoder_table_bytes_max: number("http2-table-bytes-max"),
        encoder_table_bytes_max: number("http2-table-bytes-max"),
        field_block_bytes_max: number("http2-field-block-bytes-max"),
        continuation_frames_max: number("http2-continuations-max"),
        settings_timeout_ms: milliseconds("http2-settings-timeout"),
        shutdown_notice_ms: milliseconds("http2-shutdown-notice"),
        turn_bytes: number("http2-turn-bytes"),
        budget_points: number("http2-budget"),
        budget_points_per_second: number("http2-budget-per-second"),
        ..Http2Limits::default()
    }
}
