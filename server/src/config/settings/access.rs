//! Who may come in, and how often. In a site and in a route; a route's replaces the site's.

use super::{Default, OBSERVE, Place, Setting, list, one, property, setting};
use crate::config::value::Kind;
use std::time::Duration;

const BOTH: &[Place] = &[Place::Site, Place::Route];
const CLIENTS: &[Place] = &[Place::Clients];
const BASIC_AUTH: &[Place] = &[Place::BasicAuth];

pub(super) const SETTINGS: &[Setting] = &[
    setting(BOTH, "basic-auth", "Asks for a name and a password. Without them: 401.")
        .properties(&[
            property("realm", Kind::Text, Default::Text("restricted"), "What the browser names when it asks."),
            property("file", Kind::Path, Default::Nothing("no file"), "An htpasswd file with argon2 or bcrypt hashes."),
        ])
        .holds(Place::BasicAuth)
        .otherwise("nobody is asked; in a route, as the site says")
        .more(
            "Needs a `file`, or a `user` in its braces, or both. A route's replaces the site's. Passwords are checked two at a time, and a client \
             address (for IPv6, its /64) that has four waiting already gets a 429 for more. One that was right need not \
             be checked again for a minute after its last use.",
        )
        .example("basic-auth realm=\"Drafts\" file=\"users.htpasswd\""),
    setting(BASIC_AUTH, "user", "A user and the argon2 or bcrypt hash of the password.")
        .with(&[one("name", Kind::UserName), one("hash", Kind::PasswordHash)])
        .many()
        .otherwise("only those of the file"),
    setting(BOTH, "clients", "Which client networks may come in. Whoever may not: 403.")
        .properties(&[OBSERVE])
        .holds(Place::Clients)
        .otherwise("all; in a route, as the site says")
        .more(
            "Lines are tried in order, and the first that names the client decides. Where none does, the client may \
             come in if there is no `allow` line. A route's replaces the site's.",
        )
        .example("clients {\n    deny \"10.0.0.13\"\n    allow \"10.0.0.0/8\" \"fd00::/8\"\n}"),
    setting(CLIENTS, "allow", "Networks that may come in.")
        .with(&[list("network", Kind::Network)])
        .many()
        .otherwise("all, but for those denied"),
    setting(CLIENTS, "deny", "Networks that may not.")
        .with(&[list("network", Kind::Network)])
        .many()
        .otherwise("none, if nothing is allowed"),
    setting(BOTH, "rate-limit", "Most requests of one client address in a time. Beyond it: 429 with Retry-After.")
        .with(&[one("requests", Kind::Count { min: 1, max: 1_000_000_000 })])
        .properties(&[
            property(
                "per",
                Kind::Time { min: Duration::from_millis(1), max: Duration::from_secs(24 * 3600) },
                Default::Text("1s"),
                "The time.",
            ),
            property(
                "burst",
                Kind::Count { min: 1, max: 1_000_000_000 },
                Default::Nothing("as many as `requests`"),
                "How many may come at once after a pause.",
            ),
            OBSERVE,
        ])
        .otherwise("no bound; in a route, as the site says")
        .more("A route's counts for itself and replaces the site's; one that says just what the site's says is the site's.")
        .example("rate-limit 100 per=\"1m\" burst=20"),
];
