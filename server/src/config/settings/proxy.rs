//! Settings of the route action `proxy`.

use super::{BlockKind, DefaultValue, Setting, list, one, property, setting};
use crate::config::value::ValueKind;

const ROUTE: &[BlockKind] = &[BlockKind::Route];
const PROXY: &[BlockKind] = &[BlockKind::Proxy];

pub(super) const SETTINGS: &[Setting] = &[
    setting(ROUTE, "proxy", "Action: forwards requests to an upstream.")
        .arguments(&[list("target", ValueKind::ProxyTarget)])
        .properties(&[property(
            "strip-prefix",
            ValueKind::Flag,
            DefaultValue::Text("#false"),
            "Whether the path of a pattern with `/*` at its end is taken off before the request is forwarded.",
        )])
        .opens(BlockKind::Proxy)
        .if_absent("no action")
        .details(
            "The target is the name of an `upstream`, or the URL of a server; several URLs are a group with the defaults of \
             `upstream`. Content is forwarded in both directions while it arrives; `body-bytes-max` holds. WebSocket and \
             other upgrades need no setting. `header`, `header-add` and `header-remove` of the route apply to the \
             responses. [proxy.md](proxy.md) tells which fields are forwarded, what is repeated, and what the errors mean.",
        )
        .example(
            "route \"/api/*\" { proxy \"http://127.0.0.1:3000\" }\n\
             route \"/app/*\" { proxy \"http://127.0.0.1:4000\" \"http://127.0.0.1:4001\" strip-prefix=#true }",
        ),
    setting(PROXY, "host", "The Host field of forwarded requests.")
        .arguments(&[one("host", ValueKind::ForwardedHost)])
        .default("keep")
        .details("`keep` is the host of the client, `upstream` that of the URL of the server.")
        .example("host \"upstream\""),
    setting(PROXY, "path", "The path of forwarded requests.")
        .arguments(&[one("target", ValueKind::RewriteTarget)])
        .if_absent("the path of the client, byte for byte")
        .details(
            "Placeholders and a query are filled as in `rewrite`. Without a query in the target, that of the client is kept, \
             and so is each byte of a `*` at the end.",
        )
        .example("path \"/v1/*\""),
    setting(PROXY, "header-up", "Sets a field of forwarded requests; replaces others with its name.")
        .arguments(&[one("name", ValueKind::ForwardedFieldName), one("value", ValueKind::FieldTemplate)])
        .repeatable()
        .if_absent("none")
        .details("Placeholders such as `{client}` are filled. Host has a setting of its own.")
        .example("header-up \"X-Real-IP\" \"{client}\""),
    setting(PROXY, "header-up-add", "Adds a field to forwarded requests; keeps others with its name.")
        .arguments(&[one("name", ValueKind::ForwardedFieldName), one("value", ValueKind::FieldTemplate)])
        .repeatable()
        .if_absent("none"),
    setting(PROXY, "header-up-remove", "Removes a field of forwarded requests.")
        .arguments(&[one("name", ValueKind::ForwardedFieldName)])
        .repeatable()
        .if_absent("none")
        .example("header-up-remove \"Accept-Encoding\""),
    setting(PROXY, "header-down", "Sets a field of the upstream's responses; replaces others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldTemplate)])
        .repeatable()
        .if_absent("none")
        .details(
            "It does not apply to responses of this server, such as 502. `header` of the route applies to both, later. \
             Date is that of the upstream. Server is `selvedge` in place of the upstream's, unless it is set here.",
        ),
    setting(PROXY, "header-down-add", "Adds a field to the upstream's responses; keeps others with its name.")
        .arguments(&[one("name", ValueKind::FieldName), one("value", ValueKind::FieldTemplate)])
        .repeatable()
        .if_absent("none"),
    setting(PROXY, "header-down-remove", "Removes a field of the upstream's responses.")
        .arguments(&[one("name", ValueKind::FieldName)])
        .repeatable()
        .if_absent("none")
        .example("header-down-remove \"X-Powered-By\""),
    setting(PROXY, "forwarded", "Which fields tell the upstream about the client.")
        .arguments(&[one("fields", ValueKind::Choice(&["x-forwarded", "forwarded", "both", "off"]))])
        .default("x-forwarded")
        .details(
            "`x-forwarded` is X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host; `forwarded` is the field of RFC \
             7239. What a client sends in these fields is replaced, unless it is one of `trusted-proxies`: then the \
             client's address is appended.",
        ),
    setting(PROXY, "via", "Whether the field Via of forwarded requests names this server (RFC 9110 §7.6.3).")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#true")
        .details(
            "A request whose Via has the name of this server already gets 508: the servers forward it in a circle. The name \
             is `selvedge-` and 8 random digits, other ones in each serving process, so several servers in a chain differ. \
             Applications may treat requests with Via differently: nginx does not compress their responses unless \
             `gzip_proxied` permits it. With `#false`, a circle goes on until the client leaves.",
        ),
    setting(PROXY, "field-names", "Which fields are forwarded.")
        .arguments(&[one("names", ValueKind::Choice(&["strict", "any"]))])
        .default("strict")
        .details(
            "`strict` drops fields with `_` or `.` in their names: many applications cannot distinguish them from `-`, so \
             a client could send a field that looks like one of this server.",
        ),
    setting(PROXY, "buffer-request", "Request content up to this size is received before it is forwarded.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 64 << 20 })])
        .default("0B")
        .details("It is for applications with few workers, which a slow client would occupy. Longer content is forwarded while it arrives.")
        .example("buffer-request \"64KiB\""),
    setting(PROXY, "rewrite-location", "Whether URLs of the upstream in Location and paths of its cookies become those of the client.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#false")
        .details(
            "A prefix that `strip-prefix` takes off is added, and one that `path` changes, as in `path \"/v1/*\"`, is changed \
             back.",
        ),
    setting(PROXY, "proxy-status", "Whether responses have the field Proxy-Status (RFC 9209), which names errors.")
        .arguments(&[one("flag", ValueKind::Flag)])
        .default("#false"),
];
