//! The control socket: a line with what is to be done, and an answer, over a Unix socket that
//! only its owner can open.
//!
//! The answer begins with a line that is `ok` or `refused`; the rest is for people.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Read the configuration anew.
    Reload,
    /// Stop gracefully.
    Stop,
    /// Put a new binary in the place of this one.
    Upgrade,
    /// Open the log files anew.
    Reopen,
    /// Say how things are.
    Status(Form),
}

/// How a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// What became of an order, for whoever gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done; what there is to say.
    Done(String),
    /// It is not done, and why; nothing has changed.
    Refused(String),
}

impl Order {
    const ALL: [Self; 6] =
        [Self::Reload, Self::Stop, Self::Upgrade, Self::Reopen, Self::Status(Form::Text), Self::Status(Form::Json)];

    /// The word for it on the control socket.
    const fn word(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Stop => "stop",
            Self::Upgrade => "upgrade",
            Self::Reopen => "reopen",
            Self::Status(Form::Text) => "status",
            Self::Status(Form::Json) => "status json",
        }
    }

    /// How long a client waits for the answer: a new configuration and a new process may take their
    /// time, and what is said or begun at once shows whether there is anybody.
    const fn answer_time(self) -> Duration {
        match self {
            Self::Reload | Self::Upgrade | Self::Reopen => Duration::from_secs(120),
            Self::Stop | Self::Status(_) => Duration::from_secs(10),
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }
}

/// How long whoever has connected may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest order.
const ORDER_BYTES_MAX: u64 = 64;
/// How many are listened to at once.
const CALLERS_MAX: usize = 64;

/// Answers whoever connects, on a thread, until the other end of `until` is gone. Whoever is
/// at it holds an `answering`.
pub(super) fn answer_all(
    control: UnixListener,
    until: UnixStream,
    answering: Arc<()>,
    answer: impl Fn(Order) -> Answer + Send + Sync + 'static,
) -> io::Result<()> {
    control.set_nonblocking(true)?;
    let answer = Arc::new(answer);
    thread::Builder::new().name("selvedge-control".to_owned()).spawn(move || {
        let others = Arc::strong_count(&answering);
        while let Some(caller) = next(&control, &until) {
            if Arc::strong_count(&answering) - others >= CALLERS_MAX {
                // Whoever is not told sees the connection end.
                let _ = turn_away(caller);
                continue;
            }
            let (answer, answering) = (answer.clone(), answering.clone());
            let thread = thread::Builder::new().name("selvedge-answer".to_owned());
            // A caller that goes away, or cannot have a thread, sees its connection end.
            let _ = thread.spawn(move || {
                let _ = hear(caller, &*answer);
                drop(answering);
            });
        }
    })?;
    Ok(())
}

/// Whoever connects next; `None` at the end.
fn next(control: &UnixListener, until: &UnixStream) -> Option<UnixStream> {
    loop {
        let mut watched = [PollFd::new(control, PollFlags::IN), PollFd::new(until, PollFlags::empty())];
        if retry_on_intr(|| poll(&mut watched, None)).is_err() || !watched[1].revents().is_empty() {
            return None;
        }
        match control.accept() {
            Ok((caller, _)) => return Some(caller),
            // Another process that has the socket was faster, or descriptors ran out.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Hears one caller out.
fn hear(mut caller: UnixStream, answer: &dyn Fn(Order) -> Answer) -> io::Result<()> {
    caller.set_nonblocking(false)?;
    caller.set_read_timeout(Some(PATIENCE))?;
    caller.set_write_timeout(Some(PATIENCE))?;
    let asker = socket_peercred(&caller)?.uid;
    if asker != Uid::ROOT && asker != geteuid() {
        return write_answer(&mut caller, &Answer::Refused("this is for the owner alone".to_owned()));
    }
    let mut line = String::new();
    BufReader::new(Read::by_ref(&mut caller).take(ORDER_BYTES_MAX)).read_line(&mut line)?;
    let said = match line.strip_suffix('\n').and_then(Order::from_word) {
        Some(order) => answer(order),
        None => Answer::Refused(format!("`{}` is no order", line.trim_end().escape_default())),
    };
    write_answer(&mut caller, &said)
}

/// Hears nothing, and waits for nothing.
fn turn_away(mut caller: UnixStream) -> io::Result<()> {
    caller.set_nonblocking(true)?;
    write_answer(&mut caller, &Answer::Refused("too many orders at once".to_owned()))
}

fn write_answer(to: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let (word, text) = match answer {
        Answer::Done(text) => ("ok", text),
        Answer::Refused(text) => ("refused", text),
    };
    to.write_all(format!("{word}\n{text}").as_bytes())
}

/// Gives an order to the server behind a control socket, and waits for its answer.
pub(crate) fn ask(control: &Path, order: Order) -> Result<Answer, String> {
    ask_within(control, order, order.answer_time())
}

fn ask_within(control: &Path, order: Order, time: Duration) -> Result<Answer, String> {
    let failed = |what: &str, error: io::Error| format!("{what} {}: {error}", control.display());
    let mut server = UnixStream::connect(control).map_err(|error| failed("cannot reach a server at", error))?;
    let mut said = Vec::new();
    let sent =
        server.set_read_timeout(Some(time)).and_then(|()| server.write_all(format!("{}\n", order.word()).as_bytes()));
    // Whoever refuses may do it without having read the order, which the system calls an error.
    let heard = sent.and(server.read_to_end(&mut said).map(drop));
    let said = String::from_utf8_lossy(&said);
    match (said.split_once('\n'), heard) {
        (Some(("refused", text)), _) => Ok(Answer::Refused(text.to_owned())),
        (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(format!("no answer from the server at {} within {} s", control.display(), time.as_secs_f64()))
        }
        (_, Err(error)) => Err(failed("no answer from the server at", error)),
        (Some(("ok", text)), Ok(())) => Ok(Answer::Done(text.to_owned())),
        _ => Err(format!("the server at {} ended before it answered", control.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn orders_are_answered_until_the_end() {
        let path = std::env::temp_dir().join(format!("selvedge-control-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (until, end) = UnixStream::pair().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let into = heard.clone();
        let answer = move |order| {
            into.lock().unwrap().push(order);
            match order {
                Order::Reload => Answer::Refused("line 1\nline 2\n".to_owned()),
                _ => Answer::Done(order.word().to_owned()),
            }
        };
        answer_all(UnixListener::bind(&path).unwrap(), until, Arc::default(), answer).unwrap();
        for order in Order::ALL {
            let expected = match order {
                Order::Reload => Answer::Refused("line 1\nline 2\n".to_owned()),
                _ => Answer::Done(order.word().to_owned()),
            };
            assert_eq!(ask(&path, order), Ok(expected));
        }
        assert_eq!(*heard.lock().unwrap(), Order::ALL);
        let mut stranger = UnixStream::connect(&path).unwrap();
        stranger.write_all(b"\x1bGET / HTTP/1.1\r\n").unwrap();
        let mut said = String::new();
        stranger.read_to_string(&mut said).unwrap();
        assert_eq!(said, "refused\n`\\u{1b}GET / HTTP/1.1` is no order");
        drop(end);
        // Nobody accepts any more: whoever connects is let go with the socket.
        let ended = ask(&path, Order::Stop).unwrap_err();
        assert!(ended.contains(path.to_str().unwrap()), "{ended}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(heard.lock().unwrap().len(), Order::ALL.len());
    }

    #[test]
    fn a_server_that_hangs_is_not_waited_for_for_ever() {
        let path = std::env::temp_dir().join(format!("selvedge-control-hangs-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let _hangs = UnixListener::bind(&path).unwrap();
        let text = ask_within(&path, Order::Reload, Duration::from_millis(100)).unwrap_err();
        assert_eq!(text, format!("no answer from the server at {} within 0.1 s", path.display()));
        assert_eq!(Order::Status(Form::Text).answer_time(), Duration::from_secs(10));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn whoever_comes_when_too_many_are_heard_is_told() {
        let path = std::env::temp_dir().join(format!("selvedge-control-many-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (until, end) = UnixStream::pair().unwrap();
        let answering = Arc::new(());
        let answer = |_| Answer::Done(String::new());
        answer_all(UnixListener::bind(&path).unwrap(), until, answering.clone(), answer).unwrap();
        // They say nothing, and so are heard for a while.
        let silent: Vec<_> = (0..CALLERS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for _ in 0..20 {
            let refused = Answer::Refused("too many orders at once".to_owned());
            assert_eq!(ask(&path, Order::Status(Form::Text)), Ok(refused));
        }
        drop(silent);
        while Arc::strong_count(&answering) > 2 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ask(&path, Order::Status(Form::Text)), Ok(Answer::Done(String::new())));
        drop(end);
        std::fs::remove_file(&path).unwrap();
    }
}
