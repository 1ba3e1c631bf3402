//! The way to the system's log: a datagram socket on this machine.

use crate::log::Letters;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

struct Datagrams(UnixDatagram);

/// Finds whoever takes letters at a path.
pub(crate) fn connect(path: &Path) -> io::Result<Box<dyn Letters>> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(Box::new(Datagrams(socket)))
}

impl Letters for Datagrams {
    fn send(&mut self, letter: &[u8]) -> io::Result<()> {
        self.0.send(letter).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
    use crate::log::{Format, LogObserver, Logs};
    use selvedge::{Limits, Request, Response, Server, Status};
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    /// Whoever takes letters.
    fn listen(path: &Path) -> UnixDatagram {
        let _ = fs::remove_file(path);
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut letter = vec![0; 1 << 16];
        let length = socket.recv(&mut letter).expect("a letter comes");
        String::from_utf8(letter[..length].to_vec()).unwrap()
    }

    #[test]
    fn lines_go_to_syslog_and_to_the_journal() {
        let directory = std::env::temp_dir().join(format!("selvedge-letters-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (syslog_path, journal_path) = (directory.join("log"), directory.join("socket"));
        let (syslog, journal) = (listen(&syslog_path), listen(&journal_path));
        let plan = LogPlan {
            access: vec![AccessPlan {
                destination: Destination::Syslog { path: syslog_path.clone() },
                format: Format::parse("%m %U %s").unwrap(),
            }],
            sites: vec![SitePlan { name: String::new(), access: vec![0], error: None }],
            site_errors: Vec::new(),
            error: ErrorPlan {
                destination: Destination::Journal { path: journal_path.clone() },
                form: ErrorForm::Text,
                level: Level::Info,
            },
        };
        let logs = Logs::start(&plan, connect).unwrap();
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap();
        let observed = server.observe(LogObserver::new(&logs, &Limits::default()));
        let running = observed.serve(async |_: &mut Request| Response::new(Status::OK)).unwrap();
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(running.addresses()[0]).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        };
        let good = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        ask(good);
        ask("GET / HTTP/1.1\r\n\r\n");
        let pid = std::process::id();
        // 30 is facility 3, severity 6; its time is followed by no host.
        let letter = receive(&syslog);
        let (time, rest) = letter.strip_prefix("<30>1 ").expect(&letter).split_once(' ').unwrap();
        assert!(time.len() == 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        assert_eq!(rest, format!("- selvedge {pid} access - GET /a 200"));
        assert!(receive(&syslog).ends_with(" access - - - 400"));
        let letter = receive(&journal);
        let fields: Vec<(&str, &str)> = letter.lines().map(|line| line.split_once('=').unwrap()).collect();
        assert_eq!(fields[..3], [("PRIORITY", "4"), ("SYSLOG_FACILITY", "3"), ("SYSLOG_IDENTIFIER", "selvedge")]);
        assert_eq!((fields[3], fields[4].0, fields.len()), (("SELVEDGE_LOG", "error"), "MESSAGE", 5));
        assert!(fields[4].1.contains(" warn HostMissing: 400 "), "{letter}");

        // Who takes letters goes; what is sent meanwhile is lost and counted, and said later.
        drop(syslog);
        ask(good);
        let lost = receive(&journal);
        assert!(
            lost.contains("PRIORITY=3\n") && lost.contains(" LogLinesLost: lines of the access log to syslog"),
            "{lost}"
        );
        let syslog = listen(&syslog_path);
        std::thread::sleep(Duration::from_millis(200));
        ask(good);
        assert!(receive(&syslog).ends_with("GET /a 200"));
        assert!(receive(&journal).contains(" LogRecovered: the access log to syslog"));
        running.handle().stop_now();
        running.join();
        logs.finish();
        fs::remove_dir_all(&directory).unwrap();
    }
}
