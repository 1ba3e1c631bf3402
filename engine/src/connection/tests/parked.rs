//! Connections that are idle for a while, and what has them go on.

use super::pipe::Ending;
use super::scenario::{Scenario, World, is_about, pass, settle, virtually};
use crate::service::{CloseReason, Phase};

#[test]
fn who_is_idle_for_a_while_is_parked_until_something_comes() {
    virtually(async {
        let world = World::new();
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &world).await;
        let slow = Scenario::get("/never").at(Phase::Answering, &world).await;
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        assert!(!client.pipe.is_parked());
        pass(2).await;
        assert!(client.pipe.is_parked());
        assert_eq!(client.phase(), Phase::Idle);
        assert!(!begun.pipe.is_parked() && !slow.pipe.is_parked());
        for count in 2..5 {
            client.send(Scenario::get("/ok").bytes()).await;
            assert_eq!(client.statuses(), vec![200; count]);
            assert!(!client.pipe.is_parked());
            pass(2).await;
            assert!(client.pipe.is_parked());
        }
        client.end(Ending::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::ClientDone));
    });
}

#[test]
fn being_parked_is_no_reason_to_be_idle_longer() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        let (reason, seconds) = client.ends().await;
        assert_eq!(reason, CloseReason::Idle);
        assert!(is_about(seconds, 60), "{seconds}");
        assert_eq!(client.closed_while(), Phase::Idle);
    });
}

#[test]
fn a_head_that_begins_after_that_has_its_own_time() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(50).await;
        client.send("GET /ok HTTP/1.1\r\n").await;
        assert_eq!(client.phase(), Phase::ReadingHead);
        pass(9).await;
        assert_eq!(client.statuses(), [200]);
        pass(2).await;
        assert_eq!(client.statuses(), [200, 408]);
    });
}

#[test]
fn whatever_ends_idle_connections_ends_parked_ones() {
    virtually(async {
        let world = World::new();
        let room = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(1).await;
        let gone = Scenario::get("/ok").at(Phase::Idle, &world).await;
        let drained = Scenario::get("/ok").at(Phase::Idle, &world).await;
        let cut = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(2).await;
        assert!([&room, &gone, &drained, &cut].iter().all(|client| client.pipe.is_parked()));
        assert!(world.worker.notes.make_room());
        gone.end(Ending::Reset).await;
        assert_eq!(room.closed(), Some(CloseReason::MadeRoom));
        assert_eq!(gone.closed(), Some(CloseReason::Reset));
        cut.pipe.push(b"GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
        world.drain();
        settle().await;
        assert_eq!(drained.closed(), Some(CloseReason::Draining));
        assert_eq!(cut.phase(), Phase::Answering, "what had come is served");
        world.worker.notes.cut();
        settle().await;
        assert_eq!(cut.closed(), Some(CloseReason::DrainLimit));
        assert_eq!(world.worker.notes.count(), 0);
    });
}

#[test]
fn a_cut_ends_parked_connections_too() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        world.park().await;
        assert!(client.pipe.is_parked());
        world.worker.notes.cut();
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::ReplacedLimit));
    });
}

#[test]
fn a_stop_that_comes_with_the_notice_to_park_ends_it() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        world.worker.notes.park_idle();
        world.drain();
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn what_came_with_the_notice_to_park_is_served() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        for count in 2..5 {
            client.pipe.push(&Scenario::get("/ok").bytes());
            world.worker.notes.park_idle();
            settle().await;
            assert_eq!(client.statuses(), vec![200; count]);
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}
