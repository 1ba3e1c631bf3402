//! Lingering: the client is still sending. It can read the response, and the wait is bounded.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use crate::limits::{BUFFER_BYTES, LINGER_BYTES_MAX};
use crate::service::{CloseReason, Phase};
use selvedge_proto::Reject;

const BROKEN: &str = "GET / HTTP/1.1\nHost: a\n\n";

#[test]
fn a_refused_client_has_five_seconds_to_finish() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send(BROKEN).await;
        assert_eq!((client.phase(), client.pipe.is_write_shutdown()), (Phase::Lingering, true));
        for _ in 0..4 {
            advance(1).await;
            client.send(BROKEN).await;
        }
        assert_eq!(client.statuses(), [400]);
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::Rejected(Reject::BareLineFeed));
        assert!(is_about(seconds, 1), "{seconds}");
        assert_eq!(client.phase_at_close(), Phase::Lingering);
    });
}

#[test]
fn the_last_response_leaves_with_the_fin() {
    const LAST: &str = "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    with_virtual_time(async || {
        let server = TestServer::new();
        for (sent, status) in [(LAST.to_owned(), 200), (format!("{LAST}{LAST}"), 200), (BROKEN.to_owned(), 400)] {
            let client = server.connect();
            client.send(&sent).await;
            assert_eq!((client.statuses(), client.pipe.fin_left_with_data()), (vec![status], true), "{sent}");
        }
        let slow = server.connect();
        slow.pipe.set_window(10);
        slow.send(LAST).await;
        assert_eq!((slow.pipe.outgoing().len(), slow.closed()), (10, None));
        slow.read(usize::MAX - 10).await;
        assert_eq!((slow.statuses(), slow.closed()), (vec![200], Some(CloseReason::CloseRequested)));
    });
}

#[test]
fn a_refused_client_that_finishes_is_closed() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send(BROKEN).await;
        client.end(ClientEnd::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::Rejected(Reject::BareLineFeed)));
    });
}

#[test]
fn discarded_bytes_are_bounded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        let much = vec![b'x'; 2 * LINGER_BYTES_MAX as usize];
        client.send([BROKEN.as_bytes(), &much].concat()).await;
        assert_eq!(client.closed(), None, "a client that still sends has time to read the response");
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::Rejected(Reject::BareLineFeed));
        assert!(is_about(seconds, 5), "{seconds}");
        let received = much.len() - client.pipe.unreceived();
        assert!(received >= LINGER_BYTES_MAX as usize - BUFFER_BYTES, "{received}");
        assert!(received <= LINGER_BYTES_MAX as usize + 2 * BUFFER_BYTES, "{received}");
        settle().await;
    });
}

#[test]
fn bytes_received_during_the_last_response_do_not_reset_it() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let last = Scenario::get("/bytes/100000").field("Connection", "close");
        let client = last.at(Phase::Sending, &server).await;
        client.send("\r\n").await;
        client.read(usize::MAX - 10).await;
        assert!(client.response().is_complete);
        assert_eq!((client.phase(), client.pipe.is_write_shutdown()), (Phase::Lingering, true));
        client.end(ClientEnd::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::CloseRequested));
    });
}
