//! The thread that runs engine applications for other servers. It starts at the first request.

use super::EmbeddedBody;
use crate::net::runtime;
use crate::service::Timestamp;
use crate::tower::request_context::RequestContext;
use selvedge_proto::method::Method;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// The peer address if the other server's is unknown.
const UNKNOWN_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A job that the thread starts.
type Job = Box<dyn FnOnce(RequestContext) + Send>;

/// The thread's job queue, bounded by the number of open requests. `None` if the thread could not be
/// started.
static THREAD: OnceLock<Option<mpsc::UnboundedSender<Job>>> = OnceLock::new();

/// Computes a response on the thread. The job is cancelled if the receiver is dropped.
pub(super) fn run<F>(
    respond: impl FnOnce(RequestContext) -> F + Send + 'static,
) -> oneshot::Receiver<http::Response<EmbeddedBody>>
where
    F: Future<Output = http::Response<EmbeddedBody>> + 'static,
{
    let (mut sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move |context| {
        tokio::task::spawn_local(async move {
            let mut response_future = pin!(respond(context));
            let response = poll_fn(|cx| match sender.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => response_future.as_mut().poll(cx).map(Some),
            })
            .await;
            if let Some(response) = response {
                // The receiver may be dropped already.
                let _ = sender.send(response);
            }
        });
    });
    if let Some(thread) = THREAD.get_or_init(start_thread) {
        // If the thread has ended, the job is dropped and the receiver sees its channel close.
        let _ = thread.send(job);
    }
    receiver
}

fn start_thread() -> Option<mpsc::UnboundedSender<Job>> {
    let (sender, mut jobs) = mpsc::unbounded_channel::<Job>();
    let run = move || {
        let Ok(runtime) = runtime::runtime() else { return };
        let started_at = Instant::now();
        runtime.block_on(async move {
            while let Some(job) = jobs.recv().await {
                job(RequestContext { peer: UNKNOWN_PEER, received_at: timestamp(started_at), method: Method::Get });
            }
        });
    };
    thread::Builder::new().name("selvedge-embedded".to_owned()).spawn(run).ok().map(|_| sender)
}

fn timestamp(started_at: Instant) -> Timestamp {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { since_worker_start: started_at.elapsed(), unix_time: i64::try_from(unix.as_secs()).unwrap_or(i64::MAX) }
}
