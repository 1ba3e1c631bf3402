//! The variables of a request in the encoding of each runner.

use super::rules::GatewayRules;
use super::script::TargetScript;
use crate::traces::{CurrentTry, RequestTrace, TRACEPARENT_BYTES};
use selvedge::proto::cgi::{ScriptPath, ScriptRequest, for_each_variable};
use selvedge::proto::fastcgi::write_variable;
use selvedge::proto::path::path_bytes;
use selvedge::service::{UNIX_PEER, local_address, request_id};
use selvedge::{Request, StatusCode};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;

/// SERVER_SOFTWARE.
const SOFTWARE: &str = concat!("Selvedge/", env!("CARGO_PKG_VERSION"));
/// The variables of the place of a request in its trace, if the server has traces.
const TRACEPARENT: &[u8] = b"HTTP_TRACEPARENT";
const TRACESTATE: &[u8] = b"HTTP_TRACESTATE";
/// The variable of the identifier of a request, which no client sets.
const REQUEST_ID: &[u8] = b"HTTP_X_REQUEST_ID";
/// PATH of programs, unless the configuration sets another.
const PROGRAM_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The request as a script sees it.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: TargetScript,
    /// SCRIPT_FILENAME.
    pub(super) script_file: Option<String>,
    /// DOCUMENT_ROOT.
    pub(super) document_root: Option<String>,
    /// The method and query of the request, or those of a local redirect.
    pub(super) method: String,
    pub(super) query: String,
    /// Whether the client uses https.
    pub(super) is_secure: bool,
    /// `None` without content.
    pub(super) content_length: Option<u64>,
    /// `None` if the server has no traces: what the client has sent is passed on then.
    pub(super) trace: Option<TraceVariables>,
}

/// The place of a request in its trace, as a script gets it.
#[derive(Clone, Debug)]
pub(super) struct TraceVariables {
    pub(super) traceparent: [u8; TRACEPARENT_BYTES],
    pub(super) tracestate: Option<Box<str>>,
}

impl TraceVariables {
    /// Returns the variables for a try.
    pub(super) fn of((trace, current): (&RequestTrace, &CurrentTry)) -> Self {
        Self { traceparent: current.traceparent(), tracestate: trace.state().map(Box::from) }
    }
}

impl ScriptCall {
    /// Returns the path of the request, decoded, for the log.
    pub(super) fn path(&self) -> String {
        format!("{}{}", self.script.name, self.script.path_info)
    }

    /// Passes the variables of the request, then those of the configuration, which replace them.
    fn for_each(&self, request: &Request, rules: &GatewayRules, to: &mut dyn FnMut(&[u8], &[u8])) {
        let is_replaced =
            |name: &[u8]| rules.variables.iter().any(|(replaced, _)| replaced.as_bytes().eq_ignore_ascii_case(name));
        let port = match request.peer() {
            UNIX_PEER => 0,
            peer if peer.ip() == request.client() => peer.port(),
            // The port belongs to the proxy in between.
            _ => 0,
        };
        let facts = ScriptRequest {
            head: request.head(),
            head_bytes: request.head_bytes(),
            path: ScriptPath {
                script_name: &self.script.name,
                path_info: &self.script.path_info,
                script_file: self.script_file.as_deref(),
                document_root: self.document_root.as_deref(),
            },
            method: &self.method,
            query: &self.query,
            is_secure: self.is_secure,
            client: SocketAddr::new(request.client(), port),
            server: local_address(request),
            user: request.user(),
            content_length: self.content_length,
            software: SOFTWARE,
        };
        for_each_variable(&facts, &mut |name: &[u8], value: &[u8]| {
            let value = match name {
                // Text of the path, in which private characters hold bytes that are not UTF-8, and encoded slashes.
                b"SCRIPT_NAME" | b"PATH_INFO" | b"PATH_TRANSLATED" | b"SCRIPT_FILENAME" | b"DOCUMENT_URI" => {
                    std::str::from_utf8(value).map_or(Cow::Borrowed(value), path_bytes)
                }
                _ => Cow::Borrowed(value),
            };
            let is_own = name == REQUEST_ID || (self.trace.is_some() && [TRACEPARENT, TRACESTATE].contains(&name));
            if !is_own && !is_replaced(name) {
                to(name, &value);
            }
        });
        if !is_replaced(REQUEST_ID) {
            to(REQUEST_ID, request_id(request).as_bytes());
        }
        if let Some(TraceVariables { traceparent, tracestate }) = &self.trace {
            let state = tracestate.as_deref().map(|state| (TRACESTATE, state.as_bytes()));
            let own = [(TRACEPARENT, &traceparent[..])].into_iter().chain(state);
            own.filter(|(name, _)| !is_replaced(name)).for_each(|(name, value)| to(name, value));
        }
        for (name, value) in &*rules.variables {
            to(name.as_bytes(), value.as_bytes());
        }
    }

    /// Returns the variables as a stream of FastCGI.
    pub(super) fn fastcgi(&self, request: &Request, rules: &GatewayRules) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(2048);
        self.for_each(request, rules, &mut |name, value| write_variable(name, value, &mut encoded));
        encoded
    }

    /// Returns the variables of SCGI without CONTENT_LENGTH.
    pub(super) fn scgi(&self, request: &Request, rules: &GatewayRules) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(2048);
        self.for_each(request, rules, &mut |name, value| {
            if name != b"CONTENT_LENGTH" {
                for part in [name, b"\0", value, b"\0"] {
                    encoded.extend_from_slice(part);
                }
            }
        });
        encoded
    }

    /// Returns the environment of a program.
    pub(super) fn program(&self, request: &Request, rules: &GatewayRules) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::with_capacity(48);
        self.for_each(request, rules, &mut |name, value| all.push((name.to_vec(), value.to_vec())));
        if !all.iter().any(|(name, _)| name == b"PATH") {
            all.push((b"PATH".to_vec(), PROGRAM_PATH.to_vec()));
        }
        all
    }
}

/// Returns a path as text for a variable; `None` for one that is not UTF-8.
pub(super) fn text_of(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

/// Whether a status has content after which the script still works, so that it is read to its end.
pub(super) fn has_content(status: StatusCode) -> bool {
    !status.forbids_content()
}
