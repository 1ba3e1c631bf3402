//! A program that runs a configuration as far as this floor is concerned, and whoever starts it.

use crate::config;
use crate::config::model::Settings;
use crate::process::control::ask;
use crate::process::{Answer, Begun, Form, Order, Orders, Pace, Place, Post, begin};
use crate::world::Disk;
use rustix::process::{Pid, Signal, kill_process};
use selvedge::{Ending, Handle, Limits, Request, Response, Server, Status};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long anything may take on the slowest machine. Only a failure lasts as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
const CONFIGURATION: &str = "SELVEDGE_TEST_CONFIGURATION";

/// What serves. It is run by the other tests only.
#[test]
#[ignore = "it is the program that other tests start"]
fn program() {
    let Some(file) = std::env::var_os(CONFIGURATION).map(PathBuf::from) else { return };
    let settings = config::read(&file, &Disk).expect("the tests' configurations are right").settings;
    let workers = settings.process.workers.unwrap_or(1);
    let code = match begin(&settings, workers) {
        Ok(Begun::Serve(post)) => serve(&file, Arc::new(*post), &settings),
        Ok(Begun::Ended(code)) => {
            // `ExitCode` cannot be looked into; what is printed of it can.
            let text = format!("{code:?}");
            text.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a code is a number")
        }
        Err(problem) => {
            crate::log::say(&format!("selvedge: {problem:?}"));
            1
        }
    };
    std::process::exit(code);
}

fn serve(file: &Path, post: Arc<Post>, settings: &Settings) -> i32 {
    if file.with_extension("broken").exists() {
        return 7;
    }
    if file.with_extension("held").exists() {
        print("held\n");
        until("it may go on", || (!file.with_extension("held").exists()).then_some(()));
    }
    let workers = settings.process.workers.unwrap_or(1);
    let listeners = places(file).iter().flat_map(|place| post.bind(place).expect("the place is free")).collect();
    let drain_time = match file.with_extension("patient").exists() {
        true => Duration::from_secs(20),
        false => settings.limits.drain_time,
    };
    let limits = Limits { drain_time, ..Limits::default() };
    post.drains_within(drain_time);
    let number = std::process::id().to_string();
    let answer = async move |request: &mut Request| match request.path() {
        "/port" => Response::new(Status::OK).body(request.peer().port().to_string()),
        "/hang" => hang(),
        _ => Response::new(Status::OK).body(number.clone()),
    };
    let running = Server::on(listeners, workers).limits(limits).serve(answer).expect("threads can be had");
    let address = running.addresses().first().map_or(String::new(), ToString::to_string);
    let orders = TestOrders { post: post.clone(), handle: running.handle(), file: file.to_owned() };
    post.obey(Arc::new(orders)).expect("orders can be taken");
    post.ready();
    // One write, so that lines of two processes stay whole.
    print(&format!("ready {} {address} {} {}\n", std::process::id(), post.restarts(), post.notes().join("|")));
    let ending = running.join();
    post.finish();
    if ending == Ending::Stopped { 0 } else { 70 }
}

/// Holds its worker up for ever.
fn hang() -> ! {
    print("hangs\n");
    loop {
        thread::park();
    }
}

fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn places(file: &Path) -> Vec<Place> {
    let settings = config::read(file, &Disk).expect("the tests' configurations are right").settings;
    settings.listeners.iter().map(Place::from).collect()
}

struct TestOrders {
    post: Arc<Post>,
    handle: Handle,
    file: PathBuf,
}

impl Orders for TestOrders {
    /// Listens where the configuration says now.
    fn reload(&self) -> Answer {
        let wanted = places(&self.file);
        let held = self.post.places();
        for place in wanted.iter().filter(|place| !held.contains(place)) {
            match self.post.bind(place) {
                Ok(listeners) => {
                    listeners.into_iter().for_each(|listener| self.handle.listen(listener).expect("descriptors"));
                }
                Err(text) => return Answer::Refused(text),
            }
        }
        for place in held.iter().filter(|place| !wanted.contains(place)) {
            self.post.release(place).iter().for_each(|endpoint| self.handle.leave(endpoint));
        }
        print("reloaded\n");
        Answer::Done(format!("listening at {} places", wanted.len()))
    }

    fn status(&self, form: Form) -> String {
        format!("{form:?} of {}", std::process::id())
    }

    fn leave(&self) {}

    fn reopen(&self) {
        print("reopened\n");
    }

    fn stop(&self, pace: Pace) {
        match pace {
            Pace::Graceful => self.handle.stop(),
            Pace::AtOnce => self.handle.stop_now(),
        }
    }
}

/// A program that was started. It ends with the value.
pub(super) struct Started {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    reads_errors: JoinHandle<()>,
    pub(super) folder: PathBuf,
}

/// A serving process that has said that it is ready.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) pid: i32,
    pub(super) address: Option<SocketAddr>,
    pub(super) restarts: u64,
    pub(super) notes: String,
}

impl Started {
    /// With a folder of its own, in which a configuration stands that begins with the usual.
    pub(super) fn new(rest: &str) -> Self {
        Self::with(&folder(), rest, &std::env::current_exe().unwrap())
    }

    pub(super) fn with(folder: &Path, rest: &str, binary: &Path) -> Self {
        Self::start(folder, rest, Command::new(binary).stdin(Stdio::null()))
    }

    pub(super) fn start(folder: &Path, rest: &str, command: &mut Command) -> Self {
        configure(folder, rest);
        let name = "process::tests::program::program";
        command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(CONFIGURATION, folder.join("selvedge.kdl")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = {
            let _nobody_writes = programs();
            command.spawn().unwrap()
        };
        let (lines, received) = channel();
        let out = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let (errors, mut err) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let into = errors.clone();
        let reads_errors = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = err.read(&mut piece) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        Self { child, lines: received, errors, reads_errors, folder: folder.to_owned() }
    }

    /// Waits until a line begins so; the rest of it.
    pub(super) fn says(&self, beginning: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(rest) {
                // What the test harness prints may stand before it.
                Ok(line) => {
                    if let Some((_, rest)) = line.split_once(beginning) {
                        return rest.to_owned();
                    }
                }
                Err(error) => panic!("it never said {beginning}: {error}; {}", self.errors()),
            }
        }
    }

    /// Waits until a serving process is ready.
    pub(super) fn ready(&self) -> Ready {
        let line = self.says("ready ");
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        Ready {
            pid: word().parse().unwrap(),
            address: word().parse().ok(),
            restarts: word().parse().unwrap(),
            notes: word(),
        }
    }

    pub(super) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    pub(super) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    pub(super) fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    pub(super) fn order(&self, order: Order) -> Result<Answer, String> {
        ask(&self.control(), order)
    }

    /// Waits for the end, and for all that was said until then; its code.
    pub(super) fn code(&mut self) -> Option<i32> {
        let status = until("the program has ended", || self.child.try_wait().unwrap());
        until("nobody says more", || self.reads_errors.is_finished().then_some(()));
        status.code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The serving process sees it, and ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Held by whoever writes a program or starts one: a process that begins has all files for a moment,
/// and one that is open for writing cannot be started.
pub(super) fn programs() -> MutexGuard<'static, ()> {
    static PROGRAMS: Mutex<()> = Mutex::new(());
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new folder.
pub(super) fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("selvedge-process-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

/// Writes the configuration that a program in this folder has.
pub(super) fn configure(folder: &Path, rest: &str) {
    let text = format!("workers 2\ncontrol \"control\"\npid-file \"pid\"\n{rest}\n");
    fs::write(folder.join("selvedge.kdl"), text).unwrap();
}

pub(super) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(super) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Looks until there is something to see.
pub(super) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Asks over a connection of its own; what came, which is nothing where the connection was cut.
pub(super) fn get(address: SocketAddr, path: &str) -> String {
    exchange(TcpStream::connect(address).expect("nobody is refused"), path)
}

pub(super) fn get_unix(socket: &Path, path: &str) -> String {
    exchange(UnixStream::connect(socket).expect("nobody is refused"), path)
}

/// A connection on which one request was answered, so that it is known who has it.
pub(super) fn keep(address: SocketAddr, by: i32) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(format!("\r\n\r\n{by}").as_bytes()) {
        let mut piece = [0; 256];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
    stream
}

/// A connection on which a request has begun, and the process knows of it.
pub(super) fn begin_request(address: SocketAddr) -> TcpStream {
    let mut begun = TcpStream::connect(address).unwrap();
    begun.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    // Later connections to each worker were answered, so this one was seen.
    for _ in 0..8 {
        get(address, "/");
    }
    begun
}

/// Ends a request that has begun; what is answered.
pub(super) fn end_request(mut begun: TcpStream) -> String {
    let mut answer = String::new();
    begun.write_all(b"Host: a\r\n\r\n").unwrap();
    begun.read_to_string(&mut answer).unwrap();
    answer
}

fn exchange(mut stream: impl Read + Write, path: &str) -> String {
    let mut answer = String::new();
    let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // Cut connections are for the caller to judge by what came.
    let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    answer.split_once("\r\n\r\n").map_or(String::new(), |(_, content)| content.to_owned())
}
