//! What a route is made of: when it applies, and its one action.

use super::{Default, Place, Setting, list, one, optional, property, setting};
use crate::config::value::Kind;

const ROUTE: &[Place] = &[Place::Route];
const WHEN: &[Place] = &[Place::When];
const FILES: &[Place] = &[Place::Files];

/// The settings that are actions, of which a route has exactly one.
pub(crate) const ACTIONS: [&str; 5] = ["files", "redirect", "rewrite", "respond", "deny"];

pub(super) const SETTINGS: &[Setting] = &[
    setting(ROUTE, "when", "What else has to hold for the route to match. Each line has to hold.")
        .holds(Place::When)
        .otherwise("the path alone decides")
        .example("when {\n    method \"GET\" \"HEAD\"\n    query \"draft\"\n}"),
    setting(WHEN, "method", "The method is one of these.")
        .with(&[list("method", Kind::Method)])
        .otherwise("any"),
    setting(WHEN, "query", "The query has a parameter of this name, and of this value if one is given.")
        .with(&[one("name", Kind::Text), optional("value", Kind::Text)])
        .many()
        .otherwise("any"),
    setting(WHEN, "header", "The request has a field of this name, and of this value if one is given.")
        .with(&[one("name", Kind::RequestFieldName), optional("value", Kind::FieldValue)])
        .many()
        .otherwise("any"),
    setting(WHEN, "client", "The client is in one of these networks.")
        .with(&[list("network", Kind::Network)])
        .otherwise("any"),
    setting(ROUTE, "files", "Action: sends files.")
        .properties(&[
            property("root", Kind::Path, Default::Nothing("that of the site"), "The directory."),
            property(
                "fallback",
                Kind::UrlPath,
                Default::Nothing("404"),
                "What a navigation gets when there is no such file: the page of a single-page application.",
            ),
            property(
                "listing",
                Kind::Flag,
                Default::Nothing("that of the site"),
                "Whether a directory without an index is answered with a list.",
            ),
            property(
                "sidecars",
                Kind::Flag,
                Default::Nothing("that of the site"),
                "Whether compressed files beside a file are sent for it.",
            ),
        ])
        .holds(Place::Files)
        .otherwise("no action")
        .example("route \"/app/*\" { files fallback=\"/app/index.html\" }"),
    setting(FILES, "index", "Names that are tried for a directory, in order.")
        .with(&[list("name", Kind::FileName)])
        .otherwise("those of the site"),
    setting(FILES, "try", "What is looked for, in order; `*` is the path of the request.")
        .with(&[list("path", Kind::TryPath)])
        .default("*")
        .example("try \"*\" \"*.html\""),
    setting(ROUTE, "redirect", "Action: sends the client elsewhere, with the query of the request.")
        .with(&[one("target", Kind::RedirectTarget)])
        .properties(&[property(
            "status",
            Kind::OneOfStatuses(&[301, 302, 303, 307, 308]),
            Default::Text("302"),
            "301 and 308 are remembered by browsers, 307 and 308 keep the method.",
        )])
        .otherwise("no action")
        .more("Each `*` is what the `*` of the same number in the pattern stands for. A target with a query of its own keeps it.")
        .example("route \"/old/*\" { redirect \"/new/*\" status=301 }"),
    setting(ROUTE, "rewrite", "Action: goes through the routes again with another path, at most once.")
        .with(&[one("target", Kind::RewriteTarget)])
        .otherwise("no action")
        .more(
            "Each `*` is what the `*` of the same number in the pattern stands for. The first route that matches the \
             other path counts, with its gates; where that route rewrites, too, the answer is 404 and the error log says \
             why. So what a rewrite leads to stands before a route that would rewrite it again.",
        )
        .example("route \"/en/*\" { rewrite \"/*\" }\nroute \"/*\" { files }"),
    setting(ROUTE, "respond", "Action: answers with this.")
        .with(&[one("status", Kind::Status { min: 200, max: 599 }), optional("body", Kind::Text)])
        .properties(&[property(
            "content-type",
            Kind::FieldValue,
            Default::Text("text/plain; charset=utf-8"),
            "The type of the body.",
        )])
        .otherwise("no action")
        .example("route \"/health\" { respond 200 \"ok\" }"),
    setting(ROUTE, "deny", "Action: refuses.")
        .properties(&[property(
            "status",
            Kind::Status { min: 400, max: 599 },
            Default::Text("403"),
            "The status of the refusal.",
        )])
        .otherwise("no action")
        .example("route \"/private/*\" { deny status=404 }"),
];
