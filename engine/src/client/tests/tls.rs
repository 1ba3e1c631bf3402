//! Upstreams with TLS, which the server of this crate provides.

use super::*;
use crate::service::{Body, UpgradeResponse};
use crate::tls::{
    Certificate, Certificates, ClientAuth, ClientCertificates, ClientTlsBuilder, RootCertificates, Tls, TlsHost,
    Verification,
};
use crate::{ExitCause, Request, Response, RunningServer, Server};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::net::SocketAddr;
use std::sync::Arc;

/// An authority and what it has signed.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn certificate(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        Certificate::from_pem(signed.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// Responds with what the handshake agreed on, and the content of the request.
async fn respond(request: &mut Request) -> Response {
    let info = request.tls().map(|tls| {
        let protocol = String::from_utf8_lossy(tls.protocol().unwrap_or_default()).into_owned();
        format!("{protocol} {} {} ", tls.server_name().unwrap_or("-"), tls.peer_certificates().len())
    });
    let mut content = info.unwrap_or_default().into_bytes();
    match request.body().read_all().await {
        Ok(read) => content.extend(read),
        Err(error) => content.extend(error.to_string().into_bytes()),
    }
    Response::new(StatusCode::OK).body(content)
}

fn start(host: TlsHost) -> (RunningServer, SocketAddr) {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().tls(Tls::new(host)).serve(respond).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

fn stop(server: RunningServer) {
    server.handle().stop_now();
    assert_eq!(server.join(), ExitCause::Stopped);
}

fn host(authority: &Authority, name: &str) -> crate::tls::TlsHostBuilder {
    TlsHost::builder().certificates(Certificates::new(vec![authority.certificate(name)]))
}

/// Runs a test in real time, since the server has its own threads.
fn run_real(test: impl Future<Output = ()>) {
    crate::net::runtime::runtime().unwrap().block_on(test);
}

fn destination(address: SocketAddr, tls: ClientTls, protocol: Protocol) -> Destination {
    Destination { tls: Some(Arc::new(tls)), protocol, ..Destination::plain(Address::Tcp(address)) }
}

async fn text_of(client: &Client, to: &Destination, content: &[u8]) -> Result<String, ClientError> {
    let mut content = OutgoingContent::bytes(content.to_vec().into());
    let sent = client.send(to, &request("POST"), &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await;
    let mut response = sent?;
    assert_eq!(response.status, StatusCode::OK);
    Ok(String::from_utf8(read_all(&mut response.content).await.unwrap()).unwrap())
}

#[test]
fn requests_over_tls_with_both_protocols() {
    let authority = Authority::new("authority");
    let (server, address) = start(host(&authority, "app.example").build().unwrap());
    run_real(async {
        let client = client();
        for (protocol, expected) in [(Protocol::Http1, "http/1.1"), (Protocol::Http2, "h2")] {
            let roots = RootCertificates::Pem(authority.pem.as_bytes());
            let tls = ClientTlsBuilder::new("app.example").roots(roots).build().unwrap();
            let to = destination(address, tls, protocol);
            for _ in 0..3 {
                assert_eq!(text_of(&client, &to, b"x").await.unwrap(), format!("{expected} app.example 0 x"));
            }
            let long: String = "0123456789".repeat(50_000);
            let received = text_of(&client, &to, long.as_bytes()).await.unwrap();
            assert!(received.ends_with(&long), "{} bytes", received.len());
        }
        assert_eq!(client.connections(), 2, "each protocol has one connection");
    });
    stop(server);
}

/// A self-signed certificate of an authority, as `openssl req -x509` makes it, that is valid between these years.
fn self_signed(name: &str, years: [i32; 2]) -> (Certificate, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    [params.not_before, params.not_after] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap(), pem)
}

#[test]
fn a_self_signed_certificate_that_is_trusted_itself_is_accepted() {
    let other = self_signed("app.example", [2000, 3000]).1;
    for (years, name, is_named, expected) in [
        ([2000, 3000], "app.example", true, Ok(())),
        ([2000, 3000], "other.example", true, Err("name")),
        ([2000, 2001], "app.example", true, Err("expired")),
        ([2999, 3000], "app.example", true, Err("valid")),
        ([2000, 3000], "app.example", false, Err("")),
    ] {
        let (certificate, pem) = self_signed("app.example", years);
        let (server, address) =
            start(TlsHost::builder().certificates(Certificates::new(vec![certificate])).build().unwrap());
        run_real(async {
            let roots = RootCertificates::Pem(if is_named { pem.as_bytes() } else { other.as_bytes() });
            let tls = ClientTlsBuilder::new(name).roots(roots).build().unwrap();
            let received = text_of(&client(), &destination(address, tls, Protocol::Http1), b"x").await;
            match (received, expected) {
                (Ok(_), Ok(())) => {}
                (Err(ClientError { kind: ClientErrorKind::Certificate(reason), .. }), Err(part)) => {
                    assert!(reason.contains(part), "{years:?} {name}: {reason}");
                }
                (received, expected) => panic!("{years:?} {name}: {received:?} is not {expected:?}"),
            }
        });
        stop(server);
    }
}

/// Switches to any protocol that a request of HTTP/1.1 offers, and knows no extended CONNECT.
async fn switch(request: &mut Request) -> Response {
    let Some(protocol) = request.field("upgrade").map(Bytes::copy_from_slice) else {
        return Response::new(StatusCode::NO_CONTENT);
    };
    let upgrade = UpgradeResponse { protocol, handler: Box::new(drop) };
    Response::new(StatusCode::SWITCHING_PROTOCOLS).body(Body::Upgrade(Box::new(upgrade)))
}

#[test]
fn a_websocket_uses_http1_where_the_upstream_of_http2_has_no_extended_connect() {
    let authority = Authority::new("authority");
    let host = host(&authority, "app.example").build().unwrap();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().tls(Tls::new(host)).serve(switch).unwrap();
    let address = server.addresses()[0];
    run_real(async {
        let client = client();
        let roots = RootCertificates::Pem(authority.pem.as_bytes());
        let tls = ClientTlsBuilder::new("app.example").roots(roots).build().unwrap();
        let to = destination(address, tls, Protocol::Http2);
        for (offer, status) in [(None, 204), (Some(&b"websocket"[..]), 101), (Some(b"other"), 101), (None, 204)] {
            let fields = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n".to_vec();
            let head = OutgoingHead { upgrade: offer.map(Bytes::from_static), fields, ..request("GET") };
            let (mut content, timeouts) = (OutgoingContent::empty(), ClientTimeouts::default());
            let response = client.send(&to, &head, &mut content, &timeouts, &mut |_, _| {}).await.unwrap();
            assert_eq!((response.status.code(), response.upgrade.is_some()), (status, status == 101), "{offer:?}");
        }
    });
    stop(server);
}

#[test]
fn certificates_are_verified() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let (server, address) = start(host(&authority, "app.example").build().unwrap());
    run_real(async {
        let client = client();
        let trusting = |name, authority: &Authority| {
            ClientTlsBuilder::new(name).roots(RootCertificates::Pem(authority.pem.as_bytes())).build().unwrap()
        };
        for (tls, reason) in [
            (trusting("app.example", &other), "no trusted authority has signed it"),
            (trusting("other.example", &authority), "it is for another name"),
        ] {
            let error = text_of(&client, &destination(address, tls, Protocol::Http1), b"").await.unwrap_err();
            assert_eq!(
                (error.phase, error.kind, error.retry),
                (ClientPhase::Tls, ClientErrorKind::Certificate(reason), RetrySafety::NotSent)
            );
        }
        let any = ClientTlsBuilder::new("other.example").verification(Verification::Skipped).build().unwrap();
        let text = text_of(&client, &destination(address, any, Protocol::Http1), b"").await.unwrap();
        assert_eq!(text, "http/1.1 other.example 0 ");
        assert!(ClientTlsBuilder::new("not a name").verification(Verification::Skipped).build().is_err());
        assert_eq!(client.connections(), 1);
    });
    stop(server);
}

#[test]
fn the_client_shows_its_certificate() {
    let authority = Authority::new("authority");
    let clients = ClientCertificates::from_pem(ClientAuth::Required, authority.pem.as_bytes()).unwrap();
    let (server, address) = start(host(&authority, "app.example").client_certificates(clients).build().unwrap());
    run_real(async {
        let client = client();
        let builder = ClientTlsBuilder::new("app.example").roots(RootCertificates::Pem(authority.pem.as_bytes()));
        let with = builder.clone().certificate(authority.certificate("client.example")).build().unwrap();
        let text = text_of(&client, &destination(address, with, Protocol::Http1), b"").await.unwrap();
        assert_eq!(text, "http/1.1 app.example 1 ");
        let without = destination(address, builder.build().unwrap(), Protocol::Http1);
        let error = text_of(&client, &without, b"").await.unwrap_err();
        assert_eq!(error.kind, ClientErrorKind::ClientCertificate("it requires one"));
        let unknown = Authority::new("unknown").certificate("client.example");
        let builder = ClientTlsBuilder::new("app.example").roots(RootCertificates::Pem(authority.pem.as_bytes()));
        let with_unknown = destination(address, builder.certificate(unknown).build().unwrap(), Protocol::Http1);
        let error = text_of(&client, &with_unknown, b"").await.unwrap_err();
        let text = "the upstream refused the client certificate: no authority that it trusts has signed it";
        assert_eq!(error.kind.to_string(), text);
    });
    stop(server);
}

#[test]
fn an_upstream_without_tls_is_named() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let tls = ClientTlsBuilder::new("app.example").verification(Verification::Skipped).build().unwrap();
        let to = Destination { tls: Some(Arc::new(tls)), ..upstream.destination() };
        let fetch = spawn_fetch(&client, &to, "GET");
        let mut peer = upstream.accept().await;
        peer.receive().await;
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let error = fetch.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "TLS handshake: handshake failed: the upstream does not use TLS");
    });
}
