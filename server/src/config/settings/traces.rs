//! Traces: the collector that gets them, and which requests have them.

use super::{BlockKind, Setting, one, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const TOP: &[BlockKind] = &[BlockKind::Top];
const TRACES: &[BlockKind] = &[BlockKind::Traces];

pub(super) const SETTINGS: &[Setting] = &[
    setting(TOP, "traces", "The OpenTelemetry collector that gets the traces of requests.")
        .arguments(&[one("url", ValueKind::Text)])
        .opens(BlockKind::Traces)
        .if_absent("no traces; requests to upstreams have `traceparent` and `tracestate` as the client sent them")
        .details(
            "A span for each chosen request, and one for each of its tries at an upstream, go to this URL by OTLP over HTTP, \
             which most collectors accept at port 4318. A thread of its own sends them in batches, and drops and counts \
             them if the collector is slow or down: no request waits. With https, the certificate of the collector is verified by the \
             authorities that the system trusts. [traces.md](traces.md) has the spans and their attributes.",
        )
        .example(
            "traces \"http://127.0.0.1:4318/v1/traces\" {\n    service \"edge\"\n    ratio 0.1\n    slower \"500ms\"\n    \
             header \"Authorization\" \"${COLLECTOR_KEY:-none}\"\n}",
        ),
    setting(TRACES, "service", "The name of this server among the services of a trace.")
        .arguments(&[one("name", ValueKind::Label)])
        .default("selvedge"),
    setting(TRACES, "ratio", "The share of the traces that begin with this server, from 0 for none to 1 for all.")
        .arguments(&[one("ratio", ValueKind::Ratio)])
        .default("0.01")
        .details(
            "The last 56 bits of the trace identifier decide, so all servers with one ratio agree on each trace. A trace that begins \
             with a client or another server is chosen there, by the flag in its `traceparent`. Each worker follows the flags of at \
             most ten requests per second whose client is none of `trusted-proxies`. A request that ends with a status of 500 or \
             more, or with a failed try, is exported in any case, and so is a slow one.",
        ),
    setting(TRACES, "slower", "The time from which a request is exported in any case.")
        .arguments(&[one("time", ValueKind::Time { min: Duration::from_millis(1), max: Duration::from_hours(24) })])
        .default("1s")
        .details("It begins with the complete head of the request, and ends with the last byte of the response."),
    setting(TRACES, "header", "A field of each request to the collector, such as a key.")
        .arguments(&[one("name", ValueKind::RequestFieldName), one("value", ValueKind::FieldValue)])
        .repeatable()
        .if_absent("no further fields"),
];
