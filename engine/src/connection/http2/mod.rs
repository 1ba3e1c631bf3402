//! HTTP/2 connections: one task drives all streams of a connection.
//!
//! The protocol itself is in [`selvedge_proto::http2`]. Here, `serve` moves bytes between the transport and the
//! protocol, and takes turns: it receives, calls the application, sends.
//!
//! `streams` has the calls that wait and the responses that are being sent. `contents` has what clients have sent.
//! `respond` writes heads, `output` writes content. `stalls` finds clients that do not receive. `tunnel` has the
//! streams of other protocols, `repeated_head` the head that a client repeats.

mod call;
mod connection;
mod contents;
mod data_frame;
mod deadlines;
mod output;
mod parked_protocols;
mod pending;
mod ready_queue;
mod refusal;
mod repeated_head;
mod request;
mod respond;
mod sending;
mod serve;
mod stalls;
mod streams;
mod tunnel;

pub(super) use connection::{Connection, ParkedState};
pub(super) use parked_protocols::{ParkedProtocol, ParkedProtocols};
pub(super) use serve::serve;
