//! Sites over TLS: certificates, redirects, sessions, client certificates.

use super::process::{child_of, serving};
use crate::support::configured::{Folder, get};
use crate::support::program::{Process, Program, run_to_exit, selvedge_command};
use crate::support::tls::{Authority, TlsClient, TlsResponse};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use rustix::process::{Signal, kill_process};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const LISTEN: &str = "listen \"127.0.0.2:0\" tls=#true\nlog { error \"error.log\" level=\"info\"; }\n";

/// Writes a certificate of an authority for a name as `NAME.pem`, with its key.
fn write_certificate(folder: &Folder, authority: &Authority, name: &str) {
    let (chain, key) = authority.certificate(&[name]);
    // Renamed, so that the program never reads a part of it.
    folder.write("new.pem", &(chain + &key));
    fs::rename(folder.path("new.pem"), folder.path(&format!("{name}.pem"))).expect("both names are in one folder");
}

/// Creates a folder with a certificate for each of these names.
fn folder(authority: &Authority, names: &[&str], text: &str) -> Folder {
    let folder = Folder::new(&format!("{LISTEN}{text}"));
    names.iter().for_each(|name| write_certificate(&folder, authority, name));
    folder
}

fn site(name: &str, more: &str) -> String {
    format!(
        "site \"{name}\" {{ certificate \"{name}.pem\"; {more} route \"/*\" {{ respond 200 \"{name} {{scheme}}\"; }}; }}\n"
    )
}

fn get_from(program: &Program, client: &TlsClient, name: &str) -> TlsResponse {
    client.get(program.https_address(), (name, name), "/x").expect("the server responds")
}

#[test]
fn names_choose_certificates_and_plain_requests_are_redirected() {
    let authority = Authority::new();
    let text = site("a.test", "hsts subdomains=#true;") + &site("b.test", "https-redirect #false;");
    let folder = folder(&authority, &["a.test", "b.test"], &text);
    let (program, client) = (folder.serve(), TlsClient::new(&authority));
    let https = program.https_address();
    let response = get_from(&program, &client, "a.test").text;
    assert!(response.ends_with("a.test https"), "{response}");
    assert!(response.contains("\r\nstrict-transport-security: max-age=31536000; includeSubDomains\r\n"), "{response}");
    let response = get_from(&program, &client, "b.test").text;
    assert!(response.ends_with("b.test https") && !response.contains("strict-transport"), "{response}");

    let redirect = get(&program, "a.test:81", "/x?y=%20");
    let expected = format!("https://a.test:{}/x?y=%20", https.port());
    assert_eq!((redirect.status, redirect.field("location")), (308, Some(expected.as_str())));
    assert_eq!(redirect.field("strict-transport-security"), None);
    assert_eq!(get(&program, "b.test", "/").text(), "b.test http");

    // A connection is for the site of its handshake.
    let response = client.get(https, ("a.test", "b.test"), "/").expect("the server responds").text;
    assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
    let refused = client.get(https, ("c.test", "a.test"), "/").err().expect("no site has the name").to_string();
    assert!(refused.contains("UnrecognisedName"), "{refused}");
    wait_until("the refusal is logged", || {
        folder.lines("error.log").iter().any(|line| line.contains("UnknownServerName")).then_some(())
    });
}

#[test]
fn sites_with_one_certificate_share_connections() {
    let authority = Authority::new();
    let site = |name| {
        format!("site \"{name}\" {{ certificate \"a.test.pem\"; route \"/*\" {{ respond 200 \"{name}\"; }}; }}\n")
    };
    let folder = folder(&authority, &["a.test"], &(site("a.test") + &site("b.test")));
    let (program, client) = (folder.serve(), TlsClient::new(&authority));
    let response = client.get(program.https_address(), ("a.test", "b.test"), "/").expect("the server responds");
    assert!(response.text.ends_with("\r\n\r\nb.test"), "{}", response.text);
}

#[test]
fn a_changed_certificate_is_used_and_an_invalid_one_is_not() {
    let authority = Authority::new();
    let folder = folder(&authority, &["a.test"], &site("a.test", ""));
    let program = folder.serve();
    // A client that resumes a session gets no certificate.
    let certificate = || get_from(&program, &TlsClient::new(&authority), "a.test").certificate;
    let first = certificate();
    folder.write("a.test.pem", "no certificate");
    wait_until("the invalid file is reported", || {
        let lines = folder.lines("error.log");
        lines
            .iter()
            .any(|line| line.contains("CertificateRefused") && line.contains("no certificate found"))
            .then_some(())
    });
    assert_eq!(certificate(), first);
    // A reload does not drop it either.
    program.signal(Signal::HUP);
    wait_until("the reload is over", || {
        program.error_lines().iter().any(|line| line.contains("reloaded: ")).then_some(())
    });
    assert_eq!(certificate(), first);
    write_certificate(&folder, &authority, "a.test");
    wait_until("the new certificate is in use", || (certificate() != first).then_some(()));
}

/// Sets the mode of a file or folder.
fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner can do that");
}

#[test]
fn keys_that_only_root_can_read_are_used_by_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const DAEMON: u32 = 1;
    let text = |names: &[&str]| {
        let sites = names.iter().map(|name| site(name, "").replace("certificate \"", "certificate \"keys/"));
        let sites: String = sites.collect();
        format!("user \"{DAEMON}\"\nlisten \"127.0.0.2:0\" tls=#true\nlog {{ error \"logs/error.log\"; }}\n{sites}")
    };
    let authority = Authority::new();
    let folder = Folder::new(&text(&["a.test"]));
    let keys = folder.path("keys");
    fs::create_dir(folder.path("logs")).expect("it does not exist");
    std::os::unix::fs::chown(folder.path("logs"), Some(DAEMON), None).expect("root can do that");
    fs::create_dir(&keys).expect("it does not exist");
    set_mode(&keys, 0o700);
    let write = |name: &str| {
        write_certificate(&folder, &authority, name);
        let file = format!("{name}.pem");
        set_mode(&folder.path(&file), 0o600);
        fs::rename(folder.path(&file), keys.join(file)).expect("both folders are on one file system");
    };
    write("a.test");
    let program = folder.serve();
    let certificate = |name| get_from(&program, &TlsClient::new(&authority), name).certificate;
    let first = certificate("a.test");
    let owner = fs::metadata(format!("/proc/{}", serving(&program).as_raw_nonzero())).expect("it runs").uid();
    assert_eq!(owner, DAEMON);

    write("a.test");
    wait_until("the new certificate is in use", || (certificate("a.test") != first).then_some(()));

    // The opener of the first process does not know this file, so another process serves.
    write("b.test");
    folder.configure(&text(&["a.test", "b.test"]));
    let reloaded = folder.run("reload");
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    let second = certificate("b.test");

    // A process whose opener has ended reads no changed file, and a reload starts another one.
    let opener = child_of(serving(&program)).expect("it runs");
    kill_process(opener, Signal::KILL).expect("it runs");
    write("b.test");
    wait_until("the end of the opener is reported", || {
        folder.read("logs/error.log").contains("the process that opens the files of keys has ended").then_some(())
    });
    let reloaded = folder.run("reload");
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    assert_ne!(certificate("b.test"), second);
    let second = certificate("b.test");

    // Root reads no file that another user could have chosen.
    set_mode(&keys, 0o722);
    write("b.test");
    wait_until("the file is refused", || {
        folder.read("logs/error.log").contains("because other users can change").then_some(())
    });
    assert_eq!(certificate("b.test"), second);
    program.stop();
}

#[test]
fn sessions_survive_reloads_kills_and_upgrades() {
    let authority = Authority::new();
    let folder = folder(&authority, &["a.test"], &site("a.test", ""));
    let (program, client) = (folder.serve(), TlsClient::new(&authority));
    assert!(!get_from(&program, &client, "a.test").is_resumed);
    assert!(get_from(&program, &client, "a.test").is_resumed);

    folder.configure(&format!("{LISTEN}{}", site("a.test", "hsts;")));
    program.signal(Signal::HUP);
    wait_until("the reload is over", || {
        let response = get_from(&program, &client, "a.test");
        assert!(response.is_resumed, "during and after a reload");
        response.text.contains("strict-transport-security").then_some(())
    });

    let killed = serving(&program);
    kill_process(killed, Signal::KILL).expect("it runs");
    wait_until("another process serves", || (serving(&program) != killed).then_some(()));
    assert!(get_from(&program, &client, "a.test").is_resumed, "after a kill");

    let before = serving(&program);
    program.signal(Signal::USR2);
    wait_until("the upgrade is over", || (serving(&program) != before).then_some(()));
    assert!(get_from(&program, &client, "a.test").is_resumed, "after an upgrade");
}

#[test]
fn servers_with_the_same_secrets_resume_sessions_of_each_other() {
    let authority = Authority::new();
    let text = format!("ticket-keys \"secret\"\n{}", site("a.test", ""));
    let folder = folder(&authority, &["a.test"], &text);
    folder.write("secret", &"0123456789abcdef".repeat(3));
    let client = TlsClient::new(&authority);
    for expected in [false, true] {
        let program = folder.serve();
        assert_eq!(get_from(&program, &client, "a.test").is_resumed, expected);
        program.stop();
    }
    folder.write("secret", "short");
    let refused = folder.run("run");
    assert!(refused.code == Some(1) && refused.err.contains("a secret has at least 32"), "{refused:?}");
}

#[test]
fn client_certificates_are_required_by_their_site_only() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let text = site("a.test", "client-certificates \"required\" ca=\"clients.pem\";") + &site("b.test", "");
    let folder = folder(&authority, &["a.test", "b.test"], &text);
    folder.write("clients.pem", &clients.pem());
    let program = folder.serve();
    let (own, foreign) = (clients.certificate(&["alice"]), authority.certificate(&["mallory"]));
    let with = |own| TlsClient::with_certificate(&authority, own);
    assert!(get_from(&program, &with(Some(&own)), "a.test").text.ends_with("a.test https"));
    let expired = clients.expired_certificate("alice");
    for (invalid, reason) in [
        (None, "none was sent"),
        // The other authority has the name of the right one.
        (Some(&foreign), "its signature is wrong"),
        (Some(&expired), "it has expired"),
    ] {
        assert!(with(invalid).get(program.https_address(), ("a.test", "a.test"), "/").is_err());
        let expected = format!("warn ClientCertificateInvalid: the client certificate was refused: {reason}");
        wait_until("the reason is logged", || {
            let is_logged = |line: &String| line.contains(&expected) && line.contains("peer=127.0.0.1:");
            folder.lines("error.log").iter().any(is_logged).then_some(())
        });
    }
    // The handshake of another site does not open this one, and a ticket of the other neither.
    let client = with(None);
    assert!(get_from(&program, &client, "b.test").text.ends_with("b.test https"));
    let response = client.get(program.https_address(), ("b.test", "a.test"), "/").expect("the server responds");
    assert!(response.text.starts_with("HTTP/1.1 421 "), "{}", response.text);
    program.stop();
    folder.write("clients.pem", "broken");
    let refused = folder.run("run");
    assert!(refused.code == Some(1) && refused.err.contains("clients.pem: no certificate found"), "{refused:?}");
}

#[test]
fn routes_and_logs_know_the_client_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let format = "%{SSL_PROTOCOL}x %{SSL_CIPHER}x %{SSL_TLS_SNI}x %{SSL_CLIENT_VERIFY}x %{SSL_CLIENT_S_DN}x";
    let text = format!(
        "log {{ access \"access.log\" format=\"{format}\"; }}\nlisten \"127.0.0.2:0\" tls=#true\nsite \"a.test\" {{\n\
         certificate \"a.test.pem\"\nclient-certificates \"optional\" ca=\"clients.pem\"\n\
         route \"/*\" {{ when {{ client-certificate \"CN=alice*\"; }}; respond 200 \"alice\"; }}\n\
         route \"/*\" {{ when {{ client-certificate; }}; respond 200 \"known: {{client_subject}}\"; }}\n\
         route \"/*\" {{ header \"X-Client\" \"={{client_subject}}\"; respond 200 \"unknown\"; }}\n}}\n"
    );
    let folder = Folder::new(&text);
    write_certificate(&folder, &authority, "a.test");
    folder.write("clients.pem", &clients.pem());
    let program = folder.serve();
    let own = [clients.certificate_of("alice"), clients.certificate_of("bob")];
    for (own, expected) in [(Some(&own[0]), "alice"), (Some(&own[1]), "known: CN%3Dbob"), (None, "unknown")] {
        let client = TlsClient::with_certificate(&authority, own);
        let text = get_from(&program, &client, "a.test").text;
        assert!(text.ends_with(&format!("\r\n\r\n{expected}")), "{text}");
        assert_eq!(text.to_lowercase().contains("\r\nx-client: =\r\n"), own.is_none(), "{text}");
    }
    program.stop();
    let suite = "TLSv1.3 TLS13_AES_256_GCM_SHA384 a.test";
    let expected = ["NONE -", "SUCCESS CN=alice", "SUCCESS CN=bob"].map(|client| format!("{suite} {client}"));
    // Each worker has its lines.
    let mut lines = folder.lines("access.log");
    lines.sort();
    assert_eq!(lines, expected);
}

#[test]
fn names_of_local_networks_have_a_certificate_at_once() {
    let text = format!(
        "{LISTEN}site \"localhost\" \"app.internal\" \"127.0.0.2\" {{ route \"/*\" {{ respond 200 \"{{host}}\"; }}; }}\n"
    );
    let folder = Folder::new(&text);
    let program = folder.serve();
    let client = TlsClient::trusting(&folder.read("certificates/local-authority.pem"), None);
    for name in ["localhost", "app.internal", "127.0.0.2"] {
        let text = get_from(&program, &client, name).text;
        assert!(text.ends_with(&format!("\r\n\r\n{name}")), "{text}");
    }
    let command = |words: &[&str]| {
        run_to_exit(selvedge_command().args(words).arg("--config").arg(folder.path("selvedge.kdl"))).out
    };
    assert!(command(&["certificates"]).contains("app.internal  local  valid for "));
    assert!(command(&["certificates", "--json"]).starts_with(r#"[{"name":"127.0.0.2","source":"local","expires":"#));
    let redirect = get(&program, "app.internal", "/").field("location").map(str::to_owned);
    assert_eq!(redirect, Some(format!("https://app.internal:{}/", program.https_address().port())));
    // The next start has the certificates of the first.
    let first = get_from(&program, &client, "localhost").certificate;
    program.stop();
    let client = TlsClient::trusting(&folder.read("certificates/local-authority.pem"), None);
    assert_eq!(get_from(&folder.serve(), &client, "localhost").certificate, first);
}

#[test]
fn a_folder_is_served_over_tls() {
    let tree = Tree::new();
    tree.write("index.html", "the page");
    let data = tree.path("data");
    let mut command = selvedge_command();
    command.arg("serve").arg(tree.site()).args(["--tls", "--listen", "127.0.0.1:0"]).env("XDG_DATA_HOME", &data);
    let process = Process::start(&mut command);
    let address = process.https_address();
    let root = fs::read_to_string(data.join("selvedge/certificates/local-authority.pem")).expect("it was created");
    let client = TlsClient::trusting(&root, None);
    for name in ["localhost", "127.0.0.1"] {
        let response = client.get(address, (name, name), "/").expect("the server responds").text;
        assert!(response.ends_with("the page"), "{response}");
    }
}

#[test]
fn check_warns_of_certificates_that_browsers_refuse() {
    let authority = Authority::new();
    let folder = folder(
        &authority,
        &["a.test"],
        "site \"a.test\" \"b.test\" { certificate \"a.test.pem\"; route \"/*\" { deny; }; }\n",
    );
    let exit = folder.run("check");
    assert!(exit.code == Some(0) && exit.err.contains("no certificate is for b.test"), "{exit:?}");
    folder.write("a.test.pem", &authority.certificate(&["a.test"]).0);
    let exit = folder.run("check");
    assert!(exit.code == Some(1) && exit.err.contains("a.test.pem: no private key found"), "{exit:?}");
}

/// Returns the address of remote commands.
fn control_address(program: &Program) -> SocketAddr {
    wait_until("the address of remote commands is reported", || {
        let text = program.standard_error();
        let (_, rest) = text.split_once("serving remote commands on https://")?;
        rest.split_once('/')?.0.parse().ok()
    })
}

#[test]
fn holders_of_a_certificate_send_remote_commands() {
    let clients = Authority::new();
    let folder = Folder::new("");
    folder.write("clients.pem", &clients.pem());
    let text = |response: &str| {
        format!(
            "listen \"127.0.0.1:0\"\ncontrol \"https://127.0.0.3:0\" client-ca=\"clients.pem\"\n\
             log {{ access \"off\"; error \"error.log\" level=\"info\"; }}\n\
             site \"*\" {{ route \"/*\" {{ respond 200 \"{response}\"; }}; }}\n"
        )
    };
    folder.write("selvedge.kdl", &text("first"));
    let program = folder.serve();
    let address = control_address(&program);
    let root = folder.read("certificates/local-authority.pem");
    let (own, foreign) = (clients.certificate(&["alice"]), Authority::new().certificate(&["mallory"]));
    for invalid in [None, Some(&foreign)] {
        let refused = TlsClient::trusting(&root, invalid).get(address, ("127.0.0.3", &address.to_string()), "/status");
        assert!(refused.is_err());
    }
    let client = TlsClient::trusting(&root, Some(&own));
    let send = |line: &str, host: &str, more: &str, content: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}");
        let text = format!("{head}Content-Length: {}\r\n\r\n{content}", content.len());
        client.send(address, "127.0.0.3", &text).expect("the server responds").text
    };
    let host = address.to_string();
    for (line, host, more, status) in [
        ("GET /status", host.as_str(), "", "200"),
        ("GET /certificates", &host, "Accept: application/json\r\n", "200"),
        ("GET /status", "localhost", "", "421"),
        ("POST /reload", &host, "Origin: https://evil.example\r\n", "403"),
        ("POST /reload", &host, &format!("Origin: https://{host}\r\n"), "200"),
        ("GET /reload", &host, "", "405"),
        ("POST /status", &host, "", "405"),
        ("GET /", &host, "", "404"),
    ] {
        let response = send(line, host, more, "");
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {host} {more}: {response}");
        let has_text = more.starts_with("Accept") || response.contains("\r\ncontent-type: text/plain");
        assert!(has_text, "{line} {host} {more}: {response}");
    }
    // A configuration in the request is in force until the next reload.
    assert_eq!(get(&program, "a.test", "/").text(), "first");
    assert!(send("POST /reload", &host, "", &text("second")).starts_with("HTTP/1.1 200 "));
    assert_eq!(get(&program, "a.test", "/").text(), "second");
    let refused = send("POST /reload", &host, "", "rot \"/srv\"");
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("`rot` is not known"), "{refused}");
    assert_eq!(get(&program, "a.test", "/").text(), "second");
    assert!(send("POST /reload", &host, "", "").starts_with("HTTP/1.1 200 "));
    assert_eq!(get(&program, "a.test", "/").text(), "first");
    // The authorities of another configuration hold at once, and a broken file changes nothing.
    folder.write("clients.pem", "broken");
    assert!(send("POST /reload", &host, "", "").starts_with("HTTP/1.1 409 "));
    assert!(send("GET /status", &host, "", "").starts_with("HTTP/1.1 200 "));
    folder.write("clients.pem", &Authority::new().pem());
    assert!(send("POST /reload", &host, "", "").starts_with("HTTP/1.1 200 "));
    assert!(TlsClient::trusting(&root, Some(&own)).get(address, ("127.0.0.3", &host), "/status").is_err());
    wait_until("a command is logged", || {
        let is_logged = |line: &String| line.contains("RemoteReload: POST /reload of 127.0.0.") && line.contains("CN=");
        folder.lines("error.log").iter().any(is_logged).then_some(())
    });
    program.stop();
}
