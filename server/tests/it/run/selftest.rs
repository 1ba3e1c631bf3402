//! `selvedge selftest`: against the program itself, against a server that withstands nothing, and at foreign addresses.

use crate::support::configured::Folder;
use crate::support::program::{Exit, run_to_exit, selvedge_command};
use crate::support::tls::Authority;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const LIMITS: &str = "workers 2\nlimits {\n    header-timeout \"1s\"\n    body-timeout \"1s\"\n    send-timeout \"1s\"\n    \
    http2-settings-timeout \"1s\"\n}\n";

/// Makes a folder whose configuration has short time limits. The root of its site has an index of 64 KiB.
fn folder(listen: &str, site: &str) -> Folder {
    let folder = Folder::new("");
    folder.write("selvedge.kdl", &format!("{listen}\n{LIMITS}{site}"));
    folder.write("root/index.html", &"content\n".repeat(8192));
    folder
}

/// Attacks a URL, with these arguments.
fn selftest(url: &str, arguments: &[&str]) -> Exit {
    let folder = Folder::new("");
    run_to_exit(selvedge_command().current_dir(folder.path("")).args(["selftest", url]).args(arguments))
}

/// Returns verdict and observation of each attack by its name.
fn results(report: &Value) -> BTreeMap<&str, (&str, &str)> {
    let attacks = report["attacks"].as_array().expect("a list");
    let text = |attack: &'_ Value, key: &str| attack[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    for attack in attacks {
        assert!(["area", "sends", "expects", "limit"].iter().all(|key| text(attack, key).is_some()), "{attack}");
    }
    let result = |attack| {
        let attack: &Value = attack;
        let [name, verdict, seen] = ["name", "verdict", "seen"].map(|key| attack[key].as_str().expect("a text"));
        (name, (verdict, seen))
    };
    attacks.iter().map(result).collect()
}

fn json(exit: &Exit) -> Value {
    serde_json::from_str(&exit.out).unwrap_or_else(|error| panic!("{error}: {exit:?}"))
}

#[test]
fn the_program_withstands_all_attacks_without_tls() {
    let folder = folder("listen \"127.0.0.1:0\" http2=#true", "site \"*\" { root \"root\"; }\n");
    let program = folder.serve();
    let control = folder.path("selvedge.sock").display().to_string();
    let exit = selftest(&format!("http://{}/", program.address()), &["--control", &control, "--json"]);
    let report = json(&exit);
    assert_eq!((exit.code, exit.err.as_str(), &report["failed"]), (Some(0), "", &Value::from(0)), "{exit:?}");
    for (name, (verdict, seen)) in results(&report) {
        let is_tls = report["attacks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|attack| attack["name"] == name && (attack["area"] == "tls" || name.starts_with("tls-")));
        assert_eq!(verdict, if is_tls { "not-applicable" } else { "held" }, "{name}: {seen}");
    }
    let results = results(&report);
    assert_eq!(results["two-framings"].1, "3 times 400 and close");
    assert_eq!(results["long-target"].1, "414 and close");
    assert_eq!(results["rapid-reset"].1, "GOAWAY ENHANCE_YOUR_CALM");
    assert!(results["slow-head"].1.starts_with("408 and close after "), "{results:?}");
    assert!(results["slow-head"].1.ends_with(", limit 1.0 s"), "{results:?}");
    assert!(results["http2-settings"].1.starts_with("GOAWAY SETTINGS_TIMEOUT after "), "{results:?}");
    assert!(report["counted"]["ContentLengthWithTransferEncoding"].as_u64() >= Some(3), "{report}");
    program.stop();
}

#[test]
fn the_program_withstands_all_attacks_with_tls() {
    let authority = Authority::new();
    let site = "site \"localhost\" { certificate \"localhost.pem\"; root \"root\"; }\n";
    // The program reports a plain listener as ready.
    let folder = folder("listen \"127.0.0.2:0\"\nlisten \"127.0.0.1:0\" tls=#true", site);
    let (chain, key) = authority.certificate(&["localhost"]);
    folder.write("localhost.pem", &(chain + &key));
    let program = folder.serve();
    let control = folder.path("selvedge.sock").display().to_string();
    let exit = selftest(&format!("https://localhost:{}/", program.https_address().port()), &["--control", &control]);
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    let lines: Vec<_> = exit.out.lines().collect();
    let end = lines.iter().find(|line| line.contains(" failed, ")).expect("a line with the counts");
    assert!(end.contains(" held, 0 failed, 0 not applicable, in "), "{}", exit.out);
    let line = |name: &str| *lines.iter().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{}", exit.out));
    assert!(line("tls/plain-request").contains(" 400 and close "), "{}", exit.out);
    assert!(line("tls/old-versions").contains(" alert 70 and close "), "{}", exit.out);
    assert!(line("tls/unknown-name").contains("UnrecognisedName"), "{}", exit.out);
    assert!(line("slow-clients/tls-half-hello").ends_with("[header-timeout]"), "{}", exit.out);
    program.stop();
}

#[test]
fn a_server_that_responds_before_the_content_withstands_all_attacks() {
    let authority = Authority::new();
    let listen = "listen \"127.0.0.2:0\" http2=#true\nlisten \"127.0.0.1:0\" tls=#true";
    // Requests without TLS are redirected.
    let folder = folder(listen, "site \"127.0.0.2\" { certificate \"a.pem\"; root \"root\"; }\n");
    let (chain, key) = authority.certificate(&["127.0.0.2"]);
    folder.write("a.pem", &(chain + &key));
    let program = folder.serve();
    let control = folder.path("selvedge.sock").display().to_string();
    let exit = selftest(&format!("http://{}/", program.address()), &["--control", &control, "--json"]);
    let report = json(&exit);
    assert_eq!((exit.code, exit.err.as_str(), &report["failed"]), (Some(0), "", &Value::from(0)), "{exit:?}");
    let seen = results(&report)["malformed-heads"].1.to_owned();
    assert!(seen.contains("status 308 before the content"), "{seen}");
    assert_eq!(results(&report)["long-method"].1, "501 and close");
    assert_eq!(report["counted"]["MethodTooLong"], 1, "{report}");
    program.stop();
}

/// Starts a server that responds once for each connection, until the end of the test. The first request for `/x` and then
/// every third gets 200, and others 503.
fn overloaded_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let usual_requests = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let usual_requests = usual_requests.clone();
            thread::spawn(move || {
                let lines = BufReader::new(&client).lines().map_while(Result::ok);
                let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                let is_usual = head.first().is_some_and(|line| line == "GET /x HTTP/1.1");
                let is_accepted = is_usual && usual_requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
                let status = if is_accepted { "200 OK" } else { "503 Service Unavailable" };
                write!(&client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            });
        }
    });
    address
}

#[test]
fn a_usual_request_with_another_status_is_repeated() {
    let exit = selftest(&format!("http://{}/x", overloaded_server()), &["--json", "--seconds", "4"]);
    let report = json(&exit);
    for (name, (_, seen)) in results(&report) {
        assert!(!seen.contains("a usual request") && !seen.contains("in place of"), "{name}: {seen}");
    }
    assert_eq!(results(&report)["usual-requests"].0, "held", "{report}");
}

/// Serves a client that may do anything: the first length counts, and nothing ends a connection but its client.
fn withstand_nothing(client: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        (&client).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
}

/// Starts a server that withstands nothing, until the end of the test.
fn bad_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || withstand_nothing(client));
        }
    });
    address
}

#[test]
fn a_server_that_withstands_nothing_fails() {
    let exit = selftest(&format!("http://{}/x", bad_server()), &["--json", "--seconds", "4"]);
    assert_eq!((exit.code, exit.err.as_str()), (Some(1), ""), "{exit:?}");
    let report = json(&exit);
    let results = results(&report);
    for name in ["two-framings", "two-lengths", "silent", "slow-head", "stalled-content", "unread-responses"] {
        assert_eq!(results[name].0, "failed", "{name}: {results:?}");
    }
    assert!(results["two-framings"].1.starts_with("200"), "{results:?}");
    // What was sent is shown, not its template.
    assert!(results["host"].1.contains(", for \"GET /x HTTP/1.1"), "{results:?}");
    assert!(!exit.out.contains("%PATH%") && !exit.out.contains("%HOST%"), "{results:?}");
    assert!(results["slow-head"].1.starts_with("still open after "), "{results:?}");
    assert_eq!(results["rapid-reset"].0, "not-applicable", "{results:?}");
    assert!(results["rapid-reset"].1.starts_with("not run: "), "{results:?}");
    assert_eq!((&report["counted"], results["usual-requests"].0), (&Value::Null, "held"));
    // A client that reads no responses takes no more time than the others.
    assert!(report["milliseconds"].as_u64() < Some(5_900), "{report}");
    // The text has what was sent and expected.
    let exit = selftest(&format!("http://{}/x", bad_server()), &["--seconds", "4"]);
    assert_eq!(exit.code, Some(1), "{exit:?}");
    let failure = exit.out.split_once("FAILED         framing/two-framings ").expect("it is reported").1;
    let mut lines = failure.lines().skip(1).map(str::trim);
    assert_eq!(lines.next(), Some("sent: Content-Length and Transfer-Encoding in one request"));
    assert!(lines.next().is_some_and(|line| line.starts_with("expected: 400 and close")), "{}", exit.out);
}

#[test]
fn a_foreign_address_is_refused_unless_its_owner_consents() {
    // The running server does not listen there.
    let folder = folder("listen \"127.0.0.1:0\"", "site \"*\" { root \"root\"; }\n");
    let program = folder.serve();
    let control = folder.path("selvedge.sock").display().to_string();
    // An address for documentation, which is never connected to.
    let url = "http://192.0.2.1:9/";
    for (arguments, why) in [
        (&["--control", &control][..], format!("the running server listens on {}", program.address())),
        (&[], "no running server is known: ".to_owned()),
    ] {
        let exit = selftest(url, arguments);
        assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""), "{exit:?}");
        let begin = "selvedge: 192.0.2.1:9 is neither of loopback nor an address of this machine";
        assert!(exit.err.starts_with(begin) && exit.err.contains(&why), "{exit:?}");
        assert!(exit.err.ends_with("repeat the command with --i-own-this-host\n"), "{exit:?}");
    }
    program.stop();
}

#[test]
fn a_server_without_a_usual_response_is_not_attacked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let exit = selftest(&format!("http://{address}/"), &[]);
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""), "{exit:?}");
    assert!(exit.err.starts_with(&format!("selvedge: cannot connect to {address}: ")), "{exit:?}");
    let exit = selftest("ftp://localhost/", &[]);
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.contains("its scheme is neither http nor https"), "{exit:?}");
}
