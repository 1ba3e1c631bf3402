//! Copies the fields of a response that a gateway forwards.

use crate::field::{Fields, InvalidField, is_field_value};
use crate::forward::names::{Nominations, is_for_one_connection};

/// Appends the fields of a response, an interim response or a trailer section that are forwarded.
///
/// Omits the framing fields, all fields of the upstream's connection, and Server, since this server is the one that the
/// client talks to. A Date is kept: it is when the response was made (RFC 9110 §6.6.1). One that is no date is omitted,
/// and this server writes its own. Allocates only if `out` grows.
///
/// # Errors
/// If a name is not a token or a value has a control character: `received` was not parsed. The fields before it are
/// appended.
pub fn forward_response<'a>(
    received: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    out: &mut Fields,
) -> Result<(), InvalidField> {
    let is_connection = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"connection");
    let nominations = Nominations::new(received.clone().filter(is_connection).map(|(_, value)| value));
    for (name, value) in received {
        let is_server = name.len() == 6 && name.eq_ignore_ascii_case(b"server");
        if is_for_one_connection(name) || is_server || nominations.removes(name) {
            continue;
        }
        match out.append_bytes(name, value) {
            Ok(()) | Err(InvalidField::Reserved) => {}
            Err(InvalidField::Value) if name.eq_ignore_ascii_case(b"date") && is_field_value(value) => {}
            Err(invalid) => return Err(invalid),
        }
    }
    Ok(())
}
