//! What an observer is told of a request and its answer.

use selvedge::proto::Afterwards;
use selvedge::service::Exchange;
use selvedge::{Observer, Request, Response, Server, Status};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};

/// What is kept of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: u16,
    tag: Option<Vec<u8>>,
    head_bytes: usize,
    content_bytes: u64,
    afterwards: Afterwards,
    requests: u32,
    client: Option<IpAddr>,
    user: Option<String>,
    label: Option<u32>,
    is_timed: bool,
}

#[derive(Clone)]
struct Teller(Sender<Told>);

impl Observer for Teller {
    fn times(&self) -> bool {
        true
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        let told = Told {
            status: exchange.status.code(),
            tag: exchange.fields.get("etag").map(<[u8]>::to_vec),
            head_bytes: exchange.head_bytes,
            content_bytes: exchange.content_bytes,
            afterwards: exchange.afterwards,
            requests: exchange.requests,
            client: exchange.request.map(Request::client),
            user: exchange.request.and_then(Request::user).map(str::to_owned),
            label: exchange.request.map(Request::label),
            is_timed: exchange.elapsed.is_some(),
        };
        self.0.send(told).expect("somebody is told");
    }
}

async fn answer(request: &mut Request) -> Response {
    if request.path() == "/known" {
        request.set_client(IpAddr::from([192, 0, 2, 7]));
        request.set_user("ann".into());
        request.set_label(3);
    }
    Response::new(Status::OK).field("ETag", "\"a\"").body("content")
}

#[test]
fn an_observer_is_told_what_was_found_out_and_what_was_answered() {
    let (sender, told) = channel();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(Teller(sender));
    let running = server.serve(answer).expect("a thread starts");
    let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let requests = "GET /known HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/9.9\r\n\r\n";
    stream.write_all(requests.as_bytes()).expect("the server reads");
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("the server answers and closes");
    let told: Vec<Told> = (0..3).map(|_| told.recv().expect("there are three")).collect();
    let sent: u64 = told.iter().map(|told| told.head_bytes as u64 + told.content_bytes).sum();
    assert_eq!(sent, answers.len() as u64);

    let [known, unknown, refused] = &told[..] else { panic!("{told:?}") };
    assert_eq!((known.client, known.user.as_deref()), (Some(IpAddr::from([192, 0, 2, 7])), Some("ann")));
    // Nothing of it is left in the room that the next request is given.
    assert_eq!((unknown.client, unknown.user.as_deref()), (Some(IpAddr::from([127, 0, 0, 1])), None));
    assert_eq!((known.label, unknown.label, refused.label), (Some(3), Some(0), None));
    for (number, told) in [(1, known), (2, unknown)] {
        assert_eq!((told.status, told.content_bytes, told.requests, told.is_timed), (200, 7, number, true));
        assert_eq!((told.tag.as_deref(), told.afterwards), (Some(&b"\"a\""[..]), Afterwards::KeepOpen));
    }
    assert_eq!((refused.status, refused.afterwards, refused.tag.as_deref()), (505, Afterwards::Close, None));
    running.handle().stop_now();
    running.join();
}
