//! Startup of `selvedge run`: as the supervisor, as a serving process of a supervisor, or unsupervised.

use super::ListenAddress;
use super::cgi_programs::{CgiRunners, StartCgiPrograms};
use super::child::SUPERVISED_VARIABLE;
use super::executable;
use super::file_opener::FileOpener;
use super::link::{FromChild, Link};
use super::notify::{Inherited, Notifier};
use super::owned_file::OwnedFile;
use super::privileges::ServiceAccount;
use super::programs::{ProgramRunner, StartedRunner};
use super::restarts::Restarts;
use super::serving::ServingProcess;
use super::sockets::Sockets;
use super::supervise::{SupervisorConfig, supervise};
use crate::certificates::open_files_with;
use crate::config::model::{self, Settings, Supervision, Switch};
use crate::config::value::Address;
use rustix::fs::Access;
use selvedge::Listener;
use std::env;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Only the owner may send control commands.
const CONTROL_MODE: u32 = 0o600;

/// The mode of the folder of the control socket, if the server creates it.
const CONTROL_FOLDER_MODE: u32 = 0o755;

/// Length to which the exit message is truncated, so that it fits into a message with escapes.
const EXIT_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// What this process does.
pub(crate) enum RunMode {
    /// It serves, with what runs the programs of the configuration.
    Serve(Box<ServingProcess>, StartedPrograms),
    /// It was the supervisor and has ended.
    Ended(ExitCode),
}

/// The processes that run programs for this one.
#[derive(Debug)]
pub(crate) struct StartedPrograms {
    /// Runs those that approve of certificates; `None` without any.
    pub(crate) approval: Option<StartedRunner>,
    /// Run those of routes with `cgi`; `None` without any.
    pub(crate) cgi: Option<Arc<dyn StartCgiPrograms>>,
}

impl StartedPrograms {
    /// Starts them with the privileges of the caller.
    fn start(settings: &Settings) -> Result<Self, String> {
        let process = &settings.process;
        let approval = ProgramRunner::start(&settings.programs(), process)?;
        Ok(Self { approval, cgi: CgiRunners::start(settings.cgi_programs(), process)? })
    }
}

/// Why this process cannot start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// These addresses cannot be bound.
    Listen(Vec<ListenError>),
    /// Another reason.
    Other(String),
}

/// Why an address cannot be bound.
#[derive(Debug)]
pub(crate) struct ListenError {
    pub(crate) address: Address,
    pub(crate) why: String,
}

impl From<String> for StartError {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// Starts this process in its role. Call it before any thread starts, because dropping privileges affects one thread.
pub(crate) fn start(settings: &Settings, workers: usize) -> Result<RunMode, StartError> {
    let process = &settings.process;
    let account = ServiceAccount::find(process.user.as_deref(), process.group.as_deref())?;
    let drop_privileges = || account.as_ref().map_or(Ok(()), |account| drop_privileges(account, settings));
    if is_supervised() {
        // The process was started by a path in /proc, whose last part would be its name.
        let _ = rustix::thread::set_name(c"selvedge");
        let link = Link::of_standard_input().map_err(|error| format!("the supervisor cannot be reached: {error}"))?;
        let serving = ServingProcess::supervised(link, Sockets::new(workers, Inherited::default()))?;
        serving.set_shutdown_timeout(settings.limits.shutdown_timeout);
        let programs = StartedPrograms::start(settings)?;
        drop_privileges()?;
        return Ok(RunMode::Serve(Box::new(serving), programs));
    }
    // First, because the file could be moved during the steps below.
    let program = executable::started_from().map_err(|error| format!("the program's file cannot be found: {error}"))?;
    let mut sockets = Sockets::new(workers, Inherited::of_environment());
    let acquired = match acquire(settings, &mut sockets) {
        Ok(acquired) => acquired,
        Err(problem) => {
            sockets.close_all();
            return Err(problem);
        }
    };
    let AcquiredFiles { control, files } = acquired;
    let notifier = Notifier::of_environment();
    if process.supervision.supervised == Switch::Off {
        let control = control.sockets().next().expect("a listener has a socket").try_clone_to_owned();
        let control = control.map_err(|error| format!("cannot accept control commands: {error}"))?;
        let programs = StartedPrograms::start(settings)?;
        drop_privileges()?;
        let serving = ServingProcess::unsupervised(sockets, UnixListener::from(control), notifier, files);
        serving.set_shutdown_timeout(settings.limits.shutdown_timeout);
        return Ok(RunMode::Serve(Box::new(serving), programs));
    }
    let (restarts, shutdown_timeout) = (Restarts::from(&process.supervision), settings.limits.shutdown_timeout);
    let dump_folder = dump_folder(&process.control);
    let config = SupervisorConfig { restarts, shutdown_timeout, program, dump_folder };
    let ended = supervise(sockets, control, notifier, config);
    files.iter().for_each(OwnedFile::remove);
    Ok(RunMode::Ended(ended?))
}

/// Returns the folder of dumps: that of the control socket, which was bound there, so the folder can be written to. That of
/// a system is in memory, so the folder of its state replaces it, if a package has created it.
fn dump_folder(control: &Path) -> PathBuf {
    const RUN_FOLDER_OF_SYSTEM: &str = "/run/selvedge";
    const STATE_FOLDER_OF_SYSTEM: &str = "/var/lib/selvedge";
    let folder = control.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_of_system = folder == Path::new(RUN_FOLDER_OF_SYSTEM);
    let has_state = is_of_system && rustix::fs::access(STATE_FOLDER_OF_SYSTEM, Access::WRITE_OK).is_ok();
    PathBuf::from(if has_state { Path::new(STATE_FOLDER_OF_SYSTEM) } else { folder })
}

/// Drops the privileges of this process. Another one keeps them, for files of certificates and keys.
fn drop_privileges(account: &ServiceAccount, settings: &Settings) -> Result<(), String> {
    let files = settings.private_files();
    if !files.is_empty() && !account.is_current() {
        open_files_with(Box::new(FileOpener::start(files)?));
    }
    if let Some(folder) = settings.needed_certificate_folder()
        && !account.is_current()
    {
        // If it is not handed over, the serving process reports what it cannot do.
        let _ = account.own_folder(folder);
    }
    account.drop_privileges()
}

/// Whether this process was started by a supervisor.
pub(crate) fn is_supervised() -> bool {
    env::var_os(SUPERVISED_VARIABLE).is_some()
}

/// Sends the supervisor, if any, the reason why this process ends before it serves.
pub(crate) fn exit_message(text: &str) {
    if is_supervised() {
        // If the message cannot be sent, the supervisor sees the process end.
        let link = Link::of_standard_input();
        // Standard error has the full text.
        let text = text[..text.floor_char_boundary(EXIT_MESSAGE_BYTES_MAX)].to_owned();
        let _ = link.and_then(|link| link.send(&FromChild::Failed { text }));
    }
}

/// The control socket, and the files that this program owns.
struct AcquiredFiles {
    control: Listener,
    /// Files to remove at the end.
    files: Vec<OwnedFile>,
}

/// Binds all listeners and the control socket, and locks the pid file.
fn acquire(settings: &Settings, sockets: &mut Sockets) -> Result<AcquiredFiles, StartError> {
    let bind = |listener: &model::Listener| {
        let why = sockets.bind(&ListenAddress::from(listener)).err()?;
        Some(ListenError { address: listener.address.clone(), why })
    };
    let problems: Vec<_> = settings.listeners.iter().filter_map(bind).collect();
    if !problems.is_empty() {
        return Err(StartError::Listen(problems));
    }
    let process = &settings.process;
    let path = &process.control;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another server accepts control commands at {} (stop it with `selvedge stop`, or write `control \"other.sock\"` in \
             one of the two configurations)",
            path.display()
        ),
        _ => format!("cannot accept control commands at {}: {error}", path.display()),
    };
    create_folder_of(path).map_err(failed)?;
    let control = Listener::bind_unix(path, CONTROL_MODE).map_err(failed)?;
    let socket = OwnedFile::socket(path).map_err(failed)?;
    let mut files = vec![socket];
    if let Some(file) = &process.pid_file {
        match OwnedFile::pid_file(file) {
            Ok(file) => files.push(file),
            Err(problem) => {
                files.iter().for_each(OwnedFile::remove);
                return Err(StartError::Other(problem));
            }
        }
    }
    Ok(AcquiredFiles { control, files })
}

/// Creates the folder of the control socket. That of the system is empty after each boot.
fn create_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            match DirBuilder::new().mode(CONTROL_FOLDER_MODE).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

impl From<&Supervision> for Restarts {
    fn from(supervision: &Supervision) -> Self {
        Self {
            max: supervision.restarts_max,
            within: supervision.restarts_within,
            back_off_min: supervision.back_off_min,
            back_off_max: supervision.back_off_max,
        }
    }
}
