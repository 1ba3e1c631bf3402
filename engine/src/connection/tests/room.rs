//! Making room for new connections.

use super::scenario::{Scenario, World, pass, settle, virtually};
use crate::service::{CloseReason, Phase};

#[test]
fn the_idlest_connection_makes_room() {
    virtually(async {
        let world = World::new();
        let busy = Scenario::get("/never").at(Phase::Answering, &world).await;
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &world).await;
        let idlest = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(1).await;
        let idle = Scenario::get("/ok").at(Phase::Idle, &world).await;
        assert!(world.worker.notes.make_room());
        settle().await;
        assert_eq!(idlest.closed(), Some(CloseReason::MadeRoom));
        assert_eq!(idle.closed(), None);
        assert!(world.worker.notes.make_room());
        settle().await;
        assert_eq!(idle.closed(), Some(CloseReason::MadeRoom));
        assert!(!world.worker.notes.make_room(), "nobody else is idle");
        assert_eq!((busy.phase(), begun.phase()), (Phase::Answering, Phase::ReadingHead));
    });
}

#[test]
fn a_request_that_came_with_the_notice_is_answered() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        client.pipe.push(&Scenario::get("/ok").bytes());
        assert!(world.worker.notes.make_room());
        settle().await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn a_shorter_keep_alive_time_ends_those_who_have_had_it() {
    virtually(async {
        let world = World::new();
        let long = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(20).await;
        let short = Scenario::get("/ok").at(Phase::Idle, &world).await;
        let (clock, notes) = (&world.worker.clock, &world.worker.notes);
        let ticks = |seconds: u64| crate::net::clock::ticks(std::time::Duration::from_secs(seconds));
        notes.shorten_idle(clock.tick(), ticks(60), ticks(10));
        settle().await;
        assert_eq!((long.closed(), short.closed()), (Some(CloseReason::Idle), None));
    });
}
