//! Settings of a route: its conditions and its one action.

use super::{BlockKind, DefaultValue, Setting, list, one, optional, property, setting};
use crate::config::value::ValueKind;

const ROUTE: &[BlockKind] = &[BlockKind::Route];
const WHEN: &[BlockKind] = &[BlockKind::When];
const FILES: &[BlockKind] = &[BlockKind::Files];

/// The actions. A route has exactly one.
pub(crate) const ACTIONS: [&str; 5] = ["files", "redirect", "rewrite", "respond", "deny"];

pub(super) const SETTINGS: &[Setting] = &[
    setting(ROUTE, "when", "Further conditions for the route to match. All of them have to hold.")
        .opens(BlockKind::When)
        .if_absent("only the path decides")
        .example("when {\n    method \"GET\" \"HEAD\"\n    query \"draft\"\n}"),
    setting(WHEN, "method", "The method is one of these.")
        .arguments(&[list("method", ValueKind::Method)])
        .if_absent("any"),
    setting(WHEN, "query", "The query has a parameter with this name, and this value if given.")
        .arguments(&[one("name", ValueKind::Text), optional("value", ValueKind::Text)])
        .repeatable()
        .if_absent("any"),
    setting(WHEN, "header", "The request has a field with this name, and this value if given.")
        .arguments(&[one("name", ValueKind::RequestFieldName), optional("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("any"),
    setting(WHEN, "client", "The client is in one of these networks.")
        .arguments(&[list("network", ValueKind::Network)])
        .if_absent("any"),
    setting(ROUTE, "files", "Action: serves files.")
        .properties(&[
            property("root", ValueKind::Path, DefaultValue::Effect("the site's"), "The directory."),
            property(
                "fallback",
                ValueKind::UrlPath,
                DefaultValue::Effect("404"),
                "Path that page navigations get if no file exists: the page of a single-page application.",
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
        .example("route \"/app/*\" { files fallback=\"/app/index.html\" }"),
    setting(FILES, "index", "Index file names of directories, tried in order.")
        .arguments(&[list("name", ValueKind::FileName)])
        .if_absent("the site's"),
    setting(FILES, "try-files", "Files to try, in order; `*` is the path of the request.")
        .arguments(&[list("path", ValueKind::TryPath)])
        .default("*")
        .example("try-files \"*\" \"*.html\""),
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
            "Each `*` is replaced by what the pattern's `*` of that position matched. A query in the target \
               replaces the request's.",
        )
        .example("route \"/old/*\" { redirect \"/new/*\" status=301 }"),
    setting(ROUTE, "rewrite", "Action: matches the routes again with another path, once at most.")
        .arguments(&[one("target", ValueKind::RewriteTarget)])
        .if_absent("no action")
        .details(
            "Each `*` is replaced by what the pattern's `*` of that position matched. The first route that \
             matches the new path applies, with its access rules. If that route rewrites too, the response is \
             404 and the error log states the reason. So place the target's route before a route that would \
             rewrite it again.",
        )
        .example("route \"/en/*\" { rewrite \"/*\" }\nroute \"/*\" { files }"),
    setting(ROUTE, "respond", "Action: responds with a fixed text.")
        .arguments(&[one("status", ValueKind::Status { min: 200, max: 599 }), optional("body", ValueKind::Text)])
        .properties(&[property(
            "content-type",
            ValueKind::FieldValue,
            DefaultValue::Text("text/plain; charset=utf-8"),
            "Media type of the body.",
        )])
        .if_absent("no action")
        .example("route \"/health\" { respond 200 \"ok\" }"),
    setting(ROUTE, "deny", "Action: refuses the request.")
        .properties(&[property(
            "status",
            ValueKind::Status { min: 400, max: 599 },
            DefaultValue::Text("403"),
            "Status code of the refusal.",
        )])
        .if_absent("no action")
        .example("route \"/private/*\" { deny status=404 }"),
];
