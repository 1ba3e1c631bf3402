//! Idle connections: which one is used, how long, and what ends them.

use super::*;
use tokio::time::sleep;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Serves one request on a new connection, which is idle then.
async fn serve_first(upstream: &Upstream, client: &Client) -> Peer {
    let fetch = spawn_fetch(client, &upstream.destination(), "GET");
    let mut peer = upstream.accept().await;
    serve(&mut peer, OK).await;
    fetch.await.unwrap().unwrap();
    peer
}

async fn serve(peer: &mut Peer, response: &[u8]) {
    peer.take_head().await;
    peer.send(response).await;
}

#[test]
fn the_connection_that_was_used_last_is_used_first() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetches = [0; 2].map(|_| spawn_fetch(&client, &upstream.destination(), "GET"));
        let mut peers = [upstream.accept().await, upstream.accept().await];
        for (fetch, peer) in fetches.into_iter().zip(&mut peers) {
            serve(peer, OK).await;
            fetch.await.unwrap().unwrap();
        }
        assert_eq!(client.idle_connections(), 2);
        for _ in 0..3 {
            let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
            serve(&mut peers[1], OK).await;
            fetch.await.unwrap().unwrap();
        }
        assert!(peers[0].received.is_empty());
        assert!(!upstream.has_connection().await);
    });
}

#[test]
fn the_end_or_a_byte_removes_an_idle_connection_at_once() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        for sent in [None, Some(b"x")] {
            let mut peer = serve_first(&upstream, &client).await;
            assert_eq!(client.idle_connections(), 1);
            match sent {
                Some(bytes) => peer.send(bytes).await,
                None => drop(peer),
            }
            settle().await;
            assert_eq!((client.idle_connections(), client.connections()), (0, 0));
        }
    });
}

#[test]
fn idle_connections_are_bounded() {
    run(async {
        let upstream = Upstream::new();
        let limits = ClientLimits { idle_per_destination_max: 2, idle_max: 3, ..ClientLimits::default() };
        let client = Client::new(limits);
        let fetches = [0; 4].map(|_| spawn_fetch(&client, &upstream.destination(), "GET"));
        let mut peers = Vec::new();
        for _ in 0..4 {
            peers.push(upstream.accept().await);
        }
        for (fetch, peer) in fetches.into_iter().zip(&mut peers) {
            serve(peer, OK).await;
            fetch.await.unwrap().unwrap();
        }
        assert_eq!((client.idle_connections(), client.connections()), (2, 2));
        // Those that were used last stay.
        assert!(peers[0].is_closed().await && peers[1].is_closed().await);
        let other = Upstream::new();
        let fetches = [0; 2].map(|_| spawn_fetch(&client, &other.destination(), "GET"));
        for fetch in fetches {
            let mut peer = other.accept().await;
            serve(&mut peer, OK).await;
            fetch.await.unwrap().unwrap();
            peers.push(peer);
        }
        assert_eq!(client.idle_connections(), 3);
    });
}

#[test]
fn idle_connections_end_after_the_configured_or_the_announced_time() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let mut kept = serve_first(&upstream, &client).await;
        sleep(Duration::from_secs(59)).await;
        assert!(!kept.is_closed().await);
        sleep(Duration::from_secs(2)).await;
        assert!(kept.is_closed().await);
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        let mut peer = upstream.accept().await;
        serve(&mut peer, b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 0\r\n\r\n").await;
        fetch.await.unwrap().unwrap();
        sleep(Duration::from_millis(3_700)).await;
        assert!(!peer.is_closed().await);
        sleep(Duration::from_millis(800)).await;
        assert!(peer.is_closed().await, "one second before the upstream closes it");
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn the_idle_time_of_an_upstream_is_learned() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let peer = serve_first(&upstream, &client).await;
        sleep(Duration::from_secs(5)).await;
        drop(peer);
        settle().await;
        assert_eq!(client.connections(), 0);
        let group = client.0.0.group(&upstream.destination());
        assert!((15..=16).contains(&group.learned_ticks().unwrap()), "{:?}", group.learned_ticks());
        drop(group);
        // 80 % of 5 s.
        let mut peer = serve_first(&upstream, &client).await;
        sleep(Duration::from_millis(3_250)).await;
        assert!(!peer.is_closed().await);
        sleep(Duration::from_millis(1_250)).await;
        assert!(peer.is_closed().await);
    });
}

#[test]
fn a_connection_that_ends_under_the_request_may_be_repeated() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let mut peer = serve_first(&upstream, &client).await;
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        peer.take_head().await;
        drop(peer);
        let error = fetch.await.unwrap().unwrap_err();
        assert_eq!(
            (error.phase, error.kind, error.retry, error.connection),
            (ClientPhase::AwaitHead, ClientErrorKind::Closed, RetrySafety::NoResponse, ConnectionUse::Reused)
        );
        let group = client.0.0.group(&upstream.destination());
        assert!(group.learned_ticks().is_some());
    });
}

#[test]
fn an_end_or_bytes_before_the_request_are_noticed_without_the_reactor() {
    let unexpected: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    run(async {
        for (method, sent) in [("POST", None), ("GET", None), ("POST", Some(unexpected)), ("GET", Some(unexpected))] {
            let (upstream, client) = (Upstream::new(), client());
            let mut peer = serve_first(&upstream, &client).await;
            match sent {
                Some(bytes) => peer.send(bytes).await,
                None => drop(peer),
            }
            // No other task runs before the request.
            let (to, head, mut content) = (upstream.destination(), request(method), OutgoingContent::empty());
            let timeouts = ClientTimeouts::default();
            let mut interim = |_: StatusCode, _: &Fields| {};
            let sending = client.send(&to, &head, &mut content, &timeouts, &mut interim);
            let serving = async {
                let mut peer = upstream.accept().await;
                serve(&mut peer, OK).await;
            };
            let (mut sending, mut serving) = (std::pin::pin!(sending), std::pin::pin!(serving));
            let mut is_served = false;
            let sent = poll_fn(|cx| {
                is_served = is_served || serving.as_mut().poll(cx).is_ready();
                sending.as_mut().poll(cx)
            });
            let response = sent.await.unwrap();
            assert_eq!(response.content.length(), Some(0), "{method}");
        }
    });
}

#[test]
fn an_error_names_a_missing_listener() {
    run(async {
        let client = client();
        let missing = Destination::plain(Address::Unix(PathBuf::from("/nonexistent/socket").as_path().into()));
        let error = fetch(&client, &missing, "POST").await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ClientErrorKind::SocketMissing, RetrySafety::NotSent));
        assert_eq!(error.to_string(), "connect: the socket does not exist");
        let upstream = Upstream::new();
        let to = upstream.destination();
        let path = upstream.path.clone();
        let listener = std::os::unix::net::UnixListener::bind(path.with_extension("closed")).unwrap();
        drop(listener);
        let closed = Destination::plain(Address::Unix(path.with_extension("closed").as_path().into()));
        let error = fetch(&client, &closed, "GET").await.unwrap_err();
        std::fs::remove_file(path.with_extension("closed")).unwrap();
        assert_eq!((error.phase, error.kind), (ClientPhase::Connect, ClientErrorKind::Refused));
        assert_ne!(to, closed);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn a_client_that_is_dropped_leaves_nothing() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let mut idle = serve_first(&upstream, &client).await;
        let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
        idle.take_head().await;
        let mut second = {
            let fetch = spawn_fetch(&client, &upstream.destination(), "GET");
            let mut peer = upstream.accept().await;
            serve(&mut peer, OK).await;
            fetch.await.unwrap().unwrap();
            peer
        };
        let table = Rc::downgrade(&client.0.0);
        drop(client);
        // The task of the exchange holds a client, which is the last one.
        assert!(!second.is_closed().await);
        idle.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n").await;
        let mut response = fetch.await.unwrap().unwrap();
        assert!(second.is_closed().await);
        // The response continues.
        idle.send(b"abc").await;
        assert_eq!(read_all(&mut response.content).await.unwrap(), b"abc");
        assert!(idle.is_closed().await);
        drop(response);
        settle().await;
        assert!(table.upgrade().is_none(), "no task holds the state");
    });
}

#[test]
fn a_connection_with_bytes_of_one_client_is_used_once() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = Destination { first_bytes: Some("PROXY UNKNOWN\r\n".into()), ..upstream.destination() };
        let fetch = spawn_fetch(&client, &to, "GET");
        let mut peer = upstream.accept().await;
        assert!(peer.take_head().await.starts_with("PROXY UNKNOWN\r\nGET /path"));
        peer.send(OK).await;
        fetch.await.unwrap().unwrap();
        assert!(peer.is_closed().await);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn bytes_of_another_protocol_pass_and_the_connection_is_pooled() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        for number in 0..2 {
            let mut stream = client.open(&upstream.destination(), &ClientTimeouts::default()).await.unwrap();
            let expected = if number == 0 { ConnectionUse::First } else { ConnectionUse::Reused };
            assert_eq!(stream.connection_use(), expected);
            if number == 1 {
                stream.release();
                continue;
            }
            let sent = poll_fn(|cx| stream.poll_send(cx, [b"ab", b"c"])).await.unwrap();
            assert_eq!(sent, 3);
            let mut peer = upstream.accept().await;
            assert_eq!(peer.take_until("c").await, "abc");
            peer.send(b"def").await;
            let mut received = Vec::new();
            assert_eq!(poll_fn(|cx| stream.poll_receive(cx, &mut received)).await, Ok(3));
            assert_eq!(received, b"def");
            stream.release();
            assert_eq!(client.idle_connections(), 1);
            spawn_local(async move { while peer.receive().await {} });
        }
    });
}
