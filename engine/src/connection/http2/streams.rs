//! The streams of a connection whose call or response is not complete.

use super::call::Called;
use super::pending::PendingResponse;
use super::ready_queue::{Place, ReadyQueue};
use crate::service::CloseReason;
use selvedge_proto::http2::StreamId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Places of streams. A place and its memory are used again.
pub(super) struct Streams<F> {
    places: Vec<StreamPlace<F>>,
    free: Vec<u32>,
    pub(super) queue: Arc<ReadyQueue>,
}

/// A place for a stream.
struct StreamPlace<F> {
    stream: Option<StreamId>,
    /// The memory of a call, which is not allocated again for each request.
    call: Pin<Box<Option<F>>>,
    response: Option<Box<PendingResponse>>,
    place: Place,
}

impl<F> Streams<F> {
    /// Cancels all calls. Returns the responses that are not complete.
    #[expect(clippy::vec_box, reason = "a response moves as it is stored")]
    pub(super) fn clear(&mut self) -> Vec<Box<PendingResponse>> {
        let places = std::mem::take(&mut self.places);
        self.free.clear();
        places.into_iter().filter_map(|place| place.response).collect()
    }
}

impl<F: Future<Output = Called>> Streams<F> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), queue: Arc::default() }
    }

    /// Whether no stream waits.
    pub(super) fn is_empty(&self) -> bool {
        self.used() == 0
    }

    /// Returns the number of streams that wait.
    pub(super) fn used(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns the place of a stream.
    pub(super) fn find(&self, stream: StreamId) -> Option<u32> {
        self.places.iter().position(|place| place.stream == Some(stream)).map(|place| place as u32)
    }

    /// Takes a place for a stream.
    fn take_place(&mut self, stream: StreamId) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.places.len() as u32;
            let place = self.queue.place(number);
            self.places.push(StreamPlace { stream: None, call: Box::pin(None), response: None, place });
            number
        });
        self.places[number as usize].stream = Some(stream);
        number
    }

    /// Starts a call, and polls it. If it is complete, the place is free again.
    pub(super) fn start(&mut self, stream: StreamId, call: F) -> Option<Called> {
        let number = self.take_place(stream);
        self.places[number as usize].call.set(Some(call));
        self.poll_call(number)
    }

    /// Polls the call of a place, if it has one. If it is complete, the place is free again.
    pub(super) fn poll_call(&mut self, number: u32) -> Option<Called> {
        let place = &mut self.places[number as usize];
        place.place.begin_poll();
        let call = place.call.as_mut().as_pin_mut()?;
        let Poll::Ready(called) = call.poll(&mut Context::from_waker(place.place.waker())) else { return None };
        place.call.set(None);
        self.release(number);
        Some(called)
    }

    /// Keeps a response whose content is not complete. Returns its place.
    pub(super) fn keep(&mut self, response: Box<PendingResponse>) -> u32 {
        let number = self.take_place(response.active.stream);
        self.places[number as usize].response = Some(response);
        number
    }

    /// Returns the stream of a place, if its response is not complete.
    pub(super) fn stream_of_response(&self, number: u32) -> Option<StreamId> {
        let place = &self.places[number as usize];
        place.response.is_some().then_some(place.stream?)
    }

    /// Returns the response of a place, and the context for polling its content.
    pub(super) fn response_mut(&mut self, number: u32) -> Option<(&mut PendingResponse, Context<'_>)> {
        let place = &mut self.places[number as usize];
        place.place.begin_poll();
        Some((place.response.as_mut()?, Context::from_waker(place.place.waker())))
    }

    /// Informs the handlers of other protocols that the connection is about to end.
    pub(super) fn announce_stop(&mut self, reason: CloseReason) {
        self.responses_mut().for_each(|(_, response)| response.announce_stop(reason));
    }

    /// Returns the places of the responses that no lease keeps through a replacement.
    pub(super) fn unleased(&mut self) -> Vec<u32> {
        self.responses_mut().filter(|(_, response)| !response.is_leased()).map(|(place, _)| place).collect()
    }

    /// Returns all responses that are not complete, with the numbers of their places.
    pub(super) fn responses_mut(&mut self) -> impl Iterator<Item = (u32, &mut PendingResponse)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(number, place)| Some((number as u32, place.response.as_deref_mut()?)))
    }

    /// Removes the stream of a place: a call is cancelled, a response is returned.
    pub(super) fn remove(&mut self, number: u32) -> Option<Box<PendingResponse>> {
        let place = &mut self.places[number as usize];
        place.stream?;
        let response = place.response.take();
        place.call.set(None);
        self.release(number);
        response
    }

    fn release(&mut self, number: u32) {
        self.places[number as usize].stream = None;
        self.free.push(number);
    }
}
