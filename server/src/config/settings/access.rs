//! Access settings of a site or route. A route's replace its site's.

use super::{BlockKind, DRY_RUN, DefaultValue, Setting, list, one, property, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const BOTH: &[BlockKind] = &[BlockKind::Site, BlockKind::Route];
const IP_ACCESS: &[BlockKind] = &[BlockKind::IpAccess];
const BASIC_AUTH: &[BlockKind] = &[BlockKind::BasicAuth];

pub(super) const SETTINGS: &[Setting] = &[
    setting(BOTH, "basic-auth", "Requires a user name and password. Otherwise: 401.")
        .properties(&[
            property("realm", ValueKind::Text, DefaultValue::Text("restricted"), "The name that the browser shows."),
            property(
                "file",
                ValueKind::Path,
                DefaultValue::Effect("no file"),
                "An htpasswd file with argon2 or bcrypt hashes. A change is seen within two seconds.",
            ),
            property(
                "wrong-max",
                ValueKind::Count { min: 1, max: 10_000 },
                DefaultValue::Text("20"),
                "Wrong passwords of one client in `wrong-time`. Beyond it: 429.",
            ),
            property(
                "wrong-time",
                ValueKind::Time { min: Duration::from_secs(1), max: Duration::from_secs(24 * 3600) },
                DefaultValue::Text("10m"),
                "The time in which wrong passwords are counted.",
            ),
            property(
                "dry-run",
                ValueKind::Flag,
                DefaultValue::Text("#false"),
                "Counts and logs what `wrong-max` would refuse, and refuses nothing of it.",
            ),
        ])
        .opens(BlockKind::BasicAuth)
        .if_absent("no password; in a route, the site's")
        .details(
            "Needs a `file`, or a `user` in its block, or both. A route's replaces the site's. Two passwords \
             are checked at a time. A client address (for IPv6, its /64) with four waiting checks gets 429. A \
             correct password is cached for one minute after its last use. For one user name, ten times `wrong-max` \
             wrong passwords are allowed, of all clients together; a correct password that is cached is not affected. Each \
             wrong password is one line of the error log. `selvedge hash-password` makes a hash. While the server runs, an \
             empty or removed `file` has no users, and a line that is no user costs only that user; the error log names it. \
             `check` and a start refuse such a line and a `file` that does not exist, a reload and a restart after a crash \
             do not.",
        )
        .example("basic-auth realm=\"Drafts\" file=\"users.htpasswd\""),
    setting(BASIC_AUTH, "user", "A user and the argon2 or bcrypt hash of the password.")
        .arguments(&[one("name", ValueKind::UserName), one("hash", ValueKind::PasswordHash)])
        .repeatable()
        .if_absent("only those of the file"),
    setting(BOTH, "ip-access", "Client networks that have access.")
        .properties(&[
            property(
                "status",
                ValueKind::Status { min: 400, max: 599 },
                DefaultValue::Text("403"),
                "Status code of the refusal. 404 does not admit that the path exists.",
            ),
            DRY_RUN,
        ])
        .opens(BlockKind::IpAccess)
        .if_absent("all; in a route, the site's")
        .details(
            "Lines are tried in order, and the first that contains the client decides. If none does, the client \
              has access unless an `allow` line exists. A route's replaces the site's. An included list may be empty; a \
              list of `allow` lines needs one more `allow` beside its `include`, because without any line every client has \
              access.",
        )
        .example("ip-access {\n    deny \"10.0.0.13\"\n    allow \"10.0.0.0/8\" \"fd00::/8\"\n}"),
    setting(IP_ACCESS, "allow", "Networks that have access.")
        .arguments(&[list("network", ValueKind::Network)])
        .repeatable()
        .if_absent("all except those denied"),
    setting(IP_ACCESS, "deny", "Networks that have no access.")
        .arguments(&[list("network", ValueKind::Network)])
        .repeatable()
        .if_absent("none, unless `allow` is set"),
    setting(BOTH, "requests-at-once-max", "Most requests of one client that are in progress. Beyond it: 429.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 1_000_000 })])
        .properties(&[DRY_RUN])
        .if_absent("no limit; in a route, the site's")
        .details(
            "A request is in progress until its response is sent, so this limits downloads that run beside each other. An \
             IPv6 /64 is one client. A route's limit counts separately and replaces the site's.",
        )
        .example("route \"/downloads/*\" {\n    requests-at-once-max 2\n    files\n}"),
    setting(BOTH, "satisfy", "Whether a client has to pass `ip-access` and `basic-auth`, or any of them.")
        .arguments(&[one("which", ValueKind::Choice(&["all", "any"]))])
        .if_absent("`all`; in a route, the site's")
        .details("With `any`, a client of an allowed network needs no password, and other clients need one.")
        .example("satisfy \"any\""),
    setting(BOTH, "rate-limit", "Most requests of one client address per time. Beyond it: 429 with Retry-After.")
        .arguments(&[one("requests", ValueKind::Count { min: 1, max: 1_000_000_000 })])
        .properties(&[
            property(
                "per",
                ValueKind::Time { min: Duration::from_millis(1), max: Duration::from_secs(24 * 3600) },
                DefaultValue::Text("1s"),
                "The time.",
            ),
            property(
                "burst",
                ValueKind::Count { min: 1, max: 1_000_000_000 },
                DefaultValue::Effect("`requests`"),
                "Requests that may arrive at once after a pause.",
            ),
            DRY_RUN,
        ])
        .if_absent("no limit; in a route, the site's")
        .details(
            "A route's limit counts separately and replaces the site's. If its text equals the site's, both \
               share one count.",
        )
        .example("rate-limit 100 per=\"1m\" burst=20"),
];
