//! Waits for an upstream that is too slow.

use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::time::{Instant, sleep};

const TIMEOUTS: ClientTimeouts = ClientTimeouts {
    connect: Duration::from_secs(2),
    response: Duration::from_secs(4),
    silence: Duration::from_secs(6),
    tunnel: Duration::from_secs(8),
};

/// Sends a request with content. Returns the result and how many seconds it took.
async fn timed(
    client: &Client,
    to: &Destination,
    content: OutgoingContent,
) -> (Result<IncomingResponse, ClientError>, f64) {
    let (began, mut content) = (Instant::now(), content);
    let sent = client.send(to, &request("POST"), &mut content, &TIMEOUTS, &mut |_, _| {}).await;
    (sent, began.elapsed().as_secs_f64())
}

fn assert_within(seconds: f64, expected: f64) {
    assert!((expected..=expected + 0.5).contains(&seconds), "{seconds}, expected {expected}");
}

#[test]
fn a_response_that_does_not_begin() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (sent, seconds) = timed(&client, &upstream.destination(), OutgoingContent::empty()).await;
        let error = sent.unwrap_err();
        assert_eq!(
            (error.phase, error.kind, error.retry),
            (ClientPhase::AwaitHead, ClientErrorKind::TimedOut, RetrySafety::NoResponse)
        );
        assert_eq!(error.to_string(), "await response: timed out");
        assert_within(seconds, 4.0);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn interim_responses_and_a_slow_head_do_not_extend_the_wait() {
    run(async {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n";
        for pieces in [[interim, interim, interim], ["HTTP/1.1 200 OK\r\n", "X: ", "1\r\n"]] {
            let (upstream, client) = (Upstream::new(), client());
            let (to, requests) = (upstream.destination(), client.clone());
            let sending = spawn_local(async move { timed(&requests, &to, OutgoingContent::empty()).await });
            let mut peer = upstream.accept().await;
            peer.take_head().await;
            for part in pieces {
                sleep(Duration::from_secs(1)).await;
                peer.send(part.as_bytes()).await;
            }
            let (sent, seconds) = sending.await.unwrap();
            let error = sent.unwrap_err();
            assert_eq!((error.phase, error.kind), (ClientPhase::AwaitHead, ClientErrorKind::TimedOut), "{pieces:?}");
            assert_within(seconds, 4.0);
        }
    });
}

#[test]
fn an_upstream_that_does_not_read() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let content = OutgoingContent::bytes(vec![b'x'; 10 << 20].into());
        let (sent, seconds) = timed(&client, &upstream.destination(), content).await;
        let error = sent.unwrap_err();
        assert_eq!((error.phase, error.kind), (ClientPhase::SendRequest, ClientErrorKind::TimedOut));
        assert_within(seconds, 6.0);
    });
}

#[test]
fn time_in_which_the_client_sends_nothing_does_not_count() {
    run(async {
        let (upstream, client, source) = (Upstream::new(), client(), TestContent::new());
        let late = source.clone();
        spawn_local(async move {
            sleep(Duration::from_secs(100)).await;
            late.push("late");
        });
        let (sent, seconds) = timed(&client, &upstream.destination(), source.incoming(Some(4))).await;
        assert_eq!(sent.unwrap_err().phase, ClientPhase::AwaitHead);
        assert_within(seconds, 104.0);
    });
}

#[test]
fn content_that_stops() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (to, requests) = (upstream.destination(), client.clone());
        let sending = spawn_local(async move { timed(&requests, &to, OutgoingContent::empty()).await.0 });
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").await;
        let mut response = sending.await.unwrap().unwrap();
        // The client does not read for a while.
        sleep(Duration::from_secs(100)).await;
        peer.send(b"a").await;
        assert!(poll_fn(|cx| Pin::new(&mut response.content).poll_chunk(cx)).await.unwrap().is_ok());
        sleep(Duration::from_secs(100)).await;
        let began = Instant::now();
        let error = poll_fn(|cx| Pin::new(&mut response.content).poll_chunk(cx)).await.unwrap().unwrap_err();
        assert_eq!(error.0, "read content: timed out");
        assert_within(began.elapsed().as_secs_f64(), 6.0);
        assert!(peer.is_closed().await);
    });
}

#[test]
fn an_address_that_does_not_respond() {
    run(async {
        // A listener whose accept queue is full.
        let listener = rustix::net::socket_with(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
        let fill = std::net::TcpStream::connect(address).unwrap();
        let client = client();
        let to = Destination::plain(Address::Tcp(address));
        let (sent, seconds) = timed(&client, &to, OutgoingContent::empty()).await;
        let error = sent.unwrap_err();
        assert_eq!(
            (error.phase, error.kind, error.retry),
            (ClientPhase::Connect, ClientErrorKind::TimedOut, RetrySafety::NotSent)
        );
        assert_within(seconds, 2.0);
        assert_eq!(client.connections(), 0);
        drop((fill, listener));
    });
}

#[test]
fn a_refused_connection_of_tcp() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = Destination::plain(Address::Tcp(listener.local_addr().unwrap()));
        drop(listener);
        let error = fetch(&client(), &to, "POST").await.unwrap_err();
        assert_eq!(
            (error.phase, error.kind, error.retry),
            (ClientPhase::Connect, ClientErrorKind::Refused, RetrySafety::NotSent)
        );
    });
}

#[test]
fn a_full_accept_queue_of_a_unix_socket_is_waited_for() {
    run(async {
        let path = std::env::temp_dir().join(format!("selvedge-client-queue-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let family = rustix::net::AddressFamily::UNIX;
        let kind = rustix::net::SocketType::STREAM;
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(family, kind, flags, None).unwrap();
        rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let listener = UnixListener::from_std(listener.into()).unwrap();
        let fill = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (client, to) = (client(), Destination::plain(Address::Unix(path.as_path().into())));
        let (sent, seconds) = timed(&client, &to, OutgoingContent::empty()).await;
        let error = sent.unwrap_err();
        assert_eq!((error.phase, error.kind), (ClientPhase::Connect, ClientErrorKind::TimedOut));
        assert_within(seconds, 2.0);
        let fetch = spawn_fetch(&client, &to, "GET");
        sleep(Duration::from_secs(1)).await;
        drop(listener.accept().await.unwrap());
        let (socket, _) = listener.accept().await.unwrap();
        let mut peer = Peer { socket, received: Vec::new() };
        peer.take_head().await;
        peer.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        assert!(fetch.await.unwrap().is_ok());
        std::fs::remove_file(&path).unwrap();
        drop(fill);
    });
}
