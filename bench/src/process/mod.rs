//! The processes of the servers. Never depends on the requests that they receive.

pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod server_process;
pub(crate) mod tree;
pub(crate) mod upstream_use;
