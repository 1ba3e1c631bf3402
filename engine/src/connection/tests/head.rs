//! Waiting for a head: the first one's time counts from accept, a later one's from its
//! first byte, and a connection without any is idle.

use super::pipe::Ending;
use super::scenario::{Scenario, World, is_about, pass, settle, virtually};
use crate::limits::Limits;
use crate::service::{CloseReason, Phase};
use std::time::Duration;

#[test]
fn one_byte_each_second_does_not_prolong_the_first_head() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        let bytes = Scenario::get("/ok").field("X", &"x".repeat(60)).bytes();
        for (second, byte) in bytes[..60].iter().enumerate() {
            client.send([*byte]).await;
            pass(1).await;
            let expected: &[u16] = if second < 9 { &[] } else { &[408] };
            assert!(client.statuses() == expected || second == 9, "{:?} in second {second}", client.statuses());
        }
        assert_eq!(client.closed(), Some(CloseReason::HeadTooSlow));
        assert!(client.reply().closes());
        let finished = client.finished();
        assert_eq!((finished[0].status, finished[0].is_request, &finished[0].line[..8]), (408, false, "GET /ok "));
    });
}

#[test]
fn silence_after_connecting_ends_without_an_answer() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        let (reason, seconds) = client.ends().await;
        assert_eq!(reason, CloseReason::Silent);
        assert!(is_about(seconds, 10), "{seconds}");
        assert_eq!(client.pipe.outgoing(), b"");
        assert_eq!(client.finished(), []);
    });
}

#[test]
fn a_later_head_has_its_time_from_its_first_byte() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        pass(50).await;
        let second = Scenario::get("/ok/2").bytes();
        client.send(&second[..5]).await;
        pass(9).await;
        assert_eq!(client.phase(), Phase::ReadingHead);
        client.send(&second[5..]).await;
        assert_eq!(client.statuses(), [200, 200]);
        client.send(&second[..5]).await;
        let (reason, seconds) = client.ends().await;
        // The answer is followed by the lingering of a client that does not close.
        assert_eq!((reason, is_about(seconds, 10 + 5)), (CloseReason::HeadTooSlow, true), "{seconds}");
        assert_eq!(client.statuses(), [200, 200, 408]);
    });
}

#[test]
fn the_rest_of_a_pipelined_head_has_its_time_too() {
    virtually(async {
        let world = World::new();
        let first = Scenario::get("/ok").bytes();
        let client = world.connect();
        client.send([&first[..], &first[..7]].concat()).await;
        assert_eq!(client.statuses(), [200], "the answer does not wait for the next head");
        assert_eq!(client.phase(), Phase::ReadingHead);
        pass(11).await;
        assert_eq!(client.statuses(), [200, 408]);
    });
}

#[test]
fn an_idle_connection_ends_after_the_keep_alive_time() {
    virtually(async {
        let world = World::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &world).await;
        let (reason, seconds) = client.ends().await;
        assert_eq!(reason, CloseReason::Idle);
        assert!(is_about(seconds, 60), "{seconds}");
        assert_eq!(client.closed_while(), Phase::Idle);
        assert_eq!(client.statuses(), [200], "nothing is said to an idle client");
    });
}

#[test]
fn each_request_begins_the_keep_alive_time_anew() {
    virtually(async {
        let world = World::with(Limits { keep_alive: Duration::from_secs(7), ..Limits::default() });
        let client = world.connect();
        for _ in 0..20 {
            client.send(Scenario::get("/ok").bytes()).await;
            pass(6).await;
        }
        assert_eq!(client.closed(), None);
        assert_eq!(client.ends().await.0, CloseReason::Idle);
        assert_eq!(client.statuses(), [200; 20]);
    });
}

#[test]
fn a_client_that_ends() {
    virtually(async {
        let world = World::new();
        let silent = world.connect();
        silent.end(Ending::Ended).await;
        assert_eq!(silent.closed(), Some(CloseReason::ClientDone));
        let idle = Scenario::get("/ok").at(Phase::Idle, &world).await;
        idle.end(Ending::Ended).await;
        assert_eq!(idle.closed(), Some(CloseReason::ClientDone));
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &world).await;
        begun.end(Ending::Ended).await;
        assert_eq!(begun.closed(), Some(CloseReason::HeadCut));
        assert_eq!(begun.pipe.outgoing(), b"");
        let reset = Scenario::get("/ok").at(Phase::ReadingHead, &world).await;
        reset.end(Ending::Reset).await;
        assert_eq!(reset.closed(), Some(CloseReason::Reset));
    });
}

#[test]
fn a_client_that_sends_and_ends_at_once_is_answered() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.pipe.push(&Scenario::get("/slow/20").bytes());
        client.end(Ending::Ended).await;
        pass(21).await;
        assert_eq!(client.reply().text(), "/slow/20");
        assert_eq!(client.closed(), Some(CloseReason::ClientDone));
    });
}

#[test]
fn any_cut_of_the_bytes_gives_the_same_answers() {
    virtually(async {
        let world = World::new();
        let bytes = [
            Scenario::get("/ok").bytes(),
            Scenario::post("/read").content("hello").bytes(),
            Scenario::post("/read").chunks("5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\nT: v\r\n\r\n").bytes(),
            Scenario::get("/bytes/20000").field("Connection", "close").bytes(),
        ]
        .concat();
        for (receive_bytes_max, send_bytes_max) in [(1, 1), (2, 100), (7, 8192), (1000, 1), (usize::MAX, usize::MAX)] {
            let client = world.connect();
            client.pipe.receive_bytes_max.set(receive_bytes_max);
            client.pipe.send_bytes_max.set(send_bytes_max);
            client.send(&bytes).await;
            let contents: Vec<usize> = client.replies().iter().map(|reply| reply.content.len()).collect();
            assert_eq!(contents, [3, 5, 8, 20_000]);
            assert_eq!(client.closed(), Some(CloseReason::Asked));
            settle().await;
        }
    });
}

#[test]
fn each_of_many_heads_in_pieces_has_its_own_time() {
    virtually(async {
        let world = World::new();
        let head = Scenario::get("/ok").bytes();
        let client = world.connect();
        client.send([&head[..], &head[..1]].concat()).await;
        for _ in 0..15 {
            pass(1).await;
            client.send([&head[1..], &head[..1]].concat()).await;
        }
        assert_eq!(client.statuses(), [200; 16]);
        pass(11).await;
        assert_eq!(client.statuses().last(), Some(&408));
    });
}

#[test]
fn an_empty_line_begins_no_head() {
    virtually(async {
        let world = World::new();
        for request in [Scenario::get("/ok"), Scenario::post("/read").content("hello")] {
            let client = world.connect();
            client.send([&request.bytes()[..], b"\r\n"].concat()).await;
            assert_eq!(client.phase(), Phase::Idle);
            let (reason, seconds) = client.ends().await;
            assert_eq!((reason, client.statuses()), (CloseReason::Idle, vec![200]));
            assert!(is_about(seconds, 60), "{seconds}");
        }
    });
}
