//! Expectations: requests with what their responses have to be.

use super::{BlockKind, DefaultValue, Setting, one, property, setting};
use crate::config::value::ValueKind;

const BOTH: &[BlockKind] = &[BlockKind::Top, BlockKind::Site];
const EXPECT: &[BlockKind] = &[BlockKind::Expect];

pub(super) const SETTINGS: &[Setting] = &[
    setting(BOTH, "expect", "A request, and what its response has to be.")
        .arguments(&[one("request", ValueKind::Text)])
        .properties(&[
            property(
                "status",
                ValueKind::Status { min: 200, max: 599 },
                DefaultValue::Effect("any"),
                "The status of the response.",
            ),
            property("location", ValueKind::Text, DefaultValue::Effect("any"), "The value of `Location`."),
            property("content-type", ValueKind::Text, DefaultValue::Effect("any"), "The value of `Content-Type`."),
            property("client", ValueKind::Text, DefaultValue::Effect("127.0.0.1"), "The address of the client."),
            property(
                "client-certificate",
                ValueKind::Text,
                DefaultValue::Effect("no certificate"),
                "The subject of the client's certificate, whose issuer the server trusts.",
            ),
            property(
                "response",
                ValueKind::Flag,
                DefaultValue::Text("#true"),
                "#false: the client gets none, because the handshake fails or no listener has the port.",
            ),
        ])
        .opens(BlockKind::Expect)
        .repeatable()
        .if_absent("nothing is tried")
        .details(
            "`selvedge check` tries each of them, and so does a reload before it puts a configuration into force. A response \
             that differs is a problem, with the explanation of `selvedge explain`: see docs/explain.md. The request is a \
             method and a URL; without a method it is GET. In a site, a path is enough. The host is then the first name of the \
             site, which must not be a wildcard; the scheme is https if the site has certificates, and the port is that of a \
             listener. The port of a URL has to be that of a listener: if clients use another one, whose connections are \
             forwarded to it, `request-header \"Host\"` has what they send. Nothing is sent: the \
             response of a server or script has no status here. Most expectations: 10,000. A start does not try them, and \
             neither does a reload for which a new process is needed.",
        )
        .example(
            "expect \"GET https://example.com/old/x\" status=301 location=\"/new/x\"\n\
             expect \"https://example.com/admin/\" status=403 client=\"192.0.2.1\" {\n    header \"X-Frame-Options\" \"DENY\"\n}",
        ),
    setting(EXPECT, "request-header", "A field of the request.")
        .arguments(&[one("name", ValueKind::RequestFieldName), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("none but `Host`"),
    setting(EXPECT, "header", "A field that the response has, with this value.")
        .arguments(&[one("name", ValueKind::RequestFieldName), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("any fields"),
];
