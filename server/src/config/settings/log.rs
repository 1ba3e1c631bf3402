//! The logs: of the whole server, or of one site.

use super::{Default, Place, Setting, one, property, setting};
use crate::config::value::Kind;
use std::time::Duration;

const WITH_LOGS: &[Place] = &[Place::Top, Place::Site];
const LOG: &[Place] = &[Place::Log];
const FILE: &[Place] = &[Place::LogFile];

pub(super) const SETTINGS: &[Setting] = &[
    setting(WITH_LOGS, "log", "Where the logs go.")
        .holds(Place::Log)
        .otherwise("its defaults; in a site, the logs of the server")
        .example("log {\n    access \"logs/access.log\" format=\"combined\" {\n        rotate size=\"100MiB\" keep=14\n    }\n    error \"logs/error.log\" level=\"warn\"\n}"),
    setting(LOG, "access", "The access log: one line for each exchange.")
        .with(&[one("target", Kind::LogTarget)])
        .properties(&[property(
            "format",
            Kind::LogFormat,
            Default::Text("combined"),
            "`common`, `combined`, `json`, or a format string.",
        )])
        .holds(Place::LogFile)
        .default("stdout")
        .more(
            "The target is a file, `stdout`, `stderr`, `syslog`, `journald`, or `off`. A format string has the \
             directives of Apache's LogFormat that [logs.md](logs.md#formats-of-the-access-log) lists: \
             `%h %l %u %t \\\"%r\\\" %>s %b %D`.",
        )
        .example("access \"logs/access.log\" format=\"%h %t \\\"%r\\\" %>s %b %D\""),
    setting(LOG, "error", "The error log: each refusal and each failure, with its reason.")
        .with(&[one("target", Kind::LogTarget)])
        .properties(&[
            property(
                "level",
                Kind::Choice(&["error", "warn", "info", "debug"]),
                Default::Text("warn"),
                "The least grave that is written.",
            ),
            property("format", Kind::Choice(&["text", "json"]), Default::Text("text"), "Lines to read, or JSON lines."),
        ])
        .holds(Place::LogFile)
        .default("stderr")
        .more("The target is a file, `stdout`, `stderr`, `syslog`, `journald`, or `off`."),
    setting(FILE, "rotate", "When a log file is put aside and a new one begun.")
        .properties(&[
            property(
                "size",
                Kind::Size { min: 4096, max: 1 << 50 },
                Default::Nothing("no bound"),
                "When it has this size.",
            ),
            property(
                "age",
                Kind::Time { min: Duration::from_secs(1), max: Duration::from_secs(3660 * 24 * 3600) },
                Default::Nothing("no bound"),
                "When it is this old.",
            ),
            property("keep", Kind::Count { min: 1, max: 100_000 }, Default::Text("10"), "How many old files are kept."),
            property("compress", Kind::Flag, Default::Text("#true"), "Whether old files are compressed (gzip)."),
        ])
        .otherwise("never; logrotate may do it, and USR1 opens the files anew")
        .more("At least one of `size` and `age` is needed; both may be set."),
];
