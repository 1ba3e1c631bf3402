//! Log settings, of the server or of a site.

use super::{BlockKind, DefaultValue, Setting, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const WITH_LOGS: &[BlockKind] = &[BlockKind::Top, BlockKind::Site];
const LOG: &[BlockKind] = &[BlockKind::Log];
const FILE: &[BlockKind] = &[BlockKind::LogFile];

pub(super) const SETTINGS: &[Setting] = &[
    setting(WITH_LOGS, "log", "The logs.")
        .opens(BlockKind::Log)
        .if_absent("its defaults; in a site, the server's logs")
        .example("log {\n    access \"logs/access.log\" format=\"combined\" {\n        rotate size=\"100MiB\" keep=14\n    }\n    error \"logs/error.log\" level=\"warn\"\n}"),
    setting(LOG, "access", "The access log: one line for each request.")
        .arguments(&[one("target", ValueKind::LogTarget)])
        .properties(&[property(
            "format",
            ValueKind::LogFormat,
            DefaultValue::Text("combined"),
            "`common`, `combined`, `json`, or directives.",
        )])
        .opens(BlockKind::LogFile)
        .default("stdout")
        .details(
            "The target is a file, `stdout`, `stderr`, `syslog`, `journald`, or `off`. \
             [logs.md](logs.md#formats-of-the-access-log) lists the directives of Apache's LogFormat: `%h %l %u \
              %t \\\"%r\\\" %>s %b %D`.",
        )
        .example("access \"logs/access.log\" format=\"%h %t \\\"%r\\\" %>s %b %D\""),
    setting(LOG, "error", "The error log: refusals and failures with their reasons.")
        .arguments(&[one("target", ValueKind::LogTarget)])
        .properties(&[
            property(
                "level",
                ValueKind::Choice(&["error", "warn", "info", "debug"]),
                DefaultValue::Text("warn"),
                "Least severe level that is written.",
            ),
            property("format", ValueKind::Choice(&["text", "json"]), DefaultValue::Text("text"), "Text or JSON \
                                                                                             lines."),
        ])
        .opens(BlockKind::LogFile)
        .default("stderr")
        .details("The target is a file, `stdout`, `stderr`, `syslog`, `journald`, or `off`."),
    setting(FILE, "rotate", "When a log file is rotated.")
        .properties(&[
            property(
                "size",
                ValueKind::Size { min: 4096, max: 1 << 50 },
                DefaultValue::Effect("no limit"),
                "Before it exceeds this size.",
            ),
            property(
                "age",
                ValueKind::Time { min: Duration::from_secs(1), max: Duration::from_secs(3660 * 24 * 3600) },
                DefaultValue::Effect("no limit"),
                "At the start of each period of this length (UTC).",
            ),
            property("keep", ValueKind::Count { min: 1, max: 100_000 }, DefaultValue::Text("10"), "Rotated files to \
                                                                                              keep."),
            property("compress", ValueKind::Flag, DefaultValue::Text("#true"), "Whether rotated files are compressed \
                                                                            (gzip)."),
        ])
        .if_absent("never; logrotate can do it, and USR1 reopens the files")
        .details("At least one of `size` and `age` is required."),
];
