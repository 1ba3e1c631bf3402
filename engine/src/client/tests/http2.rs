//! Requests over HTTP/2 to upstreams that the `h2` crate serves.

use super::*;
use h2::server::{Connection, SendResponse};
use http::{HeaderMap, Request, Response, StatusCode as HttpStatus};

pub(super) fn destination(upstream: &Upstream) -> Destination {
    Destination { protocol: Protocol::Http2, ..upstream.destination() }
}

/// Accepts a connection.
pub(super) async fn accept(upstream: &Upstream) -> Connection<UnixStream, Bytes> {
    let (socket, _) = upstream.listener.accept().await.unwrap();
    h2::server::Builder::new().max_concurrent_streams(3).handshake(socket).await.unwrap()
}

pub(super) type Exchange = (Request<h2::RecvStream>, SendResponse<Bytes>);

/// Serves all connections with a function for each request.
pub(super) fn serve(upstream: Upstream, respond: impl AsyncFn(Exchange) + Clone + 'static) -> Destination {
    let to = destination(&upstream);
    spawn_local(async move {
        loop {
            let mut connection = accept(&upstream).await;
            let respond = respond.clone();
            spawn_local(async move {
                while let Some(Ok(exchange)) = connection.accept().await {
                    let respond = respond.clone();
                    spawn_local(async move { respond(exchange).await });
                }
            });
        }
    });
    to
}

/// Reads the content of a request.
async fn content_of(body: &mut h2::RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    all
}

/// Responds with the head and the content of the request, and trailers.
pub(super) async fn echo((request, mut response): Exchange) {
    let (head, mut body) = request.into_parts();
    let content = content_of(&mut body).await;
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    let mut fields: Vec<_> = head.headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    fields.extend(trailers.iter().map(|(name, value)| format!("trailer {name}={value:?}")));
    let line = format!("{} {} {} ", head.method, head.uri, fields.join(" "));
    let mut stream = response.send_response(Response::new(()), false).unwrap();
    stream.send_data(line.into(), false).unwrap();
    stream.send_data(content.into(), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    stream.send_trailers(trailers).unwrap();
}

pub(super) async fn post(
    client: &Client,
    to: &Destination,
    mut content: OutgoingContent,
) -> Result<IncomingResponse, ClientError> {
    client.send(to, &request("POST"), &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
}

#[test]
fn head_content_and_trailers_pass_in_both_directions() {
    run(async {
        let (to, client, source) = (serve(Upstream::new(), echo), client(), TestContent::new());
        source.push("abc");
        source.push("def");
        let mut trailers = Fields::new();
        trailers.append("checksum", "x").unwrap();
        source.trailers.replace(Some(trailers));
        source.end();
        let mut response = post(&client, &to, source.incoming(None)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        let content = read_all(&mut response.content).await.unwrap();
        assert_eq!(
            String::from_utf8(content).unwrap(),
            "POST http://example.com/path?query accept=\"*/*\" trailer checksum=\"x\" abcdef"
        );
        assert_eq!(Pin::new(&mut response.content).trailers().lines(), b"grpc-status: 0\r\n");
    });
}

#[test]
fn requests_share_connections_with_room() {
    run(async {
        let (to, client) = (serve(Upstream::new(), echo), client());
        // The settings of the upstream are known after the first exchange.
        drop(post(&client, &to, OutgoingContent::empty()).await.unwrap());
        settle().await;
        let posts: Vec<_> = (0..7)
            .map(|number| {
                let (client, to) = (client.clone(), to.clone());
                spawn_local(async move {
                    let content = OutgoingContent::bytes(format!("content {number}").into());
                    let mut response = post(&client, &to, content).await?;
                    Ok::<_, ClientError>(read_all(&mut response.content).await.unwrap())
                })
            })
            .collect();
        for (number, post) in posts.into_iter().enumerate() {
            let content = post.await.unwrap().unwrap();
            assert!(content.ends_with(format!("content {number}").as_bytes()));
        }
        let group = client.0.0.group(&to);
        let connections = group.shared_connections.borrow().len();
        assert!((1..=3).contains(&connections), "{connections}");
    });
}

#[test]
fn long_content_passes_the_windows() {
    run(async {
        let (to, client) = (serve(Upstream::new(), echo), client());
        let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut response = post(&client, &to, OutgoingContent::bytes(long.clone().into())).await.unwrap();
        let received = read_all(&mut response.content).await.unwrap();
        assert!(received.ends_with(&long), "{} bytes", received.len());
    });
}

#[test]
fn both_directions_are_open_at_once() {
    run(async {
        let to = serve(Upstream::new(), async |(request, mut response): Exchange| {
            let mut body = request.into_body();
            let mut stream = response.send_response(Response::new(()), false).unwrap();
            while let Some(piece) = body.data().await {
                stream.send_data(piece.unwrap(), false).unwrap();
            }
            stream.send_data(Bytes::new(), true).unwrap();
        });
        let (client, source) = (client(), TestContent::new());
        let mut response = post(&client, &to, source.incoming(None)).await.unwrap();
        for piece in ["one", "two", "three"] {
            source.push(piece);
            let received = poll_fn(|cx| Pin::new(&mut response.content).poll_chunk(cx)).await;
            assert_eq!(received.unwrap().unwrap(), piece);
        }
        source.end();
        assert!(poll_fn(|cx| Pin::new(&mut response.content).poll_chunk(cx)).await.is_none());
    });
}

#[test]
fn a_refused_stream_was_not_sent() {
    run(async {
        for (reason, retry) in
            [(h2::Reason::REFUSED_STREAM, RetrySafety::NotSent), (h2::Reason::INTERNAL_ERROR, RetrySafety::NoResponse)]
        {
            let to = serve(Upstream::new(), async move |(_, mut response): Exchange| response.send_reset(reason));
            let error = post(&client(), &to, OutgoingContent::empty()).await.unwrap_err();
            assert_eq!((error.phase, error.retry), (ClientPhase::AwaitHead, retry), "{error}");
        }
    });
}

#[test]
fn a_graceful_end_of_the_upstream_lets_requests_finish() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = destination(&upstream);
        let first = spawn_fetch(&client, &to, "GET");
        let mut connection = accept(&upstream).await;
        let (_, mut response) = connection.accept().await.unwrap().unwrap();
        connection.graceful_shutdown();
        let ending = spawn_local(async move { while connection.accept().await.is_some() {} });
        settle().await;
        let second = spawn_fetch(&client, &to, "GET");
        let mut other = accept(&upstream).await;
        response.send_response(Response::new(()), true).unwrap();
        assert!(first.await.unwrap().is_ok());
        ending.await.unwrap();
        let (_, mut response) = other.accept().await.unwrap().unwrap();
        spawn_local(async move { while other.accept().await.is_some() {} });
        response.send_response(Response::builder().status(HttpStatus::NOT_FOUND).body(()).unwrap(), true).unwrap();
        assert_eq!(second.await.unwrap().unwrap().status.code(), 404);
    });
}

#[test]
fn a_request_that_crosses_the_end_of_its_connection_was_not_sent() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_fetch(&client, &destination(&upstream), "POST");
        let mut peer = upstream.accept().await;
        peer.take_until("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        // SETTINGS, and GOAWAY of which stream 0 is the last.
        peer.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        peer.send(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
        let error = fetch.await.unwrap().unwrap_err();
        assert_eq!((error.kind, error.retry), (ClientErrorKind::Closed, RetrySafety::NotSent));
    });
}

#[test]
fn a_lost_connection_fails_all_streams() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = destination(&upstream);
        let fetches = [0; 2].map(|_| spawn_fetch(&client, &to, "GET"));
        let mut connection = accept(&upstream).await;
        let exchanges = [connection.accept().await.unwrap(), connection.accept().await.unwrap()];
        drop((exchanges.map(|exchange| std::mem::forget(exchange.unwrap())), connection));
        for fetch in fetches {
            let error = fetch.await.unwrap().unwrap_err();
            assert!(matches!(error.kind, ClientErrorKind::Closed | ClientErrorKind::Reset), "{error}");
            assert_eq!(error.retry, RetrySafety::NoResponse);
        }
        settle().await;
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn a_dropped_exchange_resets_its_stream_only() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = destination(&upstream);
        let dropped = spawn_fetch(&client, &to, "GET");
        let mut connection = accept(&upstream).await;
        let (_, mut first) = connection.accept().await.unwrap().unwrap();
        let other = spawn_fetch(&client, &to, "GET");
        let (_, mut second) = connection.accept().await.unwrap().unwrap();
        spawn_local(async move { while connection.accept().await.is_some() {} });
        dropped.abort();
        let reason = poll_fn(|cx| first.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, h2::Reason::CANCEL);
        second.send_response(Response::new(()), true).unwrap();
        assert!(other.await.unwrap().is_ok());
    });
}

#[test]
fn an_idle_connection_and_a_dropped_client_end() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let to = destination(&upstream);
        for ends_by_time in [true, false] {
            let client = if ends_by_time { client.clone() } else { super::client() };
            let fetch = spawn_fetch(&client, &to, "GET");
            let mut connection = accept(&upstream).await;
            let (_, mut response) = connection.accept().await.unwrap().unwrap();
            response.send_response(Response::new(()), true).unwrap();
            let ending = spawn_local(async move { while connection.accept().await.is_some() {} });
            drop(fetch.await.unwrap().unwrap());
            if ends_by_time {
                settle().await;
                assert_eq!(client.connections(), 1);
                ending.await.unwrap();
                assert_eq!(client.connections(), 0);
            } else {
                let table = Rc::downgrade(&client.0.0);
                drop(client);
                ending.await.unwrap();
                settle().await;
                assert!(table.upgrade().is_none(), "no task holds the state");
            }
        }
    });
}

#[test]
fn a_response_that_does_not_begin_times_out() {
    run(async {
        let to = serve(Upstream::new(), async |exchange: Exchange| {
            std::future::pending::<()>().await;
            drop(exchange);
        });
        let client = client();
        let error = post(&client, &to, OutgoingContent::empty()).await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ClientErrorKind::TimedOut, RetrySafety::NoResponse));
    });
}

#[test]
fn upstreams_without_http2_are_refused() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let fetch = spawn_fetch(&client, &destination(&upstream), "GET");
        let mut peer = upstream.accept().await;
        peer.receive().await;
        peer.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        let error = fetch.await.unwrap().unwrap_err();
        assert!(matches!(error.kind, ClientErrorKind::Http2(_)), "{error}");
        settle().await;
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn a_window_that_opens_continues_the_upload() {
    run(async {
        // The upstream takes nothing before the response has begun, so the windows close.
        let to = serve(Upstream::new(), async |(request, mut response): Exchange| {
            let mut stream = response.send_response(Response::new(()), false).unwrap();
            let mut body = request.into_body();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let count = content_of(&mut body).await.len();
            stream.send_data(count.to_string().into(), true).unwrap();
        });
        let client = client();
        let posts = [0; 2].map(|_| {
            let (client, to) = (client.clone(), to.clone());
            spawn_local(async move {
                let content = OutgoingContent::bytes(vec![b'x'; 500_000].into());
                let mut response = post(&client, &to, content).await.unwrap();
                read_all(&mut response.content).await.unwrap()
            })
        });
        for post in posts {
            assert_eq!(post.await.unwrap(), b"500000");
        }
    });
}

#[test]
fn an_upload_moves_while_the_response_is_not_read() {
    run(async {
        let to = serve(Upstream::new(), async |(request, mut response): Exchange| {
            let mut stream = response.send_response(Response::new(()), false).unwrap();
            stream.send_data(vec![b'y'; 1_000_000].into(), false).unwrap();
            let count = content_of(&mut request.into_body()).await.len();
            stream.send_data(count.to_string().into(), true).unwrap();
        });
        let source = TestContent::new();
        let mut response = post(&client(), &to, source.incoming(None)).await.unwrap();
        move_upload(&source, &mut response.content).await;
        let received = read_all(&mut response.content).await.unwrap();
        assert!(received.ends_with(b"y3000000"), "{}", received.len());
    });
}

#[test]
fn an_upload_that_fails_while_the_response_is_not_read_fails_it() {
    run(async {
        let to = serve(Upstream::new(), async |(request, mut response): Exchange| {
            let _stream = response.send_response(Response::new(()), false).unwrap();
            content_of(&mut request.into_body()).await;
        });
        let source = TestContent::new();
        let mut response = post(&client(), &to, source.incoming(None)).await.unwrap();
        source.fail(ContentError::Disconnected);
        poll_fn(|cx| {
            Pin::new(&mut response.content).poll_progress(cx);
            Poll::Ready(())
        })
        .await;
        let error = read_all(&mut response.content).await.unwrap_err();
        assert!(error.starts_with("send request: request content: "), "{error}");
    });
}

#[test]
fn a_response_that_permits_no_content_has_none() {
    run(async {
        for (method, status, length) in [
            ("GET", 204, None),
            ("GET", 304, None),
            ("GET", 304, Some("2")),
            ("HEAD", 200, None),
            ("HEAD", 200, Some("2")),
        ] {
            for is_late in [false, true] {
                for content in ["", "ok"] {
                    let to = serve(Upstream::new(), async move |(_, mut response): Exchange| {
                        let mut head = Response::builder().status(status);
                        if let Some(length) = length {
                            head = head.header("content-length", length);
                        }
                        let mut stream = response.send_response(head.body(()).unwrap(), false).unwrap();
                        if is_late {
                            // The head arrives by itself.
                            settle().await;
                        }
                        stream.send_data(content.into(), true).unwrap();
                    });
                    let result = fetch(&client(), &to, method).await;
                    let case = format!("{method} {status} {length:?} {is_late} {content}");
                    if content.is_empty() {
                        let mut response = result.expect(&case);
                        assert_eq!(response.status.code(), status, "{case}");
                        assert!(read_all(&mut response.content).await.expect(&case).is_empty(), "{case}");
                    } else {
                        let error = result.expect_err(&case);
                        assert!(matches!(error.kind, ClientErrorKind::MalformedStream(_)), "{case}: {error}");
                        assert_eq!(error.retry, RetrySafety::Never, "{case}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_response_has_at_most_500_fields() {
    run(async {
        for (count, is_accepted) in [(500, true), (501, false)] {
            let to = serve(Upstream::new(), async move |(_, mut response): Exchange| {
                let mut head = Response::new(());
                for number in 0..count {
                    head.headers_mut().append("x", number.into());
                }
                response.send_response(head, true).unwrap();
            });
            match fetch(&client(), &to, "GET").await {
                Ok(response) => assert!(is_accepted && response.fields.iter().count() == count, "{count}"),
                Err(error) => {
                    assert!(
                        !is_accepted && matches!(error.kind, ClientErrorKind::MalformedSection(_)),
                        "{count}: {error}"
                    );
                }
            }
        }
    });
}
