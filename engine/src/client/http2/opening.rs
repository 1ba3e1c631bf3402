//! A connection that is being opened.

use crate::client::error::ClientError;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A connection that is being opened, for all requests that wait for it.
#[derive(Default)]
pub(in crate::client) struct Opening(RefCell<OpeningState>);

#[derive(Default)]
struct OpeningState {
    is_over: bool,
    error: Option<ClientError>,
    wakers: Vec<Waker>,
}

impl Opening {
    pub(super) fn finish(&self, error: Option<ClientError>) {
        let mut state = self.0.borrow_mut();
        state.is_over = true;
        state.error = error;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until it is open, or has failed.
    pub(super) async fn wait(&self) -> Result<(), ClientError> {
        poll_fn(|cx| {
            let mut state = self.0.borrow_mut();
            match (state.is_over, state.error) {
                (true, Some(error)) => Poll::Ready(Err(error)),
                (true, None) => Poll::Ready(Ok(())),
                (false, _) => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
