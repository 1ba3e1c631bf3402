//! The values of a request that targets and texts can have.

/// A value of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Host,
    Path,
    Query,
    Scheme,
    Method,
    Client,
    ClientSubject,
}

/// Every value of a request: its name, and what it is.
pub(crate) const VARIABLES: [(&str, Variable, &str); 7] = [
    (
        "host",
        Variable::Host,
        "The requested host, in lower case and without a port. Write another port than the usual one behind it: `{scheme}://{host}:8080{path}`.",
    ),
    ("path", Variable::Path, "The requested path, with its slash at the beginning."),
    ("query", Variable::Query, "The query of the request, without the `?`; it may be empty."),
    ("scheme", Variable::Scheme, "`http` or `https`."),
    ("method", Variable::Method, "The method of the request."),
    ("client", Variable::Client, "The address of the client."),
    (
        "client_subject",
        Variable::ClientSubject,
        "The subject of the client's verified certificate, such as `CN%3Dalice`; empty without one.",
    ),
];

impl Variable {
    /// Finds a value of the request by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        VARIABLES.iter().find(|(known, ..)| *known == name).map(|(_, variable, _)| *variable)
    }
}
