//! A client with TLS, and certificates for tests.

use super::wait::WAIT_TIMEOUT;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, date_time_ymd,
};
use selvedge::tls::rustls::pki_types::pem::PemObject;
use selvedge::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use selvedge::tls::rustls::{self, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no name is valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("the key signs"))
    }

    /// Makes a certificate and its key as PEM texts.
    pub(crate) fn certificate(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("the system has random numbers");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("the names are valid");
        let certificate = params.signed_by(&key, &self.0).expect("the key signs");
        (certificate.pem() + &self.0.pem(), key.serialize_pem())
    }

    /// Makes a certificate and its key for a subject, as PEM texts.
    pub(crate) fn certificate_of(&self, common_name: &str) -> (String, String) {
        self.sign(params_of(common_name))
    }

    /// Makes a certificate for a subject that has expired.
    pub(crate) fn expired_certificate(&self, common_name: &str) -> (String, String) {
        let mut params = params_of(common_name);
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("the system has random numbers");
        (params.signed_by(&key, &self.0).expect("the key signs").pem(), key.serialize_pem())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

fn params_of(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).expect("no name is valid");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// A client that trusts one authority and resumes its sessions.
pub(crate) struct TlsClient(Arc<ClientConfig>);

/// A connection with TLS.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A response over TLS, and how its connection began.
pub(crate) struct TlsResponse {
    pub(crate) text: String,
    pub(crate) is_resumed: bool,
    /// The server's certificate in DER.
    pub(crate) certificate: Vec<u8>,
}

impl TlsClient {
    pub(crate) fn new(authority: &Authority) -> Self {
        Self::with_certificate(authority, None)
    }

    /// Makes a client with a certificate of its own.
    pub(crate) fn with_certificate(authority: &Authority, own: Option<&(String, String)>) -> Self {
        Self::trusting(&authority.pem(), own)
    }

    /// Makes a client that trusts a root certificate in PEM.
    pub(crate) fn trusting(root: &str, own: Option<&(String, String)>) -> Self {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("the root is PEM");
        roots.add(root).expect("the certificate is valid");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the versions are supported").with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("the key is PEM");
                builder.with_client_auth_cert(chain.expect("the chain is PEM"), key).expect("both belong together")
            }
        };
        Self(Arc::new(config))
    }

    /// Sends a GET request on a new connection: to the site of a server name, for a host.
    pub(crate) fn get(&self, address: SocketAddr, (name, host): (&str, &str), path: &str) -> io::Result<TlsResponse> {
        self.send(address, name, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    /// Encrypts a connection to the site of a server name.
    pub(crate) fn stream(&self, socket: TcpStream, name: &str) -> io::Result<TlsStream> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Sends a text on a new connection, and reads until its end.
    pub(crate) fn send(&self, address: SocketAddr, name: &str, text: &str) -> io::Result<TlsResponse> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
        let mut stream = self.stream(socket, name)?;
        stream.write_all(text.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let certificates = stream.conn.peer_certificates().unwrap_or_default();
        Ok(TlsResponse {
            text,
            is_resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default(),
        })
    }
}
