//! What the tests share: `tree` creates a directory, `program` serves it, `configured` runs a configuration, and `client`
//! sends requests. No test waits for a fixed time: it polls for a condition, see `wait`.

#[cfg(feature = "program")]
pub(crate) mod backend;
#[cfg(feature = "program")]
pub(crate) mod client;
#[cfg(feature = "program")]
pub(crate) mod collector;
#[cfg(feature = "program")]
pub(crate) mod configured;
pub(crate) mod other_driver;
#[cfg(feature = "program")]
pub(crate) mod program;
#[cfg(feature = "program")]
pub(crate) mod script_server;
pub(crate) mod temp_directory;
#[cfg(feature = "program")]
pub(crate) mod tls;
#[cfg(feature = "program")]
pub(crate) mod tree;
#[cfg(feature = "program")]
pub(crate) mod wait;
