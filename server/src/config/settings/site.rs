//! Settings of a site, and those that a route may have as well: fields, caching, error pages.

use super::{BlockKind, DRY_RUN, DefaultValue, IGNORE_CASE, Property, Setting, list, one, optional, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const SITE: &[BlockKind] = &[BlockKind::Site];
const BOTH: &[BlockKind] = &[BlockKind::Site, BlockKind::Route];
const SITE_AND_FILES: &[BlockKind] = &[BlockKind::Site, BlockKind::Files];

/// The properties of a change of a field.
const ONLY_FOR: &[Property] = &[
    property(
        "for",
        ValueKind::Selector,
        DefaultValue::Effect("all responses"),
        "Only responses to a request for this path, or with a file of this path or media type.",
    ),
    IGNORE_CASE,
];

pub(super) const SETTINGS: &[Setting] = &[
    setting(SITE, "root", "Directory of the site's files.")
        .arguments(&[one("path", ValueKind::Path)])
        .if_absent("a path without a route gets 404")
        .details("A path without a route is served from here, as if the last line were `route \"/*\" { files }`."),
    setting(SITE, "index", "Index file names of directories, tried in order.")
        .arguments(&[list("name", ValueKind::FileName)])
        .default("index.html"),
    setting(
        SITE,
        "precompressed",
        "Whether `style.css.br`, `.zst` or `.gz` is sent for `style.css` to clients \
                                    that accept it.",
    )
    .arguments(&[one("flag", ValueKind::Flag)])
    .default("#true"),
    setting(BOTH, "compress", "Whether responses are compressed with zstd, Brotli or gzip for clients that accept it.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .if_absent("no in a site, that of the site in a route")
        .details(
            "A file is compressed once at a low level, then in idle time at the best one, and kept in memory for all \
             workers. A file of more than 4 MiB is compressed each time. A precompressed file is sent in \
             place of compressing in its coding. Other responses, also those of applications, are compressed while they are sent; their \
             entity tag becomes weak. Not compressed are responses of less than 1 KiB, media types that do not shrink, \
             those with `Cache-Control: no-transform`, a digest or a `Content-Encoding`, and ranges. If a request has a cookie or \
             credentials or the response sets a cookie, only files are: the length of other content could reveal a \
             secret in it (BREACH).",
        ),
    setting(SITE, "link-targets", "Folders that symbolic links of the site's roots may lead to.")
        .arguments(&[list("path", ValueKind::Path)])
        .if_absent("links stay within their root")
        .details(
            "A link is followed if it stays within the root, whether it is relative or absolute, or if it leads to one of \
             these folders. For any other link the response is 404, and the error log states the reason. Deployments that \
             share folders between releases have such links. Listings show them.",
        )
        .example("link-targets \"/srv/app/shared\""),
    setting(SITE_AND_FILES, "clean-urls", "Serves `about.html` at `/about`, and redirects `/about.html` to it.")
        .arguments(&[optional("flag", ValueKind::Flag)])
        .if_absent("#false; in `files`, the site's")
        .details(
            "Without a value it is #true. `/docs/index.html` and `/docs/index` are redirected to `/docs/`, too. If both \
             `join.html` and the folder `join` exist, `/join` is the page, and `/join/` the index of the folder. Without \
             an index, `/join/` is redirected to `/join`. `trailing-slash` changes that. The redirects have status 301.",
        )
        .example("clean-urls"),
    setting(SITE_AND_FILES, "trailing-slash", "Whether the paths of pages end in a slash.")
        .arguments(&[one("word", ValueKind::Choice(&["auto", "add", "remove"]))])
        .if_absent("auto; in `files`, the site's")
        .details(
            "`auto`: a folder has one, and a page of `clean-urls` has none. `add`: each has one. `remove`: none has, so \
             `/docs` is the index of the folder `docs` without a redirect; relative links of that page then start at `/`. \
             The other path is redirected with status 301. A listing is always at the path with a slash.",
        )
        .example("trailing-slash remove"),
    setting(SITE, "encoded-slash", "What `%2F` in a path is.")
        .arguments(&[one("word", ValueKind::Choice(&["data", "files", "separator"]))])
        .default("data")
        .details(
            "`data`: a part of a segment, which routes match and applications get, and no file has. A segment with a \
             dot segment beside it is refused with status 400. `files`: a slash for files only, so that \
             `/@scope%2Fname` is the file `@scope/name` of a registry of packages, and a redirect keeps `%2F`. A path \
             that leads to another route with a slash finds no file. `separator`: a slash for routes, files and servers \
             of `proxy`.",
        )
        .example("encoded-slash files"),
    setting(BOTH, "error-page", "Page of the site for an error status.")
        .arguments(&[one("status", ValueKind::Status { min: 400, max: 599 }), one("path", ValueKind::UrlPath)])
        .repeatable()
        .if_absent("a short text")
        .details(
            "The path is relative to the root, as in a request. The status code stays. A client that prefers JSON \
             (`Accept`) gets `application/problem+json` instead.",
        )
        .example("error-page 404 \"/404.html\""),
    setting(BOTH, "header", "Sets a response field on every status; replaces others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldTemplate)])
        .properties(ONLY_FOR)
        .repeatable()
        .if_absent("none")
        .details(
            "The site's changes apply first, then the route's, each in the written order. Placeholders such as `{host}` \
             are filled. `Content-Type`, `Content-Encoding` and `Content-Language` describe what the route sends, so the \
             pages of errors and redirects do not get them. With `for`, the path of the request counts on every response, also on an error; an invalid path counts as the client has written it. The field \
             is not on responses from before the site is known. These are refused heads (400, such as one without Host; \
             408, 414, 417, 431, 501, 505), connections beyond a limit (503), and hosts without a site (421). It is not \
             on the redirect of `https-redirect` either.",
        )
        .example(
            "header \"X-Content-Type-Options\" \"nosniff\"\n\
             header \"Content-Security-Policy\" \"default-src 'self'\" for=\"text/html\"",
        ),
    setting(BOTH, "header-add", "Adds a response field on every status; keeps others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldTemplate)])
        .properties(ONLY_FOR)
        .repeatable()
        .if_absent("none"),
    setting(BOTH, "header-remove", "Removes a response field.")
        .arguments(&[one("name", ValueKind::FieldName)])
        .properties(ONLY_FOR)
        .repeatable()
        .if_absent("none")
        .details(
            "`Server`, which the server itself adds, can be removed, or replaced by `header`. If each site removes it \
             for all responses, those from before a site is known have none, either: refused heads, hosts without a \
             site, the redirect of `https-redirect`.",
        )
        .example("header-remove \"Server\""),
    setting(BOTH, "cache-control", "Cache-Control of files by their path or media type.")
        .arguments(&[one("selector", ValueKind::Selector), one("value", ValueKind::FieldValue)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("no field")
        .details(
            "The first match wins, a route's before the site's. A pattern is as in `route`. It is compared with the path \
             of the request and with that of the file: `*.html` is also for `/`, whose file is `/index.html`. For the \
             page of `fallback`, and for an entry of `try-files` without the path of the request, only the path of the \
             file counts. So the page for a missing `/assets/a.js` is not cached like an asset. A media type is that of \
             the file: `text/html`, `image/*`. Errors and redirects get no such field.",
        )
        .example(
            "cache-control \"text/html\" \"no-cache\"\ncache-control \"/assets/*\" \"max-age=31536000, immutable\"",
        ),
    setting(BOTH, "content-type", "Media type of files of a path.")
        .arguments(&[one("pattern", ValueKind::Pattern), one("type", ValueKind::MediaType)])
        .properties(&[IGNORE_CASE])
        .repeatable()
        .if_absent("by the file name, from the list of registered types")
        .details("The pattern is compared with the path of the file. The first match wins, a route's before the site's.")
        .example("content-type \"*.geojson\" \"application/geo+json\""),
    setting(BOTH, "types", "Media type of files by their name.")
        .arguments(&[one("type", ValueKind::MediaType), list("suffix", ValueKind::Suffix)])
        .repeatable()
        .if_absent("the list of registered types")
        .details(
            "A suffix is what follows the last dot of a name, or several parts as in `tar.gz`. Its case does not matter, and it \
             is written in lower case. `content-type` is for paths and for names without a suffix: \
             `content-type \"*LICENSE\" \"text/plain\"`. The first match of both wins.",
        )
        .example("types \"application/x-mods\" \"mods\" \"modz\""),
    setting(BOTH, "cors", "Lets pages of other origins use the responses, and responds to their preflight requests.")
        .arguments(&[list("origin", ValueKind::Origin)])
        .properties(&[
            property(
                "methods",
                ValueKind::FieldValue,
                DefaultValue::Text("GET, HEAD, POST"),
                "Methods that such pages may use.",
            ),
            property(
                "headers",
                ValueKind::FieldValue,
                DefaultValue::Text("Content-Type"),
                "Request fields that such pages may set.",
            ),
            property(
                "credentials",
                ValueKind::Flag,
                DefaultValue::Text("#false"),
                "Whether their requests may have cookies and passwords.",
            ),
            property(
                "max-age",
                ValueKind::Time { min: Duration::from_secs(0), max: Duration::from_secs(24 * 3600) },
                DefaultValue::Text("10m"),
                "Time for which a browser remembers the response to a preflight request.",
            ),
        ])
        .if_absent("no field; in a route, the site's")
        .details(
            "An origin is a scheme, a host and a port unless it is the usual one: `https://app.example.com`. `*` in it is \
             any part of a host, and `*` alone allows all origins. Then each response has the field, also for a request \
             without an origin: a cache may use it for another request. A preflight request is an `OPTIONS` with \
             `Access-Control-Request-Method`; it needs no password.",
        )
        .example("cors \"https://app.example.com\" \"https://*.example.org\" methods=\"GET, PUT\" credentials=#true"),
    setting(BOTH, "body-bytes-max", "Most request content. Beyond it: 413.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 1 << 50 })])
        .properties(&[DRY_RUN])
        .if_absent("the site's, then that of `limits`")
        .details(
            "A Content-Length beyond it is refused before anything is read. Chunked content is counted while it is read. \
             `proxy`, `php`, `fastcgi`, `scgi` and `cgi` pass content on while it arrives. Other actions need none: at most \
             256 KiB of it are read, and if the limit was not exceeded until then, the response is sent, and the \
             connection closes before the rest. With `dry-run=#true`, the limit of the block around it is in force, and content \
             beyond this one is counted. `selvedge proxy` has no limit.",
        ),
    setting(SITE, "route", "What to do with requests whose path matches.")
        .arguments(&[list("pattern", ValueKind::Pattern)])
        .properties(&[IGNORE_CASE])
        .opens(BlockKind::Route)
        .repeatable()
        .if_absent("none; files of `root`")
        .details(
            "Routes are tried in the written order, and the first match decides. The table of patterns defines what \
             a pattern matches. Each route has one action: `files`, `redirect`, `rewrite`, `respond`, `deny`, `proxy`, `php`, \
             `fastcgi`, `scgi` or `cgi`.",
        )
        .example("route \"/old/*\" { redirect \"/new/*\" status=301 }"),
    setting(SITE, "listing", "Whether a directory without an index file is listed.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#false")
        .details(
            "A page of HTML, or JSON for a client that prefers it (`Accept`). Folders are first. The query selects: \
             `sort` is `name`, `size` or `modified`; `order` is `asc` or `desc`; `filter` is a part of the names in any \
             case; `page` is a number from 1. A page of HTML has 2,000 entries, a page of JSON 5,000. Members of the JSON: \
             `path`, `entries`, `page`, `pages`, `total` (entries on all pages) and `truncated` (the directory has more \
             than 100,000 entries, and the others are missing). Members of an entry: `name`, `type` (`file` or \
             `directory`), `size` in bytes (of a file), `modified` (RFC 3339, UTC), and `href`, the encoded name, if it \
             is not UTF-8 or has control characters. A control character of a name is shown escaped; the server serves \
             no such path.",
        ),
];
