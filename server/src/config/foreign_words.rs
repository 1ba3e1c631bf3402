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
        "write `route \"/*\" { files { try-files \"*\" \"*.html\"; }; }`, or `files fallback=\"/index.html\"`",
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
    ("gzip", "`precompressed` sends `.br`, `.zst` and `.gz` files; compression of other responses is not yet there"),
    ("gzip_static", "write `precompressed #true`, the default"),
    ("brotli", "`precompressed` sends `.br` files; compression of other responses is not yet there"),
    ("encode", "`precompressed` sends `.br`, `.zst` and `.gz` files; compression of other responses is not yet there"),
    ("deflate", "`precompressed` sends `.br`, `.zst` and `.gz` files; compression of other responses is not yet there"),
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
    ("pid", "write `pid-file PATH`"),
    ("import", "write `include FILE`, or `use NAME` for a `snippet`"),
    ("sendfile", "files are always sent by the kernel; remove it"),
    ("tcp_nopush", "the server chooses it; remove it"),
    ("tcp_nodelay", "the server chooses it; remove it"),
    ("loadmodule", "modules do not exist; remove it"),
    ("load_module", "modules do not exist; remove it"),
    // Not yet.
    ("proxy_pass", PROXY),
    ("reverse_proxy", PROXY),
    ("proxypass", PROXY),
    ("proxypassreverse", PROXY),
    ("proxy", PROXY),
    ("proxy_set_header", PROXY),
    ("upstream", PROXY),
    ("backend", PROXY),
    ("default_backend", PROXY),
    ("fastcgi_pass", FASTCGI),
    ("fastcgi_param", FASTCGI),
    ("php_fastcgi", FASTCGI),
    ("php", FASTCGI),
    ("cgi", FASTCGI),
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
    ("abort", "write `deny`"),
    ("error", "write `deny status=410`, or `respond 410 TEXT` for a text of your own"),
    ("status", "write `deny status=410`, or `respond 410 TEXT` for a text of your own"),
    ("autoindex", "write `files listing=#true`"),
    ("options", "links within the root are followed, and `files listing=#true` lists folders"),
    ("gzip_static", "write `files precompressed=#true`, the default of `precompressed` in the site"),
];

const NESTED: &str = "routes do not nest; write `route PATTERN { ... }` in the site";
const PROXY: &str = "a reverse proxy is not yet there";
const FASTCGI: &str = "FastCGI and CGI are not yet there";
const LISTENER: &str = "write `listen \"[::]:443\"`; another port needs `tls=#true`";
const CERTIFICATE: &str = "write `certificate \"chain.pem\" key=\"key.pem\"` in the site";
const CLIENTS: &str = "write `client-certificates \"required\" ca=\"ca.pem\"` in the site";
const FIXED: &str = "TLS 1.2 and 1.3 with current ciphers are always on; remove it";
const ACME: &str = "certificates are ordered by themselves; `acme { email ADDRESS; }` at the top has an address";

/// Returns what to write for a setting of another server in a block.
pub(super) fn suggestion(name: &str, place: BlockKind) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let (_, text) = SUGGESTIONS.iter().find(|(known, _)| *known == lower)?;
    Some(with_place(text, place))
}

/// Returns what to write in a route, for words of other servers that are settings elsewhere or mean something else
/// there.
pub(super) fn in_route(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    IN_ROUTE.iter().find(|(known, _)| *known == lower).map(|(_, text)| *text)
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
    ["at the top", "in the site", "in a route", "in the route", "in `"].iter().any(|place| text.contains(place))
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
        for (name, text) in IN_ROUTE {
            assert_eq!(*name, name.to_ascii_lowercase());
            let is_valid = |setting| settings::find(BlockKind::Route, setting).is_some();
            assert!(written_setting(text).is_none_or(is_valid) || names_place(text), "{name}: {text}");
        }
        for (name, _) in SUGGESTIONS {
            for place in [BlockKind::Top, BlockKind::Site, BlockKind::Route] {
                let Some(text) = suggestion(name, place) else { continue };
                let Some(setting) = written_setting(&text) else { continue };
                let is_valid = settings::find(place, setting).is_some();
                assert!(is_valid || names_place(&text), "{name} in {place:?}: {text}");
            }
        }
        assert_eq!(in_route("autoindex"), Some("write `files listing=#true`"));
        assert_eq!(suggestion("autoindex", BlockKind::Top).unwrap(), "in `site`, write `listing #true`");
        assert_eq!(suggestion("AutoIndex", BlockKind::Site).unwrap(), "write `listing #true`");
    }
}
