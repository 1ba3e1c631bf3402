//! Compiles the actions that run scripts and programs.

use super::upstream::addresses;
use super::{Compiler, RouteIndex};
use crate::config::model::{self, CgiPrograms, SendFile};
use crate::config::value::ServerPlace;
use crate::site::{
    Action, GatewayLoad, GatewayRules, GatewayTimeouts, PhpRules, ProgramRunner, ProgramStart, ScriptRunner,
    ScriptServer, Scripts, SendFileFolder, StartProgram,
};
use std::io;
use std::sync::Arc;

pub(super) fn gateway(compiler: &mut Compiler<'_>, at: RouteIndex, gateway: &model::Gateway) -> Option<Action> {
    let (scripts, runner) = match &gateway.runner {
        model::ScriptRunner::Php { address, files, front_controller, root_there, idle_connections_max } => {
            let rules = PhpRules {
                files: compiler.files(at, files)?,
                front_controller: Some(compiler.path(at, front_controller)?),
                root_there: root_there.as_deref().map(Arc::from),
            };
            (Scripts::Php(rules), ScriptRunner::FastCgi(script_server(compiler, address, *idle_connections_max)))
        }
        model::ScriptRunner::FastCgi { address, root, idle_connections_max } => (
            Scripts::Application { document_root: root.as_deref().map(Arc::from) },
            ScriptRunner::FastCgi(script_server(compiler, address, *idle_connections_max)),
        ),
        model::ScriptRunner::Scgi { address, root } => (
            Scripts::Application { document_root: root.as_deref().map(Arc::from) },
            ScriptRunner::Scgi(script_server(compiler, address, 0)),
        ),
        model::ScriptRunner::Cgi(programs) => cgi(compiler, at, programs)?,
    };
    Some(Action::Gateway(Arc::new(GatewayRules {
        timeouts: GatewayTimeouts {
            connect: gateway.connect_timeout.unwrap_or(GatewayTimeouts::default().connect),
            response: gateway.response_timeout,
            silence: gateway.silence_timeout,
        },
        load: gateway_load(compiler, at, gateway),
        spool_bytes_max: gateway.spool_bytes_max,
        send_file: match &gateway.send_file {
            Some(settings) => Some(send_file(compiler, settings)?),
            None => None,
        },
        variables: gateway
            .variables
            .iter()
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
        ..GatewayRules::new(scripts, runner)
    })))
}

fn script_server(compiler: &Compiler<'_>, place: &ServerPlace, idle_connections_max: u32) -> ScriptServer {
    ScriptServer { name: place.to_string().into(), addresses: addresses(compiler, place), idle_connections_max }
}

/// Returns the count of requests at work, which continues while nothing of the route has changed.
fn gateway_load(compiler: &mut Compiler<'_>, at: RouteIndex, gateway: &model::Gateway) -> Arc<GatewayLoad> {
    let site = &compiler.settings().sites[at.site];
    let route = &site.routes[at.route];
    let text = format!("{:?} {:?} {:?} {gateway:?}", site.names, route.patterns, route.when);
    let load = match compiler.earlier.gateway_loads.get(&text) {
        Some(load) => load.clone(),
        None => Arc::new(GatewayLoad::new(gateway.requests_max)),
    };
    compiler.carried.gateway_loads.insert(text, load.clone());
    load
}

fn send_file(compiler: &mut Compiler<'_>, send_file: &SendFile) -> Option<SendFileFolder> {
    Some(SendFileFolder { folder: compiler.root(&send_file.folder, &[])?, prefix: send_file.prefix.as_str().into() })
}

fn cgi(compiler: &mut Compiler<'_>, at: RouteIndex, programs: &CgiPrograms) -> Option<(Scripts, ScriptRunner)> {
    let folder = compiler.root(&programs.folder, &[])?;
    let only = match &programs.program {
        Some(name) => Some(compiler.path(at, &format!("/{name}"))?),
        None => None,
    };
    // A command that does not serve runs no program.
    let starter = compiler.carried.cgi.as_ref().map(|cgi| cgi.starter(programs));
    let starter = starter.unwrap_or_else(|| Arc::new(NoPrograms));
    let runner = ProgramRunner { starter, output_bytes_max: programs.output_bytes_max };
    Some((Scripts::Programs { folder, only }, ScriptRunner::Cgi(runner)))
}

/// Starts nothing.
#[derive(Debug)]
struct NoPrograms;

impl StartProgram for NoPrograms {
    fn start(&self, _: ProgramStart) -> io::Result<()> {
        Err(io::Error::other("this process runs no programs"))
    }
}
