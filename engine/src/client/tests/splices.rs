//! Content that passes through a pipe, as to a client of HTTP/1.1 without TLS.

use super::*;
use crate::limits::SPLICE_BYTES_MIN;
use crate::splice_pipe::{SplicePipe, pipe_counts};

const LENGTH: usize = 150_000;

/// Content that differs at each place from that of another seed.
fn content(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8 ^ seed).collect()
}

fn response(head: &str, content: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), content].concat()
}

/// Sends a GET request whose response is forwarded.
fn spawn_forward(client: &Client, to: &Destination) -> tokio::task::JoinHandle<Result<IncomingResponse, ClientError>> {
    let (client, to) = (client.clone(), to.clone());
    spawn_local(async move {
        let head = OutgoingHead { response_use: ResponseUse::Forward, ..request("GET") };
        client.send(&to, &head, &mut OutgoingContent::empty(), &ClientTimeouts::default(), &mut |_, _| {}).await
    })
}

/// Sends bytes while the client takes them. Returns the connection afterwards.
fn spawn_send(mut peer: Peer, bytes: Vec<u8>) -> tokio::task::JoinHandle<Peer> {
    spawn_local(async move {
        peer.send(&bytes).await;
        peer
    })
}

/// Takes content as a connection to a client does. Returns it, and how many bytes of it passed through a pipe.
///
/// # Errors
/// The text of the error that ended it.
async fn pass(mut content: ResponseContent) -> Result<(Vec<u8>, usize), String> {
    let (mut pipe, mut all, mut piped) = (SplicePipe::default(), Vec::new(), 0);
    loop {
        let moved = poll_fn(|cx| Pin::new(&mut content).poll_splice(cx, &mut pipe)).await;
        let count = moved.map_err(|error| error.to_string())?;
        if count > 0 {
            all.extend(pipe.read(count));
            piped += count;
            continue;
        }
        match poll_fn(|cx| Pin::new(&mut content).poll_chunk(cx)).await {
            Some(piece) => all.extend_from_slice(&piece.map_err(|error| error.to_string())?),
            None => return Ok((all, piped)),
        }
    }
}

/// Which way content takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Pipe,
    Copy,
}

struct Row {
    name: &'static str,
    head: &'static str,
    sent: Vec<u8>,
    /// Whether the upstream closes the connection after its bytes.
    closes: bool,
    expected: Result<Vec<u8>, &'static str>,
    way: Way,
    idle_after: usize,
}

const CLOSED: &str = "read content: connection closed before the end of the response";

fn rows() -> Vec<Row> {
    let all = content(LENGTH, 0);
    let with = |name, head, sent: &[u8], expected: Result<&[u8], _>| Row {
        name,
        head,
        sent: sent.to_vec(),
        closes: false,
        expected: expected.map(<[u8]>::to_vec),
        way: Way::Pipe,
        idle_after: 1,
    };
    let length = "Content-Length: 150000\r\n";
    let chunked = [b"249f0\r\n", &all[..], b"\r\n0\r\n\r\n"].concat();
    let short = &all[..SPLICE_BYTES_MIN - 1];
    let short_head = Box::leak(format!("Content-Length: {}\r\n", short.len()).into_boxed_str());
    vec![
        with("length", length, &all, Ok(&all)),
        Row { closes: true, idle_after: 0, ..with("until close", "", &all, Ok(&all)) },
        Row { closes: true, idle_after: 0, ..with("early end", length, &all[..140_000], Err(CLOSED)) },
        Row { closes: true, idle_after: 0, ..with("end after the head", length, b"", Err(CLOSED)) },
        Row { idle_after: 0, ..with("bytes after the end", length, &[&all[..], b"x"].concat(), Ok(&all)) },
        Row { way: Way::Copy, ..with("chunks", "Transfer-Encoding: chunked\r\n", &chunked, Ok(&all)) },
        Row { way: Way::Copy, ..with("short", short_head, short, Ok(short)) },
    ]
}

async fn check(row: &Row, piece_bytes: usize) {
    let (upstream, client) = (Upstream::new(), client());
    let fetch = spawn_forward(&client, &upstream.destination());
    let mut peer = upstream.accept().await;
    peer.take_head().await;
    let passing = spawn_local(async move { pass(fetch.await.unwrap().unwrap().content).await });
    let bytes = response(row.head, &row.sent);
    peer.send_pieces(bytes.chunks(piece_bytes)).await;
    if row.closes {
        drop(peer);
    }
    let name = row.name;
    match (passing.await.unwrap(), &row.expected) {
        (Ok((received, piped)), Ok(expected)) => {
            assert!(received == *expected, "{name}: {} bytes", received.len());
            let is_long = piece_bytes >= bytes.len();
            assert!(piped == 0 || row.way == Way::Pipe, "{name}: {piped} bytes through a pipe");
            assert!(!is_long || row.way == Way::Copy || piped > LENGTH / 2, "{name}: {piped} bytes through a pipe");
        }
        (received, expected) => {
            assert_eq!(received.map(|_| Vec::new()), expected.clone().map_err(str::to_owned), "{name}")
        }
    }
    settle().await;
    assert_eq!(client.idle_connections(), row.idle_after, "{name}");
    let (open, empty) = pipe_counts();
    assert_eq!(open, empty, "{name}: every pipe is empty");
}

#[test]
fn content_passes_through_a_pipe_whole_or_in_pieces() {
    run(async {
        for row in rows() {
            for piece_bytes in [usize::MAX / 2, 80_000, 3_000] {
                check(&row, piece_bytes).await;
            }
        }
    });
}

#[test]
fn the_connection_is_used_again_and_only_the_head_is_copied() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let mut peer = None;
        for seed in 0..5 {
            let sent = content(LENGTH, seed);
            let bytes = response("Content-Length: 150000\r\n", &sent);
            let fetch = spawn_forward(&client, &upstream.destination());
            let mut used: Peer = match peer.take() {
                Some(peer) => peer,
                None => upstream.accept().await,
            };
            used.take_head().await;
            let sending = spawn_send(used, bytes);
            let (received, piped) = pass(fetch.await.unwrap().unwrap().content).await.unwrap();
            assert!(received == sent, "response {seed}");
            assert!(seed == 0 || piped > LENGTH - 1_000, "{piped} bytes through a pipe");
            assert_eq!((client.idle_connections(), pipe_counts()), (1, (1, 1)));
            peer = Some(sending.await.unwrap());
        }
    });
}

#[test]
fn a_shorter_response_after_a_long_one_arrives() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let mut peer = None;
        for length in [LENGTH, 10, 90_000, 5_000, LENGTH] {
            let sent = content(length, 1);
            let bytes = response(&format!("Content-Length: {length}\r\n"), &sent);
            let fetch = spawn_forward(&client, &upstream.destination());
            let mut used: Peer = match peer.take() {
                Some(peer) => peer,
                None => upstream.accept().await,
            };
            used.take_head().await;
            let sending = spawn_send(used, bytes);
            let (received, _) = pass(fetch.await.unwrap().unwrap().content).await.unwrap();
            assert!(received == sent, "{length} bytes");
            peer = Some(sending.await.unwrap());
        }
    });
}

#[test]
fn a_silent_upstream_times_out_and_holds_no_pipe() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_forward(&client, &upstream.destination());
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        let passing = spawn_local(async move { pass(fetch.await.unwrap().unwrap().content).await });
        // So much is left that the rest is awaited in the pipe's way.
        peer.send(&response("Content-Length: 150000\r\n", &content(70_000, 0))).await;
        settle().await;
        assert_eq!(pipe_counts(), (1, 1), "the pipe is free while the upstream is awaited");
        let began = tokio::time::Instant::now();
        assert_eq!(passing.await.unwrap().unwrap_err(), "read content: timed out");
        assert!((60..62).contains(&began.elapsed().as_secs()));
        assert!(peer.is_closed().await);
    });
}

#[test]
fn content_that_is_dropped_closes_the_connection_and_its_pipe() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_forward(&client, &upstream.destination());
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        let sending = spawn_send(peer, response("Content-Length: 150000\r\n", &content(140_000, 0)));
        let mut content = fetch.await.unwrap().unwrap().content;
        let mut pipe = SplicePipe::default();
        loop {
            let moved = poll_fn(|cx| Pin::new(&mut content).poll_splice(cx, &mut pipe)).await.unwrap();
            if moved > 0 {
                break;
            }
            poll_fn(|cx| Pin::new(&mut content).poll_chunk(cx)).await.unwrap().unwrap();
        }
        assert_eq!(pipe_counts(), (1, 0));
        drop((content, pipe));
        assert_eq!((pipe_counts(), client.connections()), ((0, 0), 0));
        assert!(sending.await.unwrap().is_closed().await);
    });
}

#[test]
fn a_wait_that_is_polled_again_holds_no_pipe() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_forward(&client, &upstream.destination());
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        peer.send(&response("Content-Length: 150000\r\n", b"")).await;
        let mut content = fetch.await.unwrap().unwrap().content;
        let mut pipe = SplicePipe::default();
        for _ in 0..3 {
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut content).poll_splice(cx, &mut pipe))).await;
            assert!(polled.is_pending());
            assert_eq!(pipe_counts(), (1, 1));
        }
    });
}

#[test]
fn content_is_copied_while_all_pipes_are_in_use() {
    run(async {
        let mut used: Vec<_> = (0..crate::limits::SPLICE_PIPES_MAX).map(|_| SplicePipe::default()).collect();
        assert!(used.iter_mut().all(SplicePipe::open));
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_forward(&client, &upstream.destination());
        let mut peer = upstream.accept().await;
        peer.take_head().await;
        let sent = content(LENGTH, 0);
        let _sending = spawn_send(peer, response("Content-Length: 150000\r\n", &sent));
        let (received, piped) = pass(fetch.await.unwrap().unwrap().content).await.unwrap();
        assert!(received == sent && piped == 0);
    });
}
