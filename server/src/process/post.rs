//! What a serving process has of the world around it: its sockets, whom it reports to, and
//! whose orders it takes. It serves alone, or under a supervisor.

use super::Place;
use super::claimed::OwnFile;
use super::control::{self, Answer, Form, Order};
use super::link::{Asked, Beginning, Link, Part, Told, Waited};
use super::notify::Notifier;
use super::sandbox::{Confinement, Sandbox};
use super::sockets::Sockets;
use super::together::Together;
use selvedge::{Endpoint, Listener};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process that has stopped goes on to answer whoever has asked before.
const LAST_ANSWERS_TIME: Duration = Duration::from_secs(5);
/// How often a process that stops says that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// What is said of an order to stop, and of others after it.
const STOPPING: &str = "stopping";

/// What is ordered of whoever serves. Each is called on a thread that may wait.
pub(crate) trait Orders: Send + Sync + 'static {
    /// Reads the configuration anew; says what has changed, or why nothing has.
    fn reload(&self) -> Answer;
    /// Says how things are.
    fn status(&self, form: Form) -> String;
    /// Accepts nobody any more: another process serves by now. A stop follows.
    fn leave(&self);
    /// Opens the log files anew.
    fn reopen(&self);
    /// Stops.
    fn stop(&self, pace: Pace);
}

/// How a stop goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// What runs may finish.
    Graceful,
    /// What runs is cut.
    AtOnce,
}

/// The place of a serving process.
#[derive(Debug)]
pub(crate) struct Post {
    sockets: Mutex<Sockets>,
    control: Mutex<Option<UnixListener>>,
    /// Orders to reload.
    reloads: Together<Answer>,
    /// Held by whoever waits for another process in the place of this one.
    replacing: Mutex<()>,
    /// Set when this process has begun to stop.
    stopping: AtomicBool,
    /// Dropped when no more orders are taken.
    orders_end: Mutex<Option<UnixStream>>,
    /// Dropped when nothing is left that may take its time.
    busy: Mutex<Option<Sender<()>>>,
    /// Held by whoever is answering one.
    answering: Arc<()>,
    chain: Chain,
    beginning: Beginning,
}

/// Whom a serving process answers to.
#[derive(Debug)]
pub(super) enum Chain {
    /// The supervisor. One question at a time.
    Supervised { link: Link, asking: Mutex<()> },
    /// Nobody but the system. The files to remove at the end.
    Alone { notifier: Notifier, files: Vec<OwnFile> },
}

impl Post {
    pub(super) fn alone(sockets: Sockets, control: UnixListener, notifier: Notifier, files: Vec<OwnFile>) -> Self {
        Self {
            sockets: Mutex::new(sockets),
            control: Mutex::new(Some(control)),
            reloads: Together::default(),
            replacing: Mutex::default(),
            stopping: AtomicBool::default(),
            orders_end: Mutex::default(),
            busy: Mutex::default(),
            answering: Arc::default(),
            chain: Chain::Alone { notifier, files },
            beginning: Beginning::default(),
        }
    }

    /// Takes what the supervisor hands over.
    pub(super) fn supervised(link: Link, mut sockets: Sockets) -> Result<Self, String> {
        // A supervisor that hears nothing more is gone, which the first message says, too.
        let _ = link.send(&Asked::Runs { version: env!("CARGO_PKG_VERSION").to_owned() });
        let mut control = None;
        let mut parts = Parts::default();
        let beginning = loop {
            match receive(&link)? {
                (Told::Listener { place, part }, some) => parts.add(place, part, some),
                (Told::Control, some) => control = some.into_iter().next().map(UnixListener::from),
                (Told::Begin(beginning), _) => break beginning,
                (Told::Done { .. } | Told::Refused { .. }, _) => {}
            }
        };
        for (place, listener) in parts.listeners()? {
            sockets.adopt(place, listener);
        }
        Ok(Self {
            sockets: Mutex::new(sockets),
            control: Mutex::new(control),
            reloads: Together::default(),
            replacing: Mutex::default(),
            stopping: AtomicBool::default(),
            orders_end: Mutex::default(),
            busy: Mutex::default(),
            answering: Arc::default(),
            chain: Chain::Supervised { link, asking: Mutex::default() },
            beginning,
        })
    }

    /// What became of the serving processes before this one, for the error log.
    pub(crate) fn notes(&self) -> &[String] {
        &self.beginning.notes
    }

    /// How many serving processes there were before this one.
    pub(crate) fn restarts(&self) -> u64 {
        self.beginning.restarts
    }

    /// Listens at a place, or says why not. The sockets are this process's to serve at; where
    /// it listens there already, they are the same once more.
    pub(crate) fn bind(&self, place: &Place) -> Result<Vec<Listener>, String> {
        let mut sockets = guard(&self.sockets);
        if let Chain::Supervised { link, asking } = &self.chain
            && !sockets.held().iter().any(|held| held.place == *place)
        {
            let mut parts = Parts::default();
            let told = ask(link, asking, &Asked::Bind { place: place.clone() }, &mut parts)?;
            told?;
            sockets.forget(place);
            for (place, listener) in parts.listeners()? {
                sockets.adopt(place, listener);
            }
        }
        let clones = sockets.bind(place)?.iter().map(Listener::try_clone).collect::<io::Result<_>>();
        clones.map_err(|error| format!("cannot listen on {place}: {error}"))
    }

    /// Where this process has sockets, wanted or not.
    pub(crate) fn places(&self) -> Vec<Place> {
        guard(&self.sockets).held().iter().map(|held| held.place.clone()).collect()
    }

    /// Lets a place go; the endpoints that whoever serves there has to leave next.
    pub(crate) fn release(&self, place: &Place) -> Vec<Endpoint> {
        match &self.chain {
            Chain::Supervised { link, .. } => {
                let _ = link.send(&Asked::Release { place: place.clone() });
                guard(&self.sockets).release(place)
            }
            Chain::Alone { .. } => guard(&self.sockets).close(place),
        }
    }

    /// Enters the sandbox, for good. No other thread may run yet.
    pub(crate) fn confine(&self, sandbox: &Sandbox) -> Result<Confinement, String> {
        let mut sandbox = sandbox.clone();
        if let Chain::Alone { files, .. } = &self.chain {
            // What is removed at the end.
            files.iter().for_each(|file| sandbox.write_file(file.path()));
            for held in guard(&self.sockets).held() {
                if let Place::Unix { path, .. } = &held.place {
                    sandbox.write_file(path);
                }
            }
        }
        sandbox.enter()
    }

    /// Says that it serves, under the configuration that is now in force.
    pub(crate) fn ready(&self) {
        match &self.chain {
            Chain::Supervised { link, .. } => drop(link.send(&Asked::Ready)),
            Chain::Alone { notifier, .. } => notifier.ready(),
        }
    }

    /// Takes orders from now on: signals, the control socket, and the end of the supervisor,
    /// which is a graceful stop.
    pub(crate) fn obey(self: &Arc<Self>, orders: Arc<dyn Orders>) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot take orders: {error}");
        let reloads = self.reload_on_a_thread(orders.clone()).map_err(failed)?;
        self.obey_signals(orders.clone(), reloads).map_err(failed)?;
        let (until, end) = UnixStream::pair().map_err(failed)?;
        *guard(&self.orders_end) = Some(end);
        if let Some(control) = guard(&self.control).take() {
            let (post, orders) = (self.clone(), orders.clone());
            let answer = move |order| post.answer(&*orders, order);
            control::answer_all(control, until, self.answering.clone(), answer).map_err(failed)?;
        }
        self.watch_over(orders).map_err(failed)
    }

    /// Says that no connection is left. What comes after that is not worth waiting for long.
    pub(crate) fn has_drained(&self) {
        drop(guard(&self.busy).take());
    }

    /// The last words of a process that has stopped.
    pub(crate) fn finish(&self) {
        self.leave_all();
        self.has_drained();
        self.end_orders();
        // Whoever gave an order gets its answer, such as that this process was replaced.
        let deadline = Instant::now() + LAST_ANSWERS_TIME;
        while Arc::strong_count(&self.answering) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if let Chain::Alone { files, .. } = &self.chain {
            files.iter().for_each(OwnFile::remove);
        }
    }

    /// Another process in the place of this one, which has yet to see what the configuration
    /// needs now. When it is ready, this one is told to stop.
    pub(crate) fn renew(&self) -> Answer {
        self.replace(&Asked::Renew, "without a supervisor there is nobody to start another process")
    }

    fn replace(&self, asked: &Asked, alone: &str) -> Answer {
        let Some(_one_at_a_time) = try_guard(&self.replacing) else {
            return Answer::Refused("another upgrade is under way".to_owned());
        };
        match &self.chain {
            Chain::Alone { .. } => Answer::Refused(alone.to_owned()),
            Chain::Supervised { link, asking } => match ask(link, asking, asked, &mut Parts::default()) {
                Ok(Ok(text)) => Answer::Done(text),
                Ok(Err(text)) | Err(text) => Answer::Refused(text),
            },
        }
    }

    fn answer(&self, orders: &dyn Orders, order: Order) -> Answer {
        if self.stopping.load(Ordering::Relaxed) {
            return match order {
                Order::Status(form) => Answer::Done(orders.status(form)),
                Order::Stop => Answer::Done(STOPPING.to_owned()),
                Order::Reload | Order::Upgrade | Order::Reopen => Answer::Refused(format!("the server is {STOPPING}")),
            };
        }
        match order {
            Order::Reload => self.reload(orders),
            Order::Status(form) => Answer::Done(orders.status(form)),
            Order::Upgrade => {
                let answer = self.replace(&Asked::Upgrade, "an upgrade needs a supervisor, and there is none");
                if let Answer::Done(_) = answer {
                    // Whoever has asked finds nobody but the new one from now on.
                    orders.leave();
                }
                answer
            }
            Order::Reopen => {
                orders.reopen();
                Answer::Done("the logs are opened anew".to_owned())
            }
            Order::Stop => {
                if let Chain::Supervised { link, .. } = &self.chain {
                    let _ = link.send(&Asked::Stopping);
                }
                self.leave_all();
                orders.stop(Pace::Graceful);
                Answer::Done(STOPPING.to_owned())
            }
        }
    }

    /// A storm of orders is few reloads: each is answered by one that begins after it was given.
    fn reload(&self, orders: &dyn Orders) -> Answer {
        self.reloads.work(|| {
            match &self.chain {
                Chain::Supervised { link, .. } => drop(link.send(&Asked::Reloading)),
                Chain::Alone { notifier, .. } => notifier.reloading(),
            }
            let answer = orders.reload();
            // Under whichever configuration.
            self.ready();
            answer
        })
    }

    /// A thread that reloads; a storm of requests for it is one more reload at most.
    fn reload_on_a_thread(self: &Arc<Self>, orders: Arc<dyn Orders>) -> io::Result<SyncSender<()>> {
        let (wanted, wants) = sync_channel(1);
        let post = self.clone();
        thread::Builder::new().name("selvedge-reload".to_owned()).spawn(move || {
            while let Ok(()) = wants.recv() {
                // Whoever is behind the orders logs what became of it.
                post.reload(&*orders);
            }
        })?;
        Ok(wanted)
    }

    fn obey_signals(self: &Arc<Self>, orders: Arc<dyn Orders>, reloads: SyncSender<()>) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
        let post = self.clone();
        thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
            let mut pace = Pace::Graceful;
            for signal in signals.forever() {
                match signal {
                    SIGHUP => drop(reloads.try_send(())),
                    SIGUSR1 => orders.reopen(),
                    // Meant for the supervisor; alone there is nobody to do it.
                    SIGUSR2 => {}
                    _ => {
                        if signal == SIGQUIT && matches!(post.chain, Chain::Supervised { .. }) {
                            // Whoever serves by now takes them.
                            post.end_orders();
                        }
                        post.leave_all();
                        orders.stop(if signal == SIGINT { Pace::AtOnce } else { pace });
                        pace = Pace::AtOnce;
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Stops with the supervisor; tells whoever wants to know that this process is alive.
    fn watch_over(self: &Arc<Self>, orders: Arc<dyn Orders>) -> io::Result<()> {
        let every = match &self.chain {
            Chain::Supervised { .. } => self.beginning.alive_every,
            Chain::Alone { notifier, .. } => match notifier.watchdog() {
                Some(watchdog) => Some(watchdog / 4),
                None => return Ok(()),
            },
        };
        let post = self.clone();
        thread::Builder::new().name("selvedge-watch".to_owned()).spawn(move || {
            loop {
                match &post.chain {
                    Chain::Supervised { link, .. } => match link.wait_for_end(every) {
                        Waited::Passed => drop(link.send(&Asked::Alive)),
                        Waited::Ended => {
                            // The next one that is begun is to find the control socket free.
                            post.end_orders();
                            post.leave_all();
                            return orders.stop(Pace::Graceful);
                        }
                    },
                    Chain::Alone { notifier, .. } => {
                        notifier.alive();
                        thread::sleep(every.expect("alone, there is this thread only where somebody looks"));
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Listens nowhere any more but where whoever serves still does, and is asked only how it is.
    fn leave_all(&self) {
        let is_first = !self.stopping.swap(true, Ordering::Relaxed);
        match &self.chain {
            Chain::Supervised { link, .. } => {
                if is_first {
                    self.say_alive(link);
                }
                guard(&self.sockets).let_go();
            }
            Chain::Alone { notifier, .. } => {
                if is_first {
                    notifier.stopping();
                }
                guard(&self.sockets).end();
            }
        }
    }

    /// Takes no more orders.
    fn end_orders(&self) {
        drop(guard(&self.orders_end).take());
    }

    /// Says that it is alive for as long as it is busy, so that nobody takes it for hanging.
    fn say_alive(&self, link: &Link) {
        let (busy, is_busy) = channel();
        *guard(&self.busy) = Some(busy);
        let Ok(link) = link.try_clone() else { return };
        // One that cannot have a thread has the time that the supervisor knows of.
        let _ = thread::Builder::new().name("selvedge-alive".to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = is_busy.recv_timeout(ALIVE_EVERY) {
                let _ = link.send(&Asked::Alive);
            }
        });
    }
}

/// Sockets of listeners, as they come.
#[derive(Default)]
struct Parts(Vec<(Place, Vec<OwnedFd>)>);

impl Parts {
    fn add(&mut self, place: Place, part: Part, sockets: Vec<OwnedFd>) {
        match self.0.last_mut() {
            Some((_, earlier)) if part == Part::Later => earlier.extend(sockets),
            _ => self.0.push((place, sockets)),
        }
    }

    fn listeners(self) -> Result<Vec<(Place, Listener)>, String> {
        let listeners = self.0.into_iter().map(|(place, sockets)| match Listener::from_sockets(sockets) {
            Ok(listener) => Ok((place, listener)),
            Err(error) => Err(format!("cannot listen on {place}: {error}")),
        });
        listeners.collect()
    }
}

/// Asks the supervisor; what it says, and what came before that.
fn ask(link: &Link, asking: &Mutex<()>, asked: &Asked, parts: &mut Parts) -> Result<Result<String, String>, String> {
    let _one_at_a_time = guard(asking);
    link.send(asked).map_err(|error| format!("the supervisor cannot be reached: {error}"))?;
    loop {
        match receive(link)? {
            (Told::Listener { place, part }, some) => parts.add(place, part, some),
            (Told::Done { text }, _) => return Ok(Ok(text)),
            (Told::Refused { text }, _) => return Ok(Err(text)),
            (Told::Control | Told::Begin(_), _) => {}
        }
    }
}

fn receive(link: &Link) -> Result<(Told, Vec<OwnedFd>), String> {
    match link.receive() {
        Ok(Some(told)) => Ok(told),
        Ok(None) => Err("the supervisor is gone".to_owned()),
        Err(error) => Err(format!("the supervisor cannot be heard: {error}")),
    }
}

/// Nothing is left half done by whoever panics with one of these.
pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing where somebody else has it.
fn try_guard<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
