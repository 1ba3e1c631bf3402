//! Gates before sites and routes.

use super::*;
use base64ct::{Base64, Encoding};
use std::time::Instant;

/// Ann's password is `U*U`.
const USERS: &str = "ann:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
/// `ann:U*U`
const ANN: &str = "Authorization: Basic YW5uOlUqVQ==";

fn basic(mode: Mode) -> Arc<BasicGate> {
    Arc::new(BasicGate::new("the house", Arc::new(Users::parse(USERS).unwrap()), mode).unwrap())
}

fn gated(gates: Gates, routes: Vec<Route>) -> SiteRules {
    SiteRules { gates, ..site("*", routes) }
}

#[test]
fn users_need_their_password() {
    let folder = Folder::new(&[("a.txt", "a")]);
    let gates = Gates { basic: Some(basic(Mode::Enforce)), ..Gates::default() };
    let guarded = Route { gates: Some(gates), ..route("/house/*", say("welcome")) };
    let served = Served::one(vec![guarded, route("/*", Action::Files(folder.files()))]);
    let refused = served.get("/house/x");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some("Basic realm=\"the house\", charset=\"UTF-8\""));
    let logged = served.logged();
    assert_eq!((logged.reason, logged.user), (None, None), "every first visit is one of these");
    assert_eq!(served.get_with("/house/x", &[ANN]).said(), (200, "welcome"));
    assert_eq!(served.logged().user.as_deref(), Some("ann"));
    // `ann:wrong`, `eve:U*U`, the right one twice, another scheme.
    for lines in [
        &["Authorization: Basic YW5uOndyb25n"][..],
        &["Authorization: Basic ZXZlOlUqVQ=="],
        &[ANN, ANN],
        &["Authorization: Bearer YW5uOlUqVQ=="],
    ] {
        assert_eq!(served.get_with("/house/x", lines).status, 401, "{lines:?}");
        assert_eq!(served.logged().user, None);
    }
    assert_eq!(served.get_with("/a.txt", &["Authorization: Basic YW5uOndyb25n"]).said(), (200, "a"));
}

#[test]
fn no_rewrite_gets_around_the_gates_of_a_route() {
    let folder = Folder::new(&[("files/secret.txt", "secret"), ("store/secret.txt", "stored"), ("kept/a.txt", "kept")]);
    let rewrite = |target: &str| Action::Rewrite(Template::parse_path(target).unwrap());
    let gates = || Some(Gates { basic: Some(basic(Mode::Enforce)), ..Gates::default() });
    let served = Served::one(vec![
        Route { gates: gates(), ..route("/files/*", rewrite("/store/*")) },
        Route { gates: gates(), ..route("/kept/*", Action::Files(folder.files())) },
        route("/byrw", rewrite("/files/secret.txt")),
        route("/tokept", rewrite("/kept/a.txt")),
        route("/*", Action::Files(folder.files())),
    ]);
    for target in ["/files/secret.txt", "/byrw", "/tokept"] {
        assert_eq!(served.get(target).status, 401, "{target}");
    }
    assert_eq!(served.get_with("/files/secret.txt", &[ANN]).said(), (200, "stored"));
    assert_eq!(served.get_with("/byrw", &[ANN]).status, 404, "who has passed is rewritten once and no more");
    assert_eq!(served.get_with("/tokept", &[ANN]).said(), (200, "kept"));
}

#[test]
fn the_next_request_of_a_connection_is_nobodys() {
    let gates = Gates { basic: Some(basic(Mode::Observe)), ..Gates::default() };
    let label = SiteRules { label: 3, ..gated(gates, vec![route("/*", say("in"))]) };
    let served = Served::new(vec![SiteRules { names: vec!["a.test".parse().unwrap()], ..label }]);
    let first = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{ANN}\r\n\r\n");
    let next = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    served.exchange(&format!("{first}{next}{last}"));
    let _ = served.logged();
    let log = served.log.0.lock().unwrap().clone();
    let known: Vec<_> = log.iter().map(|logged| (logged.status, logged.user.as_deref(), logged.label)).collect();
    assert_eq!(known, [(200, Some("ann"), 3), (200, None, 3)]);
}

#[test]
fn a_password_is_checked_once_for_many_files() {
    let folder = Folder::new(&[("a.txt", "a")]);
    // Cost 10 takes long enough to be seen.
    let salt = *b"sixteen octets..";
    let hash = bcrypt::hash_with_salt("U*U", 10, salt).unwrap().format_for_version(bcrypt::Version::TwoY);
    let users = Arc::new(Users::parse(&format!("ann:{hash}")).unwrap());
    let gate = Arc::new(BasicGate::new("x", users, Mode::Enforce).unwrap());
    let gates = Gates { basic: Some(gate.clone()), ..Gates::default() };
    let served = Served::new(vec![gated(gates, vec![route("/*", Action::Files(folder.files()))])]);
    let began = Instant::now();
    assert_eq!(served.get_with("/a.txt", &[ANN]).status, 200);
    let first = began.elapsed();
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(served.get_with("/a.txt", &[ANN]).said(), (200, "a"));
    }
    assert!(began.elapsed() < first * 10, "50 requests took {:?}, the first one {first:?}", began.elapsed());
    assert_eq!(served.get("/a.txt").status, 401, "what was found for a user is not kept for strangers");
    assert_eq!(gate.tally().get(), 1);
}

#[test]
fn who_tries_passwords_shuts_nobody_out() {
    let salt = *b"sixteen octets..";
    let hash = bcrypt::hash_with_salt("U*U", 10, salt).unwrap().format_for_version(bcrypt::Version::TwoY);
    let users = Arc::new(Users::parse(&format!("ann:{hash}")).unwrap());
    let gates = Gates { basic: Some(Arc::new(BasicGate::new("x", users, Mode::Enforce).unwrap())), ..Gates::default() };
    let proxies = TrustedProxies {
        networks: vec!["127.0.0.1".parse().unwrap()],
        unix: UnixPeers::Strangers,
        field: ForwardingField::XForwardedFor,
    };
    let rules = SiteRules { proxies: Some(proxies), ..gated(gates, vec![route("/*", say("x"))]) };
    let served = Served::new(vec![rules]);
    let tried: Vec<u16> = std::thread::scope(|scope| {
        let served = &served;
        let one = |number| {
            let wrong = Base64::encode_string(format!("ann:{number}").as_bytes());
            let line = format!("Authorization: Basic {wrong}");
            scope.spawn(move || served.get_with("/", &["X-Forwarded-For: 192.0.2.1", &line]).status)
        };
        let all: Vec<_> = (0..150).map(one).collect();
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..3 {
            assert_eq!(served.get_with("/", &["X-Forwarded-For: 192.0.2.2", ANN]).status, 200);
        }
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tried.iter().all(|status| matches!(status, 401 | 429)), "{tried:?}");
    assert!(tried.contains(&401) && tried.contains(&429), "{tried:?}");
}

#[test]
fn what_comes_together_with_one_password_is_checked_together() {
    let gates = Gates { basic: Some(basic(Mode::Enforce)), ..Gates::default() };
    let served = Served::new(vec![gated(gates, vec![route("/*", say("x"))])]);
    for line in [ANN, "Authorization: Basic YW5uOndyb25n"] {
        let expected = if line == ANN { 200 } else { 401 };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..40).map(|_| scope.spawn(|| served.get_with("/", &[line]).status)).collect();
            assert!(all.into_iter().all(|thread| thread.join().unwrap() == expected), "{line}");
        });
    }
}

#[test]
fn networks() {
    let gate = |allow: &[&str], deny: &[&str], mode| {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let rules = vec![(Access::Deny, read(deny)), (Access::Allow, read(allow))];
        let otherwise = if allow.is_empty() { Access::Allow } else { Access::Deny };
        Some(Arc::new(NetworkGate { rules, otherwise, mode, tally: Tally::default() }))
    };
    let only = |networks| Gates { networks, ..Gates::default() };
    let served = Served::new(vec![
        SiteRules {
            proxies: Some(TrustedProxies {
                networks: vec!["127.0.0.1".parse().unwrap()],
                unix: UnixPeers::Strangers,
                field: ForwardingField::XForwardedFor,
            }),
            ..gated(
                only(gate(&["192.0.2.0/24", "127.0.0.0/8"], &["192.0.2.66"], Mode::Enforce)),
                vec![route("/*", say("in"))],
            )
        },
        SiteRules {
            names: vec!["observed.test".parse().unwrap()],
            ..gated(only(gate(&[], &["127.0.0.0/8"], Mode::Observe)), vec![route("/*", say("in"))])
        },
        SiteRules {
            names: vec!["direct.test".parse().unwrap()],
            ..gated(only(gate(&["192.0.2.0/24"], &[], Mode::Enforce)), vec![route("/*", say("in"))])
        },
    ]);
    for (line, status, client) in [
        ("X-Forwarded-For: 192.0.2.1", 200, "192.0.2.1"),
        ("X-Forwarded-For: 192.0.2.66", 403, "192.0.2.66"),
        ("X-Forwarded-For: 192.0.2.1, 198.51.100.1", 403, "198.51.100.1"),
        ("X-Forwarded-For: 192.0.2.1, unknown", 403, "0.0.0.0"),
        ("Forwarded: for=198.51.100.1", 200, "127.0.0.1"),
    ] {
        assert_eq!(served.get_with("/", &[line]).status, status, "{line}");
        let logged = served.logged();
        assert_eq!(logged.client, client, "{line}");
        let reason = match client {
            "0.0.0.0" => "a proxy did not say who the client is",
            _ => "the client's network is not allowed",
        };
        assert_eq!(logged.reason, (status == 403).then_some(reason), "{line}");
    }
    // Without trust in the peer, what it says counts for nothing.
    assert_eq!(served.ask("GET", "/", "direct.test", &["X-Forwarded-For: 192.0.2.1"]).status, 403);
    assert_eq!(served.logged().client, "127.0.0.1");
    let waiting = "POST / HTTP/1.1\r\nHost: direct.test\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(served.exchange(waiting).status, 403, "whoever is refused need not send content");
    served.clear_log();
    assert_eq!(served.ask("GET", "/", "observed.test", &[]).said(), (200, "in"));
    assert_eq!(served.logged().reason, Some("the client's network is not allowed (only observed)"));
}

#[test]
fn rates() {
    let gate = |mode| {
        let rate = Rate { requests: 1, period: Duration::from_secs(3600), burst: 3 };
        Arc::new(RateGate::new(rate, 1024, mode).unwrap())
    };
    let folder = Folder::new(&[("a.txt", "a")]);
    let (enforced, observed) = (gate(Mode::Enforce), gate(Mode::Observe));
    let only = |rate: &Arc<RateGate>| Gates { rate: Some(rate.clone()), ..Gates::default() };
    let files = || route("/*", Action::Files(folder.files()));
    let served = Served::new(vec![
        gated(only(&enforced), vec![files()]),
        SiteRules { names: vec!["observed.test".parse().unwrap()], ..gated(only(&observed), vec![files()]) },
    ]);
    settle();
    for number in 0..5 {
        let answer = served.get("/a.txt");
        assert_eq!(answer.status, if number < 3 { 200 } else { 429 }, "{number}");
        assert_eq!(answer.field("retry-after").is_some(), number >= 3);
    }
    let wait: u64 = served.get("/a.txt").field("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(served.logged().reason, Some("the client asks more often than it may"));
    assert_eq!(enforced.tally().get(), 3);
    for number in 0..5 {
        assert_eq!(served.ask("GET", "/a.txt", "observed.test", &[]).said(), (200, "a"));
        let reason = served.logged().reason;
        assert_eq!(reason.is_some(), number >= 3, "{number} {reason:?}");
    }
    assert_eq!(observed.tally().get(), 2);
}

#[test]
fn users_who_are_only_observed() {
    let gates = Gates { basic: Some(basic(Mode::Observe)), ..Gates::default() };
    let served = Served::new(vec![gated(gates, vec![route("/*", say("in"))])]);
    assert_eq!(served.get("/").said(), (200, "in"));
    assert_eq!(served.logged().reason, Some("no user (only observed)"));
    assert_eq!(served.get_with("/", &[ANN]).said(), (200, "in"));
    let logged = served.logged();
    assert_eq!((logged.user.as_deref(), logged.reason), (Some("ann"), None));
}

#[test]
fn connections_of_a_client() {
    let gate = ConnectionGate::new(1, vec![], Mode::Enforce);
    let table = Arc::new(SiteTable::new(vec![site("*", vec![route("/*", say("in"))])]).unwrap());
    let asked = gate.clone();
    let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap();
    let server = server.admit(move |peer| asked.admit(peer.ip()));
    let running = server.serve_each(move || Sites::new(table.clone(), 2)).unwrap();
    let connect = || TcpStream::connect(running.addresses()[0]).unwrap();
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    let mut first = connect();
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"));
    let mut refused = String::new();
    connect().read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"), "the one that is served goes on");
    assert_eq!(gate.tally().get(), 1);
    drop(first);
    let served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut next = connect();
        next.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        next.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    });
    assert!(served, "the place of a connection that ended is free");
    running.handle().stop_now();
    running.join();
}
