//! Connections that the kernel holds: their handshake is not complete, or `TCP_DEFER_ACCEPT` holds them back until they
//! send something. They are in no accept queue. If their listener closes, their clients are reset.

use crate::net::listen::Endpoint;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::thread;
use std::time::Instant;
use tokio::sync::{Mutex, oneshot};

/// All sockets of the network namespace, with their state.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state `TCP_SYN_RECV` in these tables. `TCP_DEFER_ACCEPT` leaves connections in it.
const SYN_RECEIVED: &[u8] = b"03";
/// Bytes of a table that are read: about 100,000 sockets.
const TABLE_BYTES_MAX: u64 = 16 << 20;
const BUFFER_BYTES: usize = 64 * 1024;

/// Whether the kernel holds connections of a server that stops. The workers share what one of them has read, because the
/// tables may be long.
#[derive(Debug, Default)]
pub(crate) struct HeldConnections(Mutex<Option<TableReading>>);

/// What the tables had.
#[derive(Clone, Copy, Debug)]
struct TableReading {
    began: Instant,
    has_held: bool,
}

impl HeldConnections {
    /// Returns whether the kernel holds connections to one of these endpoints, which are those of all workers. A worker
    /// whose sockets hold back no new connections from `since` on does not use what was read before.
    pub(crate) async fn are_at(&self, endpoints: impl Iterator<Item = &Endpoint>, since: Instant) -> bool {
        let ports: Vec<u16> = endpoints.filter_map(port).collect();
        let mut last = self.0.lock().await;
        if let Some(reading) = last.filter(|reading| reading.has_held || reading.began >= since) {
            return reading.has_held;
        }
        let began = Instant::now();
        let (sender, receiver) = oneshot::channel();
        // The runtime's own threads would panic if none can be created.
        let thread = thread::Builder::new().name("selvedge-held".to_owned());
        let started = thread.spawn(move || sender.send(holds_connections(&ports).unwrap_or(true)));
        // Without the tables, clients may be waiting.
        let has_held = started.is_err() || receiver.await.unwrap_or(true);
        *last = Some(TableReading { began, has_held });
        has_held
    }
}

/// Returns the port of an endpoint. No connection to a Unix socket is held.
fn port(endpoint: &Endpoint) -> Option<u16> {
    match endpoint {
        Endpoint::Inet(address) => Some(address.port()),
        Endpoint::Unix(_) => None,
    }
}

fn holds_connections(ports: &[u16]) -> io::Result<bool> {
    if ports.is_empty() {
        return Ok(false);
    }
    for table in TABLES {
        let file = match File::open(table) {
            // A system without IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound && table != TABLES[0] => continue,
            file => file?,
        };
        if table_names(file, ports, TABLE_BYTES_MAX)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a table has a held connection to one of the ports. A table longer than `bytes_max` may have one.
fn table_names(table: impl Read, ports: &[u16], bytes_max: u64) -> io::Result<bool> {
    let mut table = BufReader::with_capacity(BUFFER_BYTES, table.take(bytes_max));
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line)? > 0 {
        if held_port(&line).is_some_and(|port| ports.contains(&port)) {
            return Ok(true);
        }
        line.clear();
    }
    Ok(table.get_ref().limit() == 0)
}

/// Returns the local port of a line if its connection is held: `NUMBER: ADDRESS:PORT ADDRESS:PORT STATE …`.
fn held_port(line: &[u8]) -> Option<u16> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let local = words.nth(1)?;
    if words.nth(1)? != SYN_RECEIVED {
        return None;
    }
    let port = local.rsplit(|&byte| byte == b':').next()?;
    u16::from_str_radix(str::from_utf8(port).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::listen::Listener;
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream};

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn only_held_connections_to_the_ports_count() {
        let names = |line: &str, bytes_max| {
            let table = format!("{HEAD}{line}\n");
            table_names(table.as_bytes(), &[80, 0xAB7B], bytes_max).unwrap()
        };
        let v6 =
            "   7: 0000000000000000FFFF00000100007F:0050 0000000000000000FFFF00000100007F:DC5A 03 00000000:00000000";
        assert!(names("   0: 0100007F:AB7B 0100007F:DC5A 03 00000000:00000000", 4096));
        assert!(names(v6, 4096));
        for other in
            ["0100007F:AB7B 00000000:0000 0A", "0100007F:AB7B 0100007F:DC5A 01", "0100007F:0051 0100007F:AB7B 03", ""]
        {
            assert!(!names(&format!("   0: {other} 00000000:00000000"), 4096), "{other}");
        }
        assert!(names("", HEAD.len() as u64), "the rest is unknown");
    }

    #[test]
    fn a_reading_counts_for_workers_that_held_back_nothing_before_it() {
        let Ok(runtime) = crate::net::runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let Endpoint::Inet(address) = *listener.endpoint() else { panic!("{listener:?}") };
            let (held, since) = (HeldConnections::default(), Instant::now());
            let are_held = async |since| held.are_at([listener.endpoint()].into_iter(), since).await;
            assert!(!are_held(since).await);
            let _client = TcpStream::connect(address).unwrap();
            assert!(!are_held(since).await, "read before");
            assert!(are_held(Instant::now()).await, "another reading");
            assert!(are_held(since).await);
        });
    }

    #[test]
    fn the_kernel_holds_a_connection_without_a_byte() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = Listener::bind(address.parse().unwrap(), 1) else { continue };
            let endpoint = listener.endpoint().clone();
            let Endpoint::Inet(address) = endpoint else { panic!("{endpoint}") };
            let holds = |address: SocketAddr| holds_connections(&[address.port()]).unwrap();
            assert!(!holds(address));
            let mut client = TcpStream::connect(address).unwrap();
            // The handshake ends before `connect` does. The kernel gives up the deferral after a second.
            let held = holds(address);
            client.write_all(b"G").unwrap();
            assert!(held, "{address}");
            assert!(!holds(address), "the connection is in the accept queue");
        }
        assert!(!holds_connections(&[]).unwrap(), "Unix sockets only");
    }
}
