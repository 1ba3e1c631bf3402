//! Fault injection: ring faults never change the bytes that are sent and received.

use crate::buffer::Buffer;
use crate::limits::BLOCKING_THREADS_MAX;
use crate::net::backend::BackendChoice;
use crate::net::runtime;
use crate::net::stream::{Detach, Stream};
use crate::net::sys::buffer_ring::ProvidedBuffer;
use crate::net::sys::faults::Script;
use crate::net::sys::ring::{Completion, Multishot, Op, Outcome, Ring, Sizes};
use crate::net::uring::{Uring, UringSocket};
use crate::service::ServerEvent;
use crate::{Observer, Request, Response, RunningServer, Server, StatusCode};
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Scripts with one kind of fault each, and one with all.
const SCRIPTS: [Script; 6] = [
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 0, reports_work: false },
    Script { sends: &[0, 1, 7, usize::MAX], delays: &[0], cancelled_every: 0, reports_work: false },
    Script { sends: &[usize::MAX], delays: &[3, 0, 1, 0, 0, 2], cancelled_every: 0, reports_work: false },
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 2, reports_work: false },
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 0, reports_work: true },
    Script { sends: &[5, usize::MAX, 0, 40], delays: &[1, 0, 2, 0, 0], cancelled_every: 3, reports_work: true },
];

/// A ring with small limits, which are soon reached.
const SMALL: Sizes = Sizes { submissions: 4, completions: 8, buffers: 2, buffer_bytes: 64 };

/// Responds with the request content, or with as many bytes as the path `/bytes/N` states.
async fn echo(request: &mut Request) -> Response {
    if let Some(count) = request.path().strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
        return Response::new(StatusCode::OK).body(alphabet(count));
    }
    request.body().set_bytes_max(u64::MAX);
    match request.body().read_all().await {
        Ok(content) => Response::new(StatusCode::OK).body(content),
        Err(error) => error.into(),
    }
}

fn alphabet(count: usize) -> String {
    (b'a'..=b'z').cycle().take(count).map(char::from).collect()
}

/// Returns the ring; prints the reason and returns `None` where io_uring is not available.
fn if_available<T>(made: io::Result<T>) -> Option<T> {
    made.inspect_err(|error| println!("skipped: io_uring is not available: {error}")).ok()
}

/// Starts a server with a faulty ring; `None` where io_uring is not available.
fn serve(script: Script) -> Option<RunningServer> {
    if_available(Ring::new(SMALL))?;
    let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().backend(BackendChoice::Faulty(script));
    Some(server.serve(echo).unwrap())
}

/// Runs a client that sends requests with the given upload and download sizes and checks the responses.
fn converse(server: &RunningServer, requests: &[(usize, usize)]) {
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let sent = requests.to_vec();
    let writer = thread::spawn(move || {
        for (upload, download) in sent {
            let content = alphabet(upload);
            let request = match upload {
                0 => format!("GET /bytes/{download} HTTP/1.1\r\nHost: a\r\n\r\n"),
                _ => format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {upload}\r\n\r\n{content}"),
            };
            writing.write_all(request.as_bytes()).unwrap();
        }
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut responses = String::new();
    stream.read_to_string(&mut responses).unwrap();
    writer.join().unwrap();
    let mut rest = &responses[..];
    for (upload, download) in requests {
        let (head, behind) = rest.split_once("\r\n\r\n").expect("each request has a response");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let content = alphabet(upload + download);
        assert!(behind.starts_with(&content), "{} bytes differ", content.len());
        rest = &behind[content.len()..];
    }
    assert_eq!(rest, "");
}

#[test]
fn faults_do_not_change_the_bytes() {
    for script in SCRIPTS {
        println!("{script:?}");
        let Some(server) = serve(script) else { return };
        let small: Vec<(usize, usize)> = (0..40).map(|index| (0, index * 13)).collect();
        let mixed = [(0, 10), (50_000, 0), (0, 20_000), (3, 0), (300_000, 0), (0, 1)];
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| converse(&server, &small));
                scope.spawn(|| converse(&server, &mixed));
            }
        });
        for _ in 0..10 {
            converse(&server, &[(0, 5)]);
        }
        server.handle().stop();
        server.join();
    }
}

/// Collects server events.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl Observer for EventLog {
    fn event(&self, event: &ServerEvent) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

#[test]
fn unavailable_ring_is_reported_once_and_epoll_serves() {
    let events = EventLog::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 3)
        .unwrap()
        .backend(BackendChoice::OversizedRing)
        .observe(events.clone());
    let server = server.serve(echo).unwrap();
    converse(&server, &[(0, 5), (7, 0)]);
    server.handle().stop();
    server.join();
    let events = events.0.lock().unwrap();
    assert!(matches!(&events[..], [one] if one.starts_with("UringUnavailable { error: ")), "{events:?}");
}

#[test]
fn ring_reads_files_to_their_end() {
    let Ok(runtime) = runtime::runtime() else { panic!("cannot create a runtime") };
    runtime.block_on(async {
        let Some(uring) = if_available(Uring::new()) else { return };
        tokio::task::spawn_local(uring.clone().run(|_| {}));
        let path = std::env::temp_dir().join(format!("selvedge-ring-{}", std::process::id()));
        std::fs::write(&path, alphabet(600_000)).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(uring.prefetch(&file, 10, 500_000).await, Some(()));
        assert_eq!(uring.prefetch(&file, 0, 2_000_000).await, Some(()), "a truncated file is read to its end");
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert_eq!(uring.prefetch(&folder, 0, 10).await, None, "a directory cannot be read");
        // The waiting task is dropped. The memory and the permit stay in use until the kernel has finished the
        // read.
        for _ in 0..20 {
            let mut reading = Box::pin(uring.prefetch(&file, 0, 500_000));
            assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_pending())).await);
        }
        assert_eq!(uring.reads_free(), 0);
        assert_eq!(uring.prefetch(&file, 0, 500_000).await, Some(()));
        assert_eq!(uring.reads_free(), BLOCKING_THREADS_MAX);
    });
}

#[test]
fn dropped_ring_closes_all_descriptors() {
    let Some((mut ring, _event)) = if_available(Ring::new(SMALL)) else { return };
    let far: Vec<UnixStream> = (0..300)
        .map(|_| {
            let (near, far) = UnixStream::pair().unwrap();
            let slot = ring.register(near.into());
            ring.start(slot, Op::Receive);
            ring.start(slot, Op::PeerShutdown);
            far
        })
        .collect();
    ring.submit_and_wait(None).unwrap();
    drop(ring);
    for mut far in far {
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn slot_is_not_reused_while_an_operation_is_in_flight() {
    let Some((mut ring, _event)) = if_available(Ring::new(SMALL)) else { return };
    let register = |ring: &mut Ring| {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let slot = ring.register(near.into());
        ring.start(slot, Op::Receive);
        (slot, far)
    };
    let (slot, mut far) = register(&mut ring);
    ring.submit_and_wait(None).unwrap();
    ring.release(slot);
    let (other, mut other_far) = register(&mut ring);
    assert_ne!(slot, other);
    assert_eq!(
        far.read(&mut [0]).unwrap_err().kind(),
        io::ErrorKind::WouldBlock,
        "a descriptor stays open while it is in use"
    );
    while far.read(&mut [0]).is_err() {
        // A close has no completion, so no wait may depend on it.
        ring.submit_and_wait(Some(Duration::from_millis(1))).unwrap();
        assert!(ring.next_completion().is_none(), "a released slot has no completions");
    }
    // The cancellation for the old owner of the slot does not affect the new one.
    let (again, mut again_far) = register(&mut ring);
    assert_eq!(slot, again);
    for (expected, far) in [(other, &mut other_far), (again, &mut again_far)] {
        far.write_all(b"bytes").unwrap();
        ring.submit_and_wait(Some(Duration::from_secs(20))).unwrap();
        let completion = ring.next_completion().unwrap();
        assert_eq!(completion.slot, expected);
        assert!(matches!(completion.outcome, Outcome::Received(Ok(Some(provided))) if provided.bytes() == b"bytes"));
    }
}

#[test]
#[should_panic(expected = "one operation of a descriptor uses memory at a time")]
fn memory_in_flight_is_not_replaced() {
    let Some((mut ring, _event)) = if_available(Ring::new(SMALL)) else {
        panic!("skipped: one operation of a descriptor uses memory at a time");
    };
    let (near, _far) = UnixStream::pair().unwrap();
    let slot = ring.register(near.into());
    ring.submit_read(slot, vec![0; 4096], 4096, 0);
    ring.submit_send(slot, Buffer::of(&[0; 4096]), 0);
}

#[test]
fn buffer_in_use_is_not_overwritten() {
    let Some((mut ring, _event)) = if_available(Ring::new(SMALL)) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let slot = ring.register(near.into());
    ring.start(slot, Op::Receive);
    let mut in_use = Vec::new();
    for part in [b"first", b"other"] {
        far.write_all(part).unwrap();
        ring.submit_and_wait(Some(Duration::from_secs(20))).unwrap();
        let Some(Completion { outcome: Outcome::Received(Ok(Some(provided))), .. }) = ring.next_completion() else {
            panic!("no bytes received")
        };
        assert_eq!(provided.bytes(), part);
        in_use.push(provided);
    }
    // Both buffers are in use, so none is free for these bytes.
    far.write_all(b"third").unwrap();
    ring.submit_and_wait(Some(Duration::from_secs(20))).unwrap();
    let last = ring.next_completion().unwrap();
    assert!(matches!(
        last,
        Completion { outcome: Outcome::Received(Err(Errno::NOBUFS)), multishot: Multishot::Ended, .. }
    ));
    assert_eq!(in_use.iter().map(ProvidedBuffer::bytes).collect::<Vec<_>>(), [b"first", b"other"]);
    // One buffer is returned. The other one stays valid after the ring is dropped.
    in_use.pop();
    ring.start(slot, Op::Receive);
    ring.submit_and_wait(Some(Duration::from_secs(20))).unwrap();
    let Some(Completion { outcome: Outcome::Received(Ok(Some(third))), .. }) = ring.next_completion() else {
        panic!("no bytes received")
    };
    drop(ring);
    assert_eq!((in_use[0].bytes(), third.bytes()), (&b"first"[..], &b"third"[..]));
}

#[test]
fn all_waiting_sockets_are_woken() {
    let Ok(runtime) = runtime::runtime() else { panic!("cannot create a runtime") };
    runtime.block_on(async {
        let Some(uring) = if_available(Uring::new()) else { return };
        tokio::task::spawn_local(uring.clone().run(|_| {}));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (near, far): (Vec<_>, Vec<_>) = (0..300)
            .map(|_| {
                let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (near, _) = listener.accept().unwrap();
                near.set_nonblocking(true).unwrap();
                (Rc::new(UringSocket::new(uring.clone(), near.into())), far)
            })
            .unzip();
        let receive = |socket: &Rc<UringSocket>| {
            let socket = socket.clone();
            tokio::task::spawn_local(async move {
                let received = poll_fn(|cx| socket.poll_receive(cx, &mut None)).await;
                received.unwrap()
            })
        };
        // All sockets at once, and then no operation that makes the ring run again.
        let waiting: Vec<_> = near.iter().map(receive).collect();
        run_other_tasks().await;
        far.iter().for_each(|mut far| far.write_all(b"?").unwrap());
        expect(waiting, 1).await;
        // Spurious wake-ups of the kernel, more than it processes at once. Then the end of the streams, last half
        // first: the kernel signals nothing for operations that it has yet to wake.
        let waiting: Vec<_> = near.iter().map(receive).collect();
        run_other_tasks().await;
        near.iter().for_each(|near| near.shutdown(crate::net::raw::ShutdownMode::Write));
        run_other_tasks().await;
        let (first, last) = far.split_at(far.len() / 2);
        let mut waiting = waiting.into_iter();
        let of_first = waiting.by_ref().take(first.len()).collect();
        last.iter().for_each(|far| far.shutdown(Shutdown::Write).unwrap());
        expect(waiting.collect(), 0).await;
        first.iter().for_each(|far| far.shutdown(Shutdown::Write).unwrap());
        expect(of_first, 0).await;
    });
}

#[test]
fn a_socket_leaves_the_ring_while_the_end_of_its_client_is_awaited() {
    let (sender, left) = mpsc::channel();
    // In a thread of its own, because the wait for an operation that is not cancelled would have no end.
    thread::spawn(move || {
        let Ok(runtime) = runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(async {
            let Some(uring) = if_available(Uring::new()) else { return };
            tokio::task::spawn_local(uring.clone().run(|_| {}));
            let (near, _far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let socket = UringSocket::new(uring.clone(), near.into());
            poll_fn(|cx| {
                assert!(socket.poll_receive(cx, &mut None).is_pending());
                assert!(socket.poll_read_closed(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            run_other_tasks().await;
            let (_socket, received) = socket.detach().unwrap();
            assert!(received.is_empty());
        });
        sender.send(()).unwrap();
    });
    left.recv_timeout(Duration::from_secs(20)).expect("all operations are cancelled");
}

/// Waits until the runtime has polled for readiness and the ring has run.
async fn run_other_tasks() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

async fn expect(waiting: Vec<JoinHandle<usize>>, bytes: usize) {
    for waiting in waiting {
        let received = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert_eq!(received.expect("each waiting task is woken").unwrap(), bytes);
    }
}
