//! Settings of upstreams: groups of servers that requests are forwarded to.

use super::{BlockKind, DefaultValue, Setting, list, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const TOP: &[BlockKind] = &[BlockKind::Top];
const UPSTREAM: &[BlockKind] = &[BlockKind::Upstream];
const TLS: &[BlockKind] = &[BlockKind::UpstreamTls];

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Times of steps of an exchange.
const STEP: ValueKind = ValueKind::Time { min: Duration::from_millis(100), max: DAY };
/// Times of observations.
const WINDOW: ValueKind = ValueKind::Time { min: Duration::from_millis(100), max: HOUR };
const REQUESTS: ValueKind = ValueKind::Count { min: 1, max: 1_000_000 };

pub(super) const SETTINGS: &[Setting] = &[
    setting(TOP, "upstream", "A group of servers that run one application.")
        .arguments(&[one("name", ValueKind::Text)])
        .opens(BlockKind::Upstream)
        .repeatable()
        .if_absent("none; `proxy` can name the URL of a server, too")
        .details(
            "A route forwards requests to it with `proxy \"NAME\"`. [proxy.md](proxy.md) is an introduction. While its \
             block is unchanged, a reload keeps its connections, what it knows about its servers, and its cookies.",
        )
        .example(
            "upstream \"app\" {\n    server \"http://10.0.0.5:3000\" weight=2\n    server \"http://10.0.0.6:3000\"\n    \
             health path=\"/healthz\"\n}\nsite \"example.com\" {\n    route \"/api/*\" { proxy \"app\"; }\n}",
        ),
    setting(UPSTREAM, "server", "Servers of the group.")
        .arguments(&[list("url", ValueKind::Server)])
        .properties(&[property(
            "weight",
            ValueKind::Count { min: 1, max: 1000 },
            DefaultValue::Text("1"),
            "The share of requests, relative to the other servers.",
        )])
        .repeatable()
        .if_absent("a group has at least one")
        .details(
            "`http://host:port`, `https://host`, `host:port` or `unix:/path`. A name never stops a start: it is resolved \
             while the server runs, every 30 s, and every 2 s until it is found. If the name service fails, the earlier \
             addresses stay in use. A name with several addresses is one server, whose addresses are tried in order.",
        )
        .example("server \"http://10.0.0.5:3000\" weight=2\nserver \"unix:/run/app.sock\""),
    setting(UPSTREAM, "balance", "Which server gets a request.")
        .arguments(&[one("name", ValueKind::Choice(&["least-loaded", "round-robin", "hash", "sticky"]))])
        .properties(&[
            property(
                "by",
                ValueKind::HashKey,
                DefaultValue::Effect("none; `hash` requires it"),
                "What `hash` distributes requests by.",
            ),
            property(
                "cookie",
                ValueKind::CookieName,
                DefaultValue::Effect("none; `sticky` requires it"),
                "The cookie in which `sticky` remembers the server of a client.",
            ),
            property(
                "secret",
                ValueKind::Path,
                DefaultValue::Effect("a random key, which the processes of this server share"),
                "File with at least 32 bytes that sign the cookie of `sticky`: for several machines, and across restarts.",
            ),
        ])
        .default("least-loaded")
        .details(
            "`least-loaded` chooses two servers at random, and of these the one with fewer requests at work for its \
             weight. `hash` sends equal keys to one server; a new server takes over its share only. `by=\"header:NAME\"` \
             and `by=\"cookie:NAME\"` name a field or a cookie. With `sticky`, a client stays at its server while it works. \
             Its cookie has `Path=/; HttpOnly; SameSite=Lax`, and `Secure` if the client uses https.",
        )
        .example("balance \"hash\" by=\"path\""),
    setting(UPSTREAM, "health", "Checks the servers by a request at intervals.")
        .properties(&[
            property(
                "path",
                ValueKind::RequestPath,
                DefaultValue::Text("/"),
                "The requested path. It may have a query, as in `/healthz?full=1`.",
            ),
            property("every", WINDOW, DefaultValue::Text("5s"), "Time between two checks of a server."),
            property("timeout", WINDOW, DefaultValue::Text("2s"), "Longest time of a check."),
            property(
                "expect",
                ValueKind::Statuses,
                DefaultValue::Text("200-399"),
                "The status of a server that works, or a range of them.",
            ),
            property(
                "host",
                ValueKind::ForwardedHost,
                DefaultValue::Text("upstream"),
                "The Host field of the request; `upstream` is the host of the server.",
            ),
        ])
        .if_absent("servers are judged by the requests of clients only")
        .example("health path=\"/healthz\" every=\"5s\" expect=200"),
    setting(UPSTREAM, "failures", "How many failures take a server out for some time.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 1_000_000 })])
        .properties(&[
            property("per", WINDOW, DefaultValue::Text("10s"), "The time in which they have to occur."),
            property("eject", WINDOW, DefaultValue::Text("10s"), "How long the server is out the first time."),
            property(
                "eject-max",
                ValueKind::Time { min: Duration::from_millis(100), max: DAY },
                DefaultValue::Text("5m"),
                "Longest time out; each failed return doubles the time up to this.",
            ),
        ])
        .default("3")
        .details(
            "A failure is a failed connection, a reset, a malformed response, a timeout, or a response with status 500, \
             502, 503 or 504 without another response between them. At most half of the group is out at once.",
        )
        .example("failures 3 per=\"10s\" eject=\"10s\""),
    setting(UPSTREAM, "slow-start", "How long a server that returns gets fewer requests than its weight.")
        .arguments(&[one("time", ValueKind::Time { min: Duration::ZERO, max: HOUR })])
        .default("0ms"),
    setting(UPSTREAM, "requests-max", "Most requests at once at each server.")
        .arguments(&[one("number", REQUESTS)])
        .properties(&[
            property(
                "queue",
                ValueKind::Count { min: 0, max: 1_000_000 },
                DefaultValue::Text("0"),
                "Requests of the group that wait while all servers are full. Beyond it: 503.",
            ),
            property("queue-timeout", STEP, DefaultValue::Text("5s"), "Longest wait of a request. Beyond it: 503."),
        ])
        .if_absent("no limit")
        .example("requests-max 100 queue=200 queue-timeout=\"5s\""),
    setting(UPSTREAM, "adaptive", "Whether the number of requests at once follows the time that a server takes.")
        .arguments(&[one("mode", ValueKind::Choice(&["off", "observe", "on"]))])
        .default("off")
        .details(
            "`observe` computes the limit and logs which requests would exceed it, but forwards them. With `on`, they \
             wait in the queue of `requests-max`, or get 503.",
        ),
    setting(UPSTREAM, "protocol", "The HTTP version of the connections to the servers.")
        .arguments(&[one("name", ValueKind::Choice(&["http1", "http2"]))])
        .default("http1")
        .details(
            "`http2` uses ALPN with https and prior knowledge otherwise. gRPC needs it. A WebSocket is a stream of HTTP/2 \
             if the server accepts extended CONNECT; if not, it uses HTTP/1.1 with https, and is refused otherwise. \
             The protocol of the clients is independent of it.",
        ),
    setting(UPSTREAM, "proxy-protocol", "Version of the PROXY protocol whose header each connection begins with.")
        .arguments(&[one("version", ValueKind::Choice(&["v1", "v2"]))])
        .if_absent("no header")
        .details("A connection with a header has the requests of one client only, so none is kept idle."),
    setting(UPSTREAM, "connect-timeout", "Longest time to open a connection, with TLS. Beyond it: the next server, or 504.")
        .arguments(&[one("time", STEP)])
        .default("5s"),
    setting(UPSTREAM, "response-timeout", "Longest time from the end of the request to the response. Interim responses do not extend it. Beyond it: 504.")
        .arguments(&[one("time", STEP)])
        .default("60s"),
    setting(
        UPSTREAM,
        "silence-timeout",
        "Longest time in which a server neither sends nor takes a byte of content. Beyond it: close.",
    )
    .arguments(&[one("time", STEP)])
    .default("60s")
    .details("For events that a server sends rarely, it has to be longer than the pauses between them."),
    setting(UPSTREAM, "tunnel-timeout", "Longest silence of a WebSocket or another upgraded connection. Beyond it: close.")
        .arguments(&[one("time", ValueKind::Time { min: Duration::from_secs(1), max: Duration::from_secs(7 * 24 * 3600) })])
        .default("1h"),
    setting(UPSTREAM, "tls", "TLS to servers with an https URL.")
        .opens(BlockKind::UpstreamTls)
        .if_absent("the certificate is verified by the host of the URL and the authorities of the system"),
    setting(TLS, "ca", "File with the authorities that sign the certificates of the servers.")
        .arguments(&[one("path", ValueKind::Path)])
        .if_absent("those that the system trusts")
        .details("Verification cannot be switched off. `ca` may name the certificate of the server itself."),
    setting(TLS, "server-name", "The name that the certificate has to have, which is sent to the server as well.")
        .arguments(&[one("name", ValueKind::Host)])
        .if_absent("the host of the URL; a URL with an IP address requires it")
        .example("server-name \"app.internal\""),
    setting(TLS, "client-certificate", "Certificate chain with which this server authenticates itself.")
        .arguments(&[one("chain", ValueKind::Path)])
        .properties(&[property(
            "key",
            ValueKind::Path,
            DefaultValue::Effect("the file of the chain"),
            "File with the private key.",
        )])
        .if_absent("none")
        .example("client-certificate \"client.pem\" key=\"client.key\""),
];
