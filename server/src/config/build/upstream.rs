//! Upstreams: groups of servers that requests are forwarded to.

use super::{Builder, KnownUpstream, MachineRequirementKind};
use crate::config::model::{
    Adaptive, Balance, CertificateFiles, Failures, HashKey, HealthCheck, Listener, ProxyProtocol, RequestLimit,
    Upstream, UpstreamProtocol, UpstreamServer, UpstreamTimeouts, UpstreamTls,
};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::settings::BlockKind;
use crate::config::suggest::suggestion;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::{Address, ServerAddress, ServerPlace, ServerScheme, Value, is_address, read_url};
use crate::syntax::Pattern;
use std::net::IpAddr;

/// Builds the upstreams that the configuration declares.
pub(super) fn declared_upstreams(builder: &mut Builder<'_, '_>, top: &Block) {
    for item in top.all("upstream") {
        let given = item.first();
        let upstream = upstream(builder, item);
        check_name(builder, given, &upstream);
        if let Some(first) = builder.upstreams.iter().find(|known| known.upstream.name == upstream.name) {
            let problem = Problem::new(given.at, format!("upstream `{}` is repeated", upstream.name));
            let problem = problem.see_also(first.at, "the first one");
            builder.problem(problem.suggest("move its servers to the first one, or give it another name"));
            continue;
        }
        builder.upstreams.push(KnownUpstream { upstream, at: given.at, is_used: false });
    }
}

/// Refuses a name that a route could not distinguish from an URL. The URLs of a route are the name of their group.
fn check_name(builder: &mut Builder<'_, '_>, given: &SpannedValue, upstream: &Upstream) {
    let is_name = given.text().starts_with(|c: char| c.is_ascii_alphabetic())
        && given.text().bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let is_of_urls = given.text() == name_of(&upstream.servers);
    if (!is_name || given.text() == "localhost") && !is_of_urls {
        let what = format!("`{}` is not a name of an upstream", given.text().escape_debug());
        builder.problem(Problem::new(given.at, what).suggest("use letters, digits, `-` and `_`, as in \"app\""));
    }
}

fn upstream(builder: &mut Builder<'_, '_>, item: &Item) -> Upstream {
    let block = item.block();
    let servers = servers(builder, item);
    let time = |name: &str| block.item(name).first().time();
    let upstream = Upstream {
        name: item.first().text().to_owned(),
        servers,
        balance: balance(builder, block.item("balance")),
        health: block.get("health").map(|item| health(builder, item)),
        failures: failures(builder, block.item("failures")),
        slow_start: time("slow-start"),
        requests: block.get("requests-max").map(|item| request_limit(builder, item)),
        adaptive: match block.item("adaptive").first().text() {
            "observe" => Adaptive::Observe,
            "on" => Adaptive::On,
            _ => Adaptive::Off,
        },
        protocol: match block.item("protocol").first().text() {
            "http2" => UpstreamProtocol::Http2,
            _ => UpstreamProtocol::Http1,
        },
        proxy_protocol: block.get("proxy-protocol").map(|item| match item.first().text() {
            "v1" => ProxyProtocol::V1,
            _ => ProxyProtocol::V2,
        }),
        timeouts: UpstreamTimeouts {
            connect: time("connect-timeout"),
            response: time("response-timeout"),
            silence: time("silence-timeout"),
            tunnel: time("tunnel-timeout"),
        },
        tls: block.get("tls").map(|item| upstream_tls(builder, item)).unwrap_or_default(),
    };
    check_tls(builder, item, &upstream);
    upstream
}

fn servers(builder: &mut Builder<'_, '_>, item: &Item) -> Vec<UpstreamServer> {
    let block = item.block();
    let mut servers: Vec<UpstreamServer> = Vec::new();
    for line in block.all("server") {
        let weight = u16::try_from(line.required("weight").number()).expect("its range is within u16");
        for given in &line.arguments {
            let Value::Server(address) = &given.value else { unreachable!("the table requires a server") };
            if servers.iter().any(|server| server.address == *address) {
                let problem = Problem::new(given.at, format!("server `{address}` is repeated"));
                builder.problem(problem.suggest("remove it; `weight` gives a server a larger share"));
                continue;
            }
            check_loop(builder, address, given.at);
            servers.push(UpstreamServer { address: address.clone(), weight });
        }
    }
    if servers.is_empty() && !block.has_any(&["server"]) {
        let problem = Problem::new(item.at, "an upstream without a server");
        builder.problem(problem.suggest("write `server \"http://host:port\"` in its block"));
    }
    servers
}

/// Refuses a server that is a listener of this configuration: requests would return to it.
fn check_loop(builder: &mut Builder<'_, '_>, address: &ServerAddress, at: Span) {
    if builder.listeners.iter().any(|listener| is_listener(&address.place, listener)) {
        let problem = Problem::new(at, "this is a listener of this configuration: requests would return to it");
        builder.problem(problem.suggest("write the address of the application; `rewrite` leads to another route"));
    }
}

fn balance(builder: &mut Builder<'_, '_>, item: &Item) -> Balance {
    let word = item.first().text().to_owned();
    let (key, cookie) = (item.property("by"), item.property("cookie"));
    for (name, owner) in [("by", "hash"), ("cookie", "sticky"), ("secret", "sticky")] {
        if let Some(given) = item.property(name).filter(|_| word != owner) {
            let problem = Problem::new(given.at, format!("`{name}` has no effect with `{word}`"));
            builder.problem(problem.suggest(format!("remove it, or write `balance \"{owner}\"`")));
        }
    }
    match (word.as_str(), key, cookie) {
        ("hash", Some(key), _) => Balance::Hash(hash_key(key.text())),
        ("sticky", _, Some(cookie)) => {
            let secret = item.property("secret");
            if let Some(given) = secret {
                builder.require(given.at, MachineRequirementKind::KeyFile(given.path().to_owned()));
            }
            Balance::Sticky { cookie: cookie.text().to_owned(), secret: secret.map(|secret| secret.path().to_owned()) }
        }
        ("hash" | "sticky", ..) => {
            let (what, instead) = match word.as_str() {
                "hash" => ("`hash` without `by`", "write, for example, `balance \"hash\" by=\"path\"`"),
                _ => ("`sticky` without `cookie`", "write, for example, `balance \"sticky\" cookie=\"server\"`"),
            };
            if item.invalid.is_empty() {
                builder.problem(Problem::new(item.at, what).suggest(instead));
            }
            Balance::LeastLoaded
        }
        ("round-robin", ..) => Balance::RoundRobin,
        _ => Balance::LeastLoaded,
    }
}

fn health(builder: &mut Builder<'_, '_>, item: &Item) -> HealthCheck {
    let Value::Statuses(first, last) = item.required("expect").value else {
        unreachable!("the table requires statuses")
    };
    let host = item.required("host");
    if host.text() == "keep" {
        let problem = Problem::new(host.at, "a check has no client whose host it could keep");
        builder.problem(problem.suggest("write \"upstream\", the default, or a host"));
    }
    let (every, timeout) = (item.required("every").time(), item.required("timeout"));
    let is_default = timeout.at == item.at;
    let health = HealthCheck {
        path: item.required("path").text().to_owned(),
        every,
        timeout: if is_default { timeout.time().min(every) } else { timeout.time() },
        expect: (first, last),
        host: Some(host.text()).filter(|host| *host != "upstream").map(str::to_owned),
    };
    if health.timeout > health.every {
        let problem = Problem::new(item.at, "`timeout` of a check is longer than `every`");
        builder.problem(problem.suggest("shorten `timeout`, or write a longer `every`"));
    }
    health
}

fn failures(builder: &mut Builder<'_, '_>, item: &Item) -> Failures {
    let time = |name| item.required(name).time();
    let failures = Failures {
        failures_max: u32::try_from(item.first().number()).expect("its range is within u32"),
        window: time("per"),
        ejection: time("eject"),
        ejection_max: time("eject-max"),
    };
    if failures.ejection > failures.ejection_max {
        let problem = Problem::new(item.at, "`eject` is longer than `eject-max`");
        builder.problem(problem.suggest("write both `eject` and `eject-max`"));
    }
    failures
}

fn request_limit(builder: &mut Builder<'_, '_>, item: &Item) -> RequestLimit {
    let number = |given: &SpannedValue| u32::try_from(given.number()).expect("its range is within u32");
    let queue = item.required("queue");
    let timeout = item.required("queue-timeout");
    if number(queue) == 0 && timeout.at != item.at {
        let problem = Problem::new(timeout.at, "`queue-timeout` without `queue` has no effect");
        builder.problem(problem.suggest("write, for example, `queue=200`, or remove it"));
    }
    RequestLimit { requests_max: number(item.first()), queue_max: number(queue), queue_timeout: timeout.time() }
}

fn upstream_tls(builder: &mut Builder<'_, '_>, item: &Item) -> UpstreamTls {
    let block = item.block();
    let authorities = builder.path(block, "ca");
    if let Some((path, at)) = authorities.clone() {
        builder.require(at, MachineRequirementKind::ClientAuthorities(path));
    }
    let server_name = block.get("server-name").and_then(|item| match &item.first().value {
        Value::Host(name @ crate::syntax::HostName::Exact(_)) => Some(name.clone()),
        _ => {
            let problem = Problem::new(item.first().at, "a server name has no wildcard");
            builder.problem(problem.suggest("write a name that the certificate has"));
            None
        }
    });
    let client_certificate = block.get("client-certificate").map(|item| {
        let chain = item.first();
        let key = item.property("key").unwrap_or(chain);
        let files = CertificateFiles { chain: chain.path().to_owned(), key: key.path().to_owned() };
        builder.require(chain.at, MachineRequirementKind::Certificate(files.clone()));
        files
    });
    UpstreamTls { authorities: authorities.map(|(path, _)| path), server_name, client_certificate }
}

/// Reports a `tls` block without effect, and https to an address whose certificate has no known name.
fn check_tls(builder: &mut Builder<'_, '_>, item: &Item, upstream: &Upstream) {
    let block = item.block();
    if let Some(tls) = block.get("tls").filter(|_| !upstream.has_tls() && !block.has_any_invalid(&["server"])) {
        let problem = Problem::new(tls.at, "`tls` has no effect without a server with an https URL");
        builder.problem(problem.suggest("write `server \"https://...\"`, or remove it"));
    }
    let has_name = upstream.tls.server_name.is_some() || block.has_any_invalid(&["tls"]);
    let lines = || block.all("server").flat_map(|line| &line.arguments);
    if let Some(given) = lines().find(|given| !has_name && is_https_to_address(given)) {
        builder.problem(https_without_name(given.at));
    }
}

/// Returns the name of the upstream that a route names: one of the configuration, or the group of its URLs.
pub(super) fn proxy_target(builder: &mut Builder<'_, '_>, item: &Item, patterns: &[Pattern]) -> String {
    // All targets may have been reported.
    let Some(given) = item.arguments.first() else { return String::new() };
    let known = builder.upstreams.iter_mut().find(|known| known.upstream.name == given.text());
    if let Some(known) = known.filter(|_| item.arguments.len() == 1) {
        known.is_used = true;
        return known.upstream.name.clone();
    }
    let mut servers: Vec<UpstreamServer> = Vec::new();
    for given in &item.arguments {
        let url = server_url(given.text(), patterns);
        let Some(address) = target_server(builder, (given, url), item.arguments.len()) else { continue };
        if servers.iter().any(|server| server.address == address) {
            let problem = Problem::new(given.at, format!("server `{address}` is repeated"));
            builder.problem(problem.suggest("remove it"));
        } else {
            servers.push(UpstreamServer { address, weight: 1 });
        }
    }
    let name = name_of(&servers);
    if let Some(known) = builder.upstreams.iter_mut().find(|known| known.upstream.name == name) {
        known.is_used = true;
    } else if !servers.is_empty() {
        let defaults = builder.reader.block(BlockKind::Upstream, &[], item.at);
        let upstream = default_upstream(builder, name.clone(), servers, &defaults);
        builder.upstreams.push(KnownUpstream { upstream, at: given.at, is_used: true });
    }
    name
}

fn default_upstream(
    builder: &mut Builder<'_, '_>,
    name: String,
    servers: Vec<UpstreamServer>,
    defaults: &Block,
) -> Upstream {
    let time = |name: &str| defaults.item(name).first().time();
    Upstream {
        name,
        servers,
        balance: Balance::LeastLoaded,
        health: None,
        failures: failures(builder, defaults.item("failures")),
        slow_start: time("slow-start"),
        requests: None,
        adaptive: Adaptive::Off,
        protocol: UpstreamProtocol::Http1,
        proxy_protocol: None,
        timeouts: UpstreamTimeouts {
            connect: time("connect-timeout"),
            response: time("response-timeout"),
            silence: time("silence-timeout"),
            tunnel: time("tunnel-timeout"),
        },
        tls: UpstreamTls::default(),
    }
}

/// Returns a URL without the slash that browsers write at its end, if the route has all paths. In a route with a prefix, other
/// servers take the prefix off for that slash, so it is refused there.
fn server_url<'t>(text: &'t str, patterns: &[Pattern]) -> &'t str {
    let host = text.split_once("://").map_or(text, |(_, host)| host);
    let is_root = host.len() > 1 && host.find('/') == Some(host.len() - 1) && !host.starts_with("unix:");
    let takes_all = patterns.iter().all(|pattern| pattern.to_string() == "/*");
    text.strip_suffix('/').filter(|_| is_root && takes_all).unwrap_or(text)
}

/// Reads one of the targets of a route as the URL of a server.
fn target_server(
    builder: &mut Builder<'_, '_>,
    (given, text): (&SpannedValue, &str),
    count: usize,
) -> Option<ServerAddress> {
    let names: Vec<&str> = builder.upstreams.iter().map(|known| known.upstream.name.as_str()).collect();
    if names.contains(&text) && count > 1 {
        let problem = Problem::new(given.at, format!("upstream `{text}` beside other targets"));
        builder.problem(problem.suggest("write the name of one upstream, or URLs of servers only"));
        return None;
    }
    if !is_address(text) {
        // An invalid upstream may be the one that is meant.
        if !builder.has_invalid_upstream {
            let instead = match names.is_empty() {
                true => format!(
                    "write `upstream \"{0}\" {{ server \"http://host:port\"; }}` at the top, or \"http://{0}:8080\"",
                    text.escape_debug()
                ),
                false => suggestion(text, names.into_iter()),
            };
            let problem = Problem::new(given.at, format!("no upstream is named `{}`", text.escape_debug()));
            builder.problem(problem.suggest(instead));
        }
        return None;
    }
    match read_url(text, builder.reader.base(given.at)) {
        Ok(address) => {
            check_loop(builder, &address, given.at);
            if address.scheme == ServerScheme::Https && matches!(address.place, ServerPlace::Inet(_)) {
                builder.problem(https_without_name(given.at));
            }
            Some(address)
        }
        Err(error) => {
            builder.problem(Problem::new(given.at, error.message).suggest(error.suggestion));
            None
        }
    }
}

/// Reports upstreams that no route names, and returns the others.
pub(super) fn used_upstreams(builder: &mut Builder<'_, '_>, top: &Block) -> Vec<Upstream> {
    // A site with a problem may name them.
    let are_sites_complete = !top.has_any_invalid(&["site"]) && top.all("site").all(|item| !item.has_problem);
    let upstreams = std::mem::take(&mut builder.upstreams);
    for unused in upstreams.iter().filter(|known| !known.is_used && are_sites_complete) {
        let name = &unused.upstream.name;
        let problem = Problem::new(unused.at, format!("no route uses the upstream `{name}`"));
        builder.problem(problem.suggest(format!("write `proxy \"{name}\"` in a route, or remove it")));
    }
    for (number, known) in upstreams.iter().enumerate() {
        builder.require(known.at, MachineRequirementKind::Upstream(number));
    }
    upstreams.into_iter().map(|known| known.upstream).collect()
}

/// Returns the name of a group of servers that a route names by their URLs.
fn name_of(servers: &[UpstreamServer]) -> String {
    servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(" ")
}

fn hash_key(text: &str) -> HashKey {
    match text.split_once(':') {
        Some(("header", name)) => HashKey::Header(name.to_owned()),
        Some((_, name)) => HashKey::Cookie(name.to_owned()),
        None if text == "path" => HashKey::Path,
        None => HashKey::Client,
    }
}

fn is_https_to_address(given: &SpannedValue) -> bool {
    matches!(&given.value, Value::Server(address)
        if address.scheme == ServerScheme::Https && matches!(address.place, ServerPlace::Inet(_)))
}

fn https_without_name(at: Span) -> Problem {
    Problem::new(at, "https to an IP address: the name in the certificate is not known")
        .suggest("write the host name in the URL, or `tls { server-name \"NAME\"; }` in an `upstream`")
}

/// Whether connections to a place reach a listener of this configuration.
pub(super) fn is_listener(place: &ServerPlace, listener: &Listener) -> bool {
    match (place, &listener.address) {
        (ServerPlace::Unix(path), Address::Unix(other)) => path == other,
        (ServerPlace::Inet(server), Address::Inet(listener)) => {
            let reaches = |own: IpAddr| own == server.ip() || own.is_unspecified() && server.ip().is_loopback();
            server.port() == listener.port() && reaches(listener.ip())
        }
        (ServerPlace::Name { host, port }, Address::Inet(listener)) => {
            let ip = listener.ip();
            host == "localhost" && *port == listener.port() && (ip.is_loopback() || ip.is_unspecified())
        }
        (ServerPlace::Name { host, port }, Address::Name { host: other, port: of_other }) => {
            host == other && port == of_other
        }
        _ => false,
    }
}
