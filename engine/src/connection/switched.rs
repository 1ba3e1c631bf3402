//! A connection after its last HTTP message: it belongs to another protocol, and the worker
//! still counts it, waits for it when the server stops, and cuts it in the end.

use crate::connection::Term;
use crate::connection::wire::{Wire, cut_reason};
use crate::net::clock::Tick;
use crate::net::notes::{Deadline, Notice};
use crate::net::stream::Stream;
use crate::service::CloseReason;
use bytes::Bytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// Hands the connection over, and waits until it has ended; why it did. `term` is that of its application.
pub(super) async fn carry_on<S: Stream>(wire: Rc<Wire<S>>, term: Term) -> CloseReason {
    // A stop that began before is noticed here, one that begins later by its notice.
    wire.wait_until(Deadline::Switched, Tick::MAX);
    let stops = wire.worker.draining.get() || term != Term::Current;
    let (worker, place) = (wire.worker.clone(), wire.place());
    let Some(wire) = Rc::into_inner(wire) else { return CloseReason::AnswerEnded };
    let Some(then) = wire.switch.take() else { return CloseReason::AnswerEnded };
    wire.end_room();
    let first = Bytes::copy_from_slice(wire.input.borrow().bytes());
    let Ok((duplex, mut rope)) = wire.stream.into_duplex(first) else { return CloseReason::Reset };
    if stops {
        rope.announce_stop();
    }
    then(duplex);
    poll_fn(|cx| {
        match worker.notes.begin_turn(place, cx.waker()) {
            Notice::Cut => {
                rope.cut();
                return Poll::Ready(cut_reason(&worker));
            }
            Notice::Drain => {
                rope.announce_stop();
                worker.notes.ignore_notice(place);
            }
            Notice::None | Notice::Expired | Notice::MakeRoom | Notice::Park => {}
        }
        rope.poll_loose(cx).map(|()| CloseReason::Switched)
    })
    .await
}
