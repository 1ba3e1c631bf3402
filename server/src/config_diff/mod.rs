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

/// Returns the settings in force in a server that has read these settings: those of [`at_next_start`] are the ones that it
/// was started with.
pub(crate) fn in_force(read: &Settings, at_start: &Settings) -> Settings {
    let mut settings = read.clone();
    settings.process = at_start.process.clone();
    settings.remote_control = at_start.remote_control.clone();
    settings.metrics = at_start.metrics.clone();
    settings.limits.connections_max = at_start.limits.connections_max;
    settings.limits.upstreams = at_start.limits.upstreams.clone();
    settings
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
            "site a: ip-access: now deny \"192.0.2.2/32\", before deny \"192.0.2.1/32\"",
            "site a: basic-auth: now user \"bob\", before user \"ann\"",
            "site a: route \"/a\": now redirect \"/c\" status=302, before redirect \"/b\" status=301",
            "site a: new: route \"/n\" when { method \"PUT\" }: respond 204 content-type=\"text/plain; charset=utf-8\"",
            "site a: removed: route \"/x\": deny status=403",
            "site a: the order of routes has changed, and the first match decides",
        ];
        assert_eq!(lines, expected);
        assert_eq!(details(&second, &second), [""; 0]);
    }

    #[test]
    fn each_setting_of_the_server_has_its_value_before_and_now_and_secrets_are_not_shown() {
        let text = |server: &str, site: &str| settings(&format!("{server}\nsite \"a\" {{ {site}; }}\n"));
        let first = text(
            "workers 2\nmetrics \"127.0.0.1:9000\"\nlog { access \"/var/log/a\"; }\n\
             traces \"http://c:4318/v1/traces\" { ratio 0.5; header \"Authorization\" \"secret-1\"; }\n\
             acme { email \"a@b.example\"; external-account \"secret-2\" file=\"/e\"; }",
            "root \"/srv/a\"; route \"/p/*\" { proxy \"http://u\" { header-up \"A\" \"secret-3\"; }; }; \
             route \"/f/*\" { files; }",
        );
        let second = text(
            "workers 3\nmetrics \"127.0.0.1:9001\"\nlog { access \"/var/log/b\" { rotate size=\"1MiB\"; }; }\n\
             traces \"http://d:4318/v1/traces\" { ratio 1.0; header \"Authorization\" \"secret-4\"; }\n\
             acme { email \"c@b.example\"; external-account \"secret-5\" file=\"/e\"; }\n\
             trusted-proxies \"10.0.0.0/8\"",
            "root \"/srv/b\"; route \"/p/*\" { proxy \"http://u\" { header-up \"A\" \"secret-6\"; }; }; \
             route \"/f/*\" { files { clean-urls #true; }; }; route \"/n\" { ip-access { allow \"10.0.0.0/8\"; }; proxy \"http://u\" { header-up \"A\" \"secret-7\"; }; }",
        );
        let lines = details(&first, &second);
        let expected = [
            r#"now workers 3, before workers 2"#,
            r#"new: trusted-proxies "10.0.0.0/8" header="x-forwarded-for""#,
            r#"now metrics "127.0.0.1:9001", before metrics "127.0.0.1:9000""#,
            r#"now traces "http://d:4318/v1/traces", before traces "http://c:4318/v1/traces""#,
            r#"traces "http://d:4318/v1/traces": now ratio 1, before ratio 0.5"#,
            r#"traces "http://d:4318/v1/traces": changed: header "Authorization", whose value is not shown"#,
            r#"acme: now email "c@b.example", before email "a@b.example""#,
            r#"acme: changed: external-account, whose value is not shown"#,
            r#"log: now access "/var/log/b" format="combined" { rotate size="1MiB" keep=10 compress=#true }, before access "/var/log/a" format="combined""#,
            r#"site a: now root "/srv/b", before root "/srv/a""#,
            r#"site a: route "/p/*": proxy "http://u:80": changed: header-up "A", whose value is not shown"#,
            r#"site a: route "/f/*": files: now clean-urls #true, before clean-urls #false"#,
        ];
        assert_eq!(lines[..expected.len()], expected);
        let new = r#"site a: new: route "/n": ip-access status=403 { allow "10.0.0.0/8" }; proxy "http://u:80" strip-prefix=#false { host "keep"; header-up "A"; "#;
        assert!(lines[expected.len()..].len() == 1 && lines[expected.len()].starts_with(new), "{lines:#?}");
    }

    #[test]
    fn another_order_of_the_settings_in_a_block_is_a_change() {
        let text =
            |rules: &str| settings(&format!("site \"a\" {{ ip-access {{ {rules} }}; route \"/*\" {{ deny; }}; }}\n"));
        let first = text("deny \"192.0.2.0/24\"; allow \"192.0.2.1\"");
        let second = text("allow \"192.0.2.1\"; deny \"192.0.2.0/24\"");
        let expected = "site a: ip-access: another order: now allow \"192.0.2.1/32\"; deny \"192.0.2.0/24\"";
        assert_eq!(details(&first, &second), [expected]);
        let text = |fields: &str| settings(&format!("site \"a\" {{ {fields}; route \"/*\" {{ deny; }}; }}\n"));
        let first = text("header \"A\" \"1\"; header-add \"A\" \"2\"");
        let second = text("header-add \"A\" \"2\"; header \"A\" \"1\"");
        let expected = "site a: another order: now header-add \"A\" \"2\"; header \"A\" \"1\"";
        assert_eq!(details(&first, &second), [expected]);
    }
}
