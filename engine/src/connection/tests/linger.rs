//! The end of a connection whose client is still sending: it is to see the answer, and it
//! is not waited for without bounds.

use super::pipe::Ending;
use super::scenario::{World, is_about, pass, settle, virtually};
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
