//! Settings of the whole server: listeners, user, supervision.

use super::{BlockKind, DefaultValue, Setting, list, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const TOP: &[BlockKind] = &[BlockKind::Top];
const SUPERVISION: &[BlockKind] = &[BlockKind::Supervision];
const WITH_SNIPPETS: &[BlockKind] = &[BlockKind::Top, BlockKind::Site, BlockKind::Route];
const INCLUDING: &[BlockKind] =
    &[BlockKind::Top, BlockKind::Site, BlockKind::Route, BlockKind::When, BlockKind::IpAccess, BlockKind::BasicAuth];

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) const SETTINGS: &[Setting] = &[
    setting(TOP, "listen", "An address to listen on.")
        .arguments(&[one("address", ValueKind::Listen)])
        .properties(&[
            property(
                "mode",
                ValueKind::FileMode,
                DefaultValue::Effect("0666 for a Unix socket"),
                "Octal file mode of a Unix socket: who may connect.",
            ),
            property(
                "tls",
                ValueKind::Flag,
                DefaultValue::Effect("`#true` for port 443, else `#false`"),
                "Whether clients use TLS (https).",
            ),
            property(
                "http2",
                ValueKind::Flag,
                DefaultValue::Effect("HTTP/2 with TLS only"),
                "Whether clients may use HTTP/2 without TLS.",
            ),
            property(
                "proxy-protocol",
                ValueKind::Flag,
                DefaultValue::Text("#false"),
                "Whether connections of `trusted-proxies` begin with a header of the PROXY protocol (v1 or v2).",
            ),
        ])
        .repeatable()
        .default("127.0.0.1:8080")
        .details(
            "An address and a port (`0.0.0.0:8080`, `[::]:8080`, `localhost:8080`), a Unix socket \
             (`unix:/run/site.sock`), or a descriptor that the parent process opened, by number (`fd:3`) or by \
             systemd's name (`fd:web`). Port 0 takes a free port. A configuration without `listen` that has a site with a \
             public name listens on `[::]:80`, and on `[::]:443` with TLS. \
             Clients of a listener with TLS choose HTTP/2 or HTTP/1.1 in the handshake. `http2=#true` is for listeners \
             without TLS, such as behind a proxy that speaks HTTP/2: the first bytes of a connection choose the \
             protocol. With `proxy-protocol=#true`, the header names the client, and a connection from another address \
             than one of `trusted-proxies`, or without a header, is closed.",
        )
        .example("listen \"[::]:8080\"\nlisten \"unix:/run/selvedge/site.sock\" mode=\"0660\""),
    setting(TOP, "workers", "Number of worker threads.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 1024 })])
        .if_absent("one for each core that the process may use"),
    setting(TOP, "driver", "Socket I/O back end.")
        .arguments(&[one("name", ValueKind::Choice(&["auto", "epoll", "io_uring"]))])
        .default("auto")
        .details(
            "`io_uring` needs Linux 6.1 and a system that permits it; many container platforms do not. If it is \
              unavailable, the error log states the reason and `epoll` serves. `io_uring` uses less CPU for \
             many busy connections and more for a few. `auto` is `io_uring` where it is available. The environment variable `SELVEDGE_DRIVER` overrides `auto`. The \
             driver never changes a response.",
        ),
    setting(TOP, "user", "User to switch to after the listeners are bound.")
        .arguments(&[one("name", ValueKind::Account)])
        .if_absent("the user that started the process"),
    setting(TOP, "group", "Group to switch to after the listeners are bound.")
        .arguments(&[one("name", ValueKind::Account)])
        .if_absent("the primary group of `user`"),
    setting(TOP, "pid-file", "File with the process ID while the server runs.")
        .arguments(&[one("path", ValueKind::Path)])
        .if_absent("no file"),
    setting(TOP, "control", "Where control commands are accepted: a Unix socket, and an https address.")
        .arguments(&[one("address", ValueKind::PathOrUrl)])
        .properties(&[
            property(
                "client-ca",
                ValueKind::Path,
                DefaultValue::Effect("none; an https address requires it"),
                "Authorities that sign the certificates of permitted clients.",
            ),
            property(
                "certificate",
                ValueKind::Path,
                DefaultValue::Effect("the server gets one by itself"),
                "Certificate chain of the https address.",
            ),
            property(
                "key",
                ValueKind::Path,
                DefaultValue::Effect("the file of `certificate`"),
                "Private key of `certificate`.",
            ),
        ])
        .repeatable()
        .default("selvedge.sock")
        .details(
            "The Unix socket is for `selvedge reload`, `stop`, `upgrade`, `reopen-logs`, `status`, `certificates`, `last`, \
             `explain --running`, `explain --request`, `check --diff` and `selftest`; only \
             its owner can open it. A configuration in `/etc/selvedge` has another default, `/run/selvedge/control`. The \
             server creates the last folder of the path. The https address accepts remote commands of clients with a certificate: \
             [operations.md](operations.md#remote-commands). Without one, no remote command is accepted.",
        )
        .example("control \"https://control.example.com:8443\" client-ca=\"operators.pem\""),
    setting(TOP, "metrics", "An address at which Prometheus reads the metrics of the server.")
        .arguments(&[one("address", ValueKind::Listen)])
        .if_absent("no listener")
        .details(
            "A thread of its own responds there with metrics in OpenMetrics or in the text format of Prometheus, at every path, \
             without TLS and without a password: name an address that only your network reaches. A change takes effect at the \
             next start. The action `metrics` of a route is an alternative with the access rules of the route: \
             [metrics.md](metrics.md).",
        )
        .example("metrics \"127.0.0.1:9100\""),
    setting(TOP, "trusted-proxies", "Networks of proxies whose forwarding field is trusted.")
        .arguments(&[list("network", ValueKind::Proxy)])
        .properties(&[property(
            "header",
            ValueKind::Choice(&["x-forwarded-for", "forwarded"]),
            DefaultValue::Text("x-forwarded-for"),
            "The field in which the proxies name the client.",
        )])
        .if_absent("none; the client is the peer of the connection")
        .details(
            "The field is read from the right, and the first address outside of these networks is the client. \
             If the value is no address, such as `unknown`, the client is 0.0.0.0, which is in no network: no \
             `allow` and no `client` condition matches it. Without the field the proxy is the client. `unix` \
             means all clients of Unix sockets. Name only your own proxies: a host in these networks can \
             pretend to be any client.",
        )
        .example("trusted-proxies \"10.0.0.0/8\" \"unix\" header=\"forwarded\""),
    setting(TOP, "supervision", "Supervision of the serving process.")
        .opens(BlockKind::Supervision)
        .if_absent("its defaults"),
    setting(
        SUPERVISION,
        "supervised",
        "Whether a supervisor owns the listeners and restarts the serving \
                                        process.",
    )
    .arguments(&[one("flag", ValueKind::Flag)])
    .default("#true"),
    setting(
        SUPERVISION,
        "restarts-max",
        "Most restarts within `restarts-within`; one more ends the program \
                                          with exit code 3.",
    )
    .arguments(&[one("number", ValueKind::Count { min: 0, max: 1_000_000 })])
    .default("10"),
    setting(SUPERVISION, "restarts-within", "The time in which restarts are counted.")
        .arguments(&[one("time", ValueKind::Time { min: MILLISECOND, max: Duration::from_secs(7 * 24 * 3600) })])
        .default("60s"),
    setting(
        SUPERVISION,
        "back-off-min",
        "Delay before the second restart within the time; it doubles with each \
                                           restart.",
    )
    .arguments(&[one("time", ValueKind::Time { min: MILLISECOND, max: HOUR })])
    .default("10ms"),
    setting(SUPERVISION, "back-off-max", "Longest delay before a restart.")
        .arguments(&[one("time", ValueKind::Time { min: MILLISECOND, max: HOUR })])
        .default("10s"),
    setting(INCLUDING, "include", "Includes other files at this place.")
        .arguments(&[list("pattern", ValueKind::Include)])
        .repeatable()
        .if_absent("nothing is included")
        .details(
            "`*` and `?` match within a file or folder name, `**` matches folders at any depth. Files are read \
             in the order of their names. A pattern may match nothing; a plain name must exist. A file \
             that is included in `ip-access`, `basic-auth` or `when` is a list that other programs may write. A change is \
             seen within two seconds, and puts the list into force with the configuration that is running. Other files \
             that have changed wait for a reload. A list may be empty. In `when`, an empty list holds for no request. The \
             earlier entries stay in force while a list has a mistake, with a line in the error log. So it is after the \
             removal of a list with a plain name, without which a start and a reload fail.",
        )
        .example("include \"sites/*.kdl\""),
    setting(TOP, "snippet", "Named settings that sites or routes take over with `use`.")
        .arguments(&[one("name", ValueKind::Text)])
        .opens(BlockKind::Site)
        .repeatable()
        .if_absent("none")
        .details(
            "Its block has the settings of the place where it is used. `${NAME}` in it is the value that the `use` gives, \
             or a variable of the environment; `${NAME:-default}` has a default.",
        )
        .example(
            "snippet \"app\" {\n    root \"${root}\"\n    route \"/*\" { files fallback=\"/index.html\"; }\n}\n\
             site \"a.example\" { use \"app\" root=\"/srv/a\"; }\nsite \"b.example\" { use \"app\" root=\"/srv/b\"; }",
        ),
    setting(WITH_SNIPPETS, "use", "Puts the settings of a `snippet` at this place.")
        .arguments(&[one("name", ValueKind::Text)])
        .repeatable()
        .if_absent("nothing is taken over")
        .details("`NAME=VALUE` after the name of the snippet gives a value to its `${NAME}`."),
    setting(TOP, "limits", "Limits on clients.").opens(BlockKind::Limits).if_absent("its defaults"),
    setting(TOP, "site", "A site and its host names.")
        .arguments(&[list("name", ValueKind::Host)])
        .opens(BlockKind::Site)
        .repeatable()
        .if_absent("none; every request gets 421")
        .details(
            "A name, a wildcard for one or more leading labels (`*.example.com`), or `*` for every name that no \
              other site has. The most specific name wins, in any order of sites. Without `*`, a request for \
             another name gets 421.",
        )
        .example("site \"example.com\" \"*.example.com\" {\n    root \"/srv/example\"\n}"),
];
