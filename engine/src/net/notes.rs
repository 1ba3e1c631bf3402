//! What a worker notes of each of its connections: what it waits for and until when.
//!
//! No request touches a timer. A connection writes its deadline here, in a dense table;
//! one sweeper per worker reads the table a few times a second and wakes whoever is late.

use crate::net::clock::Tick;
use std::cell::{Cell, RefCell};
use std::task::Waker;

/// What a connection waits for. The list is the whole slow-client policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Nothing of the client's: the application is at work.
    None,
    /// The rest of a head.
    RequestHead,
    /// More request content.
    RequestBody,
    /// The client to take more of a response.
    ResponseProgress,
    /// The next request.
    KeepAlive,
    /// The client to finish after a final answer.
    Linger,
    /// Nothing: another protocol has the connection.
    Switched,
}

/// What the worker tells a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing.
    None,
    /// Its deadline has passed.
    Expired,
    /// It is idle and its place is needed.
    MakeRoom,
    /// The server is stopping, and it is idle.
    Drain,
    /// The server has stopped waiting for it.
    Cut,
}

#[derive(Debug)]
struct Note {
    due: Tick,
    deadline: Deadline,
    notice: Notice,
    waker: Option<Waker>,
    used: bool,
    generation: u32,
}

impl Note {
    const UNUSED: Self = Self {
        due: Tick::MAX,
        deadline: Deadline::None,
        notice: Notice::None,
        waker: None,
        used: false,
        generation: 0,
    };
}

/// The table of one worker.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    table: RefCell<Vec<Note>>,
    free: RefCell<Vec<u32>>,
    count: Cell<usize>,
    /// What connections are served by from now on, counted.
    generation: Cell<u32>,
}

/// A connection's place in the table.
pub(crate) type Place = u32;

impl Notes {
    /// Connections there are.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn enter(&self) -> Place {
        self.count.set(self.count.get() + 1);
        let note = Note { used: true, generation: self.generation.get(), ..Note::UNUSED };
        let mut table = self.table.borrow_mut();
        if let Some(place) = self.free.borrow_mut().pop() {
            table[place as usize] = note;
            return place;
        }
        table.push(note);
        Place::try_from(table.len() - 1).expect("descriptors are numbered in fewer bits")
    }

    pub(crate) fn leave(&self, place: Place) {
        self.count.set(self.count.get() - 1);
        let mut table = self.table.borrow_mut();
        let note = &mut table[place as usize];
        *note = Note::UNUSED;
        self.free.borrow_mut().push(place);
        if self.count.get() == 0 {
            // After a rush the table is given back.
            table.clear();
            self.free.borrow_mut().clear();
            table.shrink_to(1024);
            self.free.borrow_mut().shrink_to(1024);
        }
    }

    /// Notes what a connection waits for from now on. A notice about what it waited for
    /// before is void.
    pub(crate) fn wait_for(&self, place: Place, deadline: Deadline, due: Tick) {
        let note = &mut self.table.borrow_mut()[place as usize];
        note.deadline = deadline;
        note.due = due;
        if note.notice != Notice::Cut {
            note.notice = Notice::None;
        }
    }

    pub(crate) fn deadline(&self, place: Place) -> Deadline {
        self.table.borrow()[place as usize].deadline
    }

    pub(crate) fn notice(&self, place: Place) -> Notice {
        self.table.borrow()[place as usize].notice
    }

    /// Notes whom to wake with a notice; the notice that there is.
    pub(crate) fn begin_turn(&self, place: Place, waker: &Waker) -> Notice {
        let note = &mut self.table.borrow_mut()[place as usize];
        match &note.waker {
            Some(known) if known.will_wake(waker) => {}
            _ => note.waker = Some(waker.clone()),
        }
        note.notice
    }

    /// Tells everybody whose deadline has passed.
    pub(crate) fn sweep(&self, now: Tick) {
        self.tell(Notice::Expired, |note| note.due <= now && note.notice == Notice::None);
    }

    /// Shortens the wait of idle connections to `keep_alive`, counted back from a wait that
    /// would have been `usual`.
    pub(crate) fn shorten_idle(&self, now: Tick, usual: Tick, keep_alive: Tick) {
        let sooner = usual.saturating_sub(keep_alive);
        self.tell(Notice::Expired, |note| {
            note.deadline == Deadline::KeepAlive
                && note.notice == Notice::None
                && note.due.saturating_sub(sooner) <= now
        });
    }

    /// Asks the connection that has been idle longest for its place; false when none is idle.
    pub(crate) fn make_room(&self) -> bool {
        let mut table = self.table.borrow_mut();
        let idle = table.iter_mut().filter(|n| n.used && n.deadline == Deadline::KeepAlive && n.notice == Notice::None);
        let Some(note) = idle.min_by_key(|note| note.due) else { return false };
        note.notice = Notice::MakeRoom;
        let waker = note.waker.clone();
        drop(table);
        waker.inspect(|waker| waker.wake_by_ref());
        true
    }

    /// Wakes a connection, unless `waker` is its own.
    pub(crate) fn wake(&self, place: Place, waker: Option<&Waker>) {
        let own = self.table.borrow()[place as usize].waker.clone();
        if let Some(own) = own.filter(|own| waker.is_none_or(|waker| !waker.will_wake(own))) {
            own.wake();
        }
    }

    /// Takes a notice back that was not meant for what the connection is doing.
    pub(crate) fn ignore_notice(&self, place: Place) {
        let note = &mut self.table.borrow_mut()[place as usize];
        if note.notice != Notice::Cut {
            note.notice = Notice::None;
        }
    }

    /// Tells those who are idle, have yet to send a first byte, or have left HTTP, that the server
    /// is stopping.
    pub(crate) fn drain(&self) {
        self.tell(Notice::Drain, |note| {
            matches!(note.deadline, Deadline::KeepAlive | Deadline::RequestHead | Deadline::Switched)
                && note.notice == Notice::None
        });
    }

    /// Begins a new generation of connections; its number.
    pub(crate) fn begin_generation(&self) -> u32 {
        self.generation.set(self.generation.get().wrapping_add(1));
        self.generation.get()
    }

    /// Counts a connection among those of the current generation.
    pub(crate) fn renew(&self, place: Place) {
        self.table.borrow_mut()[place as usize].generation = self.generation.get();
    }

    /// Tells the idle ones of generations before this one, and those that have left HTTP, to end.
    pub(crate) fn drain_before(&self, generation: u32) {
        self.tell(Notice::Drain, |note| {
            note.generation < generation
                && matches!(note.deadline, Deadline::KeepAlive | Deadline::Switched)
                && note.notice == Notice::None
        });
    }

    /// Tells those of generations before this one that nobody waits for them any longer.
    pub(crate) fn cut_before(&self, generation: u32) {
        self.tell(Notice::Cut, |note| note.generation < generation);
    }

    /// Goes through all connections: the generation that each is of, and what it waits for.
    pub(crate) fn each(&self, mut tell: impl FnMut(u32, Deadline)) {
        self.table.borrow().iter().filter(|note| note.used).for_each(|note| tell(note.generation, note.deadline));
    }

    /// Tells all that the server waits no longer.
    pub(crate) fn cut(&self) {
        self.tell(Notice::Cut, |_| true);
    }

    fn tell(&self, notice: Notice, to: impl Fn(&Note) -> bool) {
        let mut wakers = Vec::new();
        for note in self.table.borrow_mut().iter_mut().filter(|note| note.used && to(note)) {
            note.notice = notice;
            wakers.extend(note.waker.clone());
        }
        // Woken after the table is free again: waking may run code that looks into it.
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ones_are_told_and_others_are_not() {
        let notes = Notes::default();
        let (late, early, idle) = (notes.enter(), notes.enter(), notes.enter());
        notes.wait_for(late, Deadline::RequestHead, 5);
        notes.wait_for(early, Deadline::RequestBody, 6);
        notes.wait_for(idle, Deadline::KeepAlive, 100);
        notes.sweep(5);
        assert_eq!(notes.notice(late), Notice::Expired);
        assert_eq!(notes.notice(early), Notice::None);
        notes.wait_for(late, Deadline::None, Tick::MAX);
        assert_eq!(notes.notice(late), Notice::None);
        notes.drain();
        assert_eq!((notes.notice(early), notes.notice(idle)), (Notice::None, Notice::Drain));
        notes.cut();
        notes.wait_for(early, Deadline::RequestBody, 9);
        assert_eq!(notes.notice(early), Notice::Cut, "a cut stays");
    }

    #[test]
    fn the_idlest_makes_room_and_places_are_used_again() {
        let notes = Notes::default();
        let places: Vec<Place> = (0..3).map(|_| notes.enter()).collect();
        assert!(!notes.make_room(), "none is idle");
        for (place, due) in places.iter().zip([30, 10, 20]) {
            notes.wait_for(*place, Deadline::KeepAlive, due);
        }
        assert!(notes.make_room());
        assert_eq!(notes.notice(places[1]), Notice::MakeRoom);
        notes.leave(places[1]);
        assert_eq!(notes.enter(), places[1]);
        assert_eq!(notes.count(), 3);
    }

    #[test]
    fn generations_end_apart() {
        let notes = Notes::default();
        let (busy, idle, followed) = (notes.enter(), notes.enter(), notes.enter());
        notes.wait_for(idle, Deadline::KeepAlive, 100);
        let second = notes.begin_generation();
        let new = notes.enter();
        notes.wait_for(new, Deadline::KeepAlive, 100);
        notes.renew(followed);
        notes.drain_before(second);
        let notices = [busy, idle, followed, new].map(|place| notes.notice(place));
        assert_eq!(notices, [Notice::None, Notice::Drain, Notice::None, Notice::None]);
        notes.cut_before(second);
        let notices = [busy, idle, followed, new].map(|place| notes.notice(place));
        assert_eq!(notices, [Notice::Cut, Notice::Cut, Notice::None, Notice::None]);
    }
}
