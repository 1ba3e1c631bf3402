//! TLS over sockets of both drivers, with the client of the TLS library.

mod client;
mod handshakes;
mod library;
mod over_sockets;

use super::{Certificate, Certificates, ClientAuth, ClientCertificates, Tls, TlsHost};
use crate::net::backend::Driver;
use crate::service::{Body, Duplex, Request, Response, UpgradeResponse};
use crate::{ExitCause, RunningServer, Server};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::RootCertStore;
use selvedge_proto::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

/// A certificate authority, and certificates that it has signed.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, names: &[&str], key: &KeyPair) -> (String, String) {
        let params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        (params.signed_by(key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// Makes a certificate with an ECDSA key.
    pub(super) fn certificate(&self, names: &[&str]) -> Certificate {
        let (chain, key) = self.sign(names, &KeyPair::generate().unwrap());
        Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }

    /// Makes a certificate and its key as PEM texts.
    fn client_certificate(&self, name: &str) -> (String, String) {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(vec![]).unwrap());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn store(&self) -> Arc<RootCertStore> {
        let mut store = RootCertStore::empty();
        store.add(self.0.der().clone()).unwrap();
        Arc::new(store)
    }
}

/// Describes the TLS of the request, or returns its content, or switches to another protocol.
async fn respond(request: &mut Request) -> Response {
    match request.path() {
        "/tls" => {
            let tls = request.tls().expect("the connection has TLS");
            let client = tls.peer_certificates().len();
            let subject = tls.peer_subject().unwrap_or_default();
            let text = format!(
                "{} {:?} {} resumed={} tag={} client={client}{subject}",
                tls.version(),
                tls.server_name(),
                tls.key_exchange(),
                tls.is_resumed(),
                tls.host_tag(),
            );
            Response::new(StatusCode::OK).body(Bytes::from(text))
        }
        "/echo" => {
            request.body().set_bytes_max(u64::MAX);
            let body = request.take_body();
            Response::new(StatusCode::OK).body(Body::Stream { length: body.length(), chunks: Box::pin(body) })
        }
        "/upgrade" => {
            let handler = Box::new(|duplex| drop(crate::net::runtime::spawn_local(greet(duplex))));
            let upgrade = UpgradeResponse { protocol: Bytes::from_static(b"greeting"), handler };
            Response::new(StatusCode::SWITCHING_PROTOCOLS).body(Body::Upgrade(Box::new(upgrade)))
        }
        _ => match request.body().read_all().await {
            Ok(content) => Response::new(StatusCode::OK).body(content),
            Err(error) => error.into(),
        },
    }
}

/// Sends a text on an upgraded connection and ends it.
async fn greet(mut duplex: Box<dyn Duplex>) {
    let text = std::io::IoSlice::new(b"hello");
    let _ = std::future::poll_fn(|cx| duplex.poll_send(cx, &[text])).await;
    let _ = duplex.shutdown_write();
}

fn start(driver: Driver, tls: Tls) -> RunningServer {
    Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(driver).tls(tls).serve(respond).unwrap()
}

fn stop(server: RunningServer) {
    server.handle().stop_now();
    assert_eq!(server.join(), ExitCause::Stopped);
}

/// Runs a test with a server of each driver.
fn with_servers(tls: &Tls, test: impl Fn(SocketAddr)) {
    for driver in DRIVERS {
        let server = start(driver, tls.clone());
        test(server.addresses()[0]);
        stop(server);
    }
}

fn host(authority: &Authority, names: &[&str], tag: u32) -> TlsHost {
    let certificates = Certificates::new(vec![authority.certificate(names)]);
    TlsHost::builder().certificates(certificates).identity(names[0]).tag(tag).build().unwrap()
}

fn client_certificates(authority: &Authority, auth: ClientAuth) -> ClientCertificates {
    ClientCertificates::from_pem(auth, authority.pem().as_bytes()).unwrap()
}
