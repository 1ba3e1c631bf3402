//! A connection after its last HTTP message: it belongs to another protocol, and the worker
//! still counts it, waits for it when the server stops, and cuts it in the end.

use crate::connection::wire::{Wire, cut_reason};
use crate::net::notes::Notice;
use crate::net::stream::Stream;
use crate::service::CloseReason;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Hands the connection over, and waits until it has ended; why it did.
pub(super) async fn carry_on<S: Stream>(wire: Rc<Wire<S>>) -> CloseReason {
    wire.wait_for_nothing();
    let (worker, place) = (wire.worker.clone(), wire.place());
    let Some(wire) = Rc::into_inner(wire) else { return CloseReason::AnswerEnded };
    let Some(then) = wire.switch.take() else { return CloseReason::AnswerEnded };
    let first = Bytes::copy_from_slice(wire.input.borrow().bytes());
    let Ok((duplex, mut rope)) = wire.stream.into_duplex(first) else { return CloseReason::Reset };
    then(duplex);
    let cut = {
        let mut loose = pin!(rope.is_loose());
        poll_fn(|cx| match worker.notes.begin_turn(place, cx.waker()) {
            Notice::Cut => Poll::Ready(true),
            _ => loose.as_mut().poll(cx).map(|()| false),
        })
        .await
    };
    if cut {
        rope.cut();
        return cut_reason(&worker);
    }
    CloseReason::Switched
}
