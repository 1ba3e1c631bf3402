//! Copies the fields of a request that a gateway forwards.

use crate::field::{Fields, KnownField, append_name, list_members};
use crate::forward::forwarded::{ClientField, ClientFields, ClientInfo, ForwardedFields};
use crate::forward::names::{Nominations, is_for_one_connection};
use crate::forward::response::via_value;
use crate::head::RequestHead;

/// Whether fields whose name has an underscore or a dot are forwarded.
///
/// Many applications read fields as variables, in which `-`, `_` and `.` look alike: a client could write
/// `X_Forwarded_For`, and the application would read it as X-Forwarded-For.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoubtfulNames {
    /// They are dropped. Default.
    #[default]
    Drop,
    /// They are forwarded.
    Forward,
}

/// Whether a gateway adds itself to Via (RFC 9110 §7.6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViaField {
    /// It does not. Default: some applications switch compression off for requests with Via.
    #[default]
    Omit,
    /// It does.
    Append,
}

/// Which fields of a request are forwarded, and which are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Names with an underscore or a dot.
    pub doubtful_names: DoubtfulNames,
    /// The fields about the client.
    pub forwarded: ForwardedFields,
    /// Via.
    pub via: ViaField,
    /// Names of further fields that are dropped, compared without case. Default: none.
    pub removed: Vec<Box<str>>,
}

/// Whether the client accepts trailers (RFC 9110 §10.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeTrailers {
    /// The request has no `TE: trailers`.
    #[default]
    Absent,
    /// The request has it. A gateway writes it for each connection of its own; gRPC requires it.
    Accepted,
}

/// What a gateway needs to know of the fields that were not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// Whether the client accepts trailers.
    pub te: TeTrailers,
}

impl TeTrailers {
    /// Returns whether a client accepts trailers. The lookup takes the time of a scan of its fields.
    pub fn of_request(head: &RequestHead, bytes: &[u8]) -> Self {
        let accepts = head.fields(bytes).any(|(name, value)| is_te_trailers(name, value));
        if accepts { Self::Accepted } else { Self::Absent }
    }
}

/// Whether a field is TE with the member `trailers`.
fn is_te_trailers(name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"te") && list_members(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Appends the fields that are forwarded as lines `name: value`, each with its CRLF and a name in lower case.
///
/// Omits Host, Expect, X-Request-Id, the framing fields and all fields of the client's connection: the writer of the request adds
/// its own. Fields about the client are replaced, or the peer is appended to them. Allocates only if `out` grows.
pub fn forward_request(
    head: &RequestHead,
    bytes: &[u8],
    rules: &RequestRules,
    client: ClientInfo<'_>,
    out: &mut Vec<u8>,
) -> ForwardedRequest {
    out.reserve(head.field_section(bytes).len() + ADDED_BYTES_ESTIMATE);
    let nominations = Nominations::new(head.values(bytes, KnownField::Connection));
    let mut client_fields = ClientFields::new(client, rules.forwarded);
    let mut forwarded = ForwardedRequest::default();
    for (name, value) in head.fields(bytes) {
        if is_for_one_connection(name) {
            if is_te_trailers(name, value) {
                forwarded.te = TeTrailers::Accepted;
            }
            continue;
        }
        let is_forwarded = match ClientField::of_name(name) {
            Some(field) => client_fields.receive(field),
            None => !is_replaced(name) && !nominations.removes(name),
        };
        if is_forwarded && !rules.drops(name) {
            append_name(name, out);
            for part in [b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
    client_fields.write(head, bytes, out);
    if rules.via == ViaField::Append {
        for part in ["via: ", via_value(head.version), "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    forwarded
}

/// Returns the trailers of a request that a gateway forwards.
///
/// Some applications treat trailers as fields. So none has the name of a field that the gateway writes or drops: those
/// about the client and the connection, Host, Proxy, and names with an underscore or a dot. Names in `hidden` are dropped
/// as well; they are compared without case.
pub fn forward_request_trailers(trailers: &Fields, hidden: &[Box<str>]) -> Fields {
    let rules = RequestRules::default();
    let mut forwarded = Fields::new();
    for (name, value) in trailers.iter() {
        let bytes = name.as_bytes();
        let is_of_gateway = is_for_one_connection(bytes)
            || is_replaced(bytes)
            || ClientField::of_name(bytes).is_some()
            || rules.drops(bytes)
            || hidden.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !is_of_gateway {
            // The name and the value are those of a field.
            let _ = forwarded.append(name, value);
        }
    }
    forwarded
}

/// Room for the fields that a gateway adds.
const ADDED_BYTES_ESTIMATE: usize = 192;

/// Whether the gateway handles the field itself: Host is written from the authority, X-Request-Id by a gateway that names
/// its requests, and the engine responds to Expect. `Proxy` would become the variable HTTP_PROXY of a script, which its HTTP client reads.
fn is_replaced(name: &[u8]) -> bool {
    match name.len() {
        4 => name.eq_ignore_ascii_case(b"host"),
        5 => name.eq_ignore_ascii_case(b"proxy"),
        6 => name.eq_ignore_ascii_case(b"expect"),
        12 => name.eq_ignore_ascii_case(b"x-request-id"),
        _ => false,
    }
}

impl RequestRules {
    /// Whether the rules drop a field of this name.
    fn drops(&self, name: &[u8]) -> bool {
        let is_doubtful =
            self.doubtful_names == DoubtfulNames::Drop && name.iter().any(|byte| matches!(byte, b'_' | b'.'));
        is_doubtful || self.removed.iter().any(|removed| name.eq_ignore_ascii_case(removed.as_bytes()))
    }
}
