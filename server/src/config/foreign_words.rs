//! The settings of other servers, and what to write here.

use super::settings::{self, BlockKind};

/// Words of other servers in lower case, and what to write instead.
const SUGGESTIONS: &[(&str, &str)] = &[
    // Sites.
    ("server", "a site is `site \"example.com\" { ... }`; `listen` stands outside of it"),
    ("virtualhost", "a site is `site \"example.com\" { ... }`; `listen` stands outside of it"),
    ("http", "settings of the server stand at the top, without a block"),
    ("events", "settings of the server stand at the top, without a block"),
    ("server_name", "host names are the values of `site`: `site \"example.com\" \"www.example.com\" { ... }`"),
    ("servername", "host names are the values of `site`: `site \"example.com\" { ... }`"),
    ("serveralias", "host names are the values of `site`: `site \"example.com\" \"www.example.com\" { ... }`"),
    ("documentroot", "write `root PATH` in the site"),
    ("directoryindex", "write `index NAME...` in the site"),
    ("bind", "write `listen ADDRESS` at the top"),
    ("frontend", "write `listen ADDRESS` at the top and `site` for the hosts"),
    // Routes.
    ("location", "write `route PATTERN { ... }`; `/app/*` is the path and everything beneath it"),
    ("handle", "write `route PATTERN { ... }`"),
    ("handle_path", "write `route \"/app/*\" { files root=\"...\"; }`, which takes the path of the route off"),
    ("directory", "write `route PATTERN { ... }`, or `root` for the whole site"),
    ("alias", "write `route \"/static/*\" { files root=\"/srv/assets\"; }`, which takes the path of the route off"),
    ("file_server", "a site with `root` serves its files; in a route, write `files`"),
    (
        "try_files",
        "write `clean-urls`, `route \"/*\" { files { try-files \"*\" \"*.html\"; }; }`, or `files fallback=\"/index.html\"`",
    ),
    ("return", "write `redirect TARGET status=301`, `respond STATUS TEXT` or `deny status=404` in a route"),
    ("redir", "write `route PATTERN { redirect TARGET status=301; }`"),
    ("redirectmatch", "write `route \"regex:...\" { redirect TARGET status=301; }`"),
    ("rewriterule", "write `route \"regex:...\" { redirect TARGET; }` or `{ rewrite TARGET; }`"),
    ("rewritecond", "write `when { ... }` in the route"),
    ("rewriteengine", "routes always apply; remove it"),
    ("if", "write `when { ... }` in a route"),
    ("map", "write a route with `when { ... }` for each value"),
    ("limit_except", "write `when { method \"GET\"; }` in a route"),
    ("internal", "write `route PATTERN { deny status=404; }`"),
    ("abort", "write `deny` in a route"),
    ("error_page", "write `error-page 404 \"/404.html\"`"),
    ("errordocument", "write `error-page 404 \"/404.html\"`"),
    ("handle_errors", "write `error-page 404 \"/404.html\"`"),
    ("autoindex", "write `listing #true`"),
    ("options", "links within the root are followed, and `listing #true` lists folders"),
    // Fields.
    ("add_header", "write `header NAME VALUE`, or `header-add` to keep others with its name"),
    ("more_set_headers", "write `header NAME VALUE`"),
    ("expires", "write `cache-control PATTERN \"max-age=SECONDS\"`"),
    ("expiresbytype", "write `cache-control \"image/*\" \"max-age=SECONDS\"`"),
    ("expiresactive", "`cache-control` always applies; remove it"),
    ("types", "write `content-type PATTERN TYPE` for each file name"),
    ("addtype", "write `content-type \"*.ext\" TYPE`"),
    ("default_type", "write `content-type \"*\" TYPE`"),
    ("charset", "text files are sent as UTF-8; `content-type` changes it"),
    ("etag", "files always have an entity tag"),
    ("server_tokens", "the server sends no version"),
    // Compression.
    ("gzip", "write `compress #true`; `precompressed` sends `.br`, `.zst` and `.gz` files"),
    ("gzip_static", "write `precompressed #true`, the default"),
    ("brotli", "write `compress #true`; `precompressed` sends `.br`, `.zst` and `.gz` files"),
    ("encode", "write `compress #true`; `precompressed` sends `.br`, `.zst` and `.gz` files"),
    ("deflate", "write `compress #true`; `precompressed` sends `.br`, `.zst` and `.gz` files"),
    // Access.
    ("allow", "write `ip-access { allow NETWORK; }`"),
    ("require", "write `ip-access { allow NETWORK; }` or `basic-auth file=FILE`"),
    ("auth_basic", "write `basic-auth realm=TEXT file=FILE`"),
    ("auth_basic_user_file", "write `basic-auth realm=TEXT file=FILE`"),
    ("basicauth", "write `basic-auth realm=TEXT file=FILE`"),
    ("basic_auth", "write `basic-auth realm=TEXT file=FILE`"),
    ("authtype", "write `basic-auth realm=TEXT file=FILE`"),
    ("authname", "write `basic-auth realm=TEXT file=FILE`"),
    ("authuserfile", "write `basic-auth realm=TEXT file=FILE`"),
    ("limit_req", "write `rate-limit 10 per=\"1s\" burst=20`"),
    ("limit_req_zone", "write `rate-limit 10 per=\"1s\" burst=20` where it applies"),
    ("limit_conn", "write `requests-at-once-max NUMBER` here, or `connections-per-client-max` in `limits`"),
    ("set_real_ip_from", "write `trusted-proxies NETWORK...` at the top"),
    ("real_ip_header", "write `trusted-proxies NETWORK... header=\"x-forwarded-for\"` at the top"),
    ("client_max_body_size", "write `body-bytes-max SIZE`"),
    ("request_body", "write `body-bytes-max SIZE`"),
    ("limitrequestbody", "write `body-bytes-max SIZE`"),
    ("keepalive_timeout", "write `keep-alive-timeout` in `limits`"),
    ("keepalivetimeout", "write `keep-alive-timeout` in `limits`"),
    ("client_header_timeout", "write `header-timeout` in `limits`"),
    ("client_body_timeout", "write `body-timeout` in `limits`"),
    ("send_timeout", "write `send-timeout` in `limits`"),
    ("worker_processes", "write `workers NUMBER`"),
    ("worker_connections", "write `connections-max` in `limits`"),
    ("access_log", "write `log { access TARGET; }`"),
    ("error_log", "write `log { error TARGET; }`"),
    ("customlog", "write `log { access FILE format=FORMAT; }`"),
    ("errorlog", "write `log { error FILE; }`"),
    ("log_format", "write `log { access FILE format=FORMAT; }`"),
    ("logformat", "write `log { access FILE format=FORMAT; }`"),
    ("stub_status", METRICS),
    ("vhost_traffic_status", METRICS),
    ("vhost_traffic_status_display", METRICS),
    ("server_status", METRICS),
    ("extendedstatus", METRICS),
    ("prometheus", METRICS),
    ("stats", METRICS),
    ("tracing", TRACES),
    ("opentelemetry", TRACES),
    ("opentracing", TRACES),
    ("otel_exporter", TRACES),
    ("otel_trace", TRACES),
    ("otel_service_name", "write `traces URL { service NAME; }` at the top"),
    ("otel_trace_context", "`traceparent` is taken over and passed on with `traces URL` at the top; remove it"),
    ("pid", "write `pid-file PATH`"),
    ("import", "write `include FILE`, or `use NAME` for a `snippet`"),
    ("sendfile", "files are always sent by the kernel; remove it"),
    ("tcp_nopush", "the server chooses it; remove it"),
    ("tcp_nodelay", "the server chooses it; remove it"),
    ("loadmodule", "modules do not exist; remove it"),
    ("load_module", "modules do not exist; remove it"),
    // Applications.
    ("proxy_pass", PROXY),
    ("reverse_proxy", PROXY),
    ("proxypass", PROXY),
    ("proxypassmatch", PROXY),
    ("proxypassreverse", "write `proxy \"http://host:port\" { rewrite-location #true; }` in a route"),
    ("proxypassreversecookiepath", "write `proxy \"http://host:port\" { rewrite-location #true; }` in a route"),
    ("proxy_redirect", "write `proxy \"http://host:port\" { rewrite-location #true; }` in a route"),
    ("proxy_cookie_path", "write `proxy \"http://host:port\" { rewrite-location #true; }` in a route"),
    ("proxypreservehost", "the host of the client is kept; `proxy ... { host \"upstream\"; }` in a route changes it"),
    ("proxyrequests", "a forward proxy is not planned; remove it"),
    ("load_balance", BALANCE),
    ("load_balancer", BALANCE),
    ("load_balancing", BALANCE),
    ("loadbalancer", BALANCE),
    ("lb_policy", BALANCE),
    ("grpc_pass", "write `upstream NAME { server URL; protocol \"http2\"; }` at the top, and `proxy NAME` in a route"),
    ("proxy_set_header", HEADER_UP),
    ("header_up", HEADER_UP),
    ("requestheader", HEADER_UP),
    ("http-request", HEADER_UP),
    (
        "header_down",
        "write `header NAME VALUE`; for responses of the upstream only, `header-down` in the block of `proxy`",
    ),
    ("proxy_hide_header", "write `header-remove NAME`"),
    ("proxy_pass_header", "fields of an upstream are forwarded; remove it"),
    ("proxy_http_version", "upstreams get HTTP/1.1, or HTTP/2 with `protocol \"http2\"` in an `upstream`; remove it"),
    ("proxy_buffering", STREAMS),
    ("proxy_request_buffering", STREAMS),
    ("proxy_buffers", STREAMS),
    ("proxy_buffer_size", STREAMS),
    ("fastcgi_buffers", STREAMS),
    ("fastcgi_buffering", STREAMS),
    ("fastcgi_request_buffering", STREAMS),
    ("flush_interval", STREAMS),
    ("proxy_connect_timeout", "write `connect-timeout TIME` in an `upstream`"),
    ("proxy_read_timeout", "write `response-timeout TIME` and `silence-timeout TIME` in an `upstream`"),
    ("proxy_send_timeout", "write `silence-timeout TIME` in an `upstream`"),
    ("proxytimeout", "write `response-timeout TIME` and `silence-timeout TIME` in an `upstream`"),
    ("proxy_next_upstream", REPEATS),
    ("proxy_next_upstream_tries", REPEATS),
    (
        "proxy_ssl_verify",
        "certificates of upstreams are always verified; `tls { ca FILE; }` in an `upstream` names authorities",
    ),
    ("proxy_ssl_trusted_certificate", "write `tls { ca FILE; }` in an `upstream`"),
    ("proxy_ssl_name", "write `tls { server-name NAME; }` in an `upstream`"),
    ("proxy_ssl_server_name", "the name is always sent; remove it"),
    ("proxy_ssl_certificate", "write `tls { client-certificate CHAIN key=KEY; }` in an `upstream`"),
    ("proxy_cache", "responses of upstreams are not cached yet"),
    (
        "proxy_intercept_errors",
        "responses of upstreams are forwarded as they are; `error-page` is for errors of this server",
    ),
    ("proxy_protocol", "write `listen ADDRESS proxy-protocol=#true` at the top"),
    ("backend", "write `upstream NAME { server \"http://host:port\"; }` at the top, and `proxy NAME` in a route"),
    (
        "balancermember",
        "write `upstream NAME { server \"http://host:port\"; }` at the top, and `proxy NAME` in a route",
    ),
    ("default_backend", "write `route \"/*\" { proxy NAME; }` in the site"),
    ("use_backend", "write `route PATTERN { proxy NAME; }` in the site"),
    ("fastcgi_pass", PHP),
    ("php_fastcgi", PHP),
    ("php-fpm", PHP),
    ("php_fpm", PHP),
    ("fastcgi_param", ENV),
    ("fastcgi_params", ENV),
    ("scgi_param", ENV),
    ("setenv", ENV),
    ("fastcgi_index", "`php` runs the `index.php` of a folder; remove it"),
    ("fastcgi_split_path_info", "`php` splits the path; remove it"),
    ("fastcgi_read_timeout", "write `response-timeout TIME` in the block of `php`"),
    ("fastcgi_keep_conn", "write `idle-connections-max NUMBER` in the block of `php`"),
    ("scgi_pass", "write `scgi ADDRESS` in a route"),
    ("uwsgi_pass", "let uwsgi serve HTTP, FastCGI or SCGI, and write `proxy`, `fastcgi` or `scgi` in a route"),
    ("scriptalias", "write `route \"/cgi-bin/*\" { cgi FOLDER; }` in the site"),
    ("addhandler", "write `php ADDRESS` or `cgi FOLDER` in a route"),
    ("sethandler", "write `php ADDRESS` or `cgi FOLDER` in a route"),
    ("tls", CERTIFICATE),
    ("ssl", LISTENER),
    ("sslengine", LISTENER),
    ("ssl_certificate", CERTIFICATE),
    ("ssl_certificate_key", CERTIFICATE),
    ("sslcertificatefile", CERTIFICATE),
    ("sslcertificatekeyfile", CERTIFICATE),
    ("ssl_protocols", FIXED),
    ("sslprotocol", FIXED),
    ("ssl_ciphers", FIXED),
    ("sslciphersuite", FIXED),
    ("ssl_prefer_server_ciphers", FIXED),
    ("ssl_dhparam", FIXED),
    ("ssl_session_cache", FIXED),
    ("ssl_session_timeout", FIXED),
    ("ssl_session_tickets", FIXED),
    ("ssl_session_ticket_key", "write `ticket-keys FILE` at the top"),
    ("ssl_stapling", "certificate authorities have given up stapling; remove it"),
    ("ssl_verify_client", CLIENTS),
    ("ssl_client_certificate", CLIENTS),
    ("sslverifyclient", CLIENTS),
    ("client_auth", CLIENTS),
    ("acme_ca", ACME),
    ("email", ACME),
    ("http2", "with TLS, HTTP/2 is always on; without it, write `listen ADDRESS http2=#true`"),
    ("templates", "templates are not planned; serve the finished files"),
];

/// What to write in a route, where it differs.
const IN_ROUTE: &[(&str, &str)] = &[
    ("location", NESTED),
    ("handle", NESTED),
    ("directory", NESTED),
    ("handle_path", "write `files root=\"...\"`, which takes the path of the route off"),
    ("alias", "write `files root=\"...\"`, which takes the path of the route off"),
    ("documentroot", "write `files root=\"...\" strip-prefix=#false`"),
    ("directoryindex", "write `files { index NAME...; }`"),
    ("file_server", "write `files`"),
    ("try_files", "write `files { try-files \"*\" \"*.html\"; }`, or `files fallback=\"/index.html\"`"),
    ("return", "write `redirect TARGET status=301`, `respond STATUS TEXT` or `deny status=404`"),
    ("redir", "write `redirect TARGET status=301`"),
    ("redirectmatch", "write `redirect TARGET status=301` in a route with the pattern `regex:...`"),
    ("rewriterule", "write `redirect TARGET` or `rewrite TARGET` in a route with the pattern `regex:...`"),
    ("rewritecond", "write `when { ... }`"),
    ("if", "write `when { ... }`"),
    ("limit_except", "write `when { method \"GET\"; }`"),
    ("internal", "write `deny status=404`"),
    ("stub_status", METRICS_HERE),
    ("vhost_traffic_status_display", METRICS_HERE),
    ("server_status", METRICS_HERE),
    ("extendedstatus", METRICS_HERE),
    ("prometheus", METRICS_HERE),
    ("stats", METRICS_HERE),
    ("abort", "write `deny`"),
    ("error", "write `deny status=410`, or `respond 410 TEXT` for a text of your own"),
    ("status", "write `deny status=410`, or `respond 410 TEXT` for a text of your own"),
    ("autoindex", "write `files listing=#true`"),
    ("options", "links within the root are followed, and `files listing=#true` lists folders"),
    ("gzip_static", "write `files precompressed=#true`, the default of `precompressed` in the site"),
    ("proxy_pass", "write `proxy \"http://host:port\"`"),
    ("reverse_proxy", "write `proxy \"http://host:port\"`"),
    ("proxypass", "write `proxy \"http://host:port\"`"),
    ("proxypassreverse", "write `proxy \"http://host:port\" { rewrite-location #true; }`"),
    ("proxy_redirect", "write `proxy \"http://host:port\" { rewrite-location #true; }`"),
    ("fastcgi_pass", "write `php \"unix:/run/php/php-fpm.sock\"`; for other applications, `fastcgi ADDRESS`"),
    ("php_fastcgi", "write `php \"unix:/run/php/php-fpm.sock\"`; for other applications, `fastcgi ADDRESS`"),
    ("scgi_pass", "write `scgi ADDRESS`"),
    ("uwsgi_pass", "let uwsgi serve HTTP, FastCGI or SCGI, and write `proxy`, `fastcgi` or `scgi`"),
    ("proxy_to", "write `proxy \"http://host:port\"`"),
    ("forward", "write `proxy \"http://host:port\"`"),
    ("backend", "write `proxy \"http://host:port\"`"),
];

/// What to write in an upstream.
const IN_UPSTREAM: &[(&str, &str)] = &[
    ("to", "write `server \"http://host:port\"`"),
    ("balancermember", "write `server \"http://host:port\"`"),
    ("lb_policy", "write `balance \"round-robin\"`, \"least-loaded\", \"hash\" or \"sticky\""),
    ("load_balance", "write `balance \"round-robin\"`, \"least-loaded\", \"hash\" or \"sticky\""),
    ("load_balancing", "write `balance \"round-robin\"`, \"least-loaded\", \"hash\" or \"sticky\""),
    ("lbmethod", "write `balance \"round-robin\"`, \"least-loaded\", \"hash\" or \"sticky\""),
    ("least_conn", "write `balance \"least-loaded\"`, the default"),
    ("least_time", "write `balance \"least-loaded\"`, the default"),
    ("random", "write `balance \"least-loaded\"`, the default: the better of two random servers"),
    ("round_robin", "write `balance \"round-robin\"`"),
    ("ip_hash", "write `balance \"hash\" by=\"client\"`"),
    ("hash", "write `balance \"hash\" by=\"path\"`"),
    ("sticky", "write `balance \"sticky\" cookie=\"server\"`"),
    ("stickysession", "write `balance \"sticky\" cookie=\"server\"`"),
    ("cookie", "write `balance \"sticky\" cookie=\"server\"`"),
    ("keepalive", "idle connections are kept; `upstream-idle-per-server-max` in `limits` is their number"),
    ("keepalive_timeout", "write `upstream-idle-timeout TIME` in `limits`"),
    ("keepalive_requests", "connections are used until a side closes them; remove it"),
    ("zone", "the workers share what they know about servers; remove it"),
    ("resolver", "names are resolved again while the server runs; remove it"),
    ("max_fails", "write `failures 3 per=\"10s\" eject=\"10s\"`"),
    ("fail_timeout", "write `failures 3 per=\"10s\" eject=\"10s\"`"),
    ("fail_duration", "write `failures 3 per=\"10s\" eject=\"10s\"`"),
    ("unhealthy_status", "write `failures 3`: responses with status 500, 502, 503 and 504 count"),
    ("health_check", HEALTH),
    ("health_uri", HEALTH),
    ("health_interval", HEALTH),
    ("health_status", HEALTH),
    ("option", HEALTH),
    ("httpchk", HEALTH),
    ("slow_start", "write `slow-start TIME`"),
    ("max_conns", "write `requests-max NUMBER`"),
    ("maxconn", "write `requests-max NUMBER`"),
    ("queue", "write `requests-max 100 queue=200`"),
    ("retries", "a request is repeated only where that is safe; remove it"),
    ("lb_try_duration", "write `requests-max 100 queue=200` to let requests wait for a server; remove it"),
    ("transport", "write `protocol \"http2\"`, or `tls { ... }` for servers with an https URL"),
    ("tls_insecure_skip_verify", "certificates are always verified; write `tls { ca FILE; }`"),
    ("tls_trusted_ca_certs", "write `tls { ca FILE; }`"),
    ("tls_server_name", "write `tls { server-name NAME; }`"),
    ("dial_timeout", "write `connect-timeout TIME`"),
    ("read_timeout", "write `silence-timeout TIME`"),
    ("response_header_timeout", "write `response-timeout TIME`"),
    ("send-proxy", "write `proxy-protocol \"v1\"`"),
    ("send-proxy-v2", "write `proxy-protocol \"v2\"`"),
    ("timeout", "write `connect-timeout TIME`, `response-timeout TIME` or `silence-timeout TIME`"),
];

/// Words of a server of an upstream that are no properties of it here.
const OF_SERVER: &[(&str, &str)] = &[
    ("max_fails", "write `failures 3 per=\"10s\" eject=\"10s\"` in the upstream"),
    ("fail_timeout", "write `failures 3 per=\"10s\" eject=\"10s\"` in the upstream"),
    ("fall", "write `failures 3 per=\"10s\" eject=\"10s\"` in the upstream"),
    ("max_conns", "write `requests-max NUMBER` in the upstream"),
    ("maxconn", "write `requests-max NUMBER` in the upstream"),
    ("slow_start", "write `slow-start TIME` in the upstream"),
    ("slowstart", "write `slow-start TIME` in the upstream"),
    ("check", "write `health path=\"/\"` in the upstream"),
    ("inter", "write `health path=\"/\" every=\"5s\"` in the upstream"),
    ("rise", "write `health path=\"/\"` in the upstream"),
    ("down", "remove the server, or comment it out with `/-`"),
    ("disabled", "remove the server, or comment it out with `/-`"),
    ("resolve", "names are resolved again while the server runs; remove it"),
    ("backup", "all servers of a group get requests; remove it, or give the server a lower `weight`"),
    ("loadfactor", "write `weight=NUMBER`"),
    ("ssl", "write the URL with \"https://\""),
    ("verify", "certificates are always verified; write `tls { ca FILE; }` in the upstream"),
    ("proto", "write `protocol \"http2\"` in the upstream"),
    ("send-proxy", "write `proxy-protocol \"v1\"` in the upstream"),
    ("send-proxy-v2", "write `proxy-protocol \"v2\"` in the upstream"),
];

/// What to write in the block of `proxy`.
const IN_PROXY: &[(&str, &str)] = &[
    ("to", "the targets are the values of `proxy`: `proxy \"http://host:port\"`"),
    ("header_up", "write `header-up NAME VALUE`"),
    ("proxy_set_header", "write `header-up NAME VALUE`"),
    ("header_down", "write `header-down NAME VALUE`"),
    ("header", "write `header-up NAME VALUE` for requests, or `header` in the route for responses"),
    ("header-remove", "write `header-up-remove NAME` for requests, or `header-remove` in the route for responses"),
    ("proxy_redirect", "write `rewrite-location #true`"),
    ("rewrite", "write `path TARGET`"),
    ("uri", "write `path TARGET`"),
    ("buffer", "write `buffer-request SIZE`"),
    ("request_buffers", "write `buffer-request SIZE`"),
    ("lb_policy", "write `upstream NAME { balance ...; }` at the top, and `proxy NAME` here"),
    ("balance", "write `upstream NAME { balance ...; }` at the top, and `proxy NAME` here"),
    ("load_balance", "write `upstream NAME { balance ...; }` at the top, and `proxy NAME` here"),
    ("health_uri", "write `upstream NAME { health ...; }` at the top, and `proxy NAME` here"),
    ("transport", "write `upstream NAME { ... }` at the top, and `proxy NAME` here"),
    ("websocket", "WebSocket needs no setting; remove it"),
];

const METRICS: &str = "write `metrics ADDRESS` at the top, or `metrics` or `status-page` in a route";
const METRICS_HERE: &str = "write `metrics`, or `status-page` for a browser";
const TRACES: &str = "write `traces \"http://127.0.0.1:4318/v1/traces\"` at the top";
const HEALTH: &str = "write `health path=\"/healthz\" every=\"5s\" expect=200`";
const NESTED: &str = "routes do not nest; write `route PATTERN { ... }` in the site";
const PROXY: &str = "write `proxy \"http://host:port\"` in a route";
const BALANCE: &str =
    "write `upstream NAME { server URL...; balance \"round-robin\"; }` at the top, and `proxy NAME` in a route";
const PHP: &str = "write `php \"unix:/run/php/php-fpm.sock\"` in a route; for other applications, `fastcgi ADDRESS`";
const ENV: &str = "write `env NAME VALUE` in the block of `php`, `fastcgi`, `scgi` or `cgi`";
const HEADER_UP: &str = "write `header-up NAME VALUE` in the block of `proxy`";
const STREAMS: &str =
    "content is forwarded while it arrives; `proxy ... { buffer-request SIZE; }` receives small content first";
const REPEATS: &str = "a request is repeated only where that is safe; remove it";
const LISTENER: &str = "write `listen \"[::]:443\"`; another port needs `tls=#true`";
const CERTIFICATE: &str = "write `certificate \"chain.pem\" key=\"key.pem\"` in the site";
const CLIENTS: &str = "write `client-certificates \"required\" ca=\"ca.pem\"` in the site";
const FIXED: &str = "TLS 1.2 and 1.3 with current ciphers are always on; remove it";
const ACME: &str = "certificates are ordered by themselves; `acme { email ADDRESS; }` at the top has an address";

/// Returns what to write for a setting of another server in a block.
pub(super) fn suggestion(name: &str, place: BlockKind) -> Option<String> {
    find(SUGGESTIONS, name).map(|text| with_place(text, place))
}

/// Finds what to write for a word, whatever its case. Hyphens also stand for the underscores of other servers, unless the
/// word is a setting here.
fn find(words: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let of = |written: &str| words.iter().find(|(known, _)| *known == written).map(|(_, text)| *text);
    of(&lower).or_else(|| {
        let is_setting = settings::all().any(|setting| setting.name == lower);
        if is_setting { None } else { of(&lower.replace('-', "_")) }
    })
}

/// Returns what to write for a property of another server.
pub(super) fn property(setting: &str, name: &str) -> Option<&'static str> {
    if setting == "server" { find(OF_SERVER, name) } else { None }
}

/// Returns what to write in a route, in an upstream or in the block of `proxy`, for words of other servers that are settings elsewhere or mean something else
/// there.
pub(super) fn in_block(name: &str, place: BlockKind) -> Option<&'static str> {
    let words = match place {
        BlockKind::Route => IN_ROUTE,
        BlockKind::Upstream => IN_UPSTREAM,
        BlockKind::Proxy => IN_PROXY,
        _ => return None,
    };
    find(words, name)
}

/// Adds the blocks of the setting that a text names, if it is not one of this block.
fn with_place(text: &str, place: BlockKind) -> String {
    let Some(setting) = written_setting(text).filter(|_| !names_place(text)) else { return text.to_owned() };
    let blocks = [BlockKind::Top, BlockKind::Site, BlockKind::Route];
    let owners: Vec<_> = blocks.into_iter().filter(|block| settings::find(*block, setting).is_some()).collect();
    if owners.is_empty() || owners.contains(&place) {
        return text.to_owned();
    }
    let within = |block: &BlockKind| match block {
        BlockKind::Top => "at the top level".to_owned(),
        block => format!("in {}", block.name()),
    };
    let places: Vec<_> = owners.iter().map(within).collect();
    format!("{}, {text}", places.join(" or "))
}

/// Returns the setting that a text advises to write.
fn written_setting(text: &str) -> Option<&str> {
    let (_, code) = text.split_once("write `")?;
    code.split([' ', '`', '=']).next()
}

/// Whether a text names the place of its setting.
fn names_place(text: &str) -> bool {
    ["at the top", "in the site", "in a route", "in the route", "in the upstream", "in an `", "in the block", "in `"]
        .iter()
        .any(|place| text.contains(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_a_setting_and_each_is_lower_case() {
        for (name, _) in SUGGESTIONS {
            assert_eq!(*name, name.to_ascii_lowercase());
        }
        let names: std::collections::HashSet<_> = SUGGESTIONS.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), SUGGESTIONS.len());
    }

    #[test]
    fn a_suggestion_is_valid_in_its_block_or_names_another() {
        let of_blocks = [
            (BlockKind::Route, IN_ROUTE),
            (BlockKind::Upstream, IN_UPSTREAM),
            (BlockKind::Upstream, OF_SERVER),
            (BlockKind::Proxy, IN_PROXY),
        ];
        for (place, words) in of_blocks {
            for (name, text) in words {
                assert_eq!(*name, name.to_ascii_lowercase());
                let is_valid = |setting| settings::find(place, setting).is_some();
                let of_server = |word: &str| word == "weight" || word == "the";
                let is_right = |word| is_valid(word) || of_server(word);
                assert!(written_setting(text).is_none_or(is_right) || names_place(text), "{name}: {text}");
            }
        }
        for (name, _) in SUGGESTIONS {
            for place in [BlockKind::Top, BlockKind::Site, BlockKind::Route] {
                let Some(text) = suggestion(name, place) else { continue };
                let Some(setting) = written_setting(&text) else { continue };
                let is_valid = settings::find(place, setting).is_some();
                assert!(is_valid || names_place(&text), "{name} in {place:?}: {text}");
            }
        }
        assert_eq!(in_block("autoindex", BlockKind::Route), Some("write `files listing=#true`"));
        assert_eq!(suggestion("autoindex", BlockKind::Top).unwrap(), "in `site`, write `listing #true`");
        assert_eq!(suggestion("AutoIndex", BlockKind::Site).unwrap(), "write `listing #true`");
        for word in ["reverse-proxy", "reverse_proxy", "proxy-pass", "proxy_pass", "ProxyPass"] {
            assert_eq!(in_block(word, BlockKind::Route), Some("write `proxy \"http://host:port\"`"), "{word}");
            assert_eq!(suggestion(word, BlockKind::Site).unwrap(), PROXY, "{word}");
        }
        for word in ["stub_status", "server-status", "ExtendedStatus"] {
            assert_eq!(
                in_block(word, BlockKind::Route),
                Some("write `metrics`, or `status-page` for a browser"),
                "{word}"
            );
            assert_eq!(suggestion(word, BlockKind::Site).unwrap(), METRICS, "{word}");
        }
        assert_eq!(suggestion("tracing", BlockKind::Site).unwrap(), TRACES);
        assert!(in_block("load-balance", BlockKind::Upstream).unwrap().starts_with("write `balance "));
        assert_eq!(suggestion("error-page", BlockKind::Top), None, "a setting of its own");
    }
}
