//! Runs scripts and programs for requests: FastCGI, SCGI and CGI.
//!
//! ```text
//! script: find it ─► upload, spool: the content ─► environment: the variables ─► state: connect, or start a program
//!   └► a file of a PHP application                                                  │
//! content: chunks to the client ◄── exchange: both directions ◄── connection ◄──────┘
//! ```
//!
//! `rules` has the values of a route. A client that leaves drops the exchange, which ends its script. A script that goes on
//! after its response may do so for a bounded time (`after_response`).

mod after_response;
mod connection;
mod content;
mod environment;
mod error;
mod exchange;
mod messages;
mod rules;
mod script;
mod send_file;
mod spool;
mod state;
mod upload;

pub(crate) use rules::{
    GatewayLoad, GatewayRules, GatewayTimeouts, LateScriptMessage, PhpRules, ProgramEnd, ProgramRunner, ProgramStart,
    ScriptRunner, ScriptServer, Scripts, SendFileFolder, StartProgram,
};
pub(in crate::site) use state::GatewayState;

use super::files::Files;
use super::lookup::FileLookup;
use super::step_recorder::{Producer, Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::absolute_path;
use crate::traces::{CurrentTry, Tracer, TryResult};
use after_response::AfterResponse;
use bytes::Bytes;
use connection::ScriptConnection;
use content::ScriptContent;
use environment::{ScriptCall, TraceVariables, text_of};
use error::GatewayError;
use exchange::{AfterExchange, Exchange, Framing};
use messages::Messages;
use rules::RequestAtWork;
use script::{PhpLookup, TargetScript};
use selvedge::client::ProgramPipes;
use selvedge::proto::cgi::{ScriptHead, ScriptResponse, write_scgi};
use selvedge::proto::fastcgi::{self, AfterRequest, RecordReader};
use selvedge::proto::field::Fields;
use selvedge::proto::path::SafePath;
use selvedge::service::{Body, UpstreamRecord, set_upstream};
use selvedge::{Method, Request, Response, StatusCode};
use spool::Spool;
use std::future::poll_fn;
use std::task::Poll;
use upload::ContentUpload;

/// A request for a route with scripts.
pub(super) struct GatewayRequest<'a> {
    pub(super) rules: &'a GatewayRules,
    /// The files of a PHP application; `None` for others.
    pub(super) files: Option<&'a Files>,
    /// The path, and the part of it that the wildcard of the route matched.
    pub(super) path: &'a SafePath,
    pub(super) beneath: Option<&'a SafePath>,
    /// The scheme of the client, as far as a proxy in front of this server knows it.
    pub(super) scheme: &'a str,
    /// The query of a local redirect that led here. The request then has the method GET.
    pub(super) redirected: Option<&'a str>,
    /// The traces of requests, if the server has any.
    pub(super) tracer: Option<&'a Tracer>,
    /// Records the script of a request that is only explained.
    pub(super) recorder: Option<&'a StepRecorder>,
}

/// What becomes of a request.
pub(super) enum GatewayOutcome {
    Response(Response),
    /// A file of the application is sent.
    File(FileLookup),
    /// The response for another path of this server.
    LocalRedirect {
        path: SafePath,
        query: String,
    },
}

/// Runs the script of a request.
pub(super) async fn respond(state: &GatewayState, request: &mut Request, call: GatewayRequest<'_>) -> GatewayOutcome {
    let script = match find(request, &call).await {
        Ok(script) => script,
        Err(outcome) => return outcome,
    };
    if request.method() == Method::Trace {
        // It would show the script's credentials to the client.
        let refused = Response::error_with_text(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here");
        return GatewayOutcome::Response(refused);
    }
    if let Some(recorder) = call.recorder {
        record_script(recorder, call.rules, &script);
        return GatewayOutcome::Response(Response::new(StatusCode::OK));
    }
    let Some(at_work) = call.rules.load.begin() else {
        let busy = Response::error(StatusCode::SERVICE_UNAVAILABLE).field("retry-after", "1");
        return GatewayOutcome::Response(busy.log_reason("too many requests of the route are at work"));
    };
    let record = UpstreamRecord::new(runner_name(&call.rules.runner));
    set_upstream(request, record.clone());
    match run(state, request, &call, (script, Messages::new(record.clone()), at_work)).await {
        Ok(outcome) => outcome,
        Err(error) => {
            error.note(&record);
            GatewayOutcome::Response(error.response())
        }
    }
}

/// Records which script would run.
fn record_script(recorder: &StepRecorder, rules: &GatewayRules, script: &TargetScript) {
    let TargetScript { name, path_info, file } = script;
    let mut text = match file.as_str() {
        "" => "the application".to_owned(),
        file => format!("the script {}", file.escape_debug()),
    };
    text += &format!(" gets SCRIPT_NAME {} and PATH_INFO {}", quoted(name), quoted(path_info));
    recorder.step(Stage::Script, StepVerdict::Yes, StepOrigin::None, text);
    recorder.step(
        Stage::Script,
        StepVerdict::Yes,
        StepOrigin::None,
        format!("{} would run it", runner_name(&rules.runner)),
    );
    recorder.set_producer(Producer::Script);
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

fn runner_name(runner: &ScriptRunner) -> std::rc::Rc<str> {
    match runner {
        ScriptRunner::FastCgi(server) | ScriptRunner::Scgi(server) => (*server.name).into(),
        ScriptRunner::Cgi(_) => "cgi".into(),
    }
}

/// Finds the script of a request, or what the request gets without one.
async fn find(request: &Request, call: &GatewayRequest<'_>) -> Result<TargetScript, GatewayOutcome> {
    let not_found = || GatewayOutcome::Response(Response::error(StatusCode::NOT_FOUND));
    let failed = |error| GatewayOutcome::Response(Response::from(error));
    let now = request.received_at().since_worker_start;
    match &call.rules.scripts {
        Scripts::Php(php) => {
            let files = call.files.expect("the table has the files of each PHP application");
            match script::find_php(files, php, call.path, now).await {
                Ok(PhpLookup::Script(script)) => Ok(script),
                Ok(PhpLookup::File(file)) => Err(GatewayOutcome::File(file)),
                Err(error) => Err(failed(error)),
            }
        }
        Scripts::Application { .. } => {
            let (name, path_info) = split_by_wildcard(call);
            Ok(TargetScript { name, path_info, file: String::new() })
        }
        Scripts::Programs { folder, only } => {
            let (prefix, path_info) = split_by_wildcard(call);
            let found = match only {
                Some(only) => script::is_file(folder, only).await.map(|is_file| {
                    is_file.then(|| TargetScript { name: prefix, path_info, file: only.as_str().to_owned() })
                }),
                None => script::find_program(folder, &prefix, call.beneath.unwrap_or(call.path)).await,
            };
            let script = found.map_err(failed)?.ok_or_else(not_found)?;
            let name = script.file.rsplit('/').next().unwrap_or_default();
            if name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("nph-")) {
                // Such a program writes a whole HTTP response, which would pass unchecked.
                let refused = Response::error(StatusCode::FORBIDDEN);
                let reason = "programs whose name begins with nph- are not run";
                return Err(GatewayOutcome::Response(refused.log_reason(reason)));
            }
            Ok(script)
        }
    }
}

/// Returns the path before the wildcard without a trailing slash, and the rest with its leading one.
fn split_by_wildcard(call: &GatewayRequest<'_>) -> (String, String) {
    let path = absolute_path(call.path);
    let Some(beneath) = call.beneath else { return (String::new(), path) };
    let rest = absolute_path(beneath);
    match path.strip_suffix(&rest) {
        Some(prefix) => (prefix.to_owned(), rest),
        // The path ends where the wildcard begins, as `/app` of `/app/*`.
        None => (path, String::new()),
    }
}

/// Runs a script.
async fn run(
    state: &GatewayState,
    request: &mut Request,
    call: &GatewayRequest<'_>,
    (script, messages, at_work): (TargetScript, Messages, RequestAtWork),
) -> Result<GatewayOutcome, GatewayError> {
    let rules = call.rules;
    let (mut upload, length) = match call.redirected {
        Some(_) => (ContentUpload::Done, None),
        None => take_content(request, rules).await?,
    };
    let trace = call.tracer.map(|tracer| tracer.begin(request));
    let mut script_call = script_call(request, call, (script, length));
    let is_repeatable = upload.is_done() && request.method().is_safe();
    loop {
        let content = std::mem::replace(&mut upload, ContentUpload::Done);
        let current = trace.as_ref().map(|trace| trace.begin_try("".into()));
        script_call.trace = trace.as_deref().zip(current.as_ref()).map(TraceVariables::of);
        let mut exchange = match begin(state, request, (rules, &script_call), (content, messages.clone())).await {
            Ok(exchange) => exchange,
            Err(error) => {
                end_try(current, &messages, TryResult::Failed(error.kind()));
                return Err(error);
            }
        };
        let received = exchange.read_head().await;
        end_try(current, &messages, received.as_ref().map_or_else(|error| TryResult::Failed(error.kind()), status_of));
        match received {
            Ok(head) => {
                let script = script_call.path().into();
                let after = AfterResponse { at_work, script, time_max: rules.timeouts.silence };
                return finish(request, rules, head, (exchange, after)).await;
            }
            // The server closed an idle connection while this request was sent.
            Err(error) if is_repeatable && error.is_stale_connection() && exchange.is_reused() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ends a try, whose server is known by now.
fn end_try(current: Option<CurrentTry>, messages: &Messages, result: TryResult) {
    if let Some(mut current) = current {
        current.set_address(messages.record().facts().address.clone());
        current.end(result);
    }
}

/// Returns the status of a response; that of a redirect within this server is 302.
fn status_of(head: &ScriptHead) -> TryResult {
    match head.response {
        ScriptResponse::Document(status) => TryResult::Status(status),
        ScriptResponse::LocalRedirect(_) => TryResult::Status(StatusCode::FOUND),
    }
}

/// Takes the content with its length. Content without a length is stored.
async fn take_content(
    request: &mut Request,
    rules: &GatewayRules,
) -> Result<(ContentUpload, Option<u64>), GatewayError> {
    let mut content = request.take_body();
    if content.is_empty() {
        return Ok((ContentUpload::Done, None));
    }
    if let Some(length) = content.length() {
        return Ok((ContentUpload::Incoming(content), Some(length)));
    }
    let spool = Spool::read(&mut content, rules.spool_bytes_max).await?;
    let length = spool.length();
    Ok((ContentUpload::of_spool(spool), Some(length)))
}

fn script_call(
    request: &Request,
    call: &GatewayRequest<'_>,
    (script, content_length): (TargetScript, Option<u64>),
) -> ScriptCall {
    let (document_root, script_file) = match &call.rules.scripts {
        Scripts::Php(php) => {
            let root = php.root_there.as_deref().unwrap_or_else(|| php.files.root.path());
            (text_of(root), Some(script::file_beneath(root, &script.file)))
        }
        Scripts::Application { document_root } => (document_root.as_deref().and_then(text_of), None),
        Scripts::Programs { folder, .. } => (None, Some(script::file_beneath(folder.path(), &script.file))),
    };
    let (method, query) = match call.redirected {
        Some(query) => ("GET", query),
        None => (request.method_text(), request.query().unwrap_or_default()),
    };
    ScriptCall {
        script,
        script_file,
        document_root,
        method: method.to_owned(),
        query: query.to_owned(),
        is_secure: call.scheme == "https",
        content_length,
        trace: None,
    }
}

/// Connects with a script, and sends it the start of the request.
async fn begin(
    state: &GatewayState,
    request: &Request,
    (rules, call): (&GatewayRules, &ScriptCall),
    (upload, messages): (ContentUpload, Messages),
) -> Result<Exchange, GatewayError> {
    let mut start = Vec::new();
    match &rules.runner {
        ScriptRunner::FastCgi(server) => {
            let connection = state.connect(server, &rules.timeouts, messages.record()).await?;
            let (announced, after) = match server.idle_connections_max {
                0 => (AfterRequest::Close, AfterExchange::Close),
                _ => (AfterRequest::KeepOpen, AfterExchange::Release),
            };
            fastcgi::write_begin(announced, &mut start);
            fastcgi::write_variables(&call.fastcgi(request, rules), &mut start);
            if upload.is_done() {
                start.extend_from_slice(&fastcgi::content_header(0));
            }
            let framing = Framing::FastCgi(RecordReader::new());
            Ok(Exchange::new(connection, (framing, after), (start, upload), messages))
        }
        ScriptRunner::Scgi(server) => {
            let connection = state.connect(server, &rules.timeouts, messages.record()).await?;
            write_scgi(call.content_length.unwrap_or(0), &call.scgi(request, rules), &mut start);
            Ok(Exchange::new(connection, (Framing::Plain, AfterExchange::Close), (start, upload), messages))
        }
        ScriptRunner::Cgi(runner) => {
            let (mut pipes, ends) = ProgramPipes::new(rules.timeouts.response).map_err(GatewayError::Start)?;
            if upload.is_done() {
                pipes.shutdown_write();
            }
            let environment = call.program(request, rules);
            let program = call.script.file.clone();
            runner.starter.start(ProgramStart { program, environment, ends }).map_err(GatewayError::Start)?;
            let connection = ScriptConnection::Program(Box::new(pipes));
            let exchange = Exchange::new(connection, (Framing::Plain, AfterExchange::Close), (start, upload), messages);
            Ok(exchange.with_output_limit(runner.output_bytes_max))
        }
    }
}

/// Turns the head of a script into a response.
async fn finish(
    request: &Request,
    rules: &GatewayRules,
    head: ScriptHead,
    (mut exchange, after): (Exchange, AfterResponse),
) -> Result<GatewayOutcome, GatewayError> {
    let ScriptHead { response, fields, content_length, .. } = head;
    let status = match response {
        ScriptResponse::Document(status) => status,
        ScriptResponse::LocalRedirect(target) => {
            after.finish(exchange).await;
            return Ok(local_redirect(&target, fields));
        }
    };
    exchange.messages().record().update(|facts| facts.status = Some(status));
    if let Some(file) = send_file::respond(request, rules.send_file.as_ref(), &fields).await? {
        follow(after, exchange).await;
        return Ok(GatewayOutcome::Response(file));
    }
    let mut response = Response::new(status);
    *response.fields_mut() = without_directives(fields);
    exchange.set_timeout(rules.timeouts.silence);
    if environment::has_content(status) {
        response.body = content(request, content_length, (exchange, after)).await?;
    } else {
        follow(after, exchange).await;
    }
    Ok(GatewayOutcome::Response(response))
}

/// Returns the content of a response: in memory if all of it has arrived with the head.
async fn content(
    request: &Request,
    content_length: Option<u64>,
    (mut exchange, after): (Exchange, AfterResponse),
) -> Result<Body, GatewayError> {
    let is_head = request.method() == Method::Head;
    if let Some(length) = content_length.filter(|_| !is_head) {
        exchange.set_content_length(length);
    }
    let stream = |chunks| Body::Stream { length: content_length, chunks: Box::pin(chunks) };
    match exchange.read_short().await? {
        Some(content) if content_length.is_none_or(|length| length == content.len() as u64) => {
            follow(after, exchange).await;
            Ok(content.into())
        }
        Some(_) if !is_head => {
            Err(GatewayError::Ended("the content has another length than its Content-Length".to_owned()))
        }
        // Its content is not sent, so the response is complete.
        _ if is_head => {
            follow(after, exchange).await;
            Ok(stream(ScriptContent::none()))
        }
        short => {
            exchange.put_back(short.unwrap_or_default());
            Ok(stream(ScriptContent::new(exchange, after)))
        }
    }
}

/// Lets a script end after its response.
async fn follow(after: AfterResponse, exchange: Exchange) {
    let mut parts = Some((after, exchange));
    poll_fn(|cx| Poll::Ready(parts.take().map(|(after, exchange)| after.follow(exchange, cx)))).await;
}

/// Returns the fields without those for the server.
fn without_directives(mut fields: Fields) -> Fields {
    let directives: Vec<String> =
        fields.iter().map(|(name, _)| name).filter(|name| send_file::is_directive(name)).map(str::to_owned).collect();
    directives.iter().for_each(|name| fields.remove(name));
    fields
}

/// Returns the path and query of a local redirect (RFC 3875 §6.2.2). A target that is no path of this server goes to the
/// client.
fn local_redirect(target: &str, fields: Fields) -> GatewayOutcome {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_visible = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
    match SafePath::decode(path.as_bytes()) {
        Ok(path) if is_visible(query) => GatewayOutcome::LocalRedirect { path, query: query.to_owned() },
        _ => {
            let mut response = Response::new(StatusCode::FOUND);
            *response.fields_mut() = fields;
            GatewayOutcome::Response(response.body(Bytes::new()))
        }
    }
}
