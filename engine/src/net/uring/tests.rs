//! What goes wrong in a ring is nobody's business but the driver's: the same bytes come and go.

use crate::buffer::Buffer;
use crate::limits::BLOCKING_THREADS_MAX;
use crate::net::driver::Driver;
use crate::net::stream::Stream;
use crate::net::sys::faults::Script;
use crate::net::sys::leases::Lease;
use crate::net::sys::ring::{Completion, Done, Kind, Ring, Sizes, Then};
use crate::net::uring::{RingSocket, Uring};
use crate::net::worker;
use crate::service::Incident;
use crate::{Observer, Request, Response, Running, Server, Status};
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Scripts, each with another thing that goes wrong, and one with all of them.
const SCRIPTS: [Script; 6] = [
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 0, says_work: false },
    Script { sends: &[0, 1, 7, usize::MAX], delays: &[0], cancelled_every: 0, says_work: false },
    Script { sends: &[usize::MAX], delays: &[3, 0, 1, 0, 0, 2], cancelled_every: 0, says_work: false },
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 2, says_work: false },
    Script { sends: &[usize::MAX], delays: &[0], cancelled_every: 0, says_work: true },
    Script { sends: &[5, usize::MAX, 0, 40], delays: &[1, 0, 2, 0, 0], cancelled_every: 3, says_work: true },
];

/// A ring that soon runs out of everything.
const SMALL: Sizes = Sizes { submissions: 4, completions: 8, buffers: 2, buffer_bytes: 64 };

/// Answers with the content that came, or with as many bytes as the path says.
async fn echo(request: &mut Request) -> Response {
    if let Some(count) = request.path().strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
        return Response::new(Status::OK).body(letters(count));
    }
    request.body().limit(u64::MAX);
    match request.body().read().await {
        Ok(content) => Response::new(Status::OK).body(content),
        Err(error) => error.into(),
    }
}

fn letters(count: usize) -> String {
    (b'a'..=b'z').cycle().take(count).map(char::from).collect()
}

/// What a ring is needed for; `None` where there are no rings, which is said.
fn here<T>(made: io::Result<T>) -> Option<T> {
    made.inspect_err(|error| println!("no io_uring here, so nothing can go wrong with it: {error}")).ok()
}

/// A server with such a ring; `None` where there are no rings, which is said.
fn serve(script: Script) -> Option<Running> {
    here(Ring::new(SMALL))?;
    let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(Driver::Faulty(script));
    Some(server.serve(echo).unwrap())
}

/// A client with so many requests, all written at once where they are small.
fn converse(server: &Running, requests: &[(usize, usize)]) {
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let sent = requests.to_vec();
    let writer = thread::spawn(move || {
        for (upload, download) in sent {
            let content = letters(upload);
            let request = match upload {
                0 => format!("GET /bytes/{download} HTTP/1.1\r\nHost: a\r\n\r\n"),
                _ => format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {upload}\r\n\r\n{content}"),
            };
            writing.write_all(request.as_bytes()).unwrap();
        }
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    writer.join().unwrap();
    let mut rest = &answers[..];
    for (upload, download) in requests {
        let (head, behind) = rest.split_once("\r\n\r\n").expect("an answer for each request");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let content = letters(upload + download);
        assert!(behind.starts_with(&content), "{} bytes as they are", content.len());
        rest = &behind[content.len()..];
    }
    assert_eq!(rest, "");
}

#[test]
fn the_same_bytes_come_and_go_whatever_goes_wrong() {
    for script in SCRIPTS {
        println!("{script:?}");
        let Some(server) = serve(script) else { return };
        let small: Vec<(usize, usize)> = (0..40).map(|number| (0, number * 13)).collect();
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

/// Keeps what it is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap().push(format!("{incident:?}"));
    }
}

#[test]
fn what_the_system_refuses_is_said_once_and_served_all_the_same() {
    let told = Told::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 3).unwrap().driver(Driver::TooLarge).observe(told.clone());
    let server = server.serve(echo).unwrap();
    converse(&server, &[(0, 5), (7, 0)]);
    server.handle().stop();
    server.join();
    let told = told.0.lock().unwrap();
    assert!(matches!(&told[..], [one] if one.starts_with("DriverRefused { error: ")), "{told:?}");
}

#[test]
fn files_are_read_by_the_ring_to_their_end() {
    let Ok(runtime) = worker::runtime() else { panic!("a runtime") };
    runtime.block_on(async {
        let Some(uring) = here(Uring::new()) else { return };
        tokio::task::spawn_local(uring.clone().drive(|_| {}));
        let path = std::env::temp_dir().join(format!("selvedge-ring-{}", std::process::id()));
        std::fs::write(&path, letters(600_000)).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(uring.bring_into_memory(&file, 10, 500_000).await, Some(()));
        assert_eq!(uring.bring_into_memory(&file, 0, 2_000_000).await, Some(()), "shorter than it was");
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert_eq!(uring.bring_into_memory(&folder, 0, 10).await, None, "cannot be read");
        // Whoever waits goes away; the memory is the kernel's until it has read, and the turn with it.
        for _ in 0..20 {
            let mut reading = Box::pin(uring.bring_into_memory(&file, 0, 500_000));
            assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_pending())).await);
        }
        assert_eq!(uring.reads_left(), 0);
        assert_eq!(uring.bring_into_memory(&file, 0, 500_000).await, Some(()));
        assert_eq!(uring.reads_left(), BLOCKING_THREADS_MAX);
    });
}

#[test]
fn a_ring_that_ends_closes_all_that_it_holds() {
    let Some((mut ring, _event)) = here(Ring::new(SMALL)) else { return };
    let far: Vec<UnixStream> = (0..300)
        .map(|_| {
            let (near, far) = UnixStream::pair().unwrap();
            let number = ring.hold(near.into());
            ring.begin(number, Kind::Receive);
            ring.begin(number, Kind::Ended);
            far
        })
        .collect();
    ring.turn(None).unwrap();
    drop(ring);
    for mut far in far {
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn a_number_is_not_anothers_while_something_is_in_flight() {
    let Some((mut ring, _event)) = here(Ring::new(SMALL)) else { return };
    let hold = |ring: &mut Ring| {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let number = ring.hold(near.into());
        ring.begin(number, Kind::Receive);
        (number, far)
    };
    let (number, mut far) = hold(&mut ring);
    ring.turn(None).unwrap();
    ring.let_go(number);
    let (other, mut other_far) = hold(&mut ring);
    assert_ne!(number, other);
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "open while it is used");
    while far.read(&mut [0]).is_err() {
        // Closing is not said to be done where nobody waits for it, so no turn may wait for that alone.
        ring.turn(Some(Duration::from_millis(1))).unwrap();
        assert!(ring.next().is_none(), "nobody waits for what was let go of");
    }
    // The cancellation of the one is not the other's, who has the number now.
    let (again, mut again_far) = hold(&mut ring);
    assert_eq!(number, again);
    for (expected, far) in [(other, &mut other_far), (again, &mut again_far)] {
        far.write_all(b"here").unwrap();
        ring.turn(Some(Duration::from_secs(20))).unwrap();
        let came = ring.next().unwrap();
        assert_eq!(came.number, expected);
        assert!(matches!(came.done, Done::Received(Ok(Some(lease))) if lease.bytes() == b"here"));
    }
}

#[test]
#[should_panic(expected = "one operation of a descriptor uses memory at a time")]
fn memory_in_flight_is_not_let_go_for_other_memory() {
    let Some((mut ring, _event)) = here(Ring::new(SMALL)) else {
        panic!("one operation of a descriptor uses memory at a time, where there are any");
    };
    let (near, _far) = UnixStream::pair().unwrap();
    let number = ring.hold(near.into());
    ring.read(number, vec![0; 4096], 4096, 0);
    ring.send(number, Buffer::of(&[0; 4096]), 0);
}

#[test]
fn a_buffer_on_lease_is_not_written_to() {
    let Some((mut ring, _event)) = here(Ring::new(SMALL)) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let number = ring.hold(near.into());
    ring.begin(number, Kind::Receive);
    let mut leases = Vec::new();
    for piece in [b"first", b"other"] {
        far.write_all(piece).unwrap();
        ring.turn(Some(Duration::from_secs(20))).unwrap();
        let Some(Completion { done: Done::Received(Ok(Some(lease))), .. }) = ring.next() else { panic!("bytes") };
        assert_eq!(lease.bytes(), piece);
        leases.push(lease);
    }
    // Both are on lease, so that there is none for this.
    far.write_all(b"third").unwrap();
    ring.turn(Some(Duration::from_secs(20))).unwrap();
    let last = ring.next().unwrap();
    assert!(matches!(last, Completion { done: Done::Received(Err(Errno::NOBUFS)), then: Then::Over, .. }));
    assert_eq!(leases.iter().map(Lease::bytes).collect::<Vec<_>>(), [b"first", b"other"]);
    // One is given back, also after the ring has ended under the other.
    leases.pop();
    ring.begin(number, Kind::Receive);
    ring.turn(Some(Duration::from_secs(20))).unwrap();
    let Some(Completion { done: Done::Received(Ok(Some(third))), .. }) = ring.next() else { panic!("bytes") };
    drop(ring);
    assert_eq!((leases[0].bytes(), third.bytes()), (&b"first"[..], &b"third"[..]));
}

#[test]
fn whoever_something_came_for_hears_of_it_however_many_they_are() {
    let Ok(runtime) = worker::runtime() else { panic!("a runtime") };
    runtime.block_on(async {
        let Some(uring) = here(Uring::new()) else { return };
        tokio::task::spawn_local(uring.clone().drive(|_| {}));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (near, far): (Vec<_>, Vec<_>) = (0..300)
            .map(|_| {
                let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (near, _) = listener.accept().unwrap();
                near.set_nonblocking(true).unwrap();
                (Rc::new(RingSocket::new(uring.clone(), near.into())), far)
            })
            .unzip();
        let receive = |socket: &Rc<RingSocket>| {
            let socket = socket.clone();
            tokio::task::spawn_local(async move {
                let received = poll_fn(|cx| socket.poll_receive(cx, &mut None)).await;
                received.unwrap()
            })
        };
        // All of them at once, and then nothing that would have the ring turn again.
        let waiting: Vec<_> = near.iter().map(receive).collect();
        others_turn().await;
        far.iter().for_each(|mut far| far.write_all(b"?").unwrap());
        expect(waiting, 1).await;
        // What wakes the kernel for nothing: more of it than one turn does. Then the end, of the last first:
        // the kernel signals nothing for those that it has yet to wake.
        let waiting: Vec<_> = near.iter().map(receive).collect();
        others_turn().await;
        near.iter().for_each(|near| near.finish());
        others_turn().await;
        let (first, last) = far.split_at(far.len() / 2);
        let mut waiting = waiting.into_iter();
        let of_first = waiting.by_ref().take(first.len()).collect();
        last.iter().for_each(|far| far.shutdown(Shutdown::Write).unwrap());
        expect(waiting.collect(), 0).await;
        first.iter().for_each(|far| far.shutdown(Shutdown::Write).unwrap());
        expect(of_first, 0).await;
    });
}

/// Long enough for the runtime to ask for readiness, and for the ring to turn.
async fn others_turn() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

async fn expect(waiting: Vec<JoinHandle<usize>>, bytes: usize) {
    for waiting in waiting {
        let received = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert_eq!(received.expect("it is not forgotten").unwrap(), bytes);
    }
}
