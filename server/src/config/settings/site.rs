//! What a site is made of, and what a route may say, too: fields, caching, error pages.

use super::{Place, Setting, list, one, setting};
use crate::config::value::Kind;

const SITE: &[Place] = &[Place::Site];
const BOTH: &[Place] = &[Place::Site, Place::Route];

pub(super) const SETTINGS: &[Setting] = &[
    setting(SITE, "root", "The directory of the site's files.")
        .with(&[one("path", Kind::Path)])
        .otherwise("what no route takes is a 404")
        .more("What no route takes is looked for here, as if the last line were `route \"/*\" { files }`."),
    setting(SITE, "index", "Names that are tried for a directory, in order.")
        .with(&[list("name", Kind::FileName)])
        .default("index.html"),
    setting(SITE, "sidecars", "Whether `style.css.br`, `.zst` and `.gz` are sent for `style.css` to who accepts them.")
        .with(&[one("flag", Kind::Flag)])
        .default("#true"),
    setting(BOTH, "error-page", "A file of the site that is sent with an error status.")
        .with(&[one("status", Kind::Status { min: 400, max: 599 }), one("path", Kind::UrlPath)])
        .many()
        .otherwise("a short text")
        .more("The path is that of a request, so it is looked for beneath the root. The status stays.")
        .example("error-page 404 \"/404.html\""),
    setting(BOTH, "header", "Sets a response field, in place of any other of its name, on every status.")
        .with(&[one("name", Kind::FieldName), one("value", Kind::FieldValue)])
        .many()
        .otherwise("no field is set")
        .more("Changes of the site come first, then those of the route, each in the order they stand.")
        .example("header \"X-Content-Type-Options\" \"nosniff\""),
    setting(BOTH, "header-add", "Adds a response field beside others of its name, on every status.")
        .with(&[one("name", Kind::FieldName), one("value", Kind::FieldValue)])
        .many()
        .otherwise("no field is added"),
    setting(BOTH, "header-remove", "Takes a response field out.")
        .with(&[one("name", Kind::FieldName)])
        .many()
        .otherwise("no field is removed"),
    setting(BOTH, "cache-control", "Cache-Control of the responses whose path matches a pattern.")
        .with(&[one("pattern", Kind::Pattern), one("value", Kind::FieldValue)])
        .many()
        .otherwise("the field is not sent")
        .more("First match wins, a route's before the site's. The pattern is as in `route`, or begins with `*`.")
        .example("cache-control \"*.css\" \"max-age=86400\"\ncache-control \"/assets/*\" \"max-age=31536000, immutable\""),
    setting(BOTH, "body-bytes-max", "Most request content. Beyond it: 413.")
        .with(&[one("size", Kind::Size { min: 0, max: 1 << 50 })])
        .otherwise("that of the site, then that of `limits`"),
    setting(SITE, "route", "What is done with the requests whose path matches.")
        .with(&[list("pattern", Kind::Pattern)])
        .holds(Place::Route)
        .many()
        .otherwise("none; files of `root`")
        .more(
            "Routes are tried in the order they stand, and the first match wins. A pattern is a path (`/about`), a path \
             and what is beneath it (`/app/*`, which is `/app` and `/app/...` but not `/apple`), or has `*` anywhere else, \
             where each stands for any text of one segment (`/*/feed.xml`); without a slash, as `*.php`, it is about the \
             last segment in whichever folder. Each route has one action: `files`, `redirect`, \
             `rewrite`, `respond` or `deny`.",
        )
        .example("route \"/old/*\" { redirect \"/new/*\" status=301 }"),
    setting(SITE, "listing", "Whether a directory without an index is answered with a list.")
        .with(&[one("flag", Kind::Flag)])
        .default("#false"),
];
