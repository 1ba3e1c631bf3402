//! The differences between two configurations, in words.

mod details;

pub(crate) use details::details;

use crate::config::model::{Settings, Site, Upstream};
use crate::process::ListenAddress;
use std::collections::HashMap;

/// Most sites that are named; beyond that the number is given.
const SITES_MAX: usize = 20;

/// Returns one line for each difference; empty if none.
pub(crate) fn between(before: &Settings, now: &Settings) -> Vec<String> {
    let mut lines = listeners(before, now);
    let blocks = [
        ("log", before.logs != now.logs),
        ("limits", before.limits != now.limits),
        ("acme", before.acme != now.acme),
        ("certificate-folder", before.certificate_folder != now.certificate_folder),
        ("ticket-keys", before.ticket_keys != now.ticket_keys),
        ("traces", before.traces != now.traces),
        ("trusted-proxies", before.trusted_proxies != now.trusted_proxies),
    ];
    lines.extend(blocks.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| format!("changed: {name}")));
    lines.extend(upstreams(before, now));
    lines.extend(sites(&before.sites, &now.sites));
    lines
}

/// Returns the settings whose change takes effect at the next start.
pub(crate) fn at_next_start(before: &Settings, now: &Settings) -> Vec<&'static str> {
    let (old, new) = (&before.process, &now.process);
    let list = [
        ("workers", old.workers != new.workers),
        ("driver", old.driver != new.driver),
        ("user", old.user != new.user),
        ("group", old.group != new.group),
        ("pid-file", old.pid_file != new.pid_file),
        ("control", old.control != new.control || before.remote_control != now.remote_control),
        ("metrics", before.metrics != now.metrics),
        ("supervision", old.supervision != new.supervision),
        ("connections-max", before.limits.connections_max != now.limits.connections_max),
        ("limits of upstreams", before.limits.upstreams != now.limits.upstreams),
    ];
    list.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

fn listeners(before: &Settings, now: &Settings) -> Vec<String> {
    let places =
        |settings: &Settings| -> Vec<ListenAddress> { settings.listeners.iter().map(ListenAddress::from).collect() };
    let of_before =
        |address: &ListenAddress| before.listeners.iter().find(|other| ListenAddress::from(*other) == *address);
    let changed = now.listeners.iter().filter_map(|listener| {
        let address = ListenAddress::from(listener);
        of_before(&address).filter(|known| *known != listener).map(|_| format!("changed: listen {address}"))
    });
    let changed: Vec<_> = changed.collect();
    let (before, now) = (places(before), places(now));
    let new = now.iter().filter(|place| !before.contains(place)).map(|place| format!("listening on {place}"));
    let left =
        before.iter().filter(|place| !now.contains(place)).map(|place| format!("no longer listening on {place}"));
    new.chain(left).chain(changed).collect()
}

fn upstreams(before: &Settings, now: &Settings) -> Vec<String> {
    let change = |upstream: &Upstream| match before.upstream(&upstream.name) {
        Some(known) if known == upstream => None,
        Some(_) => Some(format!("changed: upstream {}", upstream.name)),
        None => Some(format!("new: upstream {}", upstream.name)),
    };
    let removed = before.upstreams.iter().filter(|upstream| now.upstream(&upstream.name).is_none());
    let removed = removed.map(|upstream| format!("removed: upstream {}", upstream.name));
    now.upstreams.iter().filter_map(change).chain(removed).take(SITES_MAX).collect()
}

fn sites(before: &[Site], now: &[Site]) -> Vec<String> {
    // No two sites share a name, so the first one identifies a site.
    let by_name = |sites: &[Site]| -> HashMap<String, usize> {
        sites.iter().enumerate().map(|(place, site)| (site.names[0].to_string(), place)).collect()
    };
    let (known, left) = (by_name(before), by_name(now));
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for site in now {
        match known.get(&site.names[0].to_string()) {
            Some(&place) if before[place] == *site => {}
            Some(_) => changed.push(site),
            None => new.push(site),
        }
    }
    let removed: Vec<&Site> = before.iter().filter(|site| !left.contains_key(&site.names[0].to_string())).collect();
    [("new", new), ("changed", changed), ("removed", removed)]
        .iter()
        .flat_map(|(what, sites)| named(what, sites))
        .collect()
}

fn named(what: &str, sites: &[&Site]) -> Vec<String> {
    let mut lines: Vec<String> =
        sites.iter().take(SITES_MAX).map(|site| format!("{what}: site {}", site.names[0])).collect();
    if sites.len() > SITES_MAX {
        lines.push(format!("{what}: {} more sites", sites.len() - SITES_MAX));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Disk;

    fn settings(text: &str) -> Settings {
        let file = std::env::temp_dir().join(format!("selvedge-changes-{}-{text:p}.kdl", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let read = crate::config::read(&file, &Disk);
        std::fs::remove_file(&file).unwrap();
        read.unwrap().settings
    }

    #[test]
    fn each_change_is_named() {
        let many: String = (0..23).map(|n| format!("site \"s{n}\" {{ route \"/*\" {{ deny; }}; }}\n")).collect();
        let a = "site \"a\" \"b\" { route \"/*\" { deny; }; }\n";
        let first = settings(&format!("listen \"127.0.0.1:0\"\n{a}site \"c\" {{ route \"/*\" {{ deny; }}; }}\n"));
        let second = settings(&format!(
            "listen \"127.0.0.1:0\"\nlisten \"[::1]:0\"\nlimits {{ fields-max 50; }}\nworkers 3\n\
             site \"a\" {{ route \"/*\" {{ deny; }}; }}\n{many}"
        ));
        let mut expected = vec!["listening on [::1]:0".to_owned(), "changed: limits".to_owned()];
        expected.extend((0..20).map(|n| format!("new: site s{n}")));
        expected.extend(["new: 3 more sites", "changed: site a", "removed: site c"].map(str::to_owned));
        assert_eq!(between(&first, &second), expected);
        assert_eq!(at_next_start(&first, &second), ["workers"]);
        let plain = settings(&format!("listen \"127.0.0.1:80\"\n{a}"));
        let http2 = settings(&format!("listen \"127.0.0.1:80\" http2=#true\n{a}"));
        assert_eq!(between(&plain, &http2), ["changed: listen 127.0.0.1:80"]);
        assert_eq!(between(&second, &second), [""; 0]);
        assert_eq!(between(&second, &first)[0], "no longer listening on [::1]:0");
    }

    #[test]
    fn each_changed_setting_has_its_value_before_and_now() {
        let first = settings(
            "listen \"127.0.0.1:80\"\nupstream \"u\" { server \"http://a.internal\"; }\n\
             site \"a\" {\nip-access { deny \"192.0.2.1\"; }\n\
             basic-auth { user \"ann\" \"$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\"; }\n\
             route \"/a\" { redirect \"/b\" status=301; }\nroute \"/x\" { deny; }\nroute \"/p/*\" { proxy \"u\"; }\n}\n",
        );
        let second = settings(
            "listen \"127.0.0.1:80\" http2=#true\nlimits { fields-max 50; }\n\
             upstream \"u\" { server \"http://a.internal\"; balance round-robin; }\n\
             site \"a\" {\nip-access { deny \"192.0.2.2\"; }\n\
             basic-auth { user \"bob\" \"$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\"; }\n\
             route \"/p/*\" { proxy \"u\"; }\nroute \"/a\" { redirect \"/c\" status=302; }\n\
             route \"/n\" { when { method \"PUT\"; }; respond 204; }\n}\n",
        );
        let lines = details(&first, &second);
        let expected = [
            "now listen \"127.0.0.1:80\" http2=#true, before listen \"127.0.0.1:80\"",
            "limits: now fields-max 50, before fields-max 100",
            "upstream u: now balance \"round-robin\", before balance \"least-loaded\"",
            "site a: now ip-access status=403 { deny \"192.0.2.2/32\" }, before ip-access status=403 { deny \"192.0.2.1/32\" }",
            "site a: now basic-auth realm=\"restricted\" wrong-max=20 wrong-time=\"10m\", before basic-auth \
             realm=\"restricted\" wrong-max=20 wrong-time=\"10m\"",
            "site a: route \"/a\": now redirect \"/c\" status=302, before redirect \"/b\" status=301",
            "site a: new: route \"/n\" when { method \"PUT\" }: respond 204 content-type=\"text/plain; charset=utf-8\"",
            "site a: removed: route \"/x\": deny status=403",
            "site a: the order of routes has changed, and the first match decides",
        ];
        assert_eq!(lines, expected);
        assert_eq!(details(&second, &second), [""; 0]);
    }
}
