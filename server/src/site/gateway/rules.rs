//! Which script a request runs and what runs it, as validated values.

use crate::site::files::root::Root;
use crate::site::files_rules::FilesRules;
use crate::site::proxy::AddressCell;
use selvedge::client::ProgramEnds;
use selvedge::proto::path::SafePath;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a route does that runs scripts.
#[derive(Clone, Debug)]
pub(crate) struct GatewayRules {
    /// Which script a request runs.
    pub(crate) scripts: Scripts,
    /// What runs it.
    pub(crate) runner: ScriptRunner,
    /// How long it may take.
    pub(crate) timeouts: GatewayTimeouts,
    /// Counts and bounds the requests at work. Shared by all workers, and by the next configuration if nothing of the
    /// route has changed.
    pub(crate) load: Arc<GatewayLoad>,
    /// Longest request content without a length that is stored until its length is known. Default 64 MiB; content up to
    /// 64 KiB stays in memory, longer content goes to a temporary file. Exceeded: 413.
    pub(crate) spool_bytes_max: u64,
    /// Which files a script may name in X-Sendfile or X-Accel-Redirect. `None`: such a response is an error.
    pub(crate) send_file: Option<SendFileFolder>,
    /// Variables that the configuration adds. They replace those of the request.
    pub(crate) variables: Arc<[(Box<str>, Box<str>)]>,
}

impl GatewayRules {
    /// Creates rules with default limits.
    pub(crate) fn new(scripts: Scripts, runner: ScriptRunner) -> Self {
        Self {
            scripts,
            runner,
            timeouts: GatewayTimeouts::default(),
            load: Arc::new(GatewayLoad::new(GatewayLoad::REQUESTS_MAX)),
            spool_bytes_max: 64 << 20,
            send_file: None,
            variables: Arc::from([]),
        }
    }

    /// Returns the files that are sent as they are, of a PHP application.
    pub(in crate::site) fn files(&self) -> Option<&FilesRules> {
        match &self.scripts {
            Scripts::Php(php) => Some(&php.files),
            Scripts::Application { .. } | Scripts::Programs { .. } => None,
        }
    }
}

/// Which script a request runs.
#[derive(Clone, Debug)]
pub(crate) enum Scripts {
    /// A PHP application: the file if one exists, the `index.php` of the folder, else `/index.php`.
    Php(PhpRules),
    /// One application runs for all requests. The path before the wildcard of the route is its name (SCRIPT_NAME), and
    /// the rest is PATH_INFO.
    Application {
        /// The value of DOCUMENT_ROOT, and the folder of PATH_TRANSLATED. `None`: neither is passed.
        document_root: Option<Arc<Path>>,
    },
    /// Programs beneath a folder: the first segments of the wildcard that name a file are the program, and the rest is
    /// PATH_INFO.
    Programs {
        /// The folder of the programs.
        folder: Arc<Root>,
        /// The only program that runs, for the whole route. `None`: the path names it.
        only: Option<SafePath>,
    },
}

/// The scripts and files of a PHP application.
#[derive(Clone, Debug)]
pub(crate) struct PhpRules {
    /// The files that are sent as they are. Files of PHP source are never sent.
    pub(crate) files: FilesRules,
    /// The script of paths that lead to nothing. `None`: 404. Default `/index.php`.
    pub(crate) front_controller: Option<SafePath>,
    /// Where the PHP server sees the root, if that is another path than here, as in a container.
    pub(crate) root_there: Option<Arc<Path>>,
}

/// What runs scripts.
#[derive(Clone, Debug)]
pub(crate) enum ScriptRunner {
    /// A FastCGI server, such as PHP-FPM.
    FastCgi(ScriptServer),
    /// An SCGI server.
    Scgi(ScriptServer),
    /// Programs that run once for each request.
    Cgi(ProgramRunner),
}

/// What runs programs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramRunner {
    /// Starts them.
    pub(crate) starter: Arc<dyn StartProgram>,
    /// Longest output of a program, its head included. Default 1 GiB. Exceeded: it is killed and the connection closed.
    pub(crate) output_bytes_max: u64,
}

/// A server that runs scripts.
#[derive(Clone, Debug)]
pub(crate) struct ScriptServer {
    /// Its name in the log, such as `unix:/run/php/php-fpm.sock`.
    pub(crate) name: Arc<str>,
    /// Where it listens. They are tried in order.
    pub(crate) addresses: Arc<AddressCell>,
    /// Idle connections that each worker keeps. Default 0: each request has a connection, because an idle connection
    /// occupies a PHP process. SCGI has no idle connections.
    pub(crate) idle_connections_max: u32,
}

/// How long a script may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatewayTimeouts {
    /// Until the connection to the server is open. Default 5 s. Exceeded: 504.
    pub(crate) connect: Duration,
    /// From the complete request to the head of the response. Default 60 s. Exceeded: 504.
    pub(crate) response: Duration,
    /// Between two parts of the content, in either direction. Default 60 s. Exceeded: the connection is closed. A script
    /// may go on for this time after its complete response.
    pub(crate) silence: Duration,
}

impl Default for GatewayTimeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { connect: Duration::from_secs(5), response: minute, silence: minute }
    }
}

/// The requests of a route at work.
pub(crate) struct GatewayLoad {
    at_work: AtomicU32,
    requests_max: u32,
    observer: Mutex<Option<LateScriptObserver>>,
}

/// A message of a script that went on after its response, or why it was ended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateScriptMessage<'a> {
    /// The path of the request that ran it.
    pub(crate) script: &'a str,
    /// One line.
    pub(crate) text: &'a str,
}

impl fmt::Display for LateScriptMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after its response: {}", self.script, self.text)
    }
}

/// Receives the messages of scripts after their responses, on any thread. It must not block.
pub(crate) type LateScriptObserver = Arc<dyn Fn(&LateScriptMessage<'_>) + Send + Sync>;

impl GatewayLoad {
    /// Default bound of requests at work.
    pub(crate) const REQUESTS_MAX: u32 = 512;

    pub(crate) fn new(requests_max: u32) -> Self {
        Self { at_work: AtomicU32::new(0), requests_max, observer: Mutex::default() }
    }

    /// Sets what receives the messages of scripts after their responses.
    pub(crate) fn set_observer(&self, observer: LateScriptObserver) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// Counts one more request until the value is dropped; `None` if that would be too many.
    pub(super) fn begin(self: &Arc<Self>) -> Option<RequestAtWork> {
        let add = |count: u32| count.checked_add(1).filter(|&count| count <= self.requests_max);
        self.at_work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(RequestAtWork(self.clone()))
    }
}

impl fmt::Debug for GatewayLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatewayLoad({:?} of {})", self.at_work, self.requests_max)
    }
}

/// A counted request.
#[derive(Debug)]
pub(super) struct RequestAtWork(Arc<GatewayLoad>);

impl RequestAtWork {
    /// Reports a message of its script, which went on after its response.
    pub(super) fn report_late(&self, script: &str, text: &str) {
        let observer = self.0.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(&LateScriptMessage { script, text });
        }
    }
}

impl Drop for RequestAtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which files a script may name for the server to send.
#[derive(Clone, Debug)]
pub(crate) struct SendFileFolder {
    /// The folder. A path that leads out of it is an error.
    pub(crate) folder: Arc<Root>,
    /// What an X-Accel-Redirect begins with in place of the folder, such as `/protected`. X-Sendfile has the path of
    /// the folder itself.
    pub(crate) prefix: Box<str>,
}

/// Starts programs, outside the process that serves.
pub(crate) trait StartProgram: fmt::Debug + Send + Sync {
    /// Starts a program without waiting for it.
    ///
    /// # Errors
    /// If too many starts wait, or the process that starts programs has ended.
    fn start(&self, start: ProgramStart) -> std::io::Result<()>;
}

/// A program and its environment.
#[derive(Debug)]
pub(crate) struct ProgramStart {
    /// The path beneath the folder of programs.
    pub(crate) program: String,
    /// Names and values. They have no NUL.
    pub(crate) environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its streams. The lease gets a [`ProgramEnd`] in JSON before the output ends. When its other end is closed, the
    /// program is killed.
    pub(crate) ends: ProgramEnds,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProgramEnd {
    /// It was not started, for this reason.
    NotStarted(String),
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It was killed after this time in seconds.
    TimedOut(u64),
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => write!(f, "the program was not started: {why}"),
            Self::Exited(code) => write!(f, "the program ended with code {code}"),
            Self::Killed(signal) => write!(f, "the program was killed by signal {signal}"),
            Self::TimedOut(seconds) => write!(f, "the program was killed after {seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_bound_wait_for_an_end() {
        let load = Arc::new(GatewayLoad::new(2));
        let (first, second) = (load.begin(), load.begin());
        assert!(first.is_some() && second.is_some() && load.begin().is_none());
        drop(first);
        assert!(load.begin().is_some());
    }
}
