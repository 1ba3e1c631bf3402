//! Compiles the actions that run scripts and programs.

use super::{Compiler, RouteIndex};
use crate::config::model::{self, CgiPrograms, SendFile};
use crate::config::value::ServerPlace;
use crate::site::{
    Action, GatewayLoad, GatewayRules, GatewayTimeouts, PhpRules, ProgramStart, ScriptRunner, ScriptServer, Scripts,
    SendFileFolder, StartProgram,
};
use std::fmt;
use std::io;
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn gateway(&mut self, at: RouteIndex, gateway: &model::Gateway) -> Option<Action> {
        let (scripts, runner) = match &gateway.runner {
            model::ScriptRunner::Php { address, files, front_controller, root_there, idle_connections_max } => {
                let rules = PhpRules {
                    files: self.files(at, files)?,
                    front_controller: Some(self.path(at, front_controller)?),
                    root_there: root_there.as_deref().map(Arc::from),
                };
                (Scripts::Php(rules), ScriptRunner::FastCgi(self.script_server(address, *idle_connections_max)))
            }
            model::ScriptRunner::FastCgi { address, root, idle_connections_max } => (
                Scripts::Application { document_root: root.as_deref().map(Arc::from) },
                ScriptRunner::FastCgi(self.script_server(address, *idle_connections_max)),
            ),
            model::ScriptRunner::Scgi { address, root } => (
                Scripts::Application { document_root: root.as_deref().map(Arc::from) },
                ScriptRunner::Scgi(self.script_server(address, 0)),
            ),
            model::ScriptRunner::Cgi(programs) => self.cgi(at, programs)?,
        };
        Some(Action::Gateway(Arc::new(GatewayRules {
            timeouts: GatewayTimeouts {
                connect: gateway.connect_timeout.unwrap_or(GatewayTimeouts::default().connect),
                response: gateway.response_timeout,
                silence: gateway.silence_timeout,
            },
            load: self.gateway_load(at, gateway),
            spool_bytes_max: gateway.spool_bytes_max,
            send_file: match &gateway.send_file {
                Some(send_file) => Some(self.send_file(send_file)?),
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

    fn script_server(&self, place: &ServerPlace, idle_connections_max: u32) -> ScriptServer {
        ScriptServer { name: place.to_string().into(), addresses: self.addresses(place), idle_connections_max }
    }

    /// Returns the count of requests at work, which continues while nothing of the route has changed.
    fn gateway_load(&mut self, at: RouteIndex, gateway: &model::Gateway) -> Arc<GatewayLoad> {
        let site = &self.settings().sites[at.site];
        let route = &site.routes[at.route];
        let text = format!("{:?} {:?} {:?} {gateway:?}", site.names, route.patterns, route.when);
        let load = match self.earlier.gateway_loads.get(&text) {
            Some(load) => load.clone(),
            None => Arc::new(GatewayLoad::new(gateway.requests_max)),
        };
        self.carried.gateway_loads.insert(text, load.clone());
        load
    }

    fn send_file(&mut self, send_file: &SendFile) -> Option<SendFileFolder> {
        Some(SendFileFolder { folder: self.root(&send_file.folder)?, prefix: send_file.prefix.as_str().into() })
    }

    fn cgi(&mut self, at: RouteIndex, programs: &CgiPrograms) -> Option<(Scripts, ScriptRunner)> {
        let folder = self.root(&programs.folder)?;
        let only = match &programs.program {
            Some(name) => Some(self.path(at, &format!("/{name}"))?),
            None => None,
        };
        // A command that does not serve runs no program.
        let starter = self.carried.cgi.as_ref().map(|cgi| cgi.starter(programs));
        let starter = starter.unwrap_or_else(|| Arc::new(NoPrograms));
        Some((Scripts::Programs { folder, only }, ScriptRunner::Cgi(starter)))
    }
}

/// Returns what starts the programs of a folder.
pub(crate) trait StartCgiPrograms: fmt::Debug + Send + Sync {
    /// Returns what starts programs as the settings require. Programs that were added by a reload can be started after
    /// the serving process is replaced, which that reload causes.
    fn starter(&self, programs: &CgiPrograms) -> Arc<dyn StartProgram>;
}

/// Starts nothing.
#[derive(Debug)]
struct NoPrograms;

impl StartProgram for NoPrograms {
    fn start(&self, _: ProgramStart) -> io::Result<()> {
        Err(io::Error::other("this process runs no programs"))
    }
}
