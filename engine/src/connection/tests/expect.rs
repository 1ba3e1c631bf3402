//! `Expect: 100-continue` (RFC 9110 §10.1.1): a client is told to go on when, and only
//! when, somebody waits for its content.

use super::scenario::{Scenario, World, pass, virtually};
use crate::service::{CloseReason, Phase};

fn waiting(target: &str) -> Scenario {
    Scenario::post(target).field("Expect", "100-continue").content("hello")
}

#[test]
fn a_client_is_told_to_go_on_when_its_content_is_wanted() {
    virtually(async {
        let world = World::new();
        let client = waiting("/late/5").at_head(&world).await;
        pass(4).await;
        assert_eq!(client.pipe.outgoing(), b"", "nobody wants it yet");
        pass(2).await;
        assert_eq!(client.pipe.outgoing(), b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello").await;
        assert_eq!(client.statuses(), [100, 200]);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn a_client_that_did_not_wait_is_not_told() {
    virtually(async {
        let world = World::new();
        let client = waiting("/read").sent(&world).await;
        assert_eq!(client.statuses(), [200]);
        let late = waiting("/late/5").at_head(&world).await;
        late.send("hello").await;
        pass(6).await;
        assert!(late.statuses().ends_with(&[200]));
        assert_eq!(late.phase(), Phase::Idle);
    });
}

#[test]
fn a_final_answer_without_reading_closes() {
    virtually(async {
        let world = World::new();
        let client = waiting("/ok").at_head(&world).await;
        assert_eq!((client.reply().status, client.reply().closes()), (200, true));
        // The content that comes nevertheless is no request.
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.statuses(), [200]);
        assert_eq!(client.ends().await.0, CloseReason::AnswerEnded);
    });
}

#[test]
fn content_that_is_too_large_is_refused_without_asking_for_it() {
    virtually(async {
        let world = World::new();
        let client = waiting("/limit/4").at_head(&world).await;
        assert_eq!((client.reply().status, client.reply().closes()), (413, true));
        assert_eq!(client.ends().await.0, CloseReason::AnswerEnded);
    });
}

#[test]
fn nothing_is_asked_for_in_the_middle_of_an_answer() {
    virtually(async {
        // The echo reads while it answers.
        let world = World::new();
        let client = waiting("/echo").at_head(&world).await;
        assert!(client.pipe.outgoing().starts_with(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
        client.send("hello").await;
        assert_eq!(client.statuses(), [100, 200]);
        assert_eq!(client.replies()[1].text(), "hello");
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn http_1_0_is_never_told() {
    virtually(async {
        let world = World::new();
        let scenario = Scenario::request("POST", "/read", "HTTP/1.0").field("Expect", "100-continue").content("hello");
        let client = scenario.at(Phase::ReadingContent, &world).await;
        client.send("hello").await;
        assert_eq!(client.statuses(), [200]);
    });
}
