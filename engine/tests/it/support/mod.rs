//! What the tests share.

pub(crate) mod client;
pub(crate) mod http2_client;
pub(crate) mod other_driver;
