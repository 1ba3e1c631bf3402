//! What the tests share.

pub(crate) mod client;
pub(crate) mod other_driver;
