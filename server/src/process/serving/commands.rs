//! Control commands: from signals, the control socket, and the end of the supervisor.

use super::shutdown_watch::CountLasting;
use super::{Parent, STOPPING, ServingProcess, shutting_down};
use crate::log::print_line;
use crate::process::control::{self, ControlCommand, ControlReply, StatusFormat};
use crate::process::link::{FromChild, WaitOutcome};
use crate::process::lock::lock;
use crate::recorder::LastQuery;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Implements the control commands. Each method runs on a thread that may block.
pub(crate) trait ControlHandler: Send + Sync + 'static {
    /// Reloads the configuration, and returns the changes or the reason of a refusal.
    fn reload(&self) -> ControlReply;
    /// Returns the status.
    fn status(&self, form: StatusFormat) -> String;
    /// Returns the state of the certificates that the server gets by itself.
    fn certificates(&self, form: StatusFormat) -> String;
    /// Returns the last requests that a query selects.
    fn last(&self, query: &LastQuery) -> String;
    /// Explains a request, which is JSON.
    fn explain(&self, format: StatusFormat, request: &str) -> ControlReply;
    /// Returns the settings in force.
    fn settings(&self) -> String;
    /// Stops accepting because another process serves. A stop follows.
    fn stop_listening(&self);
    /// Returns how many responses may last after a hand-over.
    fn lasting_responses(&self) -> usize;
    /// Reopens the log files.
    fn reopen_logs(&self);
    /// Stops.
    fn stop(&self, mode: StopMode);
}

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// Another process serves: requests in progress finish, and what outlives a replacement lasts.
    HandOver,
    /// Requests in progress finish.
    Graceful,
    /// Requests in progress are aborted.
    Immediate,
}

impl ServingProcess {
    /// Starts to accept commands: signals, the control socket, and the end of the supervisor, which is a graceful
    /// stop.
    pub(crate) fn start_commands(self: &Arc<Self>, handler: Arc<dyn ControlHandler>) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot accept control commands: {error}");
        let reloads = reload_on_a_thread(self.clone(), handler.clone()).map_err(failed)?;
        self.start_signals(handler.clone(), reloads).map_err(failed)?;
        let (until, end) = UnixStream::pair().map_err(failed)?;
        *lock(&self.commands_end) = Some(end);
        if let Some(control) = lock(&self.control).take() {
            let (serving, handler) = (self.clone(), handler.clone());
            let execute = move |command| serving.execute(&*handler, command);
            control::serve(control, until, self.calls.clone(), execute).map_err(failed)?;
        }
        self.watch_supervisor(handler).map_err(failed)
    }

    fn execute(&self, handler: &dyn ControlHandler, command: ControlCommand) -> ControlReply {
        if self.is_shutting_down() {
            return match command {
                ControlCommand::Status(form) => ControlReply::Done(handler.status(form)),
                ControlCommand::Certificates(form) => ControlReply::Done(handler.certificates(form)),
                ControlCommand::Last(query) => ControlReply::Done(handler.last(&query)),
                ControlCommand::Explain(format, request) => handler.explain(format, &request),
                ControlCommand::Settings => ControlReply::Done(handler.settings()),
                ControlCommand::Stop => ControlReply::Done(STOPPING.to_owned()),
                ControlCommand::Reload | ControlCommand::Upgrade | ControlCommand::ReopenLogs => shutting_down(),
            };
        }
        match command {
            ControlCommand::Reload => self.reload(handler),
            ControlCommand::Status(form) => ControlReply::Done(handler.status(form)),
            ControlCommand::Certificates(form) => ControlReply::Done(handler.certificates(form)),
            ControlCommand::Last(query) => ControlReply::Done(handler.last(&query)),
            ControlCommand::Explain(format, request) => handler.explain(format, &request),
            ControlCommand::Settings => ControlReply::Done(handler.settings()),
            ControlCommand::Upgrade => {
                let reply =
                    self.replace(&FromChild::Upgrade, "an upgrade needs a supervisor, and this process has none");
                if let ControlReply::Done(_) = reply {
                    // Later callers reach the new process only.
                    handler.stop_listening();
                }
                reply
            }
            ControlCommand::ReopenLogs => {
                handler.reopen_logs();
                ControlReply::Done("the log files are reopened".to_owned())
            }
            ControlCommand::Stop => {
                if let Parent::Supervisor { link, .. } = &self.parent {
                    let _ = link.send(&FromChild::Stopping);
                }
                self.stop_listening(None);
                handler.stop(StopMode::Graceful);
                ControlReply::Done(STOPPING.to_owned())
            }
        }
    }

    /// Reloads the configuration. Concurrent calls share executions; each caller gets the result of one that started
    /// after its call.
    fn reload(&self, handler: &dyn ControlHandler) -> ControlReply {
        self.reloads.run(|| {
            match &self.parent {
                Parent::Supervisor { link, .. } => drop(link.send(&FromChild::Reloading)),
                Parent::None { notifier, .. } => notifier.reloading(),
            }
            let reply = handler.reload();
            // After a refused reload, the process serves the previous configuration.
            self.ready();
            reply
        })
    }

    fn start_signals(self: &Arc<Self>, handler: Arc<dyn ControlHandler>, reloads: SyncSender<()>) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
        let serving = self.clone();
        thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
            let mut mode = StopMode::Graceful;
            for signal in signals.forever() {
                match signal {
                    SIGHUP => drop(reloads.try_send(())),
                    SIGUSR1 => handler.reopen_logs(),
                    // Meant for the supervisor. An unsupervised process cannot upgrade.
                    SIGUSR2 => {}
                    SIGQUIT if matches!(serving.parent, Parent::Supervisor { .. }) => {
                        mode = hand_over(&serving, &handler, mode);
                    }
                    _ => {
                        serving.stop_listening(None);
                        handler.stop(if signal == SIGINT { StopMode::Immediate } else { mode });
                        mode = StopMode::Immediate;
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Stops when the supervisor ends, and sends heartbeats.
    fn watch_supervisor(self: &Arc<Self>, handler: Arc<dyn ControlHandler>) -> io::Result<()> {
        let interval = match &self.parent {
            Parent::Supervisor { .. } => self.start_info.heartbeat_interval,
            Parent::None { notifier, .. } => match notifier.watchdog() {
                Some(watchdog) => Some(watchdog / 4),
                None => return Ok(()),
            },
        };
        let serving = self.clone();
        thread::Builder::new().name("selvedge-watch".to_owned()).spawn(move || {
            loop {
                match &serving.parent {
                    Parent::Supervisor { link, .. } => match link.wait_for_end(interval) {
                        WaitOutcome::TimedOut => drop(link.send(&FromChild::Heartbeat)),
                        WaitOutcome::Ended => {
                            // Frees the control socket for the next start.
                            serving.end_commands();
                            serving.stop_listening(None);
                            return handler.stop(StopMode::Graceful);
                        }
                    },
                    Parent::None { notifier, .. } => {
                        notifier.heartbeat();
                        thread::sleep(interval.expect("an unsupervised process has this thread only with a watchdog"));
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Stops accepting commands.
    pub(super) fn end_commands(&self) {
        drop(lock(&self.commands_end).take());
    }
}

/// Starts a thread that reloads. Several requests during a reload cause one more.
fn reload_on_a_thread(serving: Arc<ServingProcess>, handler: Arc<dyn ControlHandler>) -> io::Result<SyncSender<()>> {
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new().name("selvedge-reload".to_owned()).spawn(move || {
        while let Ok(()) = receiver.recv() {
            // The handler logs the result.
            serving.reload(&*handler);
        }
    })?;
    Ok(sender)
}

/// Hands over to the process that has replaced this one. Returns how a later signal stops this one.
fn hand_over(serving: &ServingProcess, handler: &Arc<dyn ControlHandler>, mode: StopMode) -> StopMode {
    // The new process handles commands now.
    serving.end_commands();
    // An earlier supervisor would not stop it later.
    let hands_over = mode == StopMode::Graceful && serving.start_info.stops_replaced;
    let lasting = handler.clone();
    let count_lasting: CountLasting = Box::new(move || lasting.lasting_responses());
    serving.stop_listening(hands_over.then_some(count_lasting));
    let (next, later) = if hands_over { (StopMode::HandOver, mode) } else { (mode, StopMode::Immediate) };
    let stopping = handler.clone();
    let stop = move || {
        // Connections without a request go to the new process, which has the sockets, too.
        stopping.stop_listening();
        stopping.stop(next);
    };
    // It waits for all workers, and this thread has to receive the next signal even if one of them hangs.
    if let Err(error) = thread::Builder::new().name("selvedge-hand-over".to_owned()).spawn(stop) {
        print_line(&format!("selvedge: cannot hand over to another process: {error}"));
        handler.stop(mode);
    }
    later
}
