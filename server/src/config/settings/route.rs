//! Settings of a route: its conditions and its one action.

use super::{
    BlockKind, DRY_RUN, DefaultValue, IGNORE_CASE, Setting, any_number, list, one, optional, property, setting,
};
use crate::config::value::ValueKind;

const ROUTE: &[BlockKind] = &[BlockKind::Route];
const WHEN: &[BlockKind] = &[BlockKind::When];
const FILES: &[BlockKind] = &[BlockKind::Files];
const FILES_AND_PHP: &[BlockKind] = &[BlockKind::Files, BlockKind::Php];

/// The actions. A route has exactly one.
pub(crate) const ACTIONS: [&str; 12] = [
    "files",
    "redirect",
    "rewrite",
    "respond",
    "deny",
    "metrics",
    "status-page",
    "proxy",
    "php",
    "fastcgi",
    "scgi",
    "cgi",
];

pub(super) const SETTINGS: &[Setting] = &[
    setting(ROUTE, "when", "Further conditions for the route to match. All of them have to hold.")
        .opens(BlockKind::When)
        .if_absent("only the path decides")
        .details(
            "In a value, `*` is any text, and `regex:` before it makes it a regular expression; several values are \
             alternatives. The first route whose path and conditions match applies.",
        )
        .example("when {\n    method \"GET\" \"HEAD\"\n    not { header \"User-Agent\" \"*bot*\" ignore-case=#true; }\n}"),
    setting(WHEN, "method", "The method is one of these. GET includes HEAD.")
        .arguments(&[list("method", ValueKind::Method)])
        .if_absent("any"),
    setting(WHEN, "query", "The query has a parameter with this name, and one of these values if given.")
        .arguments(&[one("name", ValueKind::Text), any_number("value", ValueKind::TextPattern)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("any")
        .example("query \"page\" \"regex:^[0-9]+$\""),
    setting(WHEN, "header", "The request has a field with this name, and one of these values if given.")
        .arguments(&[one("name", ValueKind::RequestFieldName), any_number("value", ValueKind::TextPattern)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("any")
        .example("header \"User-Agent\" \"*GPTBot*\" \"*CCBot*\" ignore-case=#true"),
    setting(WHEN, "cookie", "The request has a cookie with this name, and one of these values if given.")
        .arguments(&[one("name", ValueKind::Text), any_number("value", ValueKind::TextPattern)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("any"),
    setting(WHEN, "client", "The client is in one of these networks.")
        .arguments(&[list("network", ValueKind::Network)])
        .repeatable()
        .if_absent("any"),
    setting(WHEN, "host", "The requested host is one of these, without a port.")
        .arguments(&[list("host", ValueKind::HostPattern)])
        .repeatable()
        .if_absent("any of the site's")
        .details("`{name}` is at least one character, and the target can use it. The case of letters does not matter.")
        .example("host \"www.{domain}\""),
    setting(WHEN, "scheme", "The scheme of the request.")
        .arguments(&[one("scheme", ValueKind::Choice(&["http", "https"]))])
        .if_absent("any"),
    setting(WHEN, "client-certificate", "The client has a verified certificate, with one of these subjects if given.")
        .arguments(&[any_number("subject", ValueKind::TextPattern)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("any")
        .details(
            "A subject is written as `CN=alice, O=Example`, with a backslash before each of `,+;<>\\\"` in a value. `CN=alice*` \
             would match `CN=alice2`, too. The site needs `client-certificates`; with `\"optional\"`, clients without a \
             certificate reach the other routes.",
        )
        .example("client-certificate \"CN=alice, O=*\""),
    setting(WHEN, "file-exists", "This file exists. It is looked up once per second.")
        .arguments(&[one("path", ValueKind::Path)])
        .repeatable()
        .if_absent("any")
        .example("file-exists \"/srv/maintenance.flag\""),
    setting(WHEN, "not", "The one condition in the block does not hold.")
        .opens(BlockKind::When)
        .repeatable()
        .if_absent("nothing is excluded")
        .example("not { client \"10.0.0.0/8\"; }"),
    setting(WHEN, "any", "At least one of the conditions in the block holds.")
        .opens(BlockKind::When)
        .repeatable()
        .if_absent("nothing is added"),
    setting(WHEN, "all", "All conditions in the block hold. It is for a group within `any` or `not`.")
        .opens(BlockKind::When)
        .repeatable()
        .if_absent("nothing is added"),
    setting(ROUTE, "files", "Action: serves files.")
        .properties(&[
            property(
                "root",
                ValueKind::Path,
                DefaultValue::Effect("the site's"),
                "The directory. Its files stand at the path of the pattern: see `strip-prefix`.",
            ),
            property(
                "strip-prefix",
                ValueKind::Flag,
                DefaultValue::Effect("#true with `root`, #false with the site's"),
                "Whether the path of a pattern with `/*` at its end is taken off before the file is looked up.",
            ),
            property(
                "fallback",
                ValueKind::UrlPath,
                DefaultValue::Effect("404"),
                "Path of the file that page navigations get if no file exists: the page of a single-page application.",
            ),
            property(
                "listing",
                ValueKind::Flag,
                DefaultValue::Effect("the site's"),
                "Whether a directory without an index file is listed.",
            ),
            property(
                "precompressed",
                ValueKind::Flag,
                DefaultValue::Effect("the site's"),
                "Whether precompressed files (`.br`, `.zst`, `.gz`) are sent.",
            ),
        ])
        .opens(BlockKind::Files)
        .if_absent("no action")
        .details(
            "With a `root` of its own, `route \"/static/*\" { files root=\"/srv/assets\" }` sends `/srv/assets/a.css` for \
             `/static/a.css`; other servers call this alias. With `strip-prefix=#false` it would be \
             `/srv/assets/static/a.css`, as with the root of the site. A request is a page navigation if its \
             `Sec-Fetch-Mode` is `navigate`. Without that field, and if the last segment of its path has no dot, \
             `Sec-Fetch-Dest` decides: `document`, `iframe` or `frame` is one. Without both, it is one if its `Accept` names \
             `text/html`, is `*/*` alone, or is absent (previews of links and monitors send that), unless \
             `X-Requested-With` is `XMLHttpRequest`. `Vary` names these fields. Requests of \
             images, scripts and `fetch` for missing files get 404: a script must not be a page. \
             `try-files \"*\" \"/index.html\"` sends the page to every request. The file of `fallback` is one of the \
             `root`, whatever the pattern.",
        )
        .example(
            "route \"/app/*\" { files fallback=\"/app/index.html\" }\n\
             route \"/static/*\" { files root=\"/srv/assets\" }",
        ),
    setting(FILES_AND_PHP, "index", "Index file names of directories, tried in order.")
        .arguments(&[list("name", ValueKind::FileName)])
        .if_absent("the site's"),
    setting(FILES, "try-files", "Files to try, in order; `*` or `{path}` is the path of the request.")
        .arguments(&[list("path", ValueKind::TryPath)])
        .default("*")
        .details(
            "`\"*\"` is the file or folder of the path. Other entries are files: `\"*.html\"` for `/a` is `/a.html`, \
             `\"/index.html\"` is this file for every path. If a prefix is taken off (see `strip-prefix`), `*` is the rest \
             of the path, and all entries are beneath the route's own root. Further placeholders are filled: \
             `route \"/docs/{page}/\" { files { try-files \"/docs/{page}.html\"; }; }` sends `/docs/intro.html` for \
             `/docs/intro/`. A folder is redirected to its path with a slash. A folder without an index is the last choice: \
             with `\"*\" \"*.html\"`, the page `guide.html` is sent for `/guide` if `guide/` has no index. For a path with a \
             slash at its end, only `\"*\"` and entries without the path of the request apply. If `guide/` has an index, \
             `\"*.html\" \"*\"` sends the page for `/guide`, and `\"*\" \"*.html\"` redirects to the folder. For whole sites, \
             `clean-urls` does this.",
        )
        .example("try-files \"*.html\" \"*\""),
    setting(ROUTE, "log", "Whether requests of the route have lines in the access log.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .properties(&[property(
            "status",
            ValueKind::Statuses,
            DefaultValue::Effect("all"),
            "Only responses with a status of this range.",
        )])
        .if_absent("they have")
        .details("A route with conditions in `when` before the one for all requests leaves out what the conditions name.")
        .example("route \"/health\" { log #false; respond 200 \"ok\"; }\nroute \"/*\" { log #true status=\"400-599\"; files; }"),
    setting(ROUTE, "name", "Name of the route in metrics and in the flight recorder.")
        .arguments(&[one("name", ValueKind::Label)])
        .if_absent("its first pattern")
        .details("Routes of a site with one name are counted together: [metrics.md](metrics.md).")
        .example("route \"/api/*\" \"/v2/*\" { name \"api\"; proxy \"localhost:9000\"; }"),
    setting(ROUTE, "redirect", "Action: redirects the client, and keeps the query.")
        .arguments(&[one("target", ValueKind::RedirectTarget)])
        .properties(&[property(
            "status",
            ValueKind::OneOfStatuses(&[301, 302, 303, 307, 308]),
            DefaultValue::Text("302"),
            "Browsers cache 301 and 308; 307 and 308 keep the method.",
        )])
        .if_absent("no action")
        .details(
            "`{1}` or a name is what a wildcard of the pattern matched, and a `*` what the `*` of that position did; see \
             the table of placeholders. The query of the request is appended to that of the target; a `?` at the end of \
             the target drops it, and `{query}` places it.",
        )
        .example(
            "route \"/old/*\" { redirect \"/new/*\" status=301 }\n\
             route \"/*\" { redirect \"https://{host}{path}\" status=308 }",
        ),
    setting(ROUTE, "rewrite", "Action: matches the routes again with another path, once at most.")
        .arguments(&[one("target", ValueKind::RewriteTarget)])
        .if_absent("no action")
        .details(
            "Placeholders are filled as in `redirect`. The first route that \
             matches the new path applies, with its access rules. If that route rewrites too, the response is \
             404 and the error log states the reason. So place the target's route before a route that would \
             rewrite it again. The query stays, unless the target has one: as in `redirect`, that of the request is \
             appended to it, a `?` at the end drops that, and `{query}` places it. Conditions, applications and \
             placeholders get the new query; logs and REQUEST_URI show the request as it was sent.",
        )
        .example(
            "route \"/en/*\" { rewrite \"/*\" }\n\
             route \"/product/{id}\" { rewrite \"/index.php?product={id}\" }\n\
             route \"/*\" { php \"unix:/run/php/php-fpm.sock\" }",
        ),
    setting(ROUTE, "respond", "Action: responds with a fixed text.")
        .arguments(&[one("status", ValueKind::Status { min: 200, max: 599 }), optional("body", ValueKind::TextTemplate)])
        .properties(&[property(
            "content-type",
            ValueKind::MediaType,
            DefaultValue::Text("text/plain; charset=utf-8"),
            "Media type of the body.",
        )])
        .if_absent("no action")
        .details(
            "Placeholders in the text are filled and percent-encoded. Other braces stand for themselves, as in JSON, and \
             `{{host}}` is the text `{host}`.",
        )
        .example("route \"/health\" { respond 200 \"ok\" }"),
    setting(ROUTE, "deny", "Action: refuses the request.")
        .properties(&[
            property(
                "status",
                ValueKind::Status { min: 400, max: 599 },
                DefaultValue::Text("403"),
                "Status code of the refusal.",
            ),
            DRY_RUN,
        ])
        .if_absent("no action")
        .details("With `dry-run=#true`, a request that the route matches is counted and logged, and the next matching route applies.")
        .example("route \"/private/*\" { deny status=404 }"),
    setting(ROUTE, "metrics", "Action: responds with the metrics of the server.")
        .if_absent("no action")
        .details(
            "The text is that of the listener of `metrics` at the top level, and the response is for GET and HEAD. Metrics name \
             sites, routes and upstreams, so `ip-access` or `basic-auth` decides who gets them: [metrics.md](metrics.md).",
        )
        .example("route \"/metrics\" {\n    ip-access { allow \"10.0.0.0/8\"; }\n    metrics\n}"),
    setting(ROUTE, "status-page", "Action: responds with a page about the server that is updated each second.")
        .properties(&[property(
            "public",
            ValueKind::Flag,
            DefaultValue::Text("#false"),
            "Lets every client see the page, with the addresses and paths of requests.",
        )])
        .if_absent("no action")
        .details(
            "The page has rates, response times, connections, the slowest and the failed requests, upstreams, certificates, and \
             limits in dry-run mode. It works without JavaScript, too. Without `public=#true`, the route needs a rule about \
             clients, of its own or of its site: `basic-auth`, `ip-access` with `allow`, `client-certificates \"required\"`, or \
             the condition `client` or `client-certificate`. Networks that are all of IPv4 or all of IPv6 do not count. If every \
             listener has a loopback address and no proxy is trusted, it needs none. A process has at most 32 open pages: [metrics.md](metrics.md#the-live-page).",
        )
        .example("route \"/status\" {\n    basic-auth file=\"admins.htpasswd\"\n    status-page\n}"),
];
