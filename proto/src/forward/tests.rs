use super::*;
use crate::MessageLimits;
use crate::field::{Fields, InvalidField};
use crate::head::{RequestHead, Scheme, Version};
use crate::http1::parse_request;
use core::net::IpAddr;

/// Returns the lines that are forwarded of a request with these field lines.
fn forwarded_lines(lines: &str, rules: &RequestRules, trust: PeerTrust) -> String {
    let bytes = format!("GET / HTTP/1.1\r\nHost: a.example:81\r\n{}\r\n\r\n", lines.replace('\n', "\r\n"));
    let mut head = RequestHead::default();
    assert_eq!(parse_request(bytes.as_bytes(), &MessageLimits::default(), &mut head), Ok(true), "{lines}");
    let client = ClientInfo {
        address: Some(IpAddr::from([192, 0, 2, 9])),
        trust,
        scheme: Scheme::Https,
        origin: NamedOrigin::default(),
    };
    let mut out = Vec::new();
    forward_request(&head, bytes.as_bytes(), rules, client, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.is_empty() || text.ends_with("\r\n"));
    text.replace("\r\n", "\n").trim_end().to_owned()
}

fn rules(forwarded: ForwardedFields) -> RequestRules {
    RequestRules { forwarded, ..RequestRules::default() }
}

#[test]
fn fields_of_the_clients_connection_are_dropped() {
    for (received, expected) in [
        ("A: 1\nB: 2\na: 3", "a: 1\nb: 2\na: 3"),
        ("Connection: keep-alive\nKeep-Alive: 5\nA: 1", "a: 1"),
        ("Connection: close, X-Hop ,\nX-Hop: 1\nx-hop: 2\nA: 1", "a: 1"),
        ("Connection: x-one\nConnection: X-TWO\nX-One: 1\nx-two: 2\nA: 1", "a: 1"),
        ("Proxy-Connection: keep-alive\nProxy-Authorization: x\nTE: gzip\nUpgrade: h2c\nTrailer: x", "trailer: x"),
        ("Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: x\nA: 1", "a: 1"),
        ("Content-Length: 3\nContent-Type: x", "content-type: x"),
        ("Transfer-Encoding: chunked\nExpect: 100-continue\nProxy: http://evil.example/\nX-Request-Id: 1", ""),
        (
            "Connection: Host, Authorization, Cookie, Content-Type, Cache-Control, NamedOrigin\nAuthorization: a\n\
             Cookie: b\nContent-Type: c\nCache-Control: d\nOrigin: e",
            "authorization: a\ncookie: b\ncontent-type: c\ncache-control: d\norigin: e",
        ),
        ("X_Forwarded_For: 1\nx.y: 2\nX-Y: 3\nA_b: 4", "x-y: 3"),
        ("Date: x\nVia: 1.1 a", "date: x\nvia: 1.1 a"),
    ] {
        assert_eq!(
            forwarded_lines(received, &rules(ForwardedFields::None), PeerTrust::Untrusted),
            expected,
            "{received}"
        );
    }
}

#[test]
fn rules_drop_and_add_fields() {
    let keep = RequestRules { doubtful_names: DoubtfulNames::Forward, ..rules(ForwardedFields::None) };
    assert_eq!(forwarded_lines("A_b: 1\nc.d: 2", &keep, PeerTrust::Untrusted), "a_b: 1\nc.d: 2");
    let removed = RequestRules { removed: vec!["x-secret".into()], ..rules(ForwardedFields::None) };
    assert_eq!(forwarded_lines("X-Secret: 1\nA: 2", &removed, PeerTrust::Untrusted), "a: 2");
    let via = RequestRules { via: ViaField::Append, ..rules(ForwardedFields::None) };
    assert_eq!(forwarded_lines("Via: 1.0 a", &via, PeerTrust::Untrusted), "via: 1.0 a\nvia: 1.1 selvedge");
}

#[test]
fn the_client_is_replaced_or_appended() {
    use ForwardedFields::{Both, Forwarded, None, XForwarded};
    use PeerTrust::{Untrusted, XForwarded as Trusted};
    let own = "x-forwarded-for: 192.0.2.9\nx-forwarded-proto: https\nx-forwarded-host: a.example:81";
    let own_forwarded = "forwarded: for=192.0.2.9;host=\"a.example:81\";proto=https";
    let forged = "X-Forwarded-For: 1.1.1.1\nX-FORWARDED-PROTO: http\nX-Forwarded-Host: evil\nForwarded: for=1.1.1.1\n\
                  X-Forwarded-Port: 1\nX-Real-IP: 1.1.1.1\nConnection: X-Forwarded-For, Forwarded";
    for (received, fields, trust, expected) in [
        ("A: b", XForwarded, Untrusted, format!("a: b\n{own}")),
        (forged, XForwarded, Untrusted, own.to_owned()),
        (forged, Forwarded, Untrusted, own_forwarded.to_owned()),
        (forged, Both, Untrusted, format!("{own}\n{own_forwarded}")),
        (forged, None, Untrusted, String::new()),
        (forged, None, Trusted, String::new()),
        ("A: b", XForwarded, Trusted, format!("a: b\n{own}")),
        (
            forged,
            XForwarded,
            Trusted,
            "x-forwarded-proto: http\nx-forwarded-host: evil\nx-forwarded-port: 1\nx-real-ip: 1.1.1.1\n\
             x-forwarded-for: 1.1.1.1, 192.0.2.9"
                .to_owned(),
        ),
        (forged, Forwarded, PeerTrust::Forwarded, own_forwarded.replace("for=192", "for=1.1.1.1, for=192")),
        // The client has written the fields of the other family.
        (forged, XForwarded, PeerTrust::Forwarded, own.to_owned()),
        (forged, Forwarded, Trusted, own_forwarded.to_owned()),
        (
            "X-Forwarded-For: 1.1.1.1,2.2.2.2\nX-Forwarded-For:\nx-forwarded-for: 3.3.3.3",
            XForwarded,
            Trusted,
            own.replace("192.0.2.9", "1.1.1.1,2.2.2.2, 3.3.3.3, 192.0.2.9"),
        ),
        (
            "Forwarded: for=\"_a,b\"\nForwarded: for=2.2.2.2",
            Forwarded,
            PeerTrust::Forwarded,
            own_forwarded.replace("for=192", "for=\"_a,b\", for=2.2.2.2, for=192"),
        ),
        ("X-Forwarded-For:\nForwarded:", Both, Trusted, format!("{own}\n{own_forwarded}")),
    ] {
        assert_eq!(forwarded_lines(received, &rules(fields), trust), expected, "{received} {fields:?} {trust:?}");
    }
}

#[test]
fn addresses_and_hosts_have_the_form_of_their_fields() {
    let forward = |line: &str, address: Option<IpAddr>, trust| {
        let bytes = format!("GET / HTTP/1.1\r\n{line}\r\n\r\n");
        let mut head = RequestHead::default();
        assert_eq!(parse_request(bytes.as_bytes(), &MessageLimits::default(), &mut head), Ok(true));
        let mut out = Vec::new();
        let client = ClientInfo { address, trust, scheme: Scheme::Http, origin: NamedOrigin::default() };
        forward_request(&head, bytes.as_bytes(), &rules(ForwardedFields::Both), client, &mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "\n")
    };
    assert_eq!(
        forward("Host: [::1]:8", Some("2001:db8::1".parse().unwrap()), PeerTrust::Untrusted),
        "x-forwarded-for: 2001:db8::1\nx-forwarded-proto: http\nx-forwarded-host: [::1]:8\n\
         forwarded: for=\"[2001:db8::1]\";host=\"[::1]:8\";proto=http\n"
    );
    assert_eq!(
        forward("Host: a.example", None, PeerTrust::Untrusted),
        "x-forwarded-proto: http\nx-forwarded-host: a.example\nforwarded: for=unknown;host=a.example;proto=http\n"
    );
    assert_eq!(
        forward("Host: a\r\nX-Forwarded-For: 1.1.1.1", None, PeerTrust::XForwarded),
        "x-forwarded-for: 1.1.1.1\nx-forwarded-proto: http\nx-forwarded-host: a\nforwarded: for=unknown;host=a;proto=http\n"
    );
}

#[test]
fn what_a_trusted_peer_states_is_written_in_the_other_family() {
    let forward = |fields, trust, origin| {
        let bytes = "GET / HTTP/1.1\r\nHost: inner\r\nForwarded: for=1.1.1.1\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n";
        let mut head = RequestHead::default();
        assert_eq!(parse_request(bytes.as_bytes(), &MessageLimits::default(), &mut head), Ok(true));
        let address = Some(IpAddr::from([192, 0, 2, 9]));
        let client = ClientInfo { address, trust, scheme: Scheme::Http, origin };
        let mut out = Vec::new();
        forward_request(&head, bytes.as_bytes(), &rules(fields), client, &mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "\n")
    };
    let host = Some(&b"pub.example"[..]);
    let origin = NamedOrigin { client: Some(IpAddr::from([9, 9, 9, 9])), scheme: Some(Scheme::Https), host };
    assert_eq!(
        forward(ForwardedFields::XForwarded, PeerTrust::Forwarded, origin),
        "x-forwarded-for: 9.9.9.9, 192.0.2.9\nx-forwarded-proto: https\nx-forwarded-host: pub.example\n"
    );
    assert_eq!(
        forward(ForwardedFields::Forwarded, PeerTrust::XForwarded, origin),
        "forwarded: for=9.9.9.9;host=pub.example;proto=https, for=192.0.2.9;host=inner;proto=http\n"
    );
    let nameless = NamedOrigin { client: Some(IpAddr::from([0; 4])), ..NamedOrigin::default() };
    assert_eq!(
        forward(ForwardedFields::XForwarded, PeerTrust::Forwarded, nameless),
        "x-forwarded-for: unknown, 192.0.2.9\nx-forwarded-proto: http\nx-forwarded-host: inner\n"
    );
    assert_eq!(
        forward(ForwardedFields::Forwarded, PeerTrust::XForwarded, nameless),
        "forwarded: for=unknown;host=inner;proto=http, for=192.0.2.9;host=inner;proto=http\n"
    );
    assert_eq!(
        forward(ForwardedFields::Forwarded, PeerTrust::XForwarded, NamedOrigin { client: None, ..origin }),
        "forwarded: for=192.0.2.9;host=pub.example;proto=https\n"
    );
    assert_eq!(
        forward(ForwardedFields::Forwarded, PeerTrust::Untrusted, origin),
        "forwarded: for=192.0.2.9;host=inner;proto=http\n"
    );
}

#[test]
fn trailers_never_have_the_names_of_the_gateways_fields() {
    let mut trailers = Fields::new();
    for name in [
        "x-checksum",
        "grpc-status",
        "X-Forwarded-For",
        "forwarded",
        "x-real-ip",
        "x_checksum",
        "a.b",
        "proxy",
        "expect",
        "X-Request-Id",
        "X-Set",
    ] {
        trailers.append(name, "1").unwrap();
    }
    let forwarded = forward_request_trailers(&trailers, &["x-set".into()]);
    assert_eq!(forwarded.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["x-checksum", "grpc-status"]);
}

#[test]
fn trailers_are_accepted_if_te_names_them() {
    for (line, expected) in [
        ("TE: trailers", TeTrailers::Accepted),
        ("te: gzip;q=0.5, Trailers", TeTrailers::Accepted),
        ("TE: gzip", TeTrailers::Absent),
        ("X: trailers", TeTrailers::Absent),
    ] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
        let mut head = RequestHead::default();
        assert_eq!(parse_request(bytes.as_bytes(), &MessageLimits::default(), &mut head), Ok(true));
        let client = ClientInfo {
            address: None,
            trust: PeerTrust::Untrusted,
            scheme: Scheme::Http,
            origin: NamedOrigin::default(),
        };
        let forwarded =
            forward_request(&head, bytes.as_bytes(), &rules(ForwardedFields::None), client, &mut Vec::new());
        assert_eq!(forwarded.te, expected, "{line}");
    }
}

#[test]
fn fields_of_the_upstreams_connection_are_dropped() {
    let forward = |received: &[(&str, &str)]| {
        let mut out = Fields::new();
        let bytes = received.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let result = forward_response(bytes, &mut out);
        (result, String::from_utf8(out.lines().to_vec()).unwrap())
    };
    let received = [
        ("Date", "x"),
        ("Server", "x"),
        ("Connection", "X-Hop, Set-Cookie, keep-alive"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Content-Length", "5"),
        ("Content-Type", "text/html"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("Set-Cookie", "a=b"),
        ("SET-cookie", "c=d"),
        ("Proxy-Authenticate", "Basic"),
        ("Trailer", "x"),
        ("X_y.z", "e"),
    ];
    let expected = "content-type: text/html\r\nset-cookie: a=b\r\nset-cookie: c=d\r\ntrailer: x\r\nx_y.z: e\r\n";
    assert_eq!(forward(&received), (Ok(()), expected.to_owned()));
    let dated = [("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Server", "x")];
    assert_eq!(forward(&dated), (Ok(()), "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned()));
    assert_eq!(forward(&[("Date", "a\nb")]).0, Err(InvalidField::Value));
    assert_eq!(forward(&[("A", "1"), ("B", "2\r\nC: 3")]), (Err(InvalidField::Value), "a: 1\r\n".to_owned()));
    assert_eq!(forward(&[("A b", "1")]), (Err(InvalidField::Name), String::new()));
    assert_eq!(via_value(Version::Http10), "1.0 selvedge");
}
