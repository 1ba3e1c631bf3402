//! The connection between the supervisor and a serving process: messages with sockets, over a
//! pair of Unix sockets that keeps their borders. Its end tells each that the other is gone.
//!
//! The serving process asks, and the supervisor answers in order; what has no answer is only
//! said. A message is JSON, so that either may be of a later version than the other.

use super::place::Place;
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

/// What a serving process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// Sockets of a listener come with it; more of the same listener may follow.
    Listener { place: Place, part: Part },
    /// The control socket comes with it.
    Control,
    /// That was all: begin.
    Begin(Beginning),
    /// What was asked for is done; its sockets, if it has any, came before.
    Done { text: String },
    /// It is not done.
    Refused { text: String },
}

/// Whether sockets belong to the same listener as those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    First,
    Later,
}

/// How a serving process begins.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Beginning {
    /// How many were started before it.
    pub(super) restarts: u64,
    /// What became of those, for the error log.
    pub(super) notes: Vec<String>,
    /// How often it has to say that it is alive, if anybody wants to know.
    pub(super) alive_every: Option<Duration>,
}

/// What a serving process says and asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Asked {
    /// What it runs. No answer.
    Runs { version: String },
    /// It serves, under the configuration that is in force. No answer.
    Ready,
    /// It reads its configuration anew; [`Asked::Ready`] follows. No answer.
    Reloading,
    /// It is alive. No answer.
    Alive,
    /// It was told to stop, and so the whole program ends. No answer.
    Stopping,
    /// It cannot begin, and why. No answer.
    Failed { text: String },
    /// One more place to listen at.
    Bind { place: Place },
    /// One place less. No answer.
    Release { place: Place },
    /// A new binary in its place, once that is ready.
    Upgrade,
    /// The same binary anew in its place, once that is ready.
    Renew,
}

/// Descriptors that one message carries; the system's bound is 253.
const DESCRIPTORS_MAX: usize = 128;
/// Longest message. Notes are few, and a path has 4 KiB at most.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// How long the supervisor waits for a serving process to take what it is told.
const SEND_TIME: Duration = Duration::from_secs(5);

/// One end.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl From<OwnedFd> for Link {
    fn from(end: OwnedFd) -> Self {
        Self(end)
    }
}

impl Link {
    /// Two ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // Whoever does not listen must not keep the other from its work.
        set_socket_timeout(&one, Timeout::Send, Some(SEND_TIME))?;
        Ok((Self(one), other))
    }

    /// The end that this process was started with as its standard input.
    pub(super) fn of_standard_input() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// The same end once more.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with(message, &[])
    }

    fn send_with(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "no more are sent at once than there is room for");
        }
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Hands a listener over.
    pub(super) fn send_listener(&self, place: &Place, listener: &selvedge::Listener) -> io::Result<()> {
        let sockets: Vec<BorrowedFd<'_>> = listener.sockets().collect();
        let mut part = Part::First;
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            self.send_with(&Told::Listener { place: place.clone(), part }, some)?;
            part = Part::Later;
        }
        Ok(())
    }

    /// Hands the control socket over.
    pub(super) fn send_control(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(&Told::Control, &[control])
    }

    /// The next message and what came with it; `None` when the other end is gone.
    pub(super) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut text = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                // The other end is gone and had not heard all, which is told once: what it has said
                // itself comes after that.
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
            return Err(io::Error::other("a message between the processes was cut short"));
        }
        Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptors)))
    }

    /// Waits until the other end is gone, at most for a time.
    pub(super) fn wait_for_end(&self, at_most: Option<Duration>) -> Waited {
        let time = at_most.and_then(|time| Timespec::try_from(time).ok());
        // The end is told without being asked for.
        let mut watched = [PollFd::new(&self.0, PollFlags::empty())];
        match retry_on_intr(|| poll(&mut watched, time.as_ref())) {
            Ok(0) => Waited::Passed,
            _ => Waited::Ended,
        }
    }
}

/// What came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Passed,
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::Listener;

    #[test]
    fn listeners_and_messages_come_in_order_and_the_end_is_seen() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link::from(theirs);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), DESCRIPTORS_MAX + 2).unwrap();
        let place = Place::Named("web".to_owned());
        ours.send_listener(&place, &listener).unwrap();
        ours.send(&Told::Refused { text: "no\n".to_owned() }).unwrap();
        let mut sockets = Vec::new();
        for expected in [Part::First, Part::Later] {
            let (told, some) = theirs.receive::<Told>().unwrap().unwrap();
            assert!(matches!(told, Told::Listener { place: came, part } if came == place && part == expected));
            sockets.extend(some);
        }
        assert_eq!(sockets.len(), DESCRIPTORS_MAX + 2);
        assert_eq!(Listener::from_sockets(sockets).unwrap().endpoint(), listener.endpoint());
        let (told, none) = theirs.receive::<Told>().unwrap().unwrap();
        assert!(matches!(told, Told::Refused { text } if text == "no\n") && none.is_empty());
        theirs.send(&Asked::Ready).unwrap();
        assert_eq!(theirs.wait_for_end(Some(Duration::from_millis(1))), Waited::Passed);
        drop(ours);
        assert_eq!(theirs.wait_for_end(None), Waited::Ended);
        assert!(theirs.receive::<Told>().unwrap().is_none());
        theirs.send(&Asked::Alive).expect_err("nobody hears it");
    }

    #[test]
    fn the_last_words_of_one_that_has_not_heard_all_are_heard() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link::from(theirs);
        ours.send(&Told::Begin(Beginning::default())).unwrap();
        theirs.send(&Asked::Alive).unwrap();
        theirs.send(&Asked::Failed { text: "why".to_owned() }).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive::<Asked>().unwrap(), Some((Asked::Alive, _))));
        assert!(matches!(ours.receive::<Asked>().unwrap(), Some((Asked::Failed { text }, _)) if text == "why"));
        assert!(ours.receive::<Asked>().unwrap().is_none());
    }
}
