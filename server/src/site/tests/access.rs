//! Access rules of sites and routes.

use super::*;
use base64ct::{Base64, Encoding};
use std::time::Instant;

/// Ann's password is `U*U`.
const USERS: &str = "ann:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
/// `ann:U*U`
const ANN: &str = "Authorization: Basic YW5uOlUqVQ==";

fn basic(mode: RuleMode) -> Arc<BasicAuthenticator> {
    authenticator("the house", USERS, mode)
}

/// A rule that allows many wrong passwords.
fn authenticator(realm: &str, users: &str, mode: RuleMode) -> Arc<BasicAuthenticator> {
    authenticator_with(realm, users, mode, 1000)
}

fn authenticator_with(realm: &str, users: &str, mode: RuleMode, wrong_max: u32) -> Arc<BasicAuthenticator> {
    let users = Arc::new(LiveUsers::parse(None, users.to_owned()).unwrap());
    let guesses = Arc::new(GuessLimiter::new(wrong_max, Duration::from_secs(3600), mode).unwrap());
    Arc::new(BasicAuthenticator::new(realm, users, guesses, mode).unwrap())
}

fn with_access(access: AccessRules, routes: Vec<Route>) -> SiteRules {
    SiteRules { access, ..site("*", routes) }
}

#[test]
fn users_need_a_valid_password() {
    let folder = SiteDirectory::new(&[("a.txt", "a")]);
    let access = AccessRules { basic_auth: Some(basic(RuleMode::Enforce)), ..AccessRules::default() };
    let protected = Route { access: Some(access), ..route("/house/*", respond_with("welcome")) };
    let served = TestServer::one(vec![protected, route("/*", Action::Files(folder.files()))]);
    let refused = served.get("/house/x");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some("Basic realm=\"the house\", charset=\"UTF-8\""));
    let logged = served.logged();
    assert_eq!(
        (logged.reason, logged.user),
        (None, None),
        "a first visit without credentials is not logged with a reason"
    );
    assert_eq!(served.get_with("/house/x", &[ANN]).status_and_text(), (200, "welcome"));
    assert_eq!(served.logged().user.as_deref(), Some("ann"));
    // `ann:wrong`, `eve:U*U`, two Authorization lines, another scheme.
    for lines in [
        &["Authorization: Basic YW5uOndyb25n"][..],
        &["Authorization: Basic ZXZlOlUqVQ=="],
        &[ANN, ANN],
        &["Authorization: Bearer YW5uOlUqVQ=="],
    ] {
        assert_eq!(served.get_with("/house/x", lines).status, 401, "{lines:?}");
        assert_eq!(served.logged().user, None);
    }
    assert_eq!(served.get_with("/a.txt", &["Authorization: Basic YW5uOndyb25n"]).status_and_text(), (200, "a"));
}

#[test]
fn a_preflight_request_without_rules_of_cors_needs_a_password() {
    let access = AccessRules { basic_auth: Some(basic(RuleMode::Enforce)), ..AccessRules::default() };
    let served = TestServer::new(vec![with_access(access, vec![route("/*", respond_with("in"))])]);
    let preflight = ["Origin: https://a.example", "Access-Control-Request-Method: GET"];
    let refused = served.request("OPTIONS", "/", "a", &preflight);
    assert_eq!(refused.status, 401);
    let [origin, method] = preflight;
    assert_ne!(served.request("OPTIONS", "/", "a", &[origin, method, ANN]).status, 401);
}

#[test]
fn guessing_is_slowed_down_until_the_password_is_known() {
    let wrong = "Authorization: Basic YW5uOndyb25n";
    for (mode, expected) in [(RuleMode::Enforce, 429), (RuleMode::DryRun, 200)] {
        let rule = authenticator_with("x", USERS, mode, 3);
        let access = AccessRules { basic_auth: Some(rule), ..AccessRules::default() };
        let served = TestServer::new(vec![with_access(access, vec![route("/*", respond_with("in"))])]);
        let known = served.get_with("/", &[ANN]);
        assert_eq!(known.status, 200);
        for _ in 0..3 {
            served.get_with("/", &[wrong]);
        }
        let refused = served.get_with("/", &[wrong]);
        assert_eq!(refused.status, expected);
        assert_eq!(refused.field("retry-after").is_some(), mode == RuleMode::Enforce);
        let reason = served.logged().reason;
        assert!(reason.is_some_and(|reason| reason.contains("wrong")), "{reason:?}");
        assert_eq!(served.get_with("/", &[ANN]).status, 200, "a password that is known to be right still counts");
    }
}

#[test]
fn rewrites_do_not_bypass_access_rules() {
    let folder =
        SiteDirectory::new(&[("files/secret.txt", "secret"), ("store/secret.txt", "stored"), ("kept/a.txt", "kept")]);
    let rewrite = |target: &str| Action::Rewrite(Template::parse_path(target).unwrap());
    let access = || Some(AccessRules { basic_auth: Some(basic(RuleMode::Enforce)), ..AccessRules::default() });
    let served = TestServer::one(vec![
        Route { access: access(), ..route("/files/*", rewrite("/store/*")) },
        Route { access: access(), ..route("/kept/*", Action::Files(folder.files())) },
        route("/byrw", rewrite("/files/secret.txt")),
        route("/tokept", rewrite("/kept/a.txt")),
        route("/*", Action::Files(folder.files())),
    ]);
    for target in ["/files/secret.txt", "/byrw", "/tokept"] {
        assert_eq!(served.get(target).status, 401, "{target}");
    }
    assert_eq!(served.get_with("/files/secret.txt", &[ANN]).status_and_text(), (200, "stored"));
    assert_eq!(served.get_with("/byrw", &[ANN]).status, 404, "the request was rewritten already");
    assert_eq!(served.get_with("/tokept", &[ANN]).status_and_text(), (200, "kept"));
}

#[test]
fn user_is_not_kept_for_the_next_request() {
    let access = AccessRules { basic_auth: Some(basic(RuleMode::DryRun)), ..AccessRules::default() };
    let label = SiteRules { site_tag: 3, ..with_access(access, vec![route("/*", respond_with("in"))]) };
    let served = TestServer::new(vec![SiteRules { names: vec!["a.test".parse().unwrap()], ..label }]);
    let first = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{ANN}\r\n\r\n");
    let next = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    served.exchange(&format!("{first}{next}{last}"));
    let _ = served.logged();
    let log = served.log.0.lock().unwrap().clone();
    let known: Vec<_> = log.iter().map(|logged| (logged.status, logged.user.as_deref(), logged.site_tag)).collect();
    assert_eq!(known, [(200, Some("ann"), 3), (200, None, 3)]);
}

#[test]
fn password_is_checked_once_for_many_files() {
    let folder = SiteDirectory::new(&[("a.txt", "a")]);
    // A check at cost 10 takes long enough to be measured.
    let salt = *b"sixteen bytes...";
    let hash = bcrypt::hash_with_salt("U*U", 10, salt).unwrap().format_for_version(bcrypt::Version::TwoY);
    let rule = authenticator("x", &format!("ann:{hash}"), RuleMode::Enforce);
    let access = AccessRules { basic_auth: Some(rule.clone()), ..AccessRules::default() };
    let served = TestServer::new(vec![with_access(access, vec![route("/*", Action::Files(folder.files()))])]);
    let began = Instant::now();
    assert_eq!(served.get_with("/a.txt", &[ANN]).status, 200);
    let first = began.elapsed();
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(served.get_with("/a.txt", &[ANN]).status_and_text(), (200, "a"));
    }
    assert!(began.elapsed() < first * 10, "50 requests took {:?}, the first one {first:?}", began.elapsed());
    assert_eq!(served.get("/a.txt").status, 401, "a file served to a user is not cached for others");
    assert_eq!(rule.denials().get(), 1);
}

#[test]
fn password_guessing_does_not_block_other_clients() {
    let salt = *b"sixteen bytes...";
    let hash = bcrypt::hash_with_salt("U*U", 10, salt).unwrap().format_for_version(bcrypt::Version::TwoY);
    let access = AccessRules {
        basic_auth: Some(authenticator("x", &format!("ann:{hash}"), RuleMode::Enforce)),
        ..AccessRules::default()
    };
    let proxies = TrustedProxies {
        networks: vec!["127.0.0.1".parse().unwrap()],
        unix: UnixPeerTrust::Untrusted,
        field: ForwardingField::XForwardedFor,
    };
    let rules = SiteRules { proxies: Some(proxies), ..with_access(access, vec![route("/*", respond_with("x"))]) };
    let served = TestServer::new(vec![rules]);
    let tried: Vec<u16> = std::thread::scope(|scope| {
        let served = &served;
        let (sender, statuses) = std::sync::mpsc::channel();
        let one = |number| {
            let sender = sender.clone();
            let wrong = Base64::encode_string(format!("ann:{number}").as_bytes());
            let line = format!("Authorization: Basic {wrong}");
            scope.spawn(move || {
                let status = served.get_with("/", &["X-Forwarded-For: 192.0.2.1", &line]).status;
                sender.send(()).unwrap();
                status
            })
        };
        let all: Vec<_> = (0..150).map(one).collect();
        // The others are checked or wait.
        statuses.recv().unwrap();
        for _ in 0..3 {
            assert_eq!(served.get_with("/", &["X-Forwarded-For: 192.0.2.2", ANN]).status, 200);
        }
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tried.iter().all(|status| matches!(status, 401 | 429)), "{tried:?}");
    assert!(tried.contains(&401) && tried.contains(&429), "{tried:?}");
}

#[test]
fn concurrent_requests_share_one_password_check() {
    let access = AccessRules { basic_auth: Some(basic(RuleMode::Enforce)), ..AccessRules::default() };
    let served = TestServer::new(vec![with_access(access, vec![route("/*", respond_with("x"))])]);
    for line in [ANN, "Authorization: Basic YW5uOndyb25n"] {
        let expected = if line == ANN { 200 } else { 401 };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..40).map(|_| scope.spawn(|| served.get_with("/", &[line]).status)).collect();
            assert!(all.into_iter().all(|thread| thread.join().unwrap() == expected), "{line}");
        });
    }
}

#[test]
fn ip_filter_allows_and_denies() {
    let rule = |allow: &[&str], deny: &[&str], mode| {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let rules = vec![(Permission::Deny, read(deny)), (Permission::Allow, read(allow))];
        let otherwise = if allow.is_empty() { Permission::Allow } else { Permission::Deny };
        Some(Arc::new(IpFilter {
            rules,
            default_permission: otherwise,
            status: selvedge::StatusCode::FORBIDDEN,
            mode,
            denials: DenialCounter::default(),
        }))
    };
    let only = |networks| AccessRules { ip_access: networks, ..AccessRules::default() };
    let served = TestServer::new(vec![
        SiteRules {
            proxies: Some(TrustedProxies {
                networks: vec!["127.0.0.1".parse().unwrap()],
                unix: UnixPeerTrust::Untrusted,
                field: ForwardingField::XForwardedFor,
            }),
            ..with_access(
                only(rule(&["192.0.2.0/24", "127.0.0.0/8"], &["192.0.2.66"], RuleMode::Enforce)),
                vec![route("/*", respond_with("in"))],
            )
        },
        SiteRules {
            names: vec!["observed.test".parse().unwrap()],
            ..with_access(only(rule(&[], &["127.0.0.0/8"], RuleMode::DryRun)), vec![route("/*", respond_with("in"))])
        },
        SiteRules {
            names: vec!["direct.test".parse().unwrap()],
            ..with_access(only(rule(&["192.0.2.0/24"], &[], RuleMode::Enforce)), vec![route("/*", respond_with("in"))])
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
            "0.0.0.0" => "a trusted proxy sent no client address",
            _ => "the client's network is not allowed",
        };
        assert_eq!(logged.reason, (status == 403).then_some(reason), "{line}");
    }
    // The forwarding field of an untrusted peer is ignored.
    assert_eq!(served.request("GET", "/", "direct.test", &["X-Forwarded-For: 192.0.2.1"]).status, 403);
    assert_eq!(served.logged().client, "127.0.0.1");
    let waiting = "POST / HTTP/1.1\r\nHost: direct.test\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(served.exchange(waiting).status, 403, "a denied client need not send content");
    served.clear_log();
    assert_eq!(served.request("GET", "/", "observed.test", &[]).status_and_text(), (200, "in"));
    assert_eq!(served.logged().reason, Some("the client's network is not allowed (dry run)"));
}

#[test]
fn rate_limit_denies_and_recommends_a_wait() {
    let rule = |mode| {
        let rate = Rate { requests: 1, period: Duration::from_secs(3600), burst: 3 };
        Arc::new(RateLimiter::new(rate, 1024, mode).unwrap())
    };
    let folder = SiteDirectory::new(&[("a.txt", "a")]);
    let (enforced, observed) = (rule(RuleMode::Enforce), rule(RuleMode::DryRun));
    let only = |rate: &Arc<RateLimiter>| AccessRules { rate_limit: Some(rate.clone()), ..AccessRules::default() };
    let files = || route("/*", Action::Files(folder.files()));
    let served = TestServer::new(vec![
        with_access(only(&enforced), vec![files()]),
        SiteRules { names: vec!["observed.test".parse().unwrap()], ..with_access(only(&observed), vec![files()]) },
    ]);
    wait_until_stable();
    for number in 0..5 {
        let response = served.get("/a.txt");
        assert_eq!(response.status, if number < 3 { 200 } else { 429 }, "{number}");
        assert_eq!(response.field("retry-after").is_some(), number >= 3);
    }
    let wait: u64 = served.get("/a.txt").field("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(served.logged().reason, Some("the client exceeds its rate limit"));
    assert_eq!(enforced.denials().get(), 3);
    for number in 0..5 {
        assert_eq!(served.request("GET", "/a.txt", "observed.test", &[]).status_and_text(), (200, "a"));
        let reason = served.logged().reason;
        assert_eq!(reason.is_some(), number >= 3, "{number} {reason:?}");
    }
    assert_eq!(observed.denials().get(), 2);
}

#[test]
fn basic_auth_in_dry_run_mode() {
    let access = AccessRules { basic_auth: Some(basic(RuleMode::DryRun)), ..AccessRules::default() };
    let served = TestServer::new(vec![with_access(access, vec![route("/*", respond_with("in"))])]);
    assert_eq!(served.get("/").status_and_text(), (200, "in"));
    assert_eq!(served.logged().reason, Some("no credentials (dry run)"));
    assert_eq!(served.get_with("/", &[ANN]).status_and_text(), (200, "in"));
    let logged = served.logged();
    assert_eq!((logged.user.as_deref(), logged.reason), (Some("ann"), None));
}

#[test]
fn connections_per_client_are_limited() {
    let rule = ConnectionLimiter::new(1, vec![], RuleMode::Enforce, DenialCounter::default());
    let table = Arc::new(RouteTable::new(vec![site("*", vec![route("/*", respond_with("in"))])]).unwrap());
    let limiter = rule.clone();
    let server = Server::bind_with_workers("127.0.0.1:0", 2).unwrap();
    let server = server.admit(move |peer| limiter.admit(peer.ip()));
    let running = server.serve_each(move || SiteService::new(table.clone(), 2)).unwrap();
    let connect = || TcpStream::connect(running.addresses()[0]).unwrap();
    let request = |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut response = [0; 1024];
        let count = stream.read(&mut response).unwrap();
        String::from_utf8_lossy(&response[..count]).into_owned()
    };
    let mut first = connect();
    assert!(request(&mut first).starts_with("HTTP/1.1 200"));
    let mut refused = String::new();
    connect().read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    assert!(request(&mut first).starts_with("HTTP/1.1 200"), "the first connection is still served");
    assert_eq!(rule.denials().get(), 1);
    drop(first);
    until("a closed connection frees its slot", || {
        let mut next = connect();
        next.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        next.read_to_string(&mut response).is_ok() && response.starts_with("HTTP/1.1 200")
    });
    running.handle().stop_now();
    running.join();
}
