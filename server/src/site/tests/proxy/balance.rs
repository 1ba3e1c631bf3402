//! Which server of a group gets a request, and which ones get none.

use super::*;
use std::num::NonZeroU32;
use std::thread;

fn named(names: [&'static str; 3]) -> ([TestUpstream; 3], Vec<std::net::SocketAddr>) {
    let upstreams = names.map(TestUpstream::with_content);
    let addresses = upstreams.iter().map(|upstream| upstream.address).collect();
    (upstreams, addresses)
}

#[test]
fn round_robin_takes_turns() {
    let (_upstreams, addresses) = named(["a", "b", "c"]);
    let server = proxy(rules(UpstreamRules { balance: Balance::RoundRobin, ..group(&addresses) }));
    let contents: String = (0..6).map(|_| server.get("/").content).collect();
    assert_eq!(contents, "abcabc");
}

#[test]
fn a_hash_keeps_a_key_at_its_server() {
    let (upstreams, addresses) = named(["a", "b", "c"]);
    for (key, line) in [
        (HashKey::Path, None),
        (HashKey::Field("x-key".into()), Some("X-Key")),
        (HashKey::Cookie("k".into()), Some("Cookie: other=1; k")),
    ] {
        let server = proxy(rules(UpstreamRules { balance: Balance::Hash(key), ..group(&addresses) }));
        let mut servers = std::collections::HashSet::new();
        for number in 0..12 {
            let line = line.map(|line| match line.contains(':') {
                true => format!("{line}={number}"),
                false => format!("{line}: {number}"),
            });
            let lines: Vec<&str> = line.as_deref().into_iter().collect();
            let target = if line.is_none() { format!("/{number}") } else { "/".to_owned() };
            let first = server.get_with(&target, &lines).content;
            assert_eq!(server.get_with(&target, &lines).content, first);
            servers.insert(first);
        }
        assert!(servers.len() > 1, "12 keys are not all of one server");
    }
    assert!(upstreams.iter().map(TestUpstream::count).sum::<usize>() == 3 * 24);
}

#[test]
fn a_cookie_keeps_a_client_at_its_server() {
    let (_upstreams, addresses) = named(["a", "b", "c"]);
    let sticky = StickyRules { cookie: "node".into(), attributes: "; Path=/".into(), secret: [7; 32] };
    let balance = Balance::Sticky(sticky);
    let server = proxy(rules(UpstreamRules { balance: balance.clone(), ..group(&addresses) }));
    let first = server.get("/");
    let cookie = first.field("set-cookie").unwrap().strip_suffix("; Path=/").unwrap().to_owned();
    for _ in 0..10 {
        let next = server.get_with("/", &[&format!("Cookie: {cookie}")]);
        assert_eq!((&*next.content, next.field("set-cookie")), (&*first.content, None));
    }
    assert!(server.get_with("/", &["Cookie: node=0000"]).field("set-cookie").is_some(), "an invented one is replaced");
    // The server that the cookie names is dead: the client gets another one and its cookie.
    let at = ["a", "b", "c"].iter().position(|name| *name == first.content).unwrap();
    let rules_of_dead = UpstreamRules { balance, ..group(&addresses) };
    rules_of_dead.servers[at].addresses.replace([selvedge::client::Address::Tcp(closed_address())]);
    let moved = proxy(rules(rules_of_dead)).get_with("/", &[&format!("Cookie: {cookie}")]);
    assert_eq!(moved.status, 200);
    assert_ne!(moved.content, first.content);
    assert!(moved.field("set-cookie").is_some_and(|new| !new.starts_with(&cookie)));
}

#[test]
fn a_failing_server_gets_no_more_requests() {
    let failing = TestUpstream::new(|mut received| {
        received.respond(500, "", "failed");
        Then::Continue
    });
    let working = TestUpstream::with_content("works");
    let rules = rules(UpstreamRules { balance: Balance::RoundRobin, ..group(&[failing.address, working.address]) });
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    rules.upstream.set_observer(Arc::new(move |event| seen.lock().unwrap().push(event.to_string())));
    let server = proxy(rules);
    let statuses: Vec<u16> = (0..20).map(|_| server.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 3);
    assert_eq!(failing.count(), 3);
    let expected = format!("http://{} of app gets no requests for 10s: status 500", failing.address);
    assert_eq!(*events.lock().unwrap(), [expected]);
}

#[test]
fn requests_beyond_the_capacity_wait_or_get_503() {
    let (sender, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let upstream = TestUpstream::new(move |mut received| {
        gate.lock().unwrap().recv().unwrap();
        received.respond(200, "", "done");
        Then::Continue
    });
    let mut group = group(&[upstream.address]);
    group.capacity = CapacityRules {
        requests_max: NonZeroU32::new(1),
        queue_max: 1,
        queue_timeout: Duration::from_secs(60),
        adaptive: AdaptiveMode::Off,
    };
    let server = Arc::new(proxy(rules(group)));
    let request = |server: &Arc<TestServer>| {
        let server = server.clone();
        thread::spawn(move || server.get("/").status)
    };
    let first = request(&server);
    until("the first request arrives", || upstream.count() == 1);
    // One of the next two waits, and the other one finds the queue full.
    let others = [request(&server), request(&server)];
    until("one is refused", || others.iter().any(|other| other.is_finished()));
    sender.send(()).unwrap();
    sender.send(()).unwrap();
    let mut statuses = others.map(|other| other.join().unwrap());
    statuses.sort_unstable();
    assert_eq!((first.join().unwrap(), statuses), (200, [200, 503]));
    assert_eq!(upstream.count(), 2);
}

#[test]
fn health_checks_take_servers_out_and_return_them() {
    let is_well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let state = is_well.clone();
    let checked = TestUpstream::new(move |mut received| {
        let is_check = received.text.starts_with("GET /healthz ");
        let status = if !is_check || state.load(Ordering::Relaxed) { 200 } else { 503 };
        received.respond(status, "", if is_check { "" } else { "checked" });
        Then::Continue
    });
    let other = TestUpstream::new(|mut received| {
        let is_check = received.text.starts_with("GET /healthz ");
        received.respond(200, "", if is_check { "" } else { "other" });
        Then::Continue
    });
    let check = HealthCheck {
        path: "/healthz".into(),
        host: None,
        every: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
        expect: 200..=299,
    };
    let rules = rules(UpstreamRules {
        balance: Balance::RoundRobin,
        check: Some(check),
        ..group(&[checked.address, other.address])
    });
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    rules.upstream.set_observer(Arc::new(move |event| seen.lock().unwrap().push(event.to_string())));
    let server = proxy(rules);
    until("a check fails", || !events.lock().unwrap().is_empty());
    assert!((0..6).all(|_| server.get("/").content == "other"));
    is_well.store(true, Ordering::Relaxed);
    until("a check passes", || events.lock().unwrap().len() == 2);
    assert!((0..6).any(|_| server.get("/").content == "checked"));
    let events = events.lock().unwrap().clone();
    assert!(events[0].contains("failed its health check: status 503") && events[1].contains("passed"), "{events:?}");
}

#[test]
fn requests_get_503_if_all_servers_fail_their_checks() {
    let is_well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let states = [is_well.clone(), is_well.clone()];
    let upstreams = states.map(|state| {
        TestUpstream::new(move |mut received| {
            let is_check = received.text.starts_with("GET /healthz ");
            received.respond(if !is_check || state.load(Ordering::Relaxed) { 200 } else { 500 }, "", "");
            Then::Continue
        })
    });
    for addresses in [&[upstreams[0].address][..], &[upstreams[0].address, upstreams[1].address]] {
        is_well.store(false, Ordering::Relaxed);
        let check = HealthCheck {
            path: "/healthz".into(),
            host: None,
            every: Duration::from_millis(20),
            timeout: Duration::from_secs(5),
            expect: 200..=299,
        };
        let rules = rules(UpstreamRules { check: Some(check), ..group(addresses) });
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        rules.upstream.set_observer(Arc::new(move |event| seen.lock().unwrap().push(event.to_string())));
        let server = proxy(rules);
        until("all checks fail", || events.lock().unwrap().len() == addresses.len());
        let response = server.get("/");
        assert_eq!(response.status, 503);
        assert!(response.field("retry-after").is_some());
        let logged = server.logged().upstream.unwrap();
        assert!(logged.contains("all servers of the upstream fail their health checks"), "{logged}");
        is_well.store(true, Ordering::Relaxed);
        until("a check passes", || events.lock().unwrap().len() > addresses.len());
        assert_eq!(server.get("/").status, 200);
    }
}
