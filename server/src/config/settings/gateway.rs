//! Settings of the route actions that run scripts and programs: `php`, `fastcgi`, `scgi` and `cgi`.

use super::{BlockKind, DefaultValue, Property, Setting, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const ROUTE: &[BlockKind] = &[BlockKind::Route];
const PHP: &[BlockKind] = &[BlockKind::Php];
const FASTCGI: &[BlockKind] = &[BlockKind::Php, BlockKind::FastCgi];
const SERVERS: &[BlockKind] = &[BlockKind::Php, BlockKind::FastCgi, BlockKind::Scgi];
const CGI: &[BlockKind] = &[BlockKind::Cgi];
const ALL: &[BlockKind] = &[BlockKind::Php, BlockKind::FastCgi, BlockKind::Scgi, BlockKind::Cgi];

const STEP: ValueKind = ValueKind::Time { min: Duration::from_millis(100), max: Duration::from_secs(24 * 3600) };

const DOCUMENT_ROOT: Property = property(
    "root",
    ValueKind::Path,
    DefaultValue::Effect("the site's"),
    "The directory of the application: DOCUMENT_ROOT.",
);

pub(super) const SETTINGS: &[Setting] = &[
    setting(ROUTE, "php", "Action: serves a PHP application by PHP-FPM.")
        .arguments(&[one("address", ValueKind::ScriptServer)])
        .properties(&[
            property(
                "root",
                ValueKind::Path,
                DefaultValue::Effect("the site's"),
                "The directory of the application, with its files.",
            ),
            property(
                "front-controller",
                ValueKind::UrlPath,
                DefaultValue::Text("/index.php"),
                "The script for paths that lead to no file.",
            ),
            property(
                "precompressed",
                ValueKind::Flag,
                DefaultValue::Effect("the site's"),
                "Whether precompressed files (`.br`, `.zst`, `.gz`) are sent.",
            ),
        ])
        .opens(BlockKind::Php)
        .if_absent("no action")
        .details(
            "For a path, the file is sent if it exists, a script runs if it is one, the `index.php` of a folder runs, and \
             else the front controller. So this line runs WordPress, Laravel, Symfony or Drupal. A script has to exist \
             beneath the root, and its source is never sent. The address is `unix:/path` or `host:port`.",
        )
        .example("route \"/*\" { php \"unix:/run/php/php-fpm.sock\" }"),
    setting(ROUTE, "fastcgi", "Action: forwards requests to an application that speaks FastCGI.")
        .arguments(&[one("address", ValueKind::ScriptServer)])
        .properties(&[DOCUMENT_ROOT])
        .opens(BlockKind::FastCgi)
        .if_absent("no action")
        .details(
            "One application gets all requests of the route. SCRIPT_NAME is the path of the pattern before `/*`, and \
             PATH_INFO the rest. For PHP, write `php`.",
        )
        .example("route \"/app/*\" { fastcgi \"127.0.0.1:9000\" }"),
    setting(ROUTE, "scgi", "Action: forwards requests to an application that speaks SCGI.")
        .arguments(&[one("address", ValueKind::ScriptServer)])
        .properties(&[DOCUMENT_ROOT])
        .opens(BlockKind::Scgi)
        .if_absent("no action")
        .example("route \"/app/*\" { scgi \"unix:/run/app.sock\" }"),
    setting(ROUTE, "cgi", "Action: runs programs, each once for a request.")
        .arguments(&[one("folder", ValueKind::Path)])
        .properties(&[
            property(
                "user",
                ValueKind::Account,
                DefaultValue::Effect("the user of the server"),
                "The user of the programs; it needs a server that starts as root.",
            ),
            property(
                "program",
                ValueKind::FileName,
                DefaultValue::Effect("the path names it"),
                "The one program of the folder that gets all requests of the route.",
            ),
        ])
        .opens(BlockKind::Cgi)
        .if_absent("no action")
        .details(
            "`route \"/cgi/*\" { cgi \"/srv/cgi-bin\" }` runs `/srv/cgi-bin/report` for `/cgi/report/2026`, with the \
             PATH_INFO `/2026`. The programs run outside of the process that serves, with the environment of RFC 3875 and \
             no other variables.",
        )
        .example(
            "route \"/cgi/*\" { cgi \"/srv/cgi-bin\" user=\"www-data\" }\n\
             route \"/git/*\" { cgi \"/usr/lib/git-core\" program=\"git-http-backend\" { env \"GIT_PROJECT_ROOT\" \"/srv/git\"; } }",
        ),
    setting(ALL, "env", "A variable that the script or program gets.")
        .arguments(&[one("name", ValueKind::VariableName), one("value", ValueKind::Text)])
        .repeatable()
        .if_absent("none")
        .details("FastCGI and SCGI call it a parameter. It replaces a variable of the request with its name.")
        .example("env \"APP_ENV\" \"production\""),
    setting(ALL, "requests-max", "Most requests of the route at work. Beyond it: 503.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 65_536 })])
        .default("512"),
    setting(ALL, "response-timeout", "Longest time from the end of the request to the response. Beyond it: 504.")
        .arguments(&[one("time", STEP)])
        .default("60s"),
    setting(ALL, "silence-timeout", "Longest time without a byte of content in either direction. Beyond it: close.")
        .arguments(&[one("time", STEP)])
        .default("60s")
        .details(
            "A script that goes on after its complete response (as long as its Content-Length, or one without content) may \
             do so for this time: the client does not wait for it. Then it is ended, with a line in the error log.",
        ),
    setting(SERVERS, "connect-timeout", "Longest time to open a connection. Beyond it: 504.")
        .arguments(&[one("time", STEP)])
        .default("5s"),
    setting(ALL, "spool-bytes-max", "Longest request content without a length. Beyond it: 413.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 1 << 40 })])
        .default("64MiB")
        .details(
            "A script gets the length of the content before the content. Content without one (chunked, or HTTP/2) is stored \
             until its length is known: up to 64 KiB in memory, more in a temporary file.",
        ),
    setting(ALL, "send-file", "Folder with files that a script may name in X-Sendfile or X-Accel-Redirect.")
        .arguments(&[one("folder", ValueKind::Path)])
        .properties(&[property(
            "prefix",
            ValueKind::UrlPath,
            DefaultValue::Text("/protected"),
            "What X-Accel-Redirect begins with in place of the folder.",
        )])
        .if_absent("such a response is an error")
        .example("send-file \"/srv/downloads\" prefix=\"/protected\""),
    setting(PHP, "root-there", "Where PHP-FPM sees the root, if that is another path than here, as in a container.")
        .arguments(&[one("path", ValueKind::Path)])
        .if_absent("the path of the root")
        .example("root-there \"/var/www/html\""),
    setting(FASTCGI, "idle-connections-max", "Most idle connections that each worker keeps.")
        .arguments(&[one("number", ValueKind::Count { min: 0, max: 1024 })])
        .default("0")
        .details("An idle connection occupies a PHP process. With 0, each request has a connection of its own."),
    setting(CGI, "run-timeout", "Longest run of a program. Beyond it: it is killed.")
        .arguments(&[one("time", STEP)])
        .default("5m"),
    setting(CGI, "memory-bytes-max", "Most memory of a program.")
        .arguments(&[one("size", ValueKind::Size { min: 1 << 20, max: 1 << 40 })])
        .default("1GiB"),
    setting(CGI, "output-bytes-max", "Longest output of a program. Beyond it: it is killed.")
        .arguments(&[one("size", ValueKind::Size { min: 1024, max: 1 << 50 })])
        .default("1GiB"),
];
