//! Eviction of idle connections, and of those without a complete head.

use super::scenario::{Scenario, TestServer, advance, settle, with_virtual_time};
use crate::net::connection_table::evict_oldest_head;
use crate::service::{CloseReason, Phase};

#[test]
fn the_idlest_connection_is_evicted() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let busy = Scenario::get("/never").at(Phase::Processing, &server).await;
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        let idlest = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(1).await;
        let idle = Scenario::get("/ok").at(Phase::Idle, &server).await;
        assert!(server.worker.connections.evict_idlest());
        settle().await;
        assert_eq!(idlest.closed(), Some(CloseReason::Evicted));
        assert_eq!(idle.closed(), None);
        assert!(server.worker.connections.evict_idlest());
        settle().await;
        assert_eq!(idle.closed(), Some(CloseReason::Evicted));
        assert!(!server.worker.connections.evict_idlest(), "no other connection is idle");
        assert_eq!((busy.phase(), begun.phase()), (Phase::Processing, Phase::ReadingHead));
    });
}

#[test]
fn the_oldest_incomplete_head_is_evicted() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let busy = Scenario::get("/never").at(Phase::Processing, &server).await;
        let idle = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let oldest = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        advance(1).await;
        let later = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        for evicted in [&oldest, &later] {
            assert_eq!(evicted.closed(), None);
            assert!(evict_oldest_head(&server.worker.connections));
            settle().await;
            assert_eq!(evicted.closed(), Some(CloseReason::Evicted));
        }
        assert!(!evict_oldest_head(&server.worker.connections), "no other connection waits for a head");
        assert_eq!((busy.phase(), idle.phase()), (Phase::Processing, Phase::Idle));
    });
}

#[test]
fn a_request_that_arrives_with_the_interrupt_is_served() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        client.pipe.push(&Scenario::get("/ok").bytes());
        assert!(server.worker.connections.evict_idlest());
        settle().await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn a_shorter_keep_alive_timeout_closes_connections_idle_for_longer() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let long = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(20).await;
        let short = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let (clock, table) = (&server.worker.clock, &server.worker.connections);
        let ticks = |seconds: u64| crate::net::clock::ticks(std::time::Duration::from_secs(seconds));
        table.shorten_idle(clock.tick(), ticks(60), ticks(10));
        settle().await;
        assert_eq!((long.closed(), short.closed()), (Some(CloseReason::KeepAliveTimeout), None));
    });
}
