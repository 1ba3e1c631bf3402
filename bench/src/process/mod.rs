//! The servers as processes. Never knows what is asked of them.

pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod running;
pub(crate) mod tree;
