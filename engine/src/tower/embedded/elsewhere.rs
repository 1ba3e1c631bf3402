//! Where applications of the engine's are called for other servers: one thread for all of them,
//! which begins with the first request.

use super::EmbeddedBody;
use crate::net::worker;
use crate::service::Moment;
use crate::tower::current::Current;
use selvedge_proto::method::Method;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Whoever it is.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Something to begin on the thread.
type Work = Box<dyn FnOnce(Current) + Send>;

/// Where work is left; there are no more pieces of it than requests. Nothing when the system
/// has no thread to give.
static THREAD: OnceLock<Option<mpsc::UnboundedSender<Work>>> = OnceLock::new();

/// Has an answer made by the thread; given up when nobody waits for it any more.
pub(super) fn ask<F>(
    make: impl FnOnce(Current) -> F + Send + 'static,
) -> oneshot::Receiver<http::Response<EmbeddedBody>>
where
    F: Future<Output = http::Response<EmbeddedBody>> + 'static,
{
    let (mut to, answer) = oneshot::channel();
    let work: Work = Box::new(move |current| {
        tokio::task::spawn_local(async move {
            let mut made = pin!(make(current));
            let made = poll_fn(|cx| match to.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => made.as_mut().poll(cx).map(Some),
            })
            .await;
            if let Some(made) = made {
                // Whoever asked may have gone since.
                let _ = to.send(made);
            }
        });
    });
    if let Some(thread) = THREAD.get_or_init(start) {
        // A thread that has ended takes nothing, which whoever waits for an answer sees.
        let _ = thread.send(work);
    }
    answer
}

fn start() -> Option<mpsc::UnboundedSender<Work>> {
    let (to, mut work) = mpsc::unbounded_channel::<Work>();
    let run = move || {
        let Ok(runtime) = worker::runtime() else { return };
        let began = Instant::now();
        runtime.block_on(async move {
            while let Some(begin) = work.recv().await {
                begin(Current { peer: NOBODY, moment: moment(began), method: Method::Get });
            }
        });
    };
    thread::Builder::new().name("selvedge-embedded".to_owned()).spawn(run).ok().map(|_| to)
}

fn moment(began: Instant) -> Moment {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { since_start: began.elapsed(), unix_time: i64::try_from(unix.as_secs()).unwrap_or(i64::MAX) }
}
