//! The Unix datagram socket to syslog or journald.

use crate::log::LogDatagrams;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A connected socket.
struct DatagramSocket(UnixDatagram);

/// Connects to the socket at a path.
pub(crate) fn connect(path: &Path) -> io::Result<Box<dyn LogDatagrams>> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(Box::new(DatagramSocket(socket)))
}

impl LogDatagrams for DatagramSocket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        self.0.send(datagram).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::{
        AccessLogConfig, Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig,
    };
    use crate::log::{Format, LogObserver, Logs};
    use selvedge::{Limits, Request, Response, Server, StatusCode};
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    /// A receiver of datagrams.
    fn listen(path: &Path) -> UnixDatagram {
        let _ = fs::remove_file(path);
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut datagram = vec![0; 1 << 16];
        let length = socket.recv(&mut datagram).expect("a datagram arrives");
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    }

    #[test]
    fn lines_go_to_syslog_and_to_the_journal() {
        let directory = std::env::temp_dir().join(format!("selvedge-syslog-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (syslog_path, journal_path) = (directory.join("log"), directory.join("socket"));
        let (syslog, journal) = (listen(&syslog_path), listen(&journal_path));
        let config = LogConfig {
            access: vec![AccessLogConfig {
                destination: Destination::Syslog { path: syslog_path.clone() },
                format: Format::parse("%m %U %s").unwrap(),
            }],
            sites: vec![SiteLogConfig { name: String::new(), access: vec![0], error: None }],
            site_errors: Vec::new(),
            error: ErrorLogConfig {
                destination: Destination::Journal { path: journal_path.clone() },
                format: ErrorFormat::Text,
                level: Level::Info,
            },
        };
        let logs = Logs::start(&config, connect).unwrap();
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap();
        let observed = server.observe(LogObserver::new(&logs, &Limits::default()));
        let running = observed.serve(async |_: &mut Request| Response::new(StatusCode::OK)).unwrap();
        let send_request = |request: &str| {
            let mut stream = TcpStream::connect(running.addresses()[0]).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        };
        let good = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        send_request(good);
        send_request("GET / HTTP/1.1\r\n\r\n");
        let pid = std::process::id();
        // 30 is facility 3, severity 6. No host name follows the time.
        let datagram = receive(&syslog);
        let (time, rest) = datagram.strip_prefix("<30>1 ").expect(&datagram).split_once(' ').unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        assert_eq!(rest, format!("- selvedge {pid} access - GET /a 200"));
        assert!(receive(&syslog).ends_with(" access - - - 400"));
        let datagram = receive(&journal);
        let fields: Vec<(&str, &str)> = datagram.lines().map(|line| line.split_once('=').unwrap()).collect();
        assert_eq!(fields[..3], [("PRIORITY", "4"), ("SYSLOG_FACILITY", "3"), ("SYSLOG_IDENTIFIER", "selvedge")]);
        assert_eq!((fields[3], fields[4].0, fields.len()), (("SELVEDGE_LOG", "error"), "MESSAGE", 5));
        assert!(fields[4].1.contains(" warn HostMissing: 400 "), "{datagram}");

        // The receiver ends. Lines sent meanwhile are lost, counted, and reported later.
        drop(syslog);
        send_request(good);
        let lost = receive(&journal);
        assert!(
            lost.contains("PRIORITY=3\n") && lost.contains(" LogLinesLost: lines of the access log to syslog"),
            "{lost}"
        );
        let syslog = listen(&syslog_path);
        // Lines are lost until the log tries again to connect.
        syslog.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut datagram = vec![0; 1 << 16];
        let length = (0..400).find_map(|_| {
            send_request(good);
            syslog.recv(&mut datagram).ok()
        });
        assert!(datagram[..length.expect("the log connects again")].ends_with(b"GET /a 200"));
        assert!(receive(&journal).contains(" LogRecovered: the access log to syslog"));
        running.handle().stop_now();
        running.join();
        logs.flush_and_join();
        fs::remove_dir_all(&directory).unwrap();
    }
}
