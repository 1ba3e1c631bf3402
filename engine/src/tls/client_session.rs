//! The client's end of a TLS connection: bytes in, bytes out.

use super::reasons::{self, CertificateReason};
use crate::buffer::{Buffer, Size};
use crate::limits::{BUFFER_BYTES, ENCODED_SLICE_BYTES, HANDSHAKE_BYTES_MAX};
use crate::net::link::{Session, SessionFailure};
use crate::peer::{TlsFacts, TlsInfo};
use rustls::{AlertDescription, ClientConnection, Error, HandshakeKind};
use std::io::{Read, Write};

/// The client's end of a TLS connection.
pub(super) struct ClientSession {
    connection: ClientConnection,
    /// Decoded bytes, and the number of them that were read.
    decoded: Option<Buffer>,
    read: usize,
    /// Bytes received within the handshake.
    handshake_bytes: usize,
    /// Whether the server has sent its closing message.
    is_read_closed: bool,
    info: Option<TlsInfo>,
}

impl ClientSession {
    pub(super) fn new(connection: ClientConnection) -> Self {
        Self { connection, decoded: None, read: 0, handshake_bytes: 0, is_read_closed: false, info: None }
    }

    /// Decodes bytes of the connection.
    fn decode(&mut self, mut bytes: &[u8]) -> Result<(), SessionFailure> {
        let size = if bytes.len() > BUFFER_BYTES { Size::Long } else { Size::Usual };
        while !bytes.is_empty() {
            // A server sends nothing after its closing message.
            if self.connection.read_tls(&mut bytes).map_err(|_| SessionFailure::Invalid)? == 0 {
                break;
            }
            let state = self.connection.process_new_packets().map_err(|error| failure_of(&error))?;
            self.is_read_closed = state.peer_has_closed();
            let count = state.plaintext_bytes_to_read();
            if count > 0 {
                let decoded = self.decoded.get_or_insert_with(|| Buffer::of_size(size));
                let at = decoded.len();
                decoded.resize(at + count, 0);
                self.connection.reader().read_exact(&mut decoded[at..]).map_err(|_| SessionFailure::Invalid)?;
            }
        }
        Ok(())
    }
}

impl Session for ClientSession {
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure> {
        if !self.is_handshaking() {
            return self.decode(encoded);
        }
        if self.handshake_bytes == 0 && encoded.first().is_some_and(u8::is_ascii_alphabetic) {
            return Err(SessionFailure::PlainText);
        }
        self.handshake_bytes += encoded.len();
        if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
            return Err(SessionFailure::Invalid);
        }
        self.decode(encoded)?;
        if !self.is_handshaking() {
            self.info = Some(info_of(&self.connection));
        }
        Ok(())
    }

    fn decoded_len(&self) -> usize {
        self.decoded.as_ref().map_or(0, |decoded| decoded.len() - self.read)
    }

    fn read(&mut self, count: usize, into: &mut Vec<u8>) {
        let Some(decoded) = &self.decoded else { return };
        into.extend_from_slice(&decoded[self.read..self.read + count]);
        self.read += count;
        if self.read == decoded.len() {
            (self.decoded, self.read) = (None, 0);
        }
    }

    fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        for record in bytes.chunks(ENCODED_SLICE_BYTES) {
            // The buffer of the connection is empty, so it takes all of a record.
            let _ = self.connection.writer().write_all(record);
            self.take_messages(output);
        }
    }

    fn take_messages(&mut self, output: &mut Vec<u8>) {
        while self.connection.wants_write() && self.connection.write_tls(output).is_ok() {}
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn close_write(&mut self, output: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.take_messages(output);
    }

    fn info(&self) -> Option<TlsInfo> {
        self.info.clone()
    }
}

/// Returns what a complete handshake agreed on.
fn info_of(connection: &ClientConnection) -> TlsInfo {
    let certificates = connection.peer_certificates().unwrap_or_default();
    TlsInfo::new(TlsFacts {
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
        cipher_suite: connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or(""),
        key_exchange: connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str()).unwrap_or(""),
        server_name: None,
        protocol: connection.alpn_protocol().map(Into::into),
        peer_certificates: certificates.iter().map(|certificate| certificate.to_vec()).collect(),
        peer_subject: None,
        is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        host_tag: 0,
    })
}

/// Classifies an error of the TLS library.
pub(super) fn failure_of(error: &Error) -> SessionFailure {
    match error {
        Error::AlertReceived(AlertDescription::CloseNotify | AlertDescription::UserCanceled) => {
            SessionFailure::Abandoned
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => SessionFailure::UnknownServerName,
        Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)
        | Error::PeerIncompatible(_)
        | Error::NoApplicationProtocol => SessionFailure::Incompatible,
        Error::AlertReceived(alert) => {
            let refused = SessionFailure::RefusedByPeer(reasons::alert_name(*alert));
            reasons::of_refused_certificate(*alert).map_or(refused, SessionFailure::ClientCertificate)
        }
        Error::InvalidCertificate(error) => SessionFailure::ServerCertificate(match reasons::of_certificate(error) {
            CertificateReason::WrongPurpose => "it is not for servers",
            CertificateReason::Other(reason) => reason,
        }),
        Error::NoCertificatesPresented => SessionFailure::ServerCertificate("the server has sent none"),
        _ => SessionFailure::Invalid,
    }
}
