//! The first message of a handshake as bytes (RFC 5246 section 7.4.1.2), with versions and ciphers that no TLS library
//! offers.

/// Record type of handshake messages.
pub(super) const HANDSHAKE_RECORD: u8 = 22;

/// A client's first message.
pub(super) struct ClientHello<'a> {
    /// Such as 0x0301 for TLS 1.0.
    pub(super) version: u16,
    pub(super) ciphers: &'a [u16],
    /// The server name, or an empty text for none. An address is no name (RFC 6066 section 3).
    pub(super) server_name: &'a str,
}

impl ClientHello<'_> {
    /// Returns the message in one record.
    pub(super) fn record(&self) -> Vec<u8> {
        const CLIENT_HELLO: u8 = 1;
        const RANDOM: [u8; 32] = [0x5e; 32];
        const NO_SESSION: u8 = 0;
        const NO_COMPRESSION: [u8; 2] = [1, 0];
        let ciphers: Vec<u8> = self.ciphers.iter().flat_map(|cipher| cipher.to_be_bytes()).collect();
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend_from_slice(&RANDOM);
        body.push(NO_SESSION);
        append_with_length(&mut body, &ciphers);
        body.extend_from_slice(&NO_COMPRESSION);
        append_with_length(&mut body, &self.extensions());
        // A message of the sizes above has fewer than 64 KiB.
        let mut message = vec![CLIENT_HELLO, 0];
        append_with_length(&mut message, &body);
        let mut record = vec![HANDSHAKE_RECORD];
        record.extend_from_slice(&self.version.to_be_bytes());
        append_with_length(&mut record, &message);
        record
    }

    /// Returns extensions that servers need: the server name, curves, their format, and signatures.
    fn extensions(&self) -> Vec<u8> {
        let signatures = [0x0401_u16, 0x0403, 0x0501, 0x0503, 0x0601, 0x0804, 0x0805, 0x0201, 0x0203];
        let curves = [0x001d_u16, 0x0017, 0x0018];
        let list = |values: &[u16]| {
            let mut list = Vec::new();
            append_with_length(&mut list, &values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<_>>());
            list
        };
        let mut extensions = Vec::new();
        let mut append = |number: u16, content: &[u8]| {
            extensions.extend_from_slice(&number.to_be_bytes());
            append_with_length(&mut extensions, content);
        };
        if !self.server_name.is_empty() {
            const HOST_NAME: u8 = 0;
            let (mut name, mut names) = (vec![HOST_NAME], Vec::new());
            append_with_length(&mut name, self.server_name.as_bytes());
            append_with_length(&mut names, &name);
            append(0, &names);
        }
        append(10, &list(&curves));
        append(11, &[1, 0]);
        append(13, &list(&signatures));
        extensions
    }
}

/// Appends bytes after their length of 16 bits.
fn append_with_length(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::tls::rustls::server::Acceptor;

    #[test]
    fn a_tls_library_reads_the_message() {
        for (server_name, expected) in [("a.example", Some("a.example")), ("", None)] {
            let record = ClientHello { version: 0x0303, ciphers: &[0xc02f, 0xc02b], server_name }.record();
            let mut acceptor = Acceptor::default();
            acceptor.read_tls(&mut &*record).expect("it fits");
            let accepted = acceptor.accept().map_err(|(error, _)| error).expect("it is valid").expect("it is whole");
            assert_eq!(accepted.client_hello().cipher_suites().len(), 2);
            assert_eq!(accepted.client_hello().server_name(), expected);
        }
    }
}
