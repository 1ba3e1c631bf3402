//! The TLS session of one connection: bytes in, bytes out. The link moves them between the session and the socket.

use super::host::{ACME_PROTOCOL, TlsHost};
use super::reasons::{self, CertificateReason};
use super::subject::subject_of;
use super::{ClientOffer, Preparation, SelectHost};
use crate::buffer::{Buffer, Size};
use crate::limits::{BUFFER_BYTES, ENCODED_SLICE_BYTES, FIRST_RECORD_BYTES, FIRST_RECORDS_BYTES, HANDSHAKE_BYTES_MAX};
use crate::net::link::{Session, SessionFailure};
use crate::peer::TlsInfo;
use rustls::server::{Accepted, Acceptor, ClientHello};
use rustls::{AlertDescription, Error, HandshakeKind, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;
/// A fatal alert `unrecognized_name`, which the TLS library cannot send before a configuration is chosen.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 112];

/// The server's end of a TLS connection.
pub(super) struct TlsSession {
    state: State,
    /// Bytes of a handshake that wait for a turn.
    pending: Vec<u8>,
    /// Decoded bytes, and the number of them that were read.
    decoded: Option<Buffer>,
    read: usize,
    /// Bytes received within the handshake.
    handshake_bytes: usize,
    /// Bytes written since the start, up to [`FIRST_RECORDS_BYTES`].
    written: usize,
    /// Bytes to send before the connection exists or after it failed.
    messages: Vec<u8>,
    /// Whether the client has sent its closing message.
    is_read_closed: bool,
    info: Option<TlsInfo>,
}

enum State {
    /// The first message is incomplete.
    Hello(Box<Start>),
    /// The first message is complete, and the host is not chosen.
    Offered(Box<Offered>),
    Connected(Box<ServerConnection>, u32),
    Failed,
}

struct Offered {
    accepted: Accepted,
    hosts: Arc<dyn SelectHost>,
    /// What has to complete before the host is chosen.
    preparation: Option<Preparation>,
}

impl Offered {
    fn new(accepted: Accepted, hosts: Arc<dyn SelectHost>) -> Self {
        let preparation = hosts.prepare(&offer_of(&accepted.client_hello()));
        Self { accepted, hosts, preparation }
    }
}

/// Returns what a client offers.
fn offer_of<'a>(hello: &'a ClientHello<'a>) -> ClientOffer<'a> {
    let is_acme_challenge = hello.alpn().is_some_and(|mut all| all.all(|protocol| protocol == ACME_PROTOCOL));
    ClientOffer { server_name: hello.server_name(), is_acme_challenge }
}

struct Start {
    acceptor: Acceptor,
    hosts: Arc<dyn SelectHost>,
    /// Sent to a client that does not use TLS.
    plain_text_response: &'static [u8],
}

impl TlsSession {
    pub(super) fn new(hosts: Arc<dyn SelectHost>, plain_text_response: &'static [u8]) -> Self {
        Self {
            state: State::Hello(Box::new(Start { acceptor: Acceptor::default(), hosts, plain_text_response })),
            pending: Vec::new(),
            decoded: None,
            read: 0,
            handshake_bytes: 0,
            written: 0,
            messages: Vec::new(),
            is_read_closed: false,
            info: None,
        }
    }

    /// Fails, with a last message for the client.
    fn fail<T>(&mut self, failure: SessionFailure, message: &[u8]) -> Result<T, SessionFailure> {
        self.messages.extend_from_slice(message);
        self.state = State::Failed;
        self.pending = Vec::new();
        Err(failure)
    }

    /// Reads the client's first message.
    fn receive_hello(&mut self, mut start: Box<Start>, mut bytes: &[u8]) -> Result<(), SessionFailure> {
        if let Some(first) = bytes.first()
            && *first != HANDSHAKE_RECORD
            && self.handshake_bytes == bytes.len()
            && first.is_ascii_alphabetic()
        {
            return self.fail(SessionFailure::PlainText, start.plain_text_response);
        }
        loop {
            let mut alert = Vec::new();
            match start.acceptor.accept() {
                Ok(Some(accepted)) => {
                    self.pending.extend_from_slice(bytes);
                    self.state = State::Offered(Box::new(Offered::new(accepted, start.hosts)));
                    return Ok(());
                }
                Ok(None) if bytes.is_empty() => {
                    self.state = State::Hello(start);
                    return Ok(());
                }
                Ok(None) => {
                    if !matches!(start.acceptor.read_tls(&mut bytes), Ok(1..)) {
                        return self.fail(SessionFailure::Invalid, &[]);
                    }
                }
                Err((error, mut last)) => {
                    let _ = last.write_all(&mut alert);
                    return self.fail(failure_of(&error), &alert);
                }
            }
        }
    }

    /// Chooses the host and computes the server's first messages.
    fn choose_host(&mut self, accepted: Accepted, hosts: &dyn SelectHost) -> Result<(), SessionFailure> {
        let Some(host) = hosts.select(&offer_of(&accepted.client_hello())) else {
            return self.fail(SessionFailure::UnknownServerName, &UNRECOGNIZED_NAME);
        };
        let TlsHost { config, tag } = &*host;
        match accepted.into_connection(config.clone()) {
            Ok(connection) => {
                self.state = State::Connected(Box::new(connection), *tag);
                Ok(())
            }
            Err((error, mut last)) => {
                let mut alert = Vec::new();
                let _ = last.write_all(&mut alert);
                self.fail(failure_of(&error), &alert)
            }
        }
    }

    /// Decodes bytes of the connection.
    fn decode(&mut self, mut bytes: &[u8]) -> Result<(), SessionFailure> {
        let size = if bytes.len() > BUFFER_BYTES { Size::Long } else { Size::Usual };
        let State::Connected(connection, _) = &mut self.state else { return Err(SessionFailure::Invalid) };
        while !bytes.is_empty() {
            // A client sends nothing after its closing message.
            if connection.read_tls(&mut bytes).map_err(|_| SessionFailure::Invalid)? == 0 {
                break;
            }
            let state = connection.process_new_packets().map_err(|error| failure_of(&error))?;
            self.is_read_closed = state.peer_has_closed();
            let count = state.plaintext_bytes_to_read();
            if count > 0 {
                let decoded = self.decoded.get_or_insert_with(|| Buffer::of_size(size));
                let at = decoded.len();
                decoded.resize(at + count, 0);
                connection.reader().read_exact(&mut decoded[at..]).map_err(|_| SessionFailure::Invalid)?;
            }
        }
        Ok(())
    }

    /// Notes what was agreed, once the handshake is complete.
    fn note_info(&mut self) {
        if let State::Connected(connection, tag) = &self.state
            && !connection.is_handshaking()
            && self.info.is_none()
        {
            self.info = Some(info_of(connection, *tag));
        }
    }
}

/// Returns what a complete handshake agreed on.
fn info_of(connection: &ServerConnection, host_tag: u32) -> TlsInfo {
    let certificates = connection.peer_certificates().unwrap_or_default();
    TlsInfo::new(crate::peer::TlsFacts {
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
        cipher_suite: connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or(""),
        key_exchange: connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str()).unwrap_or(""),
        server_name: connection.server_name().map(Into::into),
        protocol: connection.alpn_protocol().map(Into::into),
        peer_certificates: certificates.iter().map(|certificate| certificate.to_vec()).collect(),
        peer_subject: certificates.first().and_then(|certificate| subject_of(certificate)),
        is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        host_tag,
    })
}

/// Classifies an error of the TLS library.
fn failure_of(error: &Error) -> SessionFailure {
    match error {
        Error::AlertReceived(AlertDescription::UserCanceled | AlertDescription::CloseNotify) => {
            SessionFailure::Abandoned
        }
        Error::AlertReceived(alert) => SessionFailure::RefusedByPeer(reasons::of_refused_handshake(*alert)),
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => SessionFailure::Incompatible,
        Error::NoCertificatesPresented => SessionFailure::ClientCertificate("none was sent"),
        Error::InvalidCertificate(error) => SessionFailure::ClientCertificate(match reasons::of_certificate(error) {
            CertificateReason::WrongPurpose => "it is not for clients",
            CertificateReason::Other(reason) => reason,
        }),
        Error::General(text) if text.contains("no server certificate chain resolved") => {
            SessionFailure::UnknownServerName
        }
        _ => SessionFailure::Invalid,
    }
}

impl Session for TlsSession {
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure> {
        if !self.is_handshaking() {
            return self.decode(encoded);
        }
        self.handshake_bytes += encoded.len();
        if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
            return self.fail(SessionFailure::Invalid, &[]);
        }
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Hello(start) => self.receive_hello(start, encoded),
            state => {
                self.state = state;
                self.pending.extend_from_slice(encoded);
                Ok(())
            }
        }
    }

    fn poll_prepared(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Offered(offered) = &mut self.state
            && let Some(preparation) = &mut offered.preparation
        {
            ready!(preparation.as_mut().poll(cx));
            offered.preparation = None;
        }
        Poll::Ready(())
    }

    fn needs_turn(&self) -> bool {
        match &self.state {
            State::Offered(..) => true,
            State::Connected(..) => !self.pending.is_empty(),
            State::Hello(_) | State::Failed => false,
        }
    }

    fn advance(&mut self) -> Result<(), SessionFailure> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Offered(offered) => self.choose_host(offered.accepted, &*offered.hosts),
            state => {
                self.state = state;
                let pending = std::mem::take(&mut self.pending);
                let decoded = self.decode(&pending);
                self.note_info();
                decoded
            }
        }
    }

    fn decoded_len(&self) -> usize {
        self.decoded.as_ref().map_or(0, |decoded| decoded.len() - self.read)
    }

    fn read(&mut self, count: usize, into: &mut Vec<u8>) {
        let Some(decoded) = &self.decoded else { return };
        into.extend_from_slice(&decoded[self.read..self.read + count]);
        self.read += count;
        if self.read == decoded.len() {
            self.decoded = None;
            self.read = 0;
        }
    }

    fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        let State::Connected(connection, _) = &mut self.state else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            // The client can use a record only when all of it has arrived, so the first ones fit into a packet.
            let size = if self.written < FIRST_RECORDS_BYTES { FIRST_RECORD_BYTES } else { ENCODED_SLICE_BYTES };
            let (record, after) = rest.split_at(size.min(rest.len()));
            // The buffer of the connection is empty, so it takes all of a record.
            let _ = connection.writer().write_all(record);
            while connection.wants_write() && connection.write_tls(output).is_ok() {}
            self.written = (self.written + record.len()).min(FIRST_RECORDS_BYTES);
            rest = after;
        }
    }

    fn take_messages(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.messages);
        if let State::Connected(connection, _) = &mut self.state {
            while connection.wants_write() && connection.write_tls(output).is_ok() {}
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Connected(connection, _) => connection.is_handshaking() || !self.pending.is_empty(),
            State::Hello(_) | State::Offered(..) | State::Failed => true,
        }
    }

    fn close_write(&mut self, output: &mut Vec<u8>) {
        if let State::Connected(connection, _) = &mut self.state {
            connection.send_close_notify();
        }
        self.take_messages(output);
    }

    fn info(&self) -> Option<TlsInfo> {
        self.info.clone()
    }
}
