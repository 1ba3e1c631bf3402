//! The end of a connection whose client is still sending: it is to see the answer, and it
//! is not waited for without bounds.

use super::pipe::Ending;
use super::scenario::{Scenario, World, is_about, pass, settle, virtually};
use crate::limits::{BUFFER_BYTES, LINGER_BYTES_MAX};
use crate::service::{CloseReason, Phase};
use selvedge_proto::Reject;

const BROKEN: &str = "GET / HTTP/1.1\nHost: a\n\n";

#[test]
fn a_refused_client_has_five_seconds_to_finish() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send(BROKEN).await;
        assert_eq!((client.phase(), client.pipe.is_finished()), (Phase::Lingering, true));
        for _ in 0..4 {
            pass(1).await;
            client.send(BROKEN).await;
        }
        assert_eq!(client.statuses(), [400]);
        let (reason, seconds) = client.ends().await;
        assert_eq!(reason, CloseReason::Rejected(Reject::BareLineFeed));
        assert!(is_about(seconds, 1), "{seconds}");
        assert_eq!(client.closed_while(), Phase::Lingering);
    });
}

#[test]
fn a_last_answer_leaves_with_the_end() {
    const LAST: &str = "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    virtually(async {
        let world = World::new();
        for (sent, status) in [(LAST.to_owned(), 200), (format!("{LAST}{LAST}"), 200), (BROKEN.to_owned(), 400)] {
            let client = world.connect();
            client.send(&sent).await;
            assert_eq!((client.statuses(), client.pipe.ended_together()), (vec![status], true), "{sent}");
        }
        let slow = world.connect();
        slow.pipe.set_room(10);
        slow.send(LAST).await;
        assert_eq!((slow.pipe.outgoing().len(), slow.closed()), (10, None));
        slow.take(usize::MAX - 10).await;
        assert_eq!((slow.statuses(), slow.closed()), (vec![200], Some(CloseReason::Asked)));
    });
}

#[test]
fn a_refused_client_that_finishes_is_let_go() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send(BROKEN).await;
        client.end(Ending::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::Rejected(Reject::BareLineFeed)));
    });
}

#[test]
fn what_is_discarded_has_a_bound() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        let much = vec![b'x'; 2 * LINGER_BYTES_MAX as usize];
        client.send([BROKEN.as_bytes(), &much].concat()).await;
        assert_eq!(client.closed(), None, "who still sends has time to look at the answer");
        let (reason, seconds) = client.ends().await;
        assert_eq!(reason, CloseReason::Rejected(Reject::BareLineFeed));
        assert!(is_about(seconds, 5), "{seconds}");
        let received = much.len() - client.pipe.unreceived();
        assert!(received >= LINGER_BYTES_MAX as usize - BUFFER_BYTES, "{received}");
        assert!(received <= LINGER_BYTES_MAX as usize + 2 * BUFFER_BYTES, "{received}");
        settle().await;
    });
}

#[test]
fn what_came_while_the_last_answer_left_does_not_take_it_with_it() {
    virtually(async {
        let world = World::new();
        let last = Scenario::get("/bytes/100000").field("Connection", "close");
        let client = last.at(Phase::Sending, &world).await;
        client.send("\r\n").await;
        client.take(usize::MAX - 10).await;
        assert!(client.reply().is_complete);
        assert_eq!((client.phase(), client.pipe.is_finished()), (Phase::Lingering, true));
        client.end(Ending::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::Asked));
    });
}
