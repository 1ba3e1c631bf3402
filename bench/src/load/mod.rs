//! The load generator. Never knows which server it measures.

pub(crate) mod clients;
pub(crate) mod closed;
pub(crate) mod files;
pub(crate) mod h2load;
pub(crate) mod handshakes;
pub(crate) mod mix;
pub(crate) mod open;
pub(crate) mod response;
pub(crate) mod slow;
pub(crate) mod streams;
pub(crate) mod window;
