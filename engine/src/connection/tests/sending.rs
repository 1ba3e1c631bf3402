//! A client that takes its answer slowly, or not at all.

use super::pipe::Ending;
use super::scenario::{Client, Scenario, World, is_about, pass, virtually};
use crate::service::{CloseReason, Outcome, Phase};

#[test]
fn a_client_that_takes_nothing_ends_after_the_silence() {
    virtually(async {
        let world = World::new();
        for target in ["/ok", "/bytes/10000", "/bytes/100000"] {
            let client = Scenario::get(target).at(Phase::Sending, &world).await;
            let (reason, seconds) = client.ends().await;
            assert_eq!(reason, CloseReason::SendTooSlow, "{target}");
            assert!(is_about(seconds, 30), "{seconds}");
            assert_eq!(client.pipe.outgoing().len(), 10);
        }
    });
}

/// Takes an answer of a million bytes at a rate; how long the connection lived.
async fn take_at(bytes_each_second: usize, seconds: u64) -> (Option<CloseReason>, Outcome) {
    let world = World::new();
    let client = Scenario::get("/bytes/1000000").at(Phase::Sending, &world).await;
    for _ in 0..seconds {
        client.take(bytes_each_second).await;
        pass(1).await;
        if client.closed().is_some() {
            break;
        }
    }
    let outcome = client.finished().first().map_or(Outcome::Complete, |finished| finished.outcome);
    (client.closed(), outcome)
}

#[test]
fn an_answer_has_to_be_taken_at_the_floor_on_the_average() {
    virtually(async {
        assert_eq!(take_at(100, 25).await.0, None, "the first silence is allowed to everybody");
        assert_eq!(take_at(100, 60).await, (Some(CloseReason::SendTooSlow), Outcome::Cut));
        assert_eq!(take_at(400, 200).await, (Some(CloseReason::SendTooSlow), Outcome::Cut));
        assert_eq!(take_at(600, 1_500).await, (None, Outcome::Complete));
    });
}

#[test]
fn a_slow_client_gets_all_of_it() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/bytes/50000").at(Phase::Sending, &world).await;
        client.pipe.send_bytes_max.set(7);
        for _ in 0..51 {
            client.take(1000).await;
        }
        assert_eq!(client.reply().content, super::site::content(50_000));
        assert_eq!(client.phase(), Phase::Idle);
    });
}

/// How often the connection's file was not reported as complete.
fn cut_count(client: &Client<'_>) -> usize {
    client.finished().iter().filter(|finished| finished.outcome == Outcome::Cut).count()
}

#[test]
fn a_client_that_is_gone_while_it_is_answered() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/bytes/100000").at(Phase::Sending, &world).await;
        client.end(Ending::Reset).await;
        assert_eq!(client.closed(), Some(CloseReason::Reset));
        assert_eq!(cut_count(&client), 1);
        let while_called = Scenario::get("/slow/5").at(Phase::Answering, &world).await;
        while_called.end(Ending::Reset).await;
        pass(6).await;
        assert_eq!(while_called.closed(), Some(CloseReason::Reset));
    });
}
