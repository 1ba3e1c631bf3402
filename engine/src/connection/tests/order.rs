//! Requests behind requests: their order, how many answers leave together, and whose turn
//! it is.

use super::scenario::{Scenario, World, pass, settle, virtually};
use crate::limits::REQUESTS_PER_TURN;
use crate::service::{CloseReason, Phase};

/// GETs of `/ok/0`, `/ok/1` and so on, in one piece.
fn batch(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| Scenario::get(&format!("/ok/{number}")).bytes()).collect()
}

#[test]
fn answers_come_in_the_order_of_their_requests() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send(batch(500)).await;
        let texts: Vec<String> = client.replies().iter().map(|reply| reply.text().to_owned()).collect();
        let expected: Vec<String> = (0..500).map(|number| format!("/ok/{number}")).collect();
        assert_eq!(texts, expected);
        assert_eq!(client.phase(), Phase::Idle);
        assert_eq!(client.finished().len(), 500);
    });
}

#[test]
fn answers_of_a_batch_leave_in_one_send() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send(batch(20)).await;
        assert_eq!(client.statuses().len(), 20);
        assert_eq!(client.pipe.sends().len(), 1);
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.pipe.sends().len(), 2, "an answer has nothing to wait for");
    });
}

#[test]
fn large_content_leaves_with_its_head() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/bytes/100000").sent(&world).await;
        assert_eq!(client.reply().content.len(), 100_000);
        assert_eq!(client.pipe.sends().len(), 1);
    });
}

#[test]
fn a_slow_application_does_not_hold_back_earlier_answers() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        let requests = [batch(3), Scenario::get("/slow/100").bytes(), Scenario::get("/ok").bytes()].concat();
        client.send(requests).await;
        assert_eq!(client.statuses(), [200; 3]);
        assert_eq!(client.phase(), Phase::Answering);
        pass(101).await;
        assert_eq!(client.statuses(), [200; 5]);
        assert_eq!(client.replies()[3].text(), "/slow/100");
    });
}

#[test]
fn waiting_content_does_not_hold_back_earlier_answers() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send([batch(1), Scenario::post("/read").content("hello").head()].concat()).await;
        assert_eq!(client.statuses(), [200]);
        client.send("hello").await;
        assert_eq!(client.replies()[1].text(), "hello");
    });
}

#[test]
fn others_get_their_turn_between_many_requests() {
    virtually(async {
        let world = World::new();
        let (first, second) = (world.connect(), world.connect());
        settle().await;
        let count = 4 * REQUESTS_PER_TURN as usize;
        first.pipe.push(&batch(count));
        second.pipe.push(&batch(1));
        settle().await;
        assert_eq!((first.statuses().len(), second.statuses().len()), (count, 1));
        let before = world.recorder.before(second.peer);
        assert!(before <= REQUESTS_PER_TURN as usize, "{before}");
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.pipe.set_room(0);
        client.send(batch(10_000)).await;
        // One buffer of requests, and one of answers.
        let served = client.finished().len();
        assert!(served < 200, "{served}");
        assert_eq!(client.phase(), Phase::Sending);
        assert!(client.pipe.unreceived() > 10_000 * 30 - 32 * 1024);
        for _ in 0..10_000 {
            client.take(1000).await;
        }
        assert_eq!(client.statuses().len(), 10_000);
    });
}

#[test]
fn nothing_is_answered_behind_a_close() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        let asked = Scenario::get("/ok/last").field("Connection", "foo, Close").bytes();
        client.send([batch(1), asked, batch(3)].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.replies()[1].text(), "/ok/last");
        assert!(client.replies()[1].closes() && !client.replies()[0].closes());
        assert_eq!(client.phase(), Phase::Lingering, "what is behind is discarded, not reset");
        assert_eq!(client.ends().await.0, CloseReason::Asked);
    });
}

#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send([batch(2), b"GET / HTTP/1.1\r\nBroken\r\n\r\n".to_vec(), batch(1)].concat()).await;
        assert_eq!(client.statuses(), [200, 200, 400]);
        assert!(client.replies()[2].closes());
        let finished = client.finished();
        assert_eq!(finished[2].reject.map(|reject| reject.name()), Some("FieldWithoutColon"));
        assert_eq!((finished[2].line.as_str(), finished[2].is_request), ("GET / HTTP/1.1", false));
    });
}
