//! The link between the supervisor and a serving process: messages with sockets over a pair of Unix sockets that
//! preserve message boundaries. Each side sees the link close when the other process ends.
//!
//! The serving process sends requests and the supervisor replies in order; other messages have no reply. A message is
//! JSON, so either side may be of a later version.

use super::cookie_secret::CookieSecret;
use super::listen_address::ListenAddress;
use crate::log::Totals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A message to a serving process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild {
    /// Carries sockets of a listener; more of that listener may follow.
    Listener { address: ListenAddress, batch: SocketBatch },
    /// Carries the control socket.
    Control,
    /// The setup is complete: start.
    Start(StartInfo),
    /// The request was carried out. Its sockets, if any, were sent before.
    Done { text: String },
    /// The request was refused.
    Refused { text: String },
    /// A part of the counts of all serving processes; [`ToChild::Done`] follows the last one.
    Counts { totals: Box<Totals> },
}

/// Whether sockets are the first of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SocketBatch {
    First,
    Later,
}

/// What a serving process needs to know at its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StartInfo {
    /// Serving processes before it that ended unexpectedly.
    pub(crate) restarts: u64,
    /// Serving processes before it that were replaced: by upgrades, or by one with a wider sandbox.
    #[serde(default)]
    pub(crate) replacements: u64,
    /// The number of the last configuration that was in force before it.
    #[serde(default)]
    pub(crate) configuration_before: u64,
    /// How processes ended unexpectedly, for the error log.
    pub(crate) notes: Vec<String>,
    /// Whether it takes over for a reload, which the expectations of the configuration may refuse.
    #[serde(default)]
    pub(crate) tries_expectations: bool,
    /// Whether the supervisor keeps counts.
    #[serde(default)]
    pub(crate) keeps_counts: bool,
    /// Whether the supervisor stops processes that were replaced, so that they may serve on what lasts.
    #[serde(default)]
    pub(crate) stops_replaced: bool,
    /// Interval of heartbeats; `None` without a watchdog.
    pub(crate) heartbeat_interval: Option<Duration>,
    /// The keys of session tickets, which the next process continues with.
    #[serde(default)]
    pub(crate) ticket_keys: Vec<u8>,
    /// The key of cookies, which all processes of a supervisor share.
    #[serde(default)]
    pub(crate) cookie_secret: CookieSecret,
}

/// A message of a serving process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromChild {
    /// Its version. No reply.
    Version { version: String },
    /// It serves the configuration in force. No reply.
    Ready,
    /// It reloads its configuration; [`FromChild::Ready`] follows. No reply.
    Reloading,
    /// The configuration with this number is in force. No reply.
    Configuration { number: u64 },
    /// It is alive. No reply.
    Heartbeat,
    /// It received a stop command, so the whole program ends. No reply.
    Stopping,
    /// Carries the memory of its flight recorder. No reply.
    Recorder,
    /// Requests a dump of its flight recorder, for this reason. No reply.
    DumpRecorder { why: String },
    /// It cannot start, with the reason. No reply.
    Failed { text: String },
    /// Requests another listener.
    Bind { address: ListenAddress },
    /// Releases a listener. No reply.
    Release { address: ListenAddress },
    /// Requests an upgrade to the current binary.
    Upgrade,
    /// Requests a new process of this binary.
    Replace,
    /// What it has counted since its last message of this kind. No reply.
    Counted { totals: Box<Totals> },
    /// Requests the counts of all serving processes. Only a supervisor that keeps counts replies.
    Counts,
}

/// Descriptors of one message; the system's limit is 253.
const DESCRIPTORS_MAX: usize = 128;
/// Longest message. Notes are few, and a path has at most 4 KiB.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// How long the supervisor waits for a serving process to receive a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of the link.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl From<OwnedFd> for Link {
    fn from(end: OwnedFd) -> Self {
        Self(end)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Link {
    /// Creates a link: the supervisor's end and the child's end.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // A process that does not receive must not block the other.
        set_socket_timeout(&own, Timeout::Send, Some(SEND_TIMEOUT))?;
        Ok((Self(own), other))
    }

    /// Returns the end that this process has as its standard input.
    pub(super) fn of_standard_input() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Duplicates this end.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with descriptors, at most 128.
    pub(super) fn send_with(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_by(message, descriptors, SendFlags::NOSIGNAL)
    }

    /// Sends a message with descriptors, at most 128, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if too many messages wait to be received.
    pub(super) fn try_send_with(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_by(message, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_by(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "the number of descriptors was limited above");
        }
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, flags))?;
        Ok(())
    }

    /// Sends a listener.
    pub(super) fn send_listener(&self, address: &ListenAddress, listener: &selvedge::Listener) -> io::Result<()> {
        let sockets: Vec<BorrowedFd<'_>> = listener.sockets().collect();
        let mut batch = SocketBatch::First;
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            self.send_with(&ToChild::Listener { address: address.clone(), batch }, some)?;
            batch = SocketBatch::Later;
        }
        Ok(())
    }

    /// Sends the control socket.
    pub(super) fn send_control(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(&ToChild::Control, &[control])
    }

    /// Receives the next message with its sockets; `None` if the other end is closed.
    pub(super) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut text = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                // The other end was closed with unread messages, which is reported once. Its own messages follow.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                received => break received?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a message between the processes was truncated"));
        }
        Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptors)))
    }

    /// Waits until the other end is closed, at most for `timeout`; without one, forever.
    pub(super) fn wait_for_end(&self, timeout: Option<Duration>) -> WaitOutcome {
        let time = timeout.and_then(|time| Timespec::try_from(time).ok());
        // The end of the peer is reported without being requested.
        let mut watched = [PollFd::new(&self.0, PollFlags::empty())];
        match retry_on_intr(|| poll(&mut watched, time.as_ref())) {
            Ok(0) => WaitOutcome::TimedOut,
            _ => WaitOutcome::Ended,
        }
    }
}

/// Whether a wait ended by the end of the peer or by its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    TimedOut,
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::Listener;

    #[test]
    fn listeners_and_messages_arrive_in_order_and_the_end_is_reported() {
        let (ours, child_end) = Link::pair().unwrap();
        let child_end = Link::from(child_end);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), DESCRIPTORS_MAX + 2).unwrap();
        let address = ListenAddress::Named("web".to_owned());
        ours.send_listener(&address, &listener).unwrap();
        ours.send(&ToChild::Refused { text: "no\n".to_owned() }).unwrap();
        let mut sockets = Vec::new();
        for expected in [SocketBatch::First, SocketBatch::Later] {
            let (message, some) = child_end.receive::<ToChild>().unwrap().unwrap();
            assert!(
                matches!(message, ToChild::Listener { address: arrived, batch } if arrived == address && batch == expected)
            );
            sockets.extend(some);
        }
        assert_eq!(sockets.len(), DESCRIPTORS_MAX + 2);
        assert_eq!(Listener::from_sockets(sockets).unwrap().endpoint(), listener.endpoint());
        let (message, none) = child_end.receive::<ToChild>().unwrap().unwrap();
        assert!(matches!(message, ToChild::Refused { text } if text == "no\n") && none.is_empty());
        child_end.send(&FromChild::Ready).unwrap();
        assert_eq!(child_end.wait_for_end(Some(Duration::from_millis(1))), WaitOutcome::TimedOut);
        drop(ours);
        assert_eq!(child_end.wait_for_end(None), WaitOutcome::Ended);
        assert!(child_end.receive::<ToChild>().unwrap().is_none());
        child_end.send(&FromChild::Heartbeat).expect_err("no receiver");
    }

    #[test]
    fn messages_of_an_ended_process_are_received() {
        let (ours, child_end) = Link::pair().unwrap();
        let child_end = Link::from(child_end);
        ours.send(&ToChild::Start(StartInfo::default())).unwrap();
        child_end.send(&FromChild::Heartbeat).unwrap();
        child_end.send(&FromChild::Failed { text: "why".to_owned() }).unwrap();
        drop(child_end);
        assert!(matches!(ours.receive::<FromChild>().unwrap(), Some((FromChild::Heartbeat, _))));
        assert!(matches!(ours.receive::<FromChild>().unwrap(), Some((FromChild::Failed { text }, _)) if text == "why"));
        assert!(ours.receive::<FromChild>().unwrap().is_none());
    }
}
