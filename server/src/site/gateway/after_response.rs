//! What a script does after its response is complete: it may go on for a bounded time. Further output is discarded, and
//! its messages go to the log.

use super::exchange::Exchange;
use super::messages::Messages;
use super::rules::RequestAtWork;
use selvedge::service::UpstreamRecord;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A script that may go on after its response.
pub(super) struct AfterResponse {
    /// The request counts until the script has ended.
    pub(super) at_work: RequestAtWork,
    /// The path of the request, for the log.
    pub(super) script: Rc<str>,
    /// How long it may go on. Beyond it, it is ended.
    pub(super) time_max: Duration,
}

impl AfterResponse {
    /// Lets the script end, on a task of its own if it has not ended yet.
    pub(super) fn follow(self, mut exchange: Exchange, cx: &mut Context<'_>) {
        exchange.stop_upload();
        exchange.set_timeout(self.time_max);
        // The end has usually arrived with the output, and the messages before it belong to the request.
        if let Poll::Ready(ended) = exchange.poll_end(cx) {
            if let Err(error) = ended {
                error.note(exchange.messages().record());
            }
            return;
        }
        // The log may have the messages of the request already.
        let messages = Messages::new(UpstreamRecord::new(self.script.clone()));
        exchange.set_messages(messages.clone());
        tokio::task::spawn_local(async move {
            let text = self.end(exchange).await;
            self.report(&messages, text);
        });
    }

    /// Waits until the script ends, or ends it. Call it before a redirect of the server, which may depend on what the
    /// script does.
    pub(super) async fn finish(&self, mut exchange: Exchange) {
        exchange.stop_upload();
        exchange.set_timeout(self.time_max);
        let messages = exchange.messages().clone();
        if let Some(text) = self.end(exchange).await {
            messages.add_line(&text);
        }
    }

    /// Waits for the end. Returns why it is not the script's own.
    async fn end(&self, mut exchange: Exchange) -> Option<String> {
        match tokio::time::timeout(self.time_max, poll_fn(|cx| exchange.poll_end(cx))).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) if !error.is_timeout() => Some(error.to_string()),
            Ok(Err(_)) | Err(_) => Some(format!("ended after {:?}", self.time_max)),
        }
    }

    fn report(&self, messages: &Messages, end: Option<String>) {
        let load = &self.at_work;
        messages.lines().into_iter().chain(end).for_each(|line| load.report_late(&self.script, &line));
    }
}
