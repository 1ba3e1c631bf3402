//! Requests that are only explained.

use super::*;
use crate::syntax::Network;
use selvedge::detached::{DetachedRequest, run_to_end};
use selvedge::proto::RequestLine;
use selvedge::proto::head::Version;
use selvedge::proto::limits::MessageLimits;
use selvedge::{Request, Service, StatusCode};

fn get(path: &str, client: &str) -> Request {
    let line = RequestLine { method: b"GET", target: path.as_bytes(), version: Version::Http11 };
    let peer = format!("{client}:4711").parse().unwrap();
    let fields = vec![(&b"host"[..], &b"a"[..])];
    DetachedRequest { line, fields, peer, tls: None }.build(&MessageLimits::default()).unwrap()
}

/// Returns the status and the steps of a request.
fn explain(table: &Arc<RouteTable>, path: &str, client: &str) -> (u16, Vec<Step>) {
    let (mut request, table) = (get(path, client), table.clone());
    let explained = run_to_end(async move { SiteService::explaining(table).explain(&mut request).await });
    let (response, recorder) = explained.unwrap();
    (response.status.code(), recorder.take().0)
}

fn verdicts(steps: &[Step], stage: &str) -> Vec<StepVerdict> {
    steps.iter().filter(|step| step.stage.name() == stage).map(|step| step.verdict).collect()
}

#[test]
fn an_explanation_counts_nothing_and_takes_no_token() {
    let rate = Rate { requests: 1, period: Duration::from_secs(3600), burst: 1 };
    let limiter = Arc::new(RateLimiter::new(rate, 64, RuleMode::Enforce).unwrap());
    let networks: Vec<Network> = vec!["192.0.2.0/24".parse().unwrap()];
    let filter = IpFilter {
        rules: vec![(Permission::Deny, networks)],
        default_permission: Permission::Allow,
        status: StatusCode::FORBIDDEN,
        mode: RuleMode::DryRun,
        denials: DenialCounter::default(),
    };
    let requests_at_once = ConnectionLimiter::new(1, Vec::new(), RuleMode::Enforce, DenialCounter::default());
    let access = AccessRules {
        ip_access: Some(Arc::new(filter)),
        rate_limit: Some(limiter.clone()),
        requests_at_once: Some(requests_at_once.clone()),
        ..AccessRules::default()
    };
    let rules = SiteRules { access, ..site("a", vec![route("/x", respond_with("in"))]) };
    let table = Arc::new(RouteTable::new(vec![rules]).unwrap());
    for _ in 0..3 {
        let (status, steps) = explain(&table, "/x", "192.0.2.1");
        assert_eq!(status, 200);
        assert_eq!(verdicts(&steps, "access"), [StepVerdict::DryRun, StepVerdict::Yes, StepVerdict::Yes], "{steps:?}");
    }
    assert!(table.dry_run_counts().all(|counted| counted.count == 0));
    assert_eq!((limiter.denials().get(), requests_at_once.denials().get()), (0, 0));
    // A request that is served takes the token.
    let service = |table: Arc<RouteTable>| async move {
        let mut request = get("/x", "192.0.2.1");
        SiteService::new(table, 1).call(&mut request).await.status.code()
    };
    assert_eq!(run_to_end(service(table.clone())).unwrap(), 200);
    assert_eq!(table.dry_run_counts().map(|counted| counted.count).sum::<u64>(), 1);
    let (status, steps) = explain(&table, "/x", "192.0.2.1");
    assert_eq!(
        (status, verdicts(&steps, "access")),
        (429, vec![StepVerdict::DryRun, StepVerdict::Denied]),
        "{steps:?}"
    );
    assert_eq!(limiter.denials().get(), 0);
}

#[test]
fn each_route_is_recorded_with_the_reason_why_it_does_not_match() {
    let when = |pattern: &str, method: &str| Route {
        conditions: vec![Condition::Scheme("http".into()), Condition::Method(vec![method.into()])],
        ..route(pattern, respond_with("in"))
    };
    let routes = vec![
        route("/other", respond_with("no")),
        when("/x/*", "PUT"),
        when("/x/*", "GET"),
        route("/*", respond_with("no")),
    ];
    let table = Arc::new(RouteTable::new(vec![site("a", routes)]).unwrap());
    let (_, steps) = explain(&table, "/x/y", "127.0.0.1");
    let looks: Vec<_> = steps
        .iter()
        .filter(|step| step.stage.name() == "route")
        .map(|step| (step.route, step.verdict, step.origin))
        .collect();
    let expected = [
        (Some(0), StepVerdict::No, StepOrigin::Route),
        (Some(1), StepVerdict::No, StepOrigin::Condition(1)),
        (Some(2), StepVerdict::Yes, StepOrigin::Route),
    ];
    assert_eq!(looks, expected);
    let (status, steps) = explain(&table, "/y", "127.0.0.1");
    assert_eq!((status, verdicts(&steps, "route").len()), (200, 4));
}

#[test]
fn a_rewrite_is_followed_and_a_second_one_is_not() {
    let rewrite = |target: &str| Action::Rewrite(Template::parse(target).unwrap());
    let routes = vec![
        route("/a", rewrite("/b")),
        route("/b", rewrite("/c")),
        route("/d", rewrite("/e")),
        route("/e", respond_with("in")),
    ];
    let table = Arc::new(RouteTable::new(vec![site("a", routes)]).unwrap());
    let (status, steps) = explain(&table, "/d", "127.0.0.1");
    assert_eq!((status, verdicts(&steps, "action").len()), (200, 2));
    let (status, steps) = explain(&table, "/a", "127.0.0.1");
    assert_eq!((status, verdicts(&steps, "action").len()), (404, 2));
}

#[test]
fn a_route_in_dry_run_mode_counts_no_explanation_and_metrics_are_not_made_for_one() {
    let counter = DenialCounter::default();
    let routes = vec![
        route("/*", Action::DryRunDeny(counter.clone())),
        route("/m", Action::Metrics(Arc::default())),
        route("/x", respond_with("in")),
    ];
    let table = Arc::new(RouteTable::new(vec![site("a", routes)]).unwrap());
    for (path, looks) in [
        ("/m", &[StepVerdict::DryRun, StepVerdict::Yes][..]),
        ("/x", &[StepVerdict::DryRun, StepVerdict::No, StepVerdict::Yes]),
    ] {
        let (status, steps) = explain(&table, path, "127.0.0.1");
        // Nothing provides metrics here, so a request that is served gets 503.
        assert_eq!((status, verdicts(&steps, "route")), (200, looks.to_vec()), "{steps:?}");
    }
    assert_eq!(counter.get(), 0);
    let served = run_to_end(async { SiteService::new(table, 1).call(&mut get("/m", "127.0.0.1")).await.status.code() });
    assert_eq!((served.unwrap(), counter.get()), (503, 1));
}
