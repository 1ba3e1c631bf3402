//! What the whole server is told: where it listens, as whom it runs, how it is kept alive.

use super::{Default, Place, Setting, list, one, property, setting};
use crate::config::value::Kind;
use std::time::Duration;

const TOP: &[Place] = &[Place::Top];
const SUPERVISION: &[Place] = &[Place::Supervision];
const INCLUDING: &[Place] = &[Place::Top, Place::Site, Place::Route];

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) const SETTINGS: &[Setting] = &[
    setting(TOP, "listen", "Where to listen.")
        .with(&[one("address", Kind::Listen)])
        .properties(&[property(
            "mode",
            Kind::FileMode,
            Default::Nothing("0666 for a Unix socket"),
            "Who may connect to a Unix socket, as an octal file mode.",
        )])
        .many()
        .default("127.0.0.1:8080")
        .more(
            "An address and a port (`0.0.0.0:8080`, `[::]:8080`, `localhost:8080`), a Unix socket (`unix:/run/site.sock`), \
             or a descriptor that the starting process has opened, by its number (`fd:3`) or by the name that systemd \
             gave it (`fd:web`). Port 0 takes a free one.",
        )
        .example("listen \"[::]:8080\"\nlisten \"unix:/run/selvedge/site.sock\" mode=\"0660\""),
    setting(TOP, "workers", "Number of worker threads.")
        .with(&[one("number", Kind::Count { min: 1, max: 1024 })])
        .otherwise("one for each core that the process may use"),
    setting(TOP, "driver", "How sockets are driven.")
        .with(&[one("name", Kind::Choice(&["auto", "epoll", "io_uring"]))])
        .default("auto")
        .more(
            "`io_uring` hands many operations to the system at once, which takes Linux 6.1 and a system that allows \
             it, as container platforms often do not; where it is not to be had, the error log says why, and `epoll` \
             serves. `io_uring` takes less of the processor for many busy connections, and more for a few. So `auto` is \
             both: a connection begins with `epoll`, and goes over to `io_uring`, where it is to be had, when it has been \
             answered and waits for its next request beside 16 others that are at work or were within the last second; the \
             environment variable `SELVEDGE_DRIVER` can name one of them instead. What is served, and how, is the same.",
        ),
    setting(TOP, "user", "The user to become after the listeners are bound.")
        .with(&[one("name", Kind::Account)])
        .otherwise("stays who started it"),
    setting(TOP, "group", "The group to become after the listeners are bound.")
        .with(&[one("name", Kind::Account)])
        .otherwise("the first group of `user`"),
    setting(TOP, "pid-file", "A file that holds the number of the process while it runs.")
        .with(&[one("path", Kind::Path)])
        .otherwise("none is written"),
    setting(TOP, "control", "The Unix socket that `selvedge reload`, `stop`, `upgrade` and `status` talk to.")
        .with(&[one("path", Kind::Path)])
        .default("selvedge.sock")
        .more("Only the owner can open it."),
    setting(TOP, "existing-connections", "What a reload means to connections that exist already.")
        .with(&[one("fate", Kind::Choice(&["finish", "follow"]))])
        .default("finish")
        .more(
            "`finish`: they keep the configuration they began with and are asked to connect anew with their next \
             response. `follow`: they take the new one at their next request, but for limits. What has done neither at \
             the `drain-time` is closed.",
        ),
    setting(TOP, "trusted-proxies", "Networks whose word is taken for who the client is.")
        .with(&[list("network", Kind::Proxy)])
        .properties(&[property(
            "header",
            Kind::Choice(&["x-forwarded-for", "forwarded"]),
            Default::Text("x-forwarded-for"),
            "The field in which they say it.",
        )])
        .otherwise("nobody's; the client is who connected")
        .more(
            "The field is read from the right, and the first address that is not in these networks is the client. \
             Where what stands there is no address, as in `unknown`, the client is 0.0.0.0, which is in no network: no \
             `allow` lets it in, nor does a `client` condition hold. Without the field the proxy is the client. \
             `unix` stands for whoever connects to a Unix socket. Name only proxies that are yours: whoever is in these \
             networks can call itself what it likes.",
        )
        .example("trusted-proxies \"10.0.0.0/8\" \"unix\" header=\"forwarded\""),
    setting(TOP, "supervision", "How the serving process is kept alive.")
        .holds(Place::Supervision)
        .otherwise("its defaults"),
    setting(SUPERVISION, "supervised", "Whether a parent process holds the listeners and starts the serving process anew.")
        .with(&[one("flag", Kind::Flag)])
        .default("#true"),
    setting(SUPERVISION, "restarts-max", "Most restarts within `restarts-within`; one more ends the program with an error.")
        .with(&[one("number", Kind::Count { min: 0, max: 1_000_000 })])
        .default("10"),
    setting(SUPERVISION, "restarts-within", "The time in which restarts are counted.")
        .with(&[one("time", Kind::Time { min: MILLISECOND, max: Duration::from_secs(7 * 24 * 3600) })])
        .default("60s"),
    setting(SUPERVISION, "back-off-min", "The wait before the first restart. It doubles with each one.")
        .with(&[one("time", Kind::Time { min: MILLISECOND, max: HOUR })])
        .default("10ms"),
    setting(SUPERVISION, "back-off-max", "The longest wait before a restart.")
        .with(&[one("time", Kind::Time { min: MILLISECOND, max: HOUR })])
        .default("10s"),
    setting(INCLUDING, "include", "Reads other files as if what is in them stood here.")
        .with(&[list("pattern", Kind::Include)])
        .many()
        .otherwise("nothing is included")
        .more(
            "`*` and `?` stand for what is within a file name or folder name, `**` for folders at any depth; files are \
             read in the order of their names. A pattern may match nothing, a plain name may not.",
        )
        .example("include \"sites/*.kdl\""),
    setting(TOP, "limits", "Bounds on what clients may do.").holds(Place::Limits).otherwise("its defaults"),
    setting(TOP, "site", "A site and the names it answers to.")
        .with(&[list("name", Kind::Host)])
        .holds(Place::Site)
        .many()
        .otherwise("none; every request is a 421")
        .more(
            "A name, a wildcard for one or more labels in front (`*.example.com`), or `*` for every name that no other \
             site has. The most exact name wins, in whatever order sites stand. Without `*`, a request for another \
             name is a 421.",
        )
        .example("site \"example.com\" \"*.example.com\" {\n    root \"/srv/example\"\n}"),
];
