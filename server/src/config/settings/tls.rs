//! Settings of TLS: certificates of sites, client certificates, redirects to https.

use super::{BlockKind, DefaultValue, Setting, list, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const TOP: &[BlockKind] = &[BlockKind::Top];
const ACME: &[BlockKind] = &[BlockKind::Acme];
const SITE: &[BlockKind] = &[BlockKind::Site];

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) const SETTINGS: &[Setting] = &[
    setting(TOP, "ticket-keys", "Secrets of session tickets that several servers share.")
        .arguments(&[list("path", ValueKind::Path)])
        .if_absent("random keys, which the processes of this server share")
        .details(
            "Each file, or each file of a folder, has at least 32 random bytes (`openssl rand -out FILE 48`). The first \
             encrypts: the first path, and in a folder the last name. The others still decrypt. Keys derive from them \
             every eight hours.",
        )
        .example("ticket-keys \"/etc/selvedge/tickets\""),
    setting(TOP, "certificate-folder", "Folder of the certificates that the server gets by itself.")
        .arguments(&[one("path", ValueKind::Path)])
        .default("certificates")
        .details(
            "It has private keys and the account at the certificate authority; only its owner can read it. The server \
             creates it. A configuration in `/etc/selvedge` has another default, `/var/lib/selvedge/certificates`. Servers on several machines may share it: each name is ordered once.",
        )
        .example("certificate-folder \"/var/lib/selvedge/certificates\""),
    setting(TOP, "acme", "How certificates are ordered from a certificate authority.")
        .opens(BlockKind::Acme)
        .if_absent("its defaults"),
    setting(ACME, "directory", "Directories of certificate authorities (RFC 8555). If one fails, the next is tried.")
        .arguments(&[list("url", ValueKind::Text)])
        .default("https://acme-v02.api.letsencrypt.org/directory")
        .details("By using a directory you accept the terms of its certificate authority."),
    setting(ACME, "email", "Address for messages of the certificate authority.")
        .arguments(&[one("address", ValueKind::Text)])
        .if_absent("none"),
    setting(ACME, "ca", "PEM file with the root of the directory's own certificate.")
        .arguments(&[one("path", ValueKind::Path)])
        .if_absent("the roots of the system"),
    setting(ACME, "profile", "Profile of the certificates, if the certificate authority has several.")
        .arguments(&[one("name", ValueKind::Text)])
        .if_absent("that of the certificate authority")
        .details("Let's Encrypt has `classic`, `tlsserver` and `shortlived`."),
    setting(ACME, "challenge", "How the certificate authority validates names.")
        .arguments(&[one(
            "kind",
            ValueKind::Choice(&["any", "http-01", "tls-alpn-01", "dns-01", "dns-persist-01"]),
        )])
        .default("any")
        .details(
            "`http-01` is a request to port 80, `tls-alpn-01` a handshake at port 443. `any` is `http-01` if a listener \
             has no TLS, and changes after a failure. `dns-01` is a record that `dns-hook` sets for each order, \
             `dns-persist-01` a record that you set once; `selvedge certificates` prints it. Wildcards need one of these \
             two.",
        ),
    setting(ACME, "dns-hook", "Program that sets the records of `dns-01`.")
        .arguments(&[one("path", ValueKind::Path)])
        .properties(&[
            property(
                "user",
                ValueKind::Account,
                DefaultValue::Effect("the user of the server"),
                "User that runs it.",
            ),
            property(
                "timeout",
                ValueKind::Time { min: Duration::from_secs(1), max: Duration::from_secs(600) },
                DefaultValue::Text("60s"),
                "Time after which it is killed.",
            ),
        ])
        .if_absent("none")
        .details(
            "It is run with the arguments `set NAME VALUE`, and has to set a TXT record; later with `clear NAME VALUE`. It \
             succeeds with the exit code 0. The server then waits up to a minute until it sees the record. The program has \
             no input, and of the environment only `PATH`.",
        )
        .example("dns-hook \"/usr/local/bin/dns-record\" user=\"acme\""),
    setting(ACME, "external-account", "Account that the certificate authority has for its customer.")
        .arguments(&[one("key-id", ValueKind::Text)])
        .properties(&[property(
            "file",
            ValueKind::Path,
            DefaultValue::Effect("none; it is required"),
            "File with the key in base64, as the certificate authority shows it.",
        )])
        .if_absent("none")
        .details("Some certificate authorities require it (external account binding, RFC 8555 §7.3.4).")
        .example("external-account \"kid-1\" file=\"/etc/selvedge/eab.key\""),
    setting(ACME, "name-server", "Name server for the checks before an order.")
        .arguments(&[one("address", ValueKind::Text)])
        .if_absent("those of the system")
        .example("name-server \"127.0.0.1:53\""),
    setting(ACME, "reach-check", "Whether the server checks names before it orders certificates.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#true")
        .details(
            "The server requests a token from port 80 of the name, or connects to its port 443, and looks for CAA records \
             that forbid the certificate. For records it checks that they can be seen. Turn it off if this machine cannot \
             reach itself or no name server.",
        ),
    setting(SITE, "automatic-certificate", "Whether the server gets the certificates of the site by itself.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .if_absent("#true for a site without `certificate`, if a listener has TLS")
        .details(
            "Public names get one from a certificate authority (`acme`). Names below `localhost`, `internal`, `test`, \
             `local`, `lan`, `home.arpa` and `example`, and addresses of local networks, get one from the server's own \
             authority, which `selvedge trust` installs. A public wildcard needs a `challenge` by records.",
        ),
    setting(SITE, "on-demand-certificates", "Which further names get a certificate when a client connects.")
        .arguments(&[one("approval", ValueKind::PathOrUrl)])
        .properties(&[
            property(
                "user",
                ValueKind::Account,
                DefaultValue::Effect("the user of the server"),
                "User that runs the program.",
            ),
            property(
                "timeout",
                ValueKind::Time { min: Duration::from_secs(1), max: Duration::from_secs(60) },
                DefaultValue::Text("5s"),
                "Time after which the approval is refused.",
            ),
        ])
        .if_absent("none")
        .details(
            "For a site with a wildcard name, such as `*`. `approval` is the path of a program, which is run with the \
             name, and approves it with the exit code 0. Or it is a URL, which is requested with `?domain=NAME`, and \
             approves it with the status 200. The client waits meanwhile. The budget of orders holds as for other names.",
        )
        .example("on-demand-certificates \"http://127.0.0.1:9000/allowed\""),
    setting(SITE, "certificate", "Certificate chain and private key of the site, for listeners with TLS.")
        .arguments(&[one("chain", ValueKind::Path)])
        .properties(&[property(
            "key",
            ValueKind::Path,
            DefaultValue::Effect("the file of the chain"),
            "File with the private key, unencrypted.",
        )])
        .repeatable()
        .if_absent("none")
        .details(
            "Both are PEM files; the certificate of the site precedes those of its issuers. Several, such as one with an \
             ECDSA key and one with an RSA key, serve different clients. A file that changes is used within seconds; if \
             its new content is invalid, the earlier certificate stays in use.",
        )
        .example("certificate \"/etc/ssl/example.com.pem\" key=\"/etc/ssl/example.com.key\""),
    setting(SITE, "client-certificates", "Whether clients need a certificate.")
        .arguments(&[one("mode", ValueKind::Choice(&["required", "optional"]))])
        .properties(&[property(
            "ca",
            ValueKind::Path,
            DefaultValue::Effect("none; it is required"),
            "PEM file with the certificates of the authorities that sign client certificates.",
        )])
        .if_absent("clients need none")
        .details(
            "A handshake with an invalid certificate fails, and with `required` one without a certificate, too. A \
             connection to a site with other rules cannot be used for this one: such a request gets 421.",
        )
        .example("client-certificates \"required\" ca=\"clients-ca.pem\""),
    setting(SITE, "https-redirect", "Whether plain requests are redirected to https.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .if_absent("#true for a site with a certificate")
        .details(
            "The response is 308, to the port of the first listener with TLS. Requests at a Unix socket are never \
             redirected: a proxy is in front.",
        ),
    setting(SITE, "hsts", "Tells browsers to use https only (Strict-Transport-Security).")
        .properties(&[
            property(
                "max-age",
                ValueKind::Time { min: Duration::ZERO, max: Duration::from_secs(10 * 366 * 24 * 3600) },
                DefaultValue::Text("365d"),
                "How long a browser remembers it. `0s` ends it.",
            ),
            property(
                "subdomains",
                ValueKind::Flag,
                DefaultValue::Text("#false"),
                "Whether it is for all names below the site's, too.",
            ),
            property(
                "preload",
                ValueKind::Flag,
                DefaultValue::Text("#false"),
                "Whether browsers may list the name. Needs `subdomains` and at least a year.",
            ),
        ])
        .if_absent("no field")
        .example("hsts max-age=\"365d\" subdomains=#true"),
];

/// The shortest time for which a list of browsers takes a name.
pub(crate) const PRELOAD_MIN: Duration = Duration::from_secs(365 * DAY.as_secs());
