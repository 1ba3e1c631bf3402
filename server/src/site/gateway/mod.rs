//! Runs scripts and programs for requests: FastCGI, SCGI and CGI.
//!
//! `rules` has the values of a route. `script` finds the script of a path.

mod rules;

pub(crate) use rules::{
    GatewayLoad, GatewayRules, GatewayTimeouts, PhpRules, ProgramStart, ScriptRunner, ScriptServer, Scripts,
    SendFileFolder, StartProgram,
};
