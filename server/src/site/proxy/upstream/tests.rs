use super::*;
use crate::site::proxy::address_cell::AddressCell;
use crate::site::proxy::rules::{AdaptiveMode, CapacityRules, FailureRules};
use selvedge::client::{ClientTimeouts, Protocol};
use std::cell::RefCell;
use std::future::poll_fn;
use std::num::{NonZeroU16, NonZeroU32};
use std::pin::{Pin, pin};
use std::task::Poll;

fn group(count: usize, requests_max: u32) -> Arc<Upstream> {
    let requests_max = NonZeroU32::new(requests_max);
    group_of(count, CapacityRules { requests_max, queue_max: 10, ..CapacityRules::default() })
}

fn group_of(count: usize, capacity: CapacityRules) -> Arc<Upstream> {
    let server = |number: usize| ServerRules {
        name: format!("http://10.0.0.{number}:80").into(),
        authority: format!("10.0.0.{number}").into(),
        addresses: Arc::new(AddressCell::new([])),
        weight: NonZeroU16::MIN,
        tls: None,
        protocol: Protocol::Http1,
        proxy_header: None,
    };
    Arc::new(Upstream::new(UpstreamRules {
        name: "app".into(),
        servers: (0..count).map(server).collect(),
        balance: Balance::LeastLoaded,
        failures: FailureRules::default(),
        check: None,
        slow_start: Duration::ZERO,
        capacity,
        timeouts: ClientTimeouts::default(),
    }))
}

fn chooser() -> RefCell<Chooser> {
    RefCell::new(Chooser::new(1))
}

#[tokio::test(start_paused = true)]
async fn load_is_spread_and_tried_servers_are_left_out() {
    let (upstream, chooser) = (group(3, 0), chooser());
    let mut places = Vec::new();
    for _ in 0..30 {
        places.push(upstream.place(Preference::LeastLoaded, &chooser, &[1]).await.unwrap());
    }
    let at = |server| places.iter().filter(|place| place.server == server).count();
    assert_eq!((at(0), at(1), at(2)), (15, 0, 15), "of two servers, the less loaded one is known");
    let tried = upstream.place(Preference::LeastLoaded, &chooser, &[0, 1, 2]).await;
    assert_eq!(tried.unwrap_err(), NoServer::AllTried);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_server_of_its_cookie_although_another_one_is_free() {
    let (upstream, chooser) = (group(2, 1), chooser());
    let first = upstream.place(Preference::Server(0), &chooser, &[]).await.unwrap();
    assert_eq!(first.server, 0);
    let second = upstream.place(Preference::Server(0), &chooser, &[]);
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let other = upstream.place(Preference::LeastLoaded, &chooser, &[]).await.unwrap();
        assert_eq!(other.server, 1);
        drop(first);
        drop(other);
    };
    let began = tokio::time::Instant::now();
    let (second, ()) = tokio::join!(second, other);
    assert_eq!((second.unwrap().server, began.elapsed().as_secs()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_any_server_until_the_queue_timeout() {
    let (upstream, chooser) = (group(2, 1), chooser());
    let mut places = Vec::new();
    for _ in 0..2 {
        places.push(upstream.place(Preference::NextInTurn, &chooser, &[]).await.unwrap());
    }
    let waited = upstream.place(Preference::NextInTurn, &chooser, &[]).await;
    assert_eq!(waited.unwrap_err(), NoServer::Full(NoPlace::TimedOut));
    let freed = places.pop().unwrap().server;
    assert_eq!(upstream.place(Preference::Hash(7), &chooser, &[]).await.unwrap().server, freed);
}

/// Polls a future once.
async fn is_pending(future: &mut Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn requests_get_places_in_order_of_arrival() {
    for preference in [Preference::LeastLoaded, Preference::Server(0)] {
        let (upstream, chooser) = (group(1, 1), chooser());
        let place = || upstream.place(preference, &chooser, &[]);
        let first = place().await.unwrap();
        let (mut second, mut third, mut fourth) = (pin!(place()), pin!(place()), pin!(place()));
        assert!(is_pending(&mut second).await && is_pending(&mut third).await);
        // The place belongs to the request that waits, although that one has not noticed it.
        drop(first);
        assert!(is_pending(&mut fourth).await && is_pending(&mut third).await, "{preference:?}");
        // Something else has taken it when the request notices. The request keeps its turn.
        let places = &upstream.servers[0].places;
        assert!(places.enter().is_some());
        assert!(is_pending(&mut second).await);
        places.leave();
        let _ = upstream.servers[0].queue.wake_one() || upstream.queue.wake_one();
        assert!(is_pending(&mut third).await && is_pending(&mut fourth).await, "{preference:?}");
        drop(second.await.unwrap());
        drop(third.await.unwrap());
        fourth.await.unwrap();
        assert!(!upstream.queue.is_used() && !upstream.servers[0].queue.is_used());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_passes_its_turn_on() {
    let (upstream, chooser) = (group(1, 1), chooser());
    let place = || upstream.place(Preference::LeastLoaded, &chooser, &[]);
    let first = place().await.unwrap();
    let (mut second, mut third) = (Box::pin(place()), pin!(place()));
    assert!(is_pending(&mut second.as_mut()).await && is_pending(&mut third).await);
    drop(first);
    drop(second);
    assert_eq!(third.await.unwrap().server, 0);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_does_not_hold_up_requests_for_the_server_that_it_has_tried() {
    let (upstream, chooser) = (group(2, 1), chooser());
    let at = |server| upstream.place(Preference::Server(server), &chooser, &[]);
    let (first, second) = (at(0).await.unwrap(), at(1).await.unwrap());
    let mut repeated = pin!(upstream.place(Preference::LeastLoaded, &chooser, &[0]));
    let mut next = pin!(upstream.place(Preference::LeastLoaded, &chooser, &[]));
    assert!(is_pending(&mut repeated).await && is_pending(&mut next).await);
    drop(first);
    assert!(is_pending(&mut repeated).await);
    assert_eq!(next.await.unwrap().server, 0);
    drop(second);
    assert_eq!(repeated.await.unwrap().server, 1);
}

#[tokio::test(start_paused = true)]
async fn one_response_gives_waiting_requests_all_places_of_a_higher_limit() {
    let capacity = CapacityRules { queue_max: 10, adaptive: AdaptiveMode::On, ..CapacityRules::default() };
    let (upstream, chooser) = (group_of(1, capacity), chooser());
    let places = &upstream.servers[0].places;
    places.set_adaptive_limit(2);
    let first = upstream.place(Preference::LeastLoaded, &chooser, &[]).await.unwrap();
    let _second = upstream.place(Preference::LeastLoaded, &chooser, &[]).await.unwrap();
    let waiting = async || upstream.place(Preference::LeastLoaded, &chooser, &[]).await.unwrap();
    let response = async {
        tokio::task::yield_now().await;
        places.set_adaptive_limit(4);
        drop(first);
    };
    let (third, fourth, fifth, ()) = tokio::join!(waiting(), waiting(), waiting(), response);
    assert_eq!(places.at_work(), 4);
    drop((third, fourth, fifth));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_out_is_left_out_and_reported() {
    let (upstream, chooser) = (group(2, 0), chooser());
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    upstream.set_observer(Arc::new(move |event| seen.lock().unwrap().push(event.to_string())));
    (0..3).for_each(|_| upstream.failed(0, Failure::Exchange, "reset"));
    for preference in [Preference::LeastLoaded, Preference::NextInTurn, Preference::Server(0), Preference::Hash(1)] {
        assert_eq!(upstream.place(preference, &chooser, &[]).await.unwrap().server, 1, "{preference:?}");
    }
    // A repetition leaves the other one out, too, and finds none.
    assert_eq!(upstream.place(Preference::LeastLoaded, &chooser, &[1]).await.unwrap_err(), NoServer::AllTried);
    assert_eq!(*events.lock().unwrap(), ["http://10.0.0.0:80 of app gets no requests for 10s: reset"]);
}

#[tokio::test(start_paused = true)]
async fn repetitions_are_permitted_by_the_requests_at_work() {
    let (upstream, chooser) = (group(1, 0), chooser());
    let permits: Vec<_> = (0..50).map_while(|_| upstream.permit_retry()).collect();
    assert_eq!(permits.len(), 10);
    drop(permits);
    let mut places = Vec::new();
    for _ in 0..100 {
        places.push(upstream.place(Preference::LeastLoaded, &chooser, &[]).await.unwrap());
    }
    assert_eq!((0..50).map_while(|_| upstream.permit_retry()).collect::<Vec<_>>().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_is_only_explained_changes_nothing() {
    let (upstream, chooser) = (group(3, 1), chooser());
    let mut places = Vec::new();
    for _ in 0..3 {
        let explained = |_| would_choose(&upstream, Preference::NextInTurn, &mut chooser.borrow_mut()).unwrap();
        let servers: Vec<_> = (0..5).map(explained).collect();
        let place = upstream.place(Preference::NextInTurn, &chooser, &[]).await.unwrap();
        assert_eq!(servers, [place.server; 5], "each is the one that the next request gets");
        places.push(place);
    }
    let full = would_choose(&upstream, Preference::NextInTurn, &mut chooser.borrow_mut());
    assert_eq!(full, Err(NoServer::Full(NoPlace::QueueFull)));
    assert!(upstream.servers.iter().all(|server| server.places.at_work() == 1));
}
