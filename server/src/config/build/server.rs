//! Listeners, the process, limits, proxies.

use super::{Build, Claimed, enforcement, networks};
use crate::config::model::{
    ClientConnections, Driver, ExistingConnections, ForwardedField, Limits, Listener, Process, Settings, Supervision,
    Switch, TrustedProxies,
};
use crate::config::place::Span;
use crate::config::problem::Problem;
use crate::config::settings::Place;
use crate::config::tree::Block;
use crate::config::value::{Address, Value};
use std::collections::HashMap;
use std::time::Duration;

/// Who may connect to a Unix socket when nothing is said: everybody, as with a port.
const SOCKET_MODE: u32 = 0o666;

impl Build<'_, '_> {
    pub(super) fn settings(&mut self, top: &Block) -> Settings {
        let limits = match top.get("limits") {
            Some(item) => self.limits(item.inside()),
            None => {
                let defaults = self.reader.block(Place::Limits, &[], top.at);
                self.limits(&defaults)
            }
        };
        let logs = match top.get("log") {
            Some(item) => self.logs(item.inside()),
            None => {
                let defaults = self.reader.block(Place::Log, &[], top.at);
                self.logs(&defaults)
            }
        };
        Settings {
            listeners: self.listeners(top),
            process: self.process(top),
            trusted_proxies: trusted_proxies(top),
            sites: self.sites(top, limits.body_bytes_max),
            limits,
            logs,
        }
    }

    fn listeners(&mut self, top: &Block) -> Vec<Listener> {
        let mut seen: HashMap<Address, Span> = HashMap::new();
        let mut listeners = Vec::new();
        for item in top.all("listen") {
            let given = item.first();
            let Value::Listen(address) = &given.value else { unreachable!("the table says that it is an address") };
            let is_unix = matches!(address, Address::Unix(_));
            let mode = match item.property("mode") {
                Some(mode) if !is_unix => {
                    self.problem(
                        Problem::new(mode.at, "a mode without a Unix socket").instead("only `unix:/path` has one"),
                    );
                    0
                }
                Some(mode) => u32::try_from(mode.number()).expect("a mode has nine bits"),
                None if is_unix => SOCKET_MODE,
                None => 0,
            };
            // Port 0 is another port each time.
            let is_free_port = matches!(address, Address::Inet(address) if address.port() == 0);
            match seen.insert(address.clone(), given.at) {
                Some(first) if !is_free_port => {
                    let problem = Problem::new(given.at, "an address a second time").beside(first, "the first");
                    self.problem(problem.instead("one of them has to go"));
                }
                _ => self.claim(given.at, Claimed::Listens(address.clone())),
            }
            listeners.push(Listener { address: address.clone(), mode });
        }
        listeners
    }

    fn process(&mut self, top: &Block) -> Process {
        let account = |name| top.get(name).map(|item| (item.first().text().to_owned(), item.first().at));
        let (user, group) = (account("user"), account("group"));
        if let Some((user, at)) = user.clone() {
            self.claim(at, Claimed::User(user));
        }
        if let Some((group, at)) = group.clone() {
            self.claim(at, Claimed::Group(group));
        }
        let pid_file = self.path(top, "pid-file");
        if let Some((path, at)) = pid_file.clone() {
            self.claim(at, Claimed::PidFile(path));
        }
        let control = top.one("control").first();
        self.claim(control.at, Claimed::SocketFolder(control.path().to_owned()));
        let existing_connections = match top.one("existing-connections").first().text() {
            "follow" => ExistingConnections::Follow,
            _ => ExistingConnections::Finish,
        };
        let driver = match top.one("driver").first().text() {
            "epoll" => Driver::Epoll,
            "io_uring" => Driver::IoUring,
            _ => Driver::Auto,
        };
        let supervision = match top.get("supervision") {
            Some(item) => self.supervision(item.inside()),
            None => {
                let defaults = self.reader.block(Place::Supervision, &[], top.at);
                self.supervision(&defaults)
            }
        };
        Process {
            workers: top.get("workers").map(|item| size(item.first().number())),
            driver,
            user: user.map(|(user, _)| user),
            group: group.map(|(group, _)| group),
            pid_file: pid_file.map(|(path, _)| path),
            control: control.path().to_owned(),
            existing_connections,
            supervision,
        }
    }

    fn supervision(&mut self, block: &Block) -> Supervision {
        let time = |name| block.one(name).first().time();
        let supervision = Supervision {
            supervised: Switch::from(block.one("supervised").first().flag()),
            restarts_max: block.one("restarts-max").first().number(),
            restarts_within: time("restarts-within"),
            back_off_min: time("back-off-min"),
            back_off_max: time("back-off-max"),
        };
        if supervision.back_off_min > supervision.back_off_max {
            let problem = Problem::new(block.one("back-off-min").at, "the shortest wait is longer than the longest");
            let problem = problem.instead("say both `back-off-min` and `back-off-max`");
            self.problem(problem.beside(block.one("back-off-max").at, "the longest"));
        }
        supervision
    }

    fn limits(&mut self, block: &Block) -> Limits {
        let number = |name: &str| block.one(name).first().number();
        let time = |name: &str| -> Duration { block.one(name).first().time() };
        let rate = |name: &str| u32::try_from(number(name)).expect("its range is that of u32");
        let limits = Limits {
            request_line_bytes_max: size(number("request-line-bytes-max")),
            head_bytes_max: size(number("head-bytes-max")),
            fields_max: size(number("fields-max")),
            chunk_extension_bytes_max: size(number("chunk-extension-bytes-max")),
            chunk_overhead_bytes_free: number("chunk-overhead-bytes-free"),
            trailer_bytes_max: size(number("trailer-bytes-max")),
            head_time: time("head-time"),
            body_silence: time("body-silence"),
            body_bytes_per_second_min: rate("body-bytes-per-second-min"),
            send_silence: time("send-silence"),
            send_bytes_per_second_min: rate("send-bytes-per-second-min"),
            keep_alive: time("keep-alive"),
            body_bytes_max: number("body-bytes-max"),
            drain_bytes_max: number("drain-bytes-max"),
            connections_max: block.get("connections-max").map(|item| size(item.first().number())),
            connections_per_client: block.get("connections-per-client-max").map(|item| ClientConnections {
                connections_max: size(item.first().number()),
                enforcement: enforcement(item),
            }),
            drain_time: time("drain-time"),
        };
        if limits.request_line_bytes_max > limits.head_bytes_max {
            let line = block.one("request-line-bytes-max").at;
            let problem = Problem::new(line, "a request line may be longer than the head that it is part of");
            let problem = problem.instead("say both `request-line-bytes-max` and `head-bytes-max`");
            self.problem(problem.beside(block.one("head-bytes-max").at, "the head"));
        }
        limits
    }
}

fn trusted_proxies(top: &Block) -> TrustedProxies {
    let Some(item) = top.get("trusted-proxies") else {
        return TrustedProxies { networks: Vec::new(), unix: Switch::Off, field: ForwardedField::XForwardedFor };
    };
    TrustedProxies {
        networks: networks(&item.arguments),
        unix: Switch::from(item.arguments.iter().any(|given| given.value == Value::Unix)),
        field: match item.the("header").text() {
            "forwarded" => ForwardedField::Forwarded,
            _ => ForwardedField::XForwardedFor,
        },
    }
}

/// The ranges in the table keep what is counted in memory far below this.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
