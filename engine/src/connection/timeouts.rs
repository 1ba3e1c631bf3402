//! The deadline of a connection, and the interrupts from its worker.

use crate::connection::progress::Progress;
use crate::net::clock::Tick;
use crate::net::connection_table::{ConnectionId, Deadline, Interrupt};
use crate::net::stop_state::StopState;
use crate::net::worker::Worker;
use crate::response_lease::ResponseLease;
use crate::service::{CloseReason, Phase};
use std::rc::Rc;
use std::time::Duration;

/// A connection's entry in the table of its worker.
pub(super) struct Timeouts {
    pub(super) worker: Rc<Worker>,
    pub(super) id: ConnectionId,
}

impl Timeouts {
    pub(super) fn deadline(&self) -> Deadline {
        self.worker.connections.deadline(self.id).0
    }

    /// Returns the deadline, and when it is due.
    pub(super) fn deadline_and_due(&self) -> (Deadline, Tick) {
        self.worker.connections.deadline(self.id)
    }

    /// Sets the deadline, `time` from now.
    pub(super) fn wait_for(&self, deadline: Deadline, time: Duration) {
        self.wait_until(deadline, self.worker.clock.tick_after(time));
    }

    /// Sets the deadline to an absolute tick.
    pub(super) fn wait_until(&self, deadline: Deadline, due: Tick) {
        self.worker.connections.wait_for(self.id, deadline, due);
    }

    /// Clears the deadline: the connection does not wait for the client.
    pub(super) fn clear(&self) {
        self.wait_until(Deadline::None, Tick::MAX);
    }

    /// Sets the deadline of a transfer that progresses now.
    pub(super) fn wait_for_progress(&self, deadline: Deadline, progress: &Progress) {
        self.wait_for_progress_since(deadline, progress, self.worker.clock.tick());
    }

    /// Sets the deadline of a transfer whose last progress was at `since`.
    pub(super) fn wait_for_progress_since(&self, deadline: Deadline, progress: &Progress, since: Tick) {
        self.wait_until(deadline, progress.limits.due(progress.began, progress.bytes, since));
    }

    pub(super) fn interrupt(&self) -> Interrupt {
        self.worker.connections.interrupt(self.id)
    }

    pub(super) fn clear_interrupt(&self) {
        self.worker.connections.clear_interrupt(self.id);
    }

    /// Records that a response of the connection has a lease, until the value is dropped.
    pub(super) fn hold(&self, lease: ResponseLease) -> HeldLease {
        self.worker.add_lease(self.id, lease.clone());
        HeldLease { worker: self.worker.clone(), id: self.id, lease }
    }

    /// Returns the phase of the connection, for statistics.
    pub(super) fn phase(&self) -> Phase {
        phase_of(self.deadline())
    }
}

/// The lease of a response in progress. It is dropped before its connection leaves the table.
pub(super) struct HeldLease {
    worker: Rc<Worker>,
    id: ConnectionId,
    lease: ResponseLease,
}

impl HeldLease {
    /// Whether the response outlives a replacement now: a server that stops ends all, unless it hands over.
    pub(super) fn is_in_force(&self) -> bool {
        self.lease.is_in_force() && self.worker.stop_state.get().keeps_leases()
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.worker.remove_lease(self.id, &self.lease);
    }
}

/// Returns why a worker aborts a connection.
pub(super) fn abort_reason(worker: &Worker) -> CloseReason {
    match worker.stop_state.get() {
        StopState::Immediate => CloseReason::StoppedImmediately,
        StopState::Drain | StopState::HandOver => CloseReason::ShutdownTimeout,
        StopState::Running => CloseReason::AppReplacedTimeout,
    }
}

/// Returns the phase that belongs to a deadline.
pub(crate) fn phase_of(deadline: Deadline) -> Phase {
    match deadline {
        Deadline::None | Deadline::Upgraded => Phase::Processing,
        Deadline::RequestHead => Phase::ReadingHead,
        Deadline::RequestBody => Phase::ReadingContent,
        Deadline::ResponseProgress => Phase::Sending,
        Deadline::KeepAlive => Phase::Idle,
        Deadline::Linger => Phase::Lingering,
    }
}
