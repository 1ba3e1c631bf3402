//! Settings of a site, and those that a route may have as well: fields, caching, error pages.

use super::{BlockKind, Setting, list, one, setting};
use crate::config::value::ValueKind;

const SITE: &[BlockKind] = &[BlockKind::Site];
const BOTH: &[BlockKind] = &[BlockKind::Site, BlockKind::Route];

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
    setting(BOTH, "error-page", "Page of the site for an error status.")
        .arguments(&[one("status", ValueKind::Status { min: 400, max: 599 }), one("path", ValueKind::UrlPath)])
        .repeatable()
        .if_absent("a short text")
        .details("The path is relative to the root, as in a request. The status code stays.")
        .example("error-page 404 \"/404.html\""),
    setting(BOTH, "header", "Sets a response field on every status; replaces others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("none")
        .details("The site's changes apply first, then the route's, each in the written order.")
        .example("header \"X-Content-Type-Options\" \"nosniff\""),
    setting(BOTH, "header-add", "Adds a response field on every status; keeps others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("none"),
    setting(BOTH, "header-remove", "Removes a response field.")
        .arguments(&[one("name", ValueKind::FieldName)])
        .repeatable()
        .if_absent("none"),
    setting(BOTH, "cache-control", "Cache-Control of responses whose path matches a pattern.")
        .arguments(&[one("pattern", ValueKind::Pattern), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("no field")
        .details(
            "The first match wins, a route's before the site's. The pattern is as in `route`, or starts with \
               `*`.",
        )
        .example(
            "cache-control \"*.css\" \"max-age=86400\"\ncache-control \"/assets/*\" \"max-age=31536000, immutable\"",
        ),
    setting(BOTH, "body-bytes-max", "Most request content. Beyond it: 413.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 1 << 50 })])
        .if_absent("the site's, then that of `limits`"),
    setting(SITE, "route", "What to do with requests whose path matches.")
        .arguments(&[list("pattern", ValueKind::Pattern)])
        .opens(BlockKind::Route)
        .repeatable()
        .if_absent("none; files of `root`")
        .details(
            "Routes are tried in the written order, and the first match decides. A pattern is a path \
             (`/about`), or a path with all paths below it (`/app/*` matches `/app` and `/app/...` but not \
             `/apple`). A `*` elsewhere matches any text within one segment (`/*/feed.xml`). A pattern without \
             a slash (`*.php`) applies to the last segment in any folder. Each route has one action: `files`, \
             `redirect`, `rewrite`, `respond` or `deny`.",
        )
        .example("route \"/old/*\" { redirect \"/new/*\" status=301 }"),
    setting(SITE, "listing", "Whether a directory without an index file is listed.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#false"),
];
