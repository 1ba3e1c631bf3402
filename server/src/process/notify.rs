//! The systemd protocol: datagrams to `NOTIFY_SOCKET` (sd_notify(3)), and sockets that were opened in advance
//! (sd_listen_fds(3)). Without systemd, it sends nothing.

use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variables that are meant for this process and not for its children.
pub(super) const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The first descriptor that systemd passes.
const FIRST_DESCRIPTOR: RawFd = 3;
/// Most descriptors that are accepted from systemd.
const INHERITED_MAX: usize = 1024;

/// Sends notifications to systemd.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads the environment.
    pub(super) fn of_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let microseconds = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watchdog = microseconds.filter(|&number| is_ours && number > 0).map(Duration::from_micros);
        // If the socket cannot be reached, notifications are dropped; the service matters more.
        Self { socket: connect(&name).ok(), watchdog }
    }

    /// Reports that the program serves, or serves again after a reload.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports a reload.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Reports the shutdown.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports a status text.
    pub(super) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// Sends a heartbeat.
    pub(super) fn heartbeat(&self) {
        self.send("WATCHDOG=1");
    }

    /// Returns the watchdog timeout, if systemd watches.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(text.as_bytes());
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

/// Sockets that systemd opened, with their names.
#[derive(Debug, Default)]
pub(super) struct Inherited(Vec<(RawFd, String)>);

impl Inherited {
    /// Reads the environment.
    pub(super) fn of_environment() -> Self {
        let text = |name| env::var(name).unwrap_or_default();
        Self::read(&text("LISTEN_PID"), &text("LISTEN_FDS"), &text("LISTEN_FDNAMES"))
    }

    fn read(pid: &str, count: &str, names: &str) -> Self {
        if pid != std::process::id().to_string() {
            return Self::default();
        }
        let count = count.parse().unwrap_or(0).min(INHERITED_MAX);
        let names = names.split(':').chain(std::iter::repeat("unknown"));
        Self((FIRST_DESCRIPTOR..).zip(names).take(count).map(|(number, name)| (number, name.to_owned())).collect())
    }

    /// Returns the numbers of the sockets with a name.
    pub(super) fn named(&self, name: &str) -> Vec<RawFd> {
        self.0.iter().filter(|(_, own)| own == name).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_sockets_have_their_configured_names() {
        let pid = std::process::id().to_string();
        let inherited = Inherited::read(&pid, "4", "web:admin:web");
        assert_eq!((inherited.named("web"), inherited.named("admin")), (vec![3, 5], vec![4]));
        assert_eq!((inherited.named("unknown"), inherited.named("")), (vec![6], vec![]));
        assert!(Inherited::read("1", "4", "web").named("web").is_empty(), "they were meant for another process");
        assert!(Inherited::read(&pid, "many", "web").named("web").is_empty());
    }

    #[test]
    fn notifications_have_the_format_of_systemd() {
        let path = env::temp_dir().join(format!("selvedge-notify-{}", std::process::id()));
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier { socket: connect(path.as_os_str()).ok(), watchdog: None };
        let receive = || {
            let mut text = [0; 256];
            let length = systemd.recv(&mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        notifier.ready();
        assert_eq!(receive(), "READY=1");
        notifier.reloading();
        let reloading = receive();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the state, and since when");
        assert!(time.parse::<u64>().unwrap() > 0);
        notifier.status("two\nlines");
        assert_eq!(receive(), "STATUS=two lines");
        std::fs::remove_file(&path).unwrap();
        notifier.stopping();
    }
}
