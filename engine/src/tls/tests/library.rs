//! What programs give a server: files, objects and a resolver of the TLS library; and what their applications learn.

use super::client::get;
use super::*;
use crate::service::TlsInfo;
use axum::extract::Extension;
use axum::routing;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};
use std::fs;

const NAME: &str = "a.test";

fn client(authority: &Authority) -> Arc<ClientConfig> {
    let (chain, key) = authority.client_certificate("alice");
    let builder = ClientConfig::builder_with_provider(super::super::host::provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(authority.store());
    let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
    let mut config =
        builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

#[test]
fn files_objects_and_resolvers_of_the_tls_library_are_used() {
    let authority = Authority::new();
    let (chain, key) = authority.sign(&[NAME], &KeyPair::generate().unwrap());
    let paths = ["chain", "key"]
        .map(|ending| std::env::temp_dir().join(format!("selvedge-tls-{}.{ending}", std::process::id())));
    fs::write(&paths[0], &chain).unwrap();
    fs::write(&paths[1], &key).unwrap();
    let from_files = Tls::from_files(&paths[0], &paths[1]).unwrap();
    assert!(Tls::from_files(&paths[1], &paths[0]).is_err(), "a key is no chain");
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());

    let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(super::super::host::provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap().with_no_client_auth();
    let from_rustls = Tls::from_rustls(builder.with_single_cert(chain.clone(), key.clone_key()).unwrap());

    let certified = CertifiedKey::new(chain, any_supported_type(&key).unwrap());
    let from_resolver = Tls::from_resolver(Arc::new(SingleCertAndKey::from(certified))).unwrap();
    for (tls, version) in [(from_files, "TLSv1.3"), (from_rustls, "TLSv1.2"), (from_resolver, "TLSv1.3")] {
        with_servers(&tls, |address| {
            let text = get(address, NAME, &client(&authority), "/tls").unwrap();
            assert!(text.starts_with(version), "{text}");
        });
    }
}

#[test]
fn applications_learn_about_tls_by_an_extension() {
    let authority = Authority::new();
    let clients = client_certificates(&authority, ClientAuth::Required);
    let certificates = Certificates::new(vec![authority.certificate(&[NAME])]);
    let host = TlsHost::builder().certificates(certificates).client_certificates(clients).build().unwrap();
    let describe = async |Extension(tls): Extension<TlsInfo>| {
        let protocol = tls.protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        let (subject, certificates) = (tls.peer_subject(), tls.peer_certificates().len());
        format!(
            "{} {} {:?} {protocol:?} {subject:?} {certificates}",
            tls.version(),
            tls.cipher_suite(),
            tls.server_name()
        )
    };
    let app = axum::Router::new().route("/", routing::get(describe));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = crate::serve(listener, app).workers(1).tls(Tls::new(host)).start().unwrap();
    let text = get(address, NAME, &client(&authority), "/").unwrap();
    let expected = r#"TLSv1.3 TLS13_AES_256_GCM_SHA384 Some("a.test") Some("http/1.1") Some("CN=alice") 1"#;
    assert_eq!(text, expected);
    stop(server);
}
