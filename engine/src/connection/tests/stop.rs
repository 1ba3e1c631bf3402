//! A graceful stop, seen from connections in every phase.

use super::pipe::Ending;
use super::scenario::{Scenario, World, pass, settle, virtually};
use crate::service::{CloseReason, Phase};

#[test]
fn idle_connections_end_at_once() {
    virtually(async {
        let world = World::new();
        let idle = Scenario::get("/ok").at(Phase::Idle, &world).await;
        world.drain();
        settle().await;
        assert_eq!(idle.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn what_runs_is_finished_and_says_that_it_is_the_last() {
    virtually(async {
        let world = World::new();
        let busy = Scenario::get("/slow/5").at(Phase::Answering, &world).await;
        let head = Scenario::get("/ok").at(Phase::ReadingHead, &world).await;
        let new = world.connect();
        let content = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &world).await;
        settle().await;
        world.drain();
        pass(6).await;
        head.send("\n").await;
        content.send("hello").await;
        assert_eq!(new.closed(), Some(CloseReason::Draining), "nothing had come, so nothing is waited for");
        for client in [busy, head, content] {
            assert_eq!((client.reply().status, client.reply().closes()), (200, true));
            assert_eq!(client.closed(), Some(CloseReason::Draining));
        }
    });
}

#[test]
fn an_answer_that_had_begun_is_the_last_too() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/bytes/100000").at(Phase::Sending, &world).await;
        world.drain();
        settle().await;
        assert_eq!(client.phase(), Phase::Sending);
        client.take(200_000).await;
        assert!(client.reply().is_complete && !client.reply().closes());
        assert_eq!(client.closed(), Some(CloseReason::Draining), "it is not waited for until the limit");
    });
}

#[test]
fn what_is_left_at_the_limit_is_cut() {
    virtually(async {
        let world = World::new();
        let clients = [
            Scenario::get("/ok").at(Phase::ReadingHead, &world).await,
            Scenario::get("/never").at(Phase::Answering, &world).await,
            Scenario::post("/read").content("hello").at(Phase::ReadingContent, &world).await,
            Scenario::get("/bytes/100000").at(Phase::Sending, &world).await,
            Scenario::get("/\\").at(Phase::Lingering, &world).await,
        ];
        let phases: Vec<Phase> = clients.iter().map(|client| client.phase()).collect();
        world.drain();
        settle().await;
        assert!(clients.iter().all(|client| client.closed().is_none()));
        world.worker.notes.cut();
        settle().await;
        for (client, phase) in clients.iter().zip(phases) {
            assert_eq!((client.closed(), client.closed_while()), (Some(CloseReason::DrainLimit), phase));
        }
        assert_eq!(world.worker.notes.count(), 0);
    });
}

#[test]
fn a_stop_is_no_reason_to_leave_content_in_doubt() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/slow/5").content("hello").at_head(&world).await;
        world.drain();
        pass(6).await;
        assert!(client.reply().closes());
        client.send("hello").await;
        client.end(Ending::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn who_has_said_nothing_when_the_stop_began_is_not_waited_for() {
    virtually(async {
        let world = World::new();
        world.drain();
        let (silent, asking) = (world.connect(), world.connect());
        asking.pipe.push(&Scenario::get("/ok").bytes());
        settle().await;
        assert_eq!(silent.closed(), Some(CloseReason::Draining));
        assert_eq!((asking.statuses(), asking.closed()), (vec![200], Some(CloseReason::Draining)));
    });
}
