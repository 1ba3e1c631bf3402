//! What a worker notes of each of its connections: what it waits for and until when.
//!
//! No request touches a timer. A connection writes its deadline here, in a dense table;
//! one sweeper per worker reads the table a few times a second and wakes whoever is late.

use crate::limits::{RUSH, SWEEPS_UNTIL_PARKED};
use crate::net::clock::Tick;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
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
    /// It has been idle for a while, and needs no task to be.
    Park,
    /// The server has stopped waiting for it.
    Cut,
}

struct Note {
    due: Tick,
    deadline: Deadline,
    notice: Notice,
    /// Sweeps that found it idle.
    sweeps: u8,
    used: bool,
    generation: u32,
    whom: Whom,
}

/// Whom a notice is for.
enum Whom {
    Nobody,
    Task(Waker),
    /// A connection without a task, in the [`Lot`].
    Parked,
}

/// Whom to rouse when the table is free again: that may run code that looks into it.
enum Called {
    Task(Waker),
    Parked(Place),
}

/// What is left of connections that need no task, by their places.
pub(crate) trait Lot: Any {
    /// Has one go on, in a task of its own.
    fn resume(self: Rc<Self>, place: Place);

    /// Drops all of them, and with them their connections.
    fn clear(&self);
}

impl Note {
    const UNUSED: Self = Self {
        due: Tick::MAX,
        deadline: Deadline::None,
        notice: Notice::None,
        sweeps: 0,
        used: false,
        generation: 0,
        whom: Whom::Nobody,
    };

    /// Whom to rouse with a notice. A task stays known; a parked connection is parked no longer.
    fn called(&mut self, place: usize) -> Option<Called> {
        match &self.whom {
            Whom::Nobody => None,
            Whom::Task(waker) => Some(Called::Task(waker.clone())),
            Whom::Parked => {
                self.whom = Whom::Nobody;
                Some(Called::Parked(place as Place))
            }
        }
    }

    /// Whether it has no notice that matters: anything counts more than that it is to park.
    fn can_be_told(&self) -> bool {
        matches!(self.notice, Notice::None | Notice::Park)
    }

    fn can_park(&self) -> bool {
        self.deadline == Deadline::KeepAlive && self.notice == Notice::None && matches!(self.whom, Whom::Task(_))
    }
}

/// The table of one worker.
#[derive(Default)]
pub(crate) struct Notes {
    table: RefCell<Vec<Note>>,
    free: RefCell<Vec<u32>>,
    lot: OnceCell<Rc<dyn Lot>>,
    count: Cell<usize>,
    /// Connections that have a task, and the most there were since memory was given back.
    active: Cell<usize>,
    active_most: Cell<usize>,
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

    /// Connections that have a task.
    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    pub(crate) fn enter(&self) -> Place {
        self.count.set(self.count.get() + 1);
        self.count_active();
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
        self.active.set(self.active.get() - 1);
        let mut table = self.table.borrow_mut();
        table[place as usize] = Note::UNUSED;
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
        note.sweeps = 0;
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
        match &note.whom {
            Whom::Task(known) if known.will_wake(waker) => {}
            _ => note.whom = Whom::Task(waker.clone()),
        }
        note.notice
    }

    /// The lot; the first call says which.
    pub(crate) fn lot(&self, make: impl FnOnce() -> Rc<dyn Lot>) -> Rc<dyn Lot> {
        self.lot.get_or_init(make).clone()
    }

    /// Notes that a connection has no task from now on, and is in the lot. The notice that it was to
    /// park is void; another has it go on.
    pub(crate) fn park(&self, place: Place) {
        self.active.set(self.active.get() - 1);
        let called = {
            let note = &mut self.table.borrow_mut()[place as usize];
            note.whom = Whom::Parked;
            if note.notice == Notice::Park {
                note.notice = Notice::None;
            }
            if note.notice == Notice::None { None } else { note.called(place as usize) }
        };
        self.rouse(called);
    }

    /// Has a parked connection go on.
    pub(crate) fn resume(&self, place: Place) {
        let called = match self.table.borrow_mut().get_mut(place as usize) {
            Some(note) if matches!(note.whom, Whom::Parked) => note.called(place as usize),
            _ => return,
        };
        self.rouse(called);
    }

    fn count_active(&self) {
        let active = self.active.get() + 1;
        self.active.set(active);
        self.active_most.set(self.active_most.get().max(active));
    }

    /// Whether a rush is over: so many connections that had a task have none any more, or have ended.
    /// It is over once.
    pub(crate) fn rush_is_over(&self) -> bool {
        let is_over = self.active_most.get() - self.active.get() >= RUSH;
        if is_over {
            self.active_most.set(self.active.get());
        }
        is_over
    }

    /// Drops what is in the lot: nobody is left to resume it.
    pub(crate) fn clear_lot(&self) {
        self.lot.get().inspect(|lot| lot.clear());
    }

    /// Connections that are parked.
    #[cfg(test)]
    pub(crate) fn parked(&self) -> usize {
        self.table.borrow().iter().filter(|note| matches!(note.whom, Whom::Parked)).count()
    }

    /// Tells those who are idle that they need no task for it.
    #[cfg(test)]
    pub(crate) fn park_idle(&self) {
        self.tell(Notice::Park, Note::can_park);
    }

    /// Tells everybody whose deadline has passed, and who has been idle for a while.
    pub(crate) fn sweep(&self, now: Tick) {
        let mut called = Vec::new();
        let mut table = self.table.borrow_mut();
        let all = table.iter_mut().enumerate();
        for (place, note) in all.filter(|(_, note)| note.used && note.can_be_told()) {
            if note.due <= now {
                note.notice = Notice::Expired;
                called.extend(note.called(place));
            } else if note.can_park() {
                note.sweeps += 1;
                if note.sweeps >= SWEEPS_UNTIL_PARKED {
                    note.sweeps = 0;
                    note.notice = Notice::Park;
                    called.extend(note.called(place));
                }
            }
        }
        drop(table);
        self.rouse(called);
    }

    /// Shortens the wait of idle connections to `keep_alive`, counted back from a wait that
    /// would have been `usual`.
    pub(crate) fn shorten_idle(&self, now: Tick, usual: Tick, keep_alive: Tick) {
        let sooner = usual.saturating_sub(keep_alive);
        self.tell(Notice::Expired, |note| {
            note.deadline == Deadline::KeepAlive && note.can_be_told() && note.due.saturating_sub(sooner) <= now
        });
    }

    /// Asks the connection that has been idle longest for its place; false when none is idle.
    pub(crate) fn make_room(&self) -> bool {
        let mut table = self.table.borrow_mut();
        let all = table.iter_mut().enumerate();
        let idle = all.filter(|(_, n)| n.used && n.deadline == Deadline::KeepAlive && n.can_be_told());
        let Some((place, note)) = idle.min_by_key(|(_, note)| note.due) else { return false };
        note.notice = Notice::MakeRoom;
        let called = note.called(place);
        drop(table);
        self.rouse(called);
        true
    }

    /// Wakes a connection, unless `waker` is its own.
    pub(crate) fn wake(&self, place: Place, waker: Option<&Waker>) {
        let own = match &self.table.borrow()[place as usize].whom {
            Whom::Task(own) if waker.is_none_or(|waker| !waker.will_wake(own)) => own.clone(),
            _ => return,
        };
        own.wake();
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
                && note.can_be_told()
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

    /// Tells those of generations before this one that have left HTTP that they are to end.
    pub(crate) fn announce_before(&self, generation: u32) {
        self.tell(Notice::Drain, |note| {
            note.generation < generation && note.deadline == Deadline::Switched && note.can_be_told()
        });
    }

    /// Tells the idle ones of generations before this one to end.
    pub(crate) fn drain_before(&self, generation: u32) {
        self.tell(Notice::Drain, |note| {
            note.generation < generation && note.deadline == Deadline::KeepAlive && note.can_be_told()
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
        let mut called = Vec::new();
        for (place, note) in self.table.borrow_mut().iter_mut().enumerate() {
            if note.used && to(note) {
                note.notice = notice;
                called.extend(note.called(place));
            }
        }
        self.rouse(called);
    }

    fn rouse(&self, called: impl IntoIterator<Item = Called>) {
        for called in called {
            match (called, self.lot.get()) {
                (Called::Task(waker), _) => waker.wake(),
                (Called::Parked(place), Some(lot)) => {
                    self.count_active();
                    lot.clone().resume(place);
                }
                (Called::Parked(_), None) => {}
            }
        }
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

    #[test]
    fn who_has_been_idle_for_a_while_is_to_park_and_is_resumed_by_any_notice() {
        #[derive(Default)]
        struct Resumed(RefCell<Vec<Place>>);
        impl Lot for Resumed {
            fn resume(self: Rc<Self>, place: Place) {
                self.0.borrow_mut().push(place);
            }

            fn clear(&self) {}
        }
        let (notes, resumed) = (Notes::default(), Rc::new(Resumed::default()));
        notes.lot(|| resumed.clone());
        let (idle, busy, late) = (notes.enter(), notes.enter(), notes.enter());
        for (place, deadline, due) in
            [(idle, Deadline::KeepAlive, 100), (busy, Deadline::RequestHead, 100), (late, Deadline::KeepAlive, 3)]
        {
            notes.begin_turn(place, Waker::noop());
            notes.wait_for(place, deadline, due);
        }
        for sweep in 1..SWEEPS_UNTIL_PARKED {
            notes.sweep(sweep.into());
            assert_eq!(notes.notice(idle), Notice::None);
        }
        notes.sweep(SWEEPS_UNTIL_PARKED.into());
        let notices = [idle, busy, late].map(|place| notes.notice(place));
        assert_eq!(notices, [Notice::Park, Notice::None, Notice::Expired]);
        notes.park(idle);
        assert_eq!((notes.notice(idle), notes.parked()), (Notice::None, 1));
        notes.sweep(99);
        assert!(resumed.0.borrow().is_empty());
        notes.sweep(100);
        assert_eq!((notes.notice(idle), notes.parked()), (Notice::Expired, 0));
        notes.resume(idle);
        notes.resume(busy);
        notes.resume(1000);
        assert_eq!(*resumed.0.borrow(), [idle], "once, and nobody else");
    }

    #[test]
    fn whatever_else_is_said_to_who_is_to_park_counts_more() {
        type Say = fn(&Notes);
        let said: [(Notice, Say); 4] = [
            (Notice::Drain, Notes::drain),
            (Notice::Drain, |notes| notes.drain_before(1)),
            (Notice::MakeRoom, |notes| assert!(notes.make_room())),
            (Notice::Expired, |notes| notes.shorten_idle(60, 100, 50)),
        ];
        for (notice, say) in said {
            let notes = Notes::default();
            let idle = notes.enter();
            notes.begin_turn(idle, Waker::noop());
            notes.wait_for(idle, Deadline::KeepAlive, 100);
            notes.park_idle();
            assert_eq!(notes.notice(idle), Notice::Park);
            say(&notes);
            assert_eq!(notes.notice(idle), notice);
            notes.park(idle);
            assert_eq!(notes.notice(idle), notice, "and is not forgotten");
        }
    }

    #[test]
    fn a_rush_is_over_once() {
        let notes = Notes::default();
        let places: Vec<Place> = (0..RUSH + 10).map(|_| notes.enter()).collect();
        places[..RUSH / 2].iter().for_each(|&place| notes.leave(place));
        places[RUSH / 2..RUSH - 1].iter().for_each(|&place| notes.park(place));
        assert!(!notes.rush_is_over());
        notes.park(places[RUSH]);
        assert!(notes.rush_is_over() && !notes.rush_is_over());
    }
}
