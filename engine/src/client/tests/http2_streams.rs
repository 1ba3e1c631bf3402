//! The number of streams to an upstream, and requests that wait for one.

use super::http2::*;
use super::*;
use h2::server::SendResponse;
use http::Response;

/// Connections to one upstream, and the streams that `accept` permits on each.
const STREAMS_MAX: usize = 16 * 3;

/// Requests that were received and have no response: the value of their field `number`, and what responds.
type Held = Rc<RefCell<Vec<(String, SendResponse<Bytes>)>>>;

/// Serves all connections, and holds all requests.
fn hold(upstream: Upstream) -> (Destination, Held) {
    let held = Held::default();
    let all = held.clone();
    let to = serve(upstream, async move |(request, response): Exchange| {
        let number = request.headers().get("number").map(|number| number.to_str().unwrap().to_owned());
        all.borrow_mut().push((number.unwrap_or_default(), response));
    });
    (to, held)
}

fn complete_first(held: &Held) {
    let (_, response) = held.borrow_mut().remove(0);
    complete(response);
}

fn complete_all(held: &Held) {
    held.take().into_iter().for_each(|(_, response)| complete(response));
}

fn complete(mut response: SendResponse<Bytes>) {
    response.send_response(Response::new(()), true).unwrap();
}

/// Starts requests until all streams are in use.
async fn fill(
    client: &Client,
    to: &Destination,
) -> Vec<tokio::task::JoinHandle<Result<IncomingResponse, ClientError>>> {
    // The upstream's limit is known after the first exchange.
    let fetches = (0..STREAMS_MAX).map(|_| spawn_fetch(client, to, "GET")).collect();
    for _ in 0..16 {
        settle().await;
    }
    fetches
}

#[test]
fn requests_beyond_the_streams_wait_in_order() {
    run(async {
        let (to, held) = hold(Upstream::new());
        let client = client();
        let first = fill(&client, &to).await;
        assert_eq!(held.borrow().len(), STREAMS_MAX);
        let waiting: Vec<_> = (0..5)
            .map(|number| {
                let (client, to) = (client.clone(), to.clone());
                spawn_local(async move {
                    let fields = format!("number: {number}\r\n").into_bytes();
                    let head = OutgoingHead { fields, ..request("GET") };
                    let mut content = OutgoingContent::empty();
                    client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
                })
            })
            .collect();
        settle().await;
        assert_eq!(held.borrow().len(), STREAMS_MAX, "no stream is free");
        // One that leaves the queue does not hold up the others.
        waiting[1].abort();
        for number in ["0", "2", "3", "4"] {
            complete_first(&held);
            settle().await;
            settle().await;
            assert_eq!(held.borrow().len(), STREAMS_MAX);
            assert_eq!(held.borrow().last().unwrap().0, number);
        }
        complete_all(&held);
        for (number, fetch) in waiting.into_iter().enumerate().filter(|(number, _)| *number != 1) {
            assert!(fetch.await.unwrap().is_ok(), "{number}");
        }
        for fetch in first {
            assert!(fetch.await.unwrap().is_ok());
        }
        assert_eq!(client.0.0.group(&to).shared_connections.borrow().len(), 16);
    });
}

#[test]
fn a_request_that_gets_no_stream_in_time_was_not_sent() {
    run(async {
        let (to, held) = hold(Upstream::new());
        let client = client();
        let first = fill(&client, &to).await;
        let began = tokio::time::Instant::now();
        let error = fetch(&client, &to, "POST").await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ClientErrorKind::StreamsExhausted, RetrySafety::NotSent));
        assert_eq!(error.to_string(), "connect: all streams that the upstream permits are in use");
        assert!((5..7).contains(&began.elapsed().as_secs()));
        // Its place in the queue is free again.
        complete_first(&held);
        let another = spawn_fetch(&client, &to, "GET");
        settle().await;
        complete_all(&held);
        assert!(another.await.unwrap().is_ok());
        for fetch in first {
            assert!(fetch.await.unwrap().is_ok());
        }
    });
}

#[test]
fn requests_that_wait_for_a_lost_connection_open_another() {
    run(async {
        let upstream = Upstream::new();
        let (to, client) = (destination(&upstream), client());
        let mut fetches: Vec<_> = (0..STREAMS_MAX + 4).map(|_| spawn_fetch(&client, &to, "GET")).collect();
        let mut connections = Vec::new();
        for _ in 0..16 {
            let mut connection = accept(&upstream).await;
            let mut exchanges = Vec::new();
            while exchanges.len() < 3 {
                exchanges.push(connection.accept().await.unwrap().unwrap());
            }
            connections.push((connection, exchanges));
        }
        settle().await;
        connections.truncate(14);
        let mut served = 0;
        while served < 4 {
            let mut connection = accept(&upstream).await;
            while let Some(Ok((_, response))) = connection.accept().await {
                complete(response);
                served += 1;
                if served == 4 {
                    spawn_local(async move { while connection.accept().await.is_some() {} });
                    break;
                }
            }
        }
        for fetch in fetches.split_off(STREAMS_MAX) {
            assert!(fetch.await.unwrap().is_ok());
        }
    });
}

#[test]
fn the_upstreams_limit_of_streams_is_used() {
    run(async {
        let upstream = Upstream::new();
        let to = destination(&upstream);
        let client = client();
        let fetches: Vec<_> = (0..250).map(|_| spawn_fetch(&client, &to, "GET")).collect();
        let (socket, _) = upstream.listener.accept().await.unwrap();
        let mut server = h2::server::Builder::new();
        let mut connection = server.max_concurrent_streams(250).handshake::<_, Bytes>(socket).await.unwrap();
        let mut held = Vec::new();
        while held.len() < 250 {
            held.push(connection.accept().await.unwrap().unwrap().1);
        }
        held.into_iter().for_each(complete);
        spawn_local(async move { while connection.accept().await.is_some() {} });
        for fetch in fetches {
            assert!(fetch.await.unwrap().is_ok());
        }
        assert!(!upstream.has_connection().await, "one connection suffices");
    });
}
