//! Orders: by signals, by the control socket, and by the end of the supervisor.

use super::{Chain, Post, STOPPING, guard, too_late};
use crate::process::control::{self, Answer, Form, Order};
use crate::process::link::{Asked, Waited};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

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

impl Post {
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

    fn answer(&self, orders: &dyn Orders, order: Order) -> Answer {
        if self.is_stopping() {
            return match order {
                Order::Status(form) => Answer::Done(orders.status(form)),
                Order::Stop => Answer::Done(STOPPING.to_owned()),
                Order::Reload | Order::Upgrade | Order::Reopen => too_late(),
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

    /// Takes no more orders.
    pub(super) fn end_orders(&self) {
        drop(guard(&self.orders_end).take());
    }
}
