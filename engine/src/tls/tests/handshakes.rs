//! Handshakes: names, versions, client certificates, resumption, invalid ones.

use super::client::{connect, get};
use super::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const BOTH: &[&SupportedProtocolVersion] = rustls::ALL_VERSIONS;

/// Makes the configuration of a client, perhaps with a certificate of its own.
fn client(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    own: Option<&(String, String)>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(authority.store());
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

#[test]
fn a_handshake_agrees_on_the_best_of_both() {
    let authority = Authority::new();
    with_servers(&Tls::new(host(&authority, &["a.test"], 7)), |address| {
        let text = |versions| get(address, "a.test", &client(&authority, versions, None), "/tls").unwrap();
        let expected = r#"TLSv1.3 Some("a.test") X25519MLKEM768 resumed=false tag=7 client=0"#;
        assert_eq!(text(BOTH), expected);
        let expected = r#"TLSv1.2 Some("a.test") X25519 resumed=false tag=7 client=0"#;
        assert_eq!(text(&[&rustls::version::TLS12]), expected);
    });
}

#[test]
fn the_handshake_chooses_the_protocol() {
    let authority = Authority::new();
    with_servers(&Tls::new(host(&authority, &["a.test"], 0)), |address| {
        for (offered, expected) in [
            (&[&b"http/1.1"[..], b"h2"][..], Some(&b"h2"[..])),
            (&[b"h2"], Some(b"h2")),
            (&[b"http/1.1"], Some(b"http/1.1")),
            (&[], None),
        ] {
            let mut config = Arc::unwrap_or_clone(client(&authority, BOTH, None));
            config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
            let mut client = connect(address, "a.test", &Arc::new(config));
            client.run_until(|client| !client.tls.is_handshaking()).unwrap();
            assert_eq!(client.tls.alpn_protocol(), expected);
        }
    });
}

#[test]
fn the_name_chooses_the_host() {
    let authority = Authority::new();
    let named = |name: &str, tag| (name.to_owned(), Arc::new(host(&authority, &[name], tag)));
    let tls = Tls::by_name([named("a.test", 1), named("*.b.test", 2)], None);
    with_servers(&tls, |address| {
        let config = client(&authority, BOTH, None);
        let tag = |name| get(address, name, &config, "/tls").map(|text| text.contains("tag=1") as u32);
        assert_eq!(tag("a.test").unwrap(), 1);
        assert_eq!(tag("A.TEST").unwrap(), 1);
        assert_eq!(tag("x.b.test").unwrap(), 0);
        for unknown in ["b.test", "x.y.b.test", "c.test"] {
            let error = tag(unknown).unwrap_err().to_string();
            assert!(error.contains("UnrecognisedName") || error.contains("UnrecognizedName"), "{unknown}: {error}");
        }
    });
    let with_other = Tls::by_name([named("a.test", 1)], Some(Arc::new(host(&authority, &["c.test"], 3))));
    with_servers(&with_other, |address| {
        let text = get(address, "c.test", &client(&authority, BOTH, None), "/tls").unwrap();
        assert!(text.contains("tag=3"), "{text}");
    });
}

#[test]
fn sessions_are_resumed_at_their_host_only() {
    let authority = Authority::new();
    let named = |name: &str, tag| (name.to_owned(), Arc::new(host(&authority, &[name], tag)));
    let tls = Tls::by_name([named("a.test", 1), named("b.test", 2)], None);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let config = client(&authority, versions, None);
        // One client, and a server that is started again: the keys belong to the process.
        for (driver, expected) in [(Driver::Epoll, false), (Driver::IoUring, true)] {
            let server = start(driver, tls.clone());
            let text = get(server.addresses()[0], "a.test", &config, "/tls").unwrap();
            assert!(text.contains(&format!("resumed={expected}")), "{text}");
            stop(server);
        }
    }
}

#[test]
fn client_certificates_are_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (own, foreign) = (authority.client_certificate("alice"), other.client_certificate("mallory"));
    for auth in [ClientAuth::Required, ClientAuth::Optional] {
        let certificates = Certificates::new(vec![authority.certificate(&["a.test"])]);
        let host = TlsHost::builder()
            .certificates(certificates)
            .client_certificates(client_certificates(&authority, auth))
            .build();
        with_servers(&Tls::new(host.unwrap()), |address| {
            for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
                let request = |own| get(address, "a.test", &client(&authority, &[version], own), "/tls");
                assert!(request(Some(&own)).unwrap().ends_with("client=1CN=alice"));
                assert!(request(Some(&foreign)).is_err());
                match auth {
                    ClientAuth::Required => assert!(request(None).is_err()),
                    ClientAuth::Optional => assert!(request(None).unwrap().contains("client=0")),
                }
            }
        });
    }
}

#[test]
fn replaced_certificates_are_used_by_the_next_handshake() {
    let (authority, next) = (Authority::new(), Authority::new());
    let certificates = Certificates::new(vec![authority.certificate(&["a.test"])]);
    let tls = Tls::new(TlsHost::builder().certificates(certificates.clone()).build().unwrap());
    let server = start(Driver::Auto, tls);
    let request = |authority| get(server.addresses()[0], "a.test", &client(authority, BOTH, None), "/tls");
    assert!(request(&authority).is_ok());
    certificates.replace(vec![next.certificate(&["a.test"])]);
    assert!(request(&authority).is_err());
    assert!(request(&next).is_ok());
    stop(server);
}

#[test]
fn a_validation_by_a_certificate_authority_has_its_own_host() {
    #[derive(Clone)]
    struct Challenge(Arc<TlsHost>, Arc<TlsHost>);
    impl super::super::SelectHost for Challenge {
        fn select(&self, offer: &super::super::ClientOffer<'_>) -> Option<Arc<TlsHost>> {
            Some(if offer.is_acme_challenge { self.1.clone() } else { self.0.clone() })
        }
    }
    let authority = Authority::new();
    let certificates = Certificates::new(vec![authority.certificate(&["challenge.test"])]);
    let challenge = TlsHost::builder().certificates(certificates).for_acme_challenge().build().unwrap();
    let tls = Tls::selecting(Challenge(Arc::new(host(&authority, &["a.test"], 0)), Arc::new(challenge)));
    with_servers(&tls, |address| {
        let mut config = (*client(&authority, BOTH, None)).clone();
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let mut client = connect(address, "challenge.test", &Arc::new(config));
        client.run_until(|client| !client.tls.is_handshaking()).unwrap();
        assert_eq!(client.tls.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    });
}

#[test]
fn bytes_that_are_no_handshake_end_the_connection() {
    let authority = Authority::new();
    let hello = |length: usize| {
        let mut record = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        record.resize(length, 0);
        record
    };
    // No protocol, a record of an unknown type, a version that does not exist, and a message that never ends.
    let rows: [Vec<u8>; 4] =
        [vec![0; 64], vec![0x99, 3, 1, 0, 1, 0], vec![0x16, 9, 9, 0, 1, 0], hello(5 + 0x4000).repeat(6)];
    with_servers(&Tls::new(host(&authority, &["a.test"], 0)), |address| {
        for row in &rows {
            for piece in [1, row.len()] {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                if row.len() / piece < 1000 {
                    // The server may end the connection before it has read everything.
                    let _ = row.chunks(piece).try_for_each(|piece| stream.write_all(piece));
                    let mut received = Vec::new();
                    let ended = stream.read_to_end(&mut received);
                    let is_reset =
                        ended.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
                    assert!(ended.is_ok() || is_reset, "{:?}: {ended:?}", &row[..5]);
                    assert!(received.len() <= 7, "at most an alert");
                }
            }
        }
    });
}
