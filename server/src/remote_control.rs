//! Remote commands: an https address for holders of a client certificate, served by a worker of its own.

use crate::log::canonical;
use crate::log::config::Level;
use crate::process::{ControlReply, ListenAddress, ListenError, ServingProcess, StatusFormat};
use crate::snapshot::Snapshot;
use selvedge::proto::field::KnownField;
use selvedge::service::{Closed, ContentError, Observer};
use selvedge::tls::{ClientOffer, SelectHost, Tls, TlsHost};
use selvedge::{
    Endpoint, Handle, Limits, Listener, Method, Request, Response, RunningServer, Server, Service, StatusCode,
};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest configuration in a request.
const CONFIGURATION_BYTES_MAX: u64 = 4 << 20;
/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 64;

/// Executes remote commands. Each method may block.
pub(crate) trait RemoteCommands: Send + Sync + 'static {
    /// Reloads the configuration: that of the file, or a text instead of it.
    fn reload(&self, text: Option<String>) -> ControlReply;
    /// Returns the status.
    fn status(&self, format: StatusFormat) -> String;
    /// Returns the state of the certificates that the server gets by itself.
    fn certificates(&self, format: StatusFormat) -> String;
    /// Logs a command, or why a client cannot send one.
    fn log(&self, level: Level, name: &'static str, text: String);
}

/// Where remote commands are accepted.
#[derive(Debug)]
pub(crate) struct RemoteEndpoint {
    address: ListenAddress,
    parts: RemoteParts,
}

/// What the server of remote commands needs.
#[derive(Clone, Debug)]
pub(crate) struct RemoteParts {
    /// Host and port as clients send them.
    authority: Arc<str>,
    listeners: Arc<Mutex<Vec<Listener>>>,
    host: Arc<Mutex<Arc<TlsHost>>>,
    handle: Arc<OnceLock<Handle>>,
}

/// A running server of remote commands. It ends on drop.
#[derive(Debug)]
pub(crate) struct RemoteControl(Option<RunningServer>);

impl RemoteEndpoint {
    /// Binds the address of a configuration; `None` if it has none.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub(crate) fn bind(snapshot: &Snapshot, serving: &ServingProcess) -> Result<Option<Self>, ListenError> {
        let remote = snapshot.settings.remote_control.as_ref();
        let Some((remote, host)) = remote.zip(snapshot.control_host.clone()) else { return Ok(None) };
        let listener = remote.listener();
        let address = ListenAddress::from(&listener);
        let listeners = serving.bind(&address).map_err(|why| ListenError { address: listener.address, why })?;
        let port = listeners.iter().find_map(|listener| match listener.endpoint() {
            Endpoint::Inet(address) => Some(address.port()),
            Endpoint::Unix(_) => None,
        });
        let parts = RemoteParts {
            authority: remote.authority(port.unwrap_or(remote.port)).into(),
            listeners: Arc::new(Mutex::new(listeners)),
            host: Arc::new(Mutex::new(host)),
            handle: Arc::default(),
        };
        Ok(Some(Self { address, parts }))
    }

    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Returns the host and port as clients send them.
    pub(crate) fn authority(&self) -> &str {
        &self.parts.authority
    }

    pub(crate) fn parts(&self) -> RemoteParts {
        self.parts.clone()
    }

    /// Uses the certificates and the authorities of another configuration for new connections.
    pub(crate) fn replace_host(&self, host: Arc<TlsHost>) {
        *lock(&self.parts.host) = host;
    }

    /// Stops accepting; commands in progress finish.
    pub(crate) fn stop(&self) {
        self.parts.handle.get().into_iter().for_each(Handle::stop);
    }
}

impl RemoteControl {
    /// Starts to accept commands.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(parts: RemoteParts, commands: Arc<dyn RemoteCommands>) -> io::Result<Self> {
        let listeners = std::mem::take(&mut *lock(&parts.listeners));
        let limits = Limits { connections_max: CONNECTIONS_MAX, ..Limits::default() };
        let server = Server::from_listeners(listeners, 1)
            .limits(limits)
            .tls(Tls::selecting(CurrentHost(parts.host.clone())))
            .observe(ControlObserver(commands.clone()));
        let authority = parts.authority.clone();
        let running =
            server.serve_each(move || ControlService { commands: commands.clone(), authority: authority.clone() })?;
        // It starts once.
        let _ = parts.handle.set(running.handle());
        Ok(Self(Some(running)))
    }
}

impl Drop for RemoteControl {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.handle().stop();
            running.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Selects the host of the configuration in force.
struct CurrentHost(Arc<Mutex<Arc<TlsHost>>>);

impl SelectHost for CurrentHost {
    fn select(&self, _offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>> {
        Some(lock(&self.0).clone())
    }
}

/// Logs connections that failed, such as those without a certificate.
#[derive(Clone)]
struct ControlObserver(Arc<dyn RemoteCommands>);

impl Observer for ControlObserver {
    fn closed(&self, closed: &Closed) {
        if !closed.reason.is_ordinary() {
            self.0.log(
                Level::Warn,
                "RemoteConnection",
                format!("{}: {}", canonical(closed.peer), closed.reason.explain()),
            );
        }
    }
}

struct ControlService {
    commands: Arc<dyn RemoteCommands>,
    authority: Arc<str>,
}

impl Service for ControlService {
    async fn call(&self, request: &mut Request) -> Response {
        let line = format!("{} {}", request.method_text(), request.path().escape_debug());
        let subject = request.tls().and_then(|tls| tls.peer_subject()).unwrap_or("no name").to_owned();
        let response = self.respond(request).await;
        let status = response.status.code();
        // Lines of one name within a second are counted together.
        let (level, name) = match (status, request.path()) {
            (200, "/reload") => (Level::Info, "RemoteReload"),
            (200, _) => (Level::Info, "RemoteStatus"),
            _ => (Level::Warn, "RemoteRefused"),
        };
        let text = format!("{line} of {}, {}: {status}", canonical(request.peer()), subject.escape_debug());
        self.commands.log(level, name, text);
        response.no_log_reason()
    }
}

impl ControlService {
    async fn respond(&self, request: &mut Request) -> Response {
        if let Err(refused) = self.check(request) {
            return refused;
        }
        let format = match request.field("accept") {
            Some(accept) if accept.starts_with(b"application/json") => StatusFormat::Json,
            _ => StatusFormat::Text,
        };
        let commands = self.commands.clone();
        match (request.path(), request.method()) {
            ("/reload", Method::Post) => match configuration(request).await {
                Ok(text) => reply(selvedge::spawn_blocking(move || commands.reload(text)).await),
                Err(refused) => refused,
            },
            ("/status", Method::Get | Method::Head) => {
                shown(format, selvedge::spawn_blocking(move || commands.status(format)).await)
            }
            ("/certificates", Method::Get | Method::Head) => {
                shown(format, selvedge::spawn_blocking(move || commands.certificates(format)).await)
            }
            ("/reload", _) => wrong_method("POST"),
            ("/status" | "/certificates", _) => wrong_method("GET, HEAD"),
            _ => refused(StatusCode::NOT_FOUND, "the commands are /reload, /status and /certificates"),
        }
    }

    /// Refuses clients without a certificate, other host names (DNS rebinding), and pages of other origins in a browser
    /// that has a certificate.
    fn check(&self, request: &Request) -> Result<(), Response> {
        let has_certificate = request.tls().is_some_and(|tls| !tls.peer_certificates().is_empty());
        if !has_certificate {
            return Err(refused(StatusCode::FORBIDDEN, "a client certificate is required"));
        }
        let is_host = request.known_field(KnownField::Host).is_some_and(|host| self.is_authority(host));
        if !is_host {
            let why = format!("the host of the request has to be {}", self.authority);
            return Err(refused(StatusCode::MISDIRECTED_REQUEST, &why));
        }
        let is_origin = |origin: &[u8]| origin.strip_prefix(b"https://").is_some_and(|host| self.is_authority(host));
        match request.field("origin") {
            Some(origin) if !is_origin(origin) => {
                Err(refused(StatusCode::FORBIDDEN, "pages of other origins may not send commands"))
            }
            _ => Ok(()),
        }
    }

    fn is_authority(&self, text: &[u8]) -> bool {
        let text = if self.authority.ends_with(']') || !self.authority.contains(':') {
            text.strip_suffix(b":443").unwrap_or(text)
        } else {
            text
        };
        text.eq_ignore_ascii_case(self.authority.as_bytes())
    }
}

/// Reads a configuration in a request; `None` without content.
async fn configuration(request: &mut Request) -> Result<Option<String>, Response> {
    let mut body = request.take_body();
    body.set_bytes_max(CONFIGURATION_BYTES_MAX);
    let mut content = Vec::new();
    while let Some(chunk) = poll_fn(|cx| body.poll_chunk(cx)).await {
        match chunk {
            Ok(chunk) => content.extend_from_slice(&chunk),
            Err(ContentError::TooLarge) => {
                return Err(refused(StatusCode::CONTENT_TOO_LARGE, "the configuration is longer than 4 MiB"));
            }
            Err(_) => return Err(refused(StatusCode::BAD_REQUEST, "the configuration is incomplete")),
        }
    }
    match String::from_utf8(content) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refused(StatusCode::BAD_REQUEST, "the configuration is not UTF-8")),
    }
}

fn reply(done: Option<ControlReply>) -> Response {
    match done {
        Some(ControlReply::Done(text)) => text_response(StatusCode::OK, text),
        Some(ControlReply::Refused(text)) => text_response(StatusCode::CONFLICT, text),
        None => unavailable(),
    }
}

/// Refuses a request. Its client is a program, so the reason is plain text.
fn refused(status: StatusCode, why: &str) -> Response {
    text_response(status, format!("{} {}: {why}", status.code(), status.reason_phrase()))
}

fn wrong_method(allowed: &'static str) -> Response {
    refused(StatusCode::METHOD_NOT_ALLOWED, &format!("the method is {allowed}")).field("allow", allowed)
}

fn unavailable() -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, "the command was not run to its end")
}

fn text_response(status: StatusCode, mut text: String) -> Response {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Response::new(status).field("content-type", "text/plain; charset=utf-8").body(text)
}

fn shown(format: StatusFormat, text: Option<String>) -> Response {
    let Some(text) = text else { return unavailable() };
    match format {
        StatusFormat::Json => Response::new(StatusCode::OK).field("content-type", "application/json").body(text),
        StatusFormat::Text => text_response(StatusCode::OK, text),
    }
}
