//! Tests of the connection table.

use super::*;
use crate::response_lease::ResponseLease;

#[test]
fn sweep_interrupts_only_expired_deadlines() {
    let connections = ConnectionTable::default();
    let (late, early, idle) = (connections.insert(), connections.insert(), connections.insert());
    connections.wait_for(late, Deadline::RequestHead, 5);
    connections.wait_for(early, Deadline::RequestBody, 6);
    connections.wait_for(idle, Deadline::KeepAlive, 100);
    connections.sweep(5);
    assert_eq!(connections.interrupt(late), Interrupt::TimedOut);
    assert_eq!(connections.interrupt(early), Interrupt::None);
    connections.wait_for(late, Deadline::None, Tick::MAX);
    assert_eq!(connections.interrupt(late), Interrupt::None);
    connections.set_has_streams(late);
    connections.drain(&[Deadline::KeepAlive], DrainScope::All);
    let interrupts = [early, late, idle].map(|id| connections.interrupt(id));
    assert_eq!(interrupts, [Interrupt::None, Interrupt::Drain, Interrupt::Drain]);
    connections.abort(DrainScope::All);
    connections.wait_for(early, Deadline::RequestBody, 9);
    assert_eq!(connections.interrupt(early), Interrupt::Abort, "an abort is never cleared");
}

#[test]
fn idlest_connection_is_evicted_and_its_id_reused() {
    let connections = ConnectionTable::default();
    let ids: Vec<ConnectionId> = (0..3).map(|_| connections.insert()).collect();
    assert!(!connections.evict_idlest(), "none is idle");
    for (id, due) in ids.iter().zip([30, 10, 20]) {
        connections.wait_for(*id, Deadline::KeepAlive, due);
    }
    assert!(connections.evict_idlest());
    assert_eq!(connections.interrupt(ids[1]), Interrupt::Evict);
    connections.remove(ids[1]);
    assert_eq!(connections.insert(), ids[1]);
    assert_eq!(connections.count(), 3);
}

#[test]
fn generations_are_drained_separately() {
    let connections = ConnectionTable::default();
    let (busy, idle) = (connections.insert(), connections.insert());
    connections.wait_for(idle, Deadline::KeepAlive, 100);
    let second = connections.begin_generation();
    let new = connections.insert();
    connections.wait_for(new, Deadline::KeepAlive, 100);
    connections.drain(&[Deadline::KeepAlive], DrainScope::Replaced(second));
    let interrupts = [busy, idle, new].map(|id| connections.interrupt(id));
    assert_eq!(interrupts, [Interrupt::None, Interrupt::Drain, Interrupt::None]);
    connections.abort(DrainScope::Replaced(second));
    let interrupts = [busy, idle, new].map(|id| connections.interrupt(id));
    assert_eq!(interrupts, [Interrupt::Abort, Interrupt::Abort, Interrupt::None]);
}

#[test]
fn a_lease_keeps_a_connection_through_a_replacement_but_not_through_a_stop() {
    let connections = ConnectionTable::default();
    let (leased, ended, streams) = (connections.insert(), connections.insert(), connections.insert());
    for id in [leased, ended] {
        connections.wait_for(id, Deadline::Upgraded, Tick::MAX);
    }
    connections.set_has_streams(streams);
    let [lease, other] = [ResponseLease::new(), ResponseLease::new()];
    connections.leases.add(leased, lease.clone());
    connections.leases.add(ended, other.clone());
    connections.leases.add(streams, lease.clone());
    connections.leases.add(streams, other.clone());
    other.end();
    let second = connections.begin_generation();
    let interrupts = || [leased, ended, streams].map(|id| connections.interrupt(id));
    connections.drain(&[Deadline::Upgraded], DrainScope::Replaced(second));
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Drain, Interrupt::Drain]);
    assert_eq!(connections.abort(DrainScope::Replaced(second)), 2);
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Abort, Interrupt::AbortStreams]);
    // A response that has ended no longer keeps its connection, whatever others have.
    connections.leases.remove(streams, &lease);
    assert_eq!(connections.abort(DrainScope::Replaced(second)), 1);
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Abort, Interrupt::Abort]);
    connections.drain(&[Deadline::Upgraded], DrainScope::All);
    assert_eq!(connections.interrupt(leased), Interrupt::Drain);
    assert_eq!(connections.abort(DrainScope::All), 0);
    assert_eq!(connections.interrupt(leased), Interrupt::Abort);
    connections.leases.remove(leased, &lease);
    connections.leases.remove(ended, &other);
    connections.leases.remove(streams, &other);
    assert!(connections.leases.is_empty());
}

#[test]
fn a_hand_over_concerns_connections_of_all_generations_without_a_lease() {
    let connections = ConnectionTable::default();
    let (leased, ended, idle) = (connections.insert(), connections.insert(), connections.insert());
    for (id, deadline) in [(leased, Deadline::Upgraded), (ended, Deadline::Upgraded), (idle, Deadline::KeepAlive)] {
        connections.wait_for(id, deadline, Tick::MAX);
    }
    let [lease, other] = [ResponseLease::new(), ResponseLease::new()];
    connections.leases.add(leased, lease);
    connections.leases.add(ended, other.clone());
    other.end();
    let interrupts = || [leased, ended, idle].map(|id| connections.interrupt(id));
    connections.drain(&[Deadline::Upgraded], DrainScope::Unleased);
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Drain, Interrupt::None]);
    assert_eq!(connections.abort(DrainScope::Unleased), 1);
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Abort, Interrupt::Abort]);
}

#[test]
fn a_connection_whose_lease_has_ended_has_the_time_of_that_replacement() {
    let connections = ConnectionTable::default();
    let (leased, other, lease) = (connections.insert(), connections.insert(), ResponseLease::new());
    connections.leases.add(leased, lease.clone());
    let second = connections.begin_generation();
    lease.end();
    let third = connections.begin_generation();
    let interrupts = || [leased, other].map(|id| connections.interrupt(id));
    connections.set_has_streams(leased);
    assert_eq!(connections.abort(DrainScope::Replaced(second)), 1);
    assert_eq!(interrupts(), [Interrupt::None, Interrupt::Abort], "its streams have time, too");
    assert_eq!(connections.abort(DrainScope::Replaced(third)), 0);
    assert_eq!(interrupts(), [Interrupt::Abort, Interrupt::Abort]);
}

#[test]
fn idle_connection_is_parked_and_resumed_by_any_interrupt() {
    #[derive(Default)]
    struct Resumed(RefCell<Vec<ConnectionId>>);
    impl Resume for Resumed {
        fn resume(self: Rc<Self>, id: ConnectionId) {
            self.0.borrow_mut().push(id);
        }

        fn clear(&self) {}
    }
    let (connections, resumed) = (ConnectionTable::default(), Rc::new(Resumed::default()));
    connections.resumer_or_init(|| resumed.clone());
    let (idle, busy, late) = (connections.insert(), connections.insert(), connections.insert());
    for (id, deadline, due) in
        [(idle, Deadline::KeepAlive, 100), (busy, Deadline::RequestHead, 100), (late, Deadline::KeepAlive, 3)]
    {
        connections.register_waker(id, Waker::noop());
        connections.wait_for(id, deadline, due);
    }
    for sweep in 1..SWEEPS_UNTIL_PARKED {
        connections.sweep(sweep.into());
        assert_eq!(connections.interrupt(idle), Interrupt::None);
    }
    connections.sweep(SWEEPS_UNTIL_PARKED.into());
    let interrupts = [idle, busy, late].map(|id| connections.interrupt(id));
    assert_eq!(interrupts, [Interrupt::Park, Interrupt::None, Interrupt::TimedOut]);
    connections.park(idle);
    assert_eq!((connections.interrupt(idle), connections.parked_count()), (Interrupt::None, 1));
    connections.sweep(99);
    assert!(resumed.0.borrow().is_empty());
    connections.sweep(100);
    assert_eq!((connections.interrupt(idle), connections.parked_count()), (Interrupt::TimedOut, 0));
    connections.resume(idle);
    connections.resume(busy);
    connections.resume(1000);
    assert_eq!(*resumed.0.borrow(), [idle], "only the parked connection is resumed, and only once");
}

#[test]
fn any_interrupt_replaces_park() {
    type Send = fn(&ConnectionTable);
    let interrupts: [(Interrupt, Send); 4] = [
        (Interrupt::Drain, |connections| connections.drain(&[Deadline::KeepAlive], DrainScope::All)),
        (Interrupt::Drain, |connections| connections.drain(&[Deadline::KeepAlive], DrainScope::Replaced(1))),
        (Interrupt::Evict, |connections| assert!(connections.evict_idlest())),
        (Interrupt::TimedOut, |connections| connections.shorten_idle(60, 100, 50)),
    ];
    for (expected, send) in interrupts {
        let connections = ConnectionTable::default();
        let idle = connections.insert();
        connections.register_waker(idle, Waker::noop());
        connections.wait_for(idle, Deadline::KeepAlive, 100);
        connections.park_idle();
        assert_eq!(connections.interrupt(idle), Interrupt::Park);
        send(&connections);
        assert_eq!(connections.interrupt(idle), expected);
        connections.park(idle);
        assert_eq!(connections.interrupt(idle), expected, "parking keeps the interrupt");
    }
}

#[test]
fn heap_is_trimmed_once_per_peak() {
    let connections = ConnectionTable::default();
    let ids: Vec<ConnectionId> = (0..TRIM_AFTER_CONNECTIONS + 10).map(|_| connections.insert()).collect();
    ids[..TRIM_AFTER_CONNECTIONS / 2].iter().for_each(|&id| connections.remove(id));
    ids[TRIM_AFTER_CONNECTIONS / 2..TRIM_AFTER_CONNECTIONS - 1].iter().for_each(|&id| connections.park(id));
    assert!(!connections.tasks.should_trim_heap());
    connections.park(ids[TRIM_AFTER_CONNECTIONS]);
    assert!(connections.tasks.should_trim_heap() && !connections.tasks.should_trim_heap());
}
