//! HTTP over TLS: raw cases, long content, upgrades, files, plain clients.

use super::client::{End, connect, exchange};
use super::*;
use crate::limits::LONG_BUFFER_BYTES;
use crate::server::tests::{self as plain, ClientKind, pattern, without_dates};
use rustls::ClientConfig;
use selvedge_cases::load_cases;
use std::io::Write;

const NAME: &str = "www.example.com";

fn config(authority: &Authority) -> Arc<ClientConfig> {
    let versions = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let versions = versions.with_safe_default_protocol_versions().unwrap();
    Arc::new(versions.with_root_certificates(authority.store()).with_no_client_auth())
}

/// Sends bytes on a plain connection. Returns what the server sends until its end.
fn exchange_plain(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    plain::exchange(address, sent.to_vec(), ClientKind::Plain)
}

#[test]
fn case_rows_get_equal_responses_over_tls() {
    let authority = Authority::new();
    let (tls, config) = (Tls::new(host(&authority, &[NAME], 0)), config(&authority));
    let cases = load_cases();
    for driver in DRIVERS {
        let plain = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().driver(driver).serve(respond).unwrap();
        let encrypted = start(driver, tls.clone());
        for case in cases.iter().filter(|case| !case.raw.is_empty()) {
            let expected = without_dates(&exchange_plain(plain.addresses()[0], &case.raw));
            let (received, end) = exchange(encrypted.addresses()[0], NAME, &config, &case.raw).unwrap();
            let received = without_dates(&received);
            assert_eq!(received.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{}", case.name);
            assert_eq!(end, End::Closed, "{}", case.name);
        }
        stop(plain);
        stop(encrypted);
    }
}

#[test]
fn long_content_passes_in_both_directions() {
    let authority = Authority::new();
    let (tls, config) = (Tls::new(host(&authority, &[NAME], 0)), config(&authority));
    let content = pattern(LONG_BUFFER_BYTES * 20 + 1);
    let head =
        format!("POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", content.len());
    let upload = [head.as_bytes(), &content].concat();
    with_servers(&tls, |address| {
        let (received, end) = exchange(address, NAME, &config, &upload).unwrap();
        assert!(received.ends_with(&content), "{} bytes", received.len());
        assert_eq!(end, End::Closed);
    });
}

#[test]
fn an_upgraded_connection_stays_encrypted() {
    let authority = Authority::new();
    let (tls, config) = (Tls::new(host(&authority, &[NAME], 0)), config(&authority));
    let request = b"GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: greeting\r\n\r\n";
    with_servers(&tls, |address| {
        let mut client = connect(address, NAME, &config);
        client.tls.writer().write_all(request).unwrap();
        client.run_until(|_| false).unwrap();
        assert!(client.received.starts_with(b"HTTP/1.1 101 ") && client.received.ends_with(b"hello"));
        assert_eq!(client.end, Some(End::Closed));
    });
}

#[test]
fn a_plain_request_gets_a_plain_response_that_names_https() {
    let authority = Authority::new();
    with_servers(&Tls::new(host(&authority, &[NAME], 0)), |address| {
        let received = exchange_plain(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let text = String::from_utf8(received).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("https://"), "{text}");
        let (head, content) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", content.len())), "{head}");
    });
}

#[test]
fn only_chosen_listeners_have_tls() {
    let authority = Authority::new();
    let config = config(&authority);
    let listeners = [(); 2].map(|()| crate::Listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap());
    let endpoint = listeners[1].endpoint().clone();
    let server =
        Server::from_listeners(listeners.into(), 1).tls(Tls::new(host(&authority, &[NAME], 0)).only_at([endpoint]));
    let server = server.serve(respond).unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(exchange_plain(server.addresses()[0], request).starts_with(b"HTTP/1.1 200 "));
    assert!(exchange(server.addresses()[1], NAME, &config, request).unwrap().0.starts_with(b"HTTP/1.1 200 "));
    stop(server);
}
