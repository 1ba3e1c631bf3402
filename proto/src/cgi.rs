//! What scripts get and return: the variables of a request, and the head of a response (RFC 3875).
//!
//! FastCGI, SCGI and CGI share both. Only the encoding of the variables differs.

mod environment;
mod head;

pub use environment::{ScriptPath, ScriptRequest, Variables, for_each_variable, write_scgi};
pub use head::{MalformedScriptHead, ScriptHead, ScriptResponse, parse_script_head};
