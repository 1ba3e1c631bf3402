//! A server of FastCGI or SCGI that records requests and sends prepared bytes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The server. Each connection gets the current response for each of its requests.
pub(crate) struct ScriptServer {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    requests: Receiver<ScriptRequest>,
}

/// A response, and what becomes of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The pieces, each sent by itself.
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) after: AfterResponse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AfterResponse {
    #[default]
    Close,
    /// The connection serves the next request.
    KeepOpen,
    /// The next request on the connection is received, and then the connection is closed.
    CloseAfterNextRequest,
}

/// A request as the server received it.
#[derive(Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) connection: usize,
    pub(crate) variables: HashMap<String, String>,
    pub(crate) content: Vec<u8>,
}

/// The variables and the content of a request.
type Received = (HashMap<String, String>, Vec<u8>);

impl ScriptServer {
    pub(crate) fn fastcgi() -> Self {
        Self::start(read_fastcgi)
    }

    pub(crate) fn scgi() -> Self {
        Self::start(read_scgi)
    }

    fn start(read: fn(&mut BufReader<TcpStream>) -> Option<Received>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let script = Arc::new(Mutex::new(Script::default()));
        let (shared, (sender, requests)) = (script.clone(), channel());
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (script, sender) = (shared.clone(), sender.clone());
                thread::spawn(move || {
                    stream.set_nodelay(true).expect("the stream is a socket");
                    let mut output = stream.try_clone().expect("the socket can be shared");
                    let mut input = BufReader::new(stream);
                    let mut is_last = false;
                    while let Some((variables, content)) = read(&mut input) {
                        if is_last {
                            return;
                        }
                        let script = script.lock().expect("no thread panics while it has the lock").clone();
                        let _ = sender.send(ScriptRequest { connection, variables, content });
                        if script.pieces.iter().any(|piece| output.write_all(piece).is_err()) {
                            return;
                        }
                        match script.after {
                            AfterResponse::Close => return,
                            AfterResponse::KeepOpen => {}
                            AfterResponse::CloseAfterNextRequest => is_last = true,
                        }
                    }
                });
            }
        });
        Self { address, script, requests }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the response of the next requests.
    pub(crate) fn respond(&self, script: Script) {
        *self.script.lock().expect("no thread panics while it has the lock") = script;
    }

    /// Returns the next request.
    pub(crate) fn request(&self) -> ScriptRequest {
        self.requests.recv().expect("the server runs")
    }
}

/// Returns a record of FastCGI for the request 1.
pub(crate) fn record(kind: u8, payload: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = u16::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut record = vec![1, kind, 0, 1, high, low, padding, 0];
    record.extend_from_slice(payload);
    record.resize(record.len() + usize::from(padding), b'#');
    record
}

/// Reads a request of FastCGI: its variables and its content.
fn read_fastcgi(input: &mut BufReader<TcpStream>) -> Option<Received> {
    let (mut variables, mut content, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut header = [0; 8];
        input.read_exact(&mut header).ok()?;
        let [version, kind, 0, 1, high, low, padding, _] = header else { panic!("{header:?}") };
        assert_eq!(version, 1);
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low])) + usize::from(padding)];
        input.read_exact(&mut payload).ok()?;
        payload.truncate(payload.len() - usize::from(padding));
        kinds.push(kind);
        match kind {
            1 => assert_eq!((kinds.len(), &payload[..2]), (1, &[0, 1][..]), "a responder"),
            4 => variables.extend_from_slice(&payload),
            5 if payload.is_empty() => return Some((decode_variables(&variables), content)),
            5 => content.extend_from_slice(&payload),
            _ => panic!("a record of type {kind}"),
        }
    }
}

fn decode_variables(mut bytes: &[u8]) -> HashMap<String, String> {
    let length = |bytes: &mut &[u8]| match **bytes {
        [short @ ..0x80, ref rest @ ..] => {
            *bytes = rest;
            usize::from(short)
        }
        [a, b, c, d, ref rest @ ..] => {
            *bytes = rest;
            u32::from_be_bytes([a & 0x7f, b, c, d]) as usize
        }
        _ => panic!("a length is incomplete"),
    };
    let mut variables = HashMap::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let mut text = |count: usize| {
            let (text, rest) = bytes.split_at(count);
            bytes = rest;
            String::from_utf8(text.to_vec()).expect("the test sends text")
        };
        let name = text(name);
        assert_eq!(variables.insert(name, text(value)), None, "a variable occurs once");
    }
    variables
}

/// Reads a request of SCGI: its variables and its content.
fn read_scgi(input: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut length = Vec::new();
    input.read_until(b':', &mut length).ok().filter(|&count| count > 1)?;
    let length: usize = std::str::from_utf8(length.strip_suffix(b":")?).ok()?.parse().expect("a number");
    let mut bytes = vec![0; length + 1];
    input.read_exact(&mut bytes).ok()?;
    assert_eq!(bytes.pop(), Some(b','), "the end of the netstring");
    let text = String::from_utf8(bytes).expect("the test sends text");
    let parts: Vec<&str> = text.strip_suffix('\0').expect("each value ends with a NUL").split('\0').collect();
    assert_eq!((parts[0], parts[2], parts[3]), ("CONTENT_LENGTH", "SCGI", "1"));
    let variables: HashMap<String, String> =
        parts.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
    assert_eq!(variables.len() * 2, parts.len(), "a variable occurs once");
    let mut content = vec![0; parts[1].parse().expect("a number")];
    input.read_exact(&mut content).ok()?;
    Some((variables, content))
}
