//! Which fields a gateway forwards, in both directions, and the fields that it adds (RFC 9110 §7.6, RFC 7239).
//!
//! Invariant: no field of one connection reaches the next one, neither by its name nor since Connection names it. A
//! client cannot remove a field that a gateway or an application relies on by naming it in Connection.

mod forwarded;
mod names;
mod request;
mod response;

pub use forwarded::{ClientInfo, ForwardedFields, NamedOrigin, PeerTrust};
pub use request::{
    DoubtfulNames, ForwardedRequest, RequestRules, TeTrailers, ViaField, forward_request, forward_request_trailers,
};
pub use response::{forward_response, via_value};

#[cfg(test)]
mod tests;
