//! Connections in a world where the wire is memory and time is virtual.
//!
//! A fault is a setting of the [`pipe`], a minute passes in a moment, and every test asks
//! for the reason why a connection ended and not only for bytes. One file for each thing
//! that a connection does, in the order in which it does them.

mod pipe;
mod recorder;
mod replies;
mod scenario;
mod site;

mod content;
mod expect;
mod files;
mod head;
mod kinds;
mod linger;
mod long;
mod order;
mod panics;
mod parked;
mod room;
mod sending;
mod stop;
mod streams;
