//! Compiles the settings of traces.

use super::{CarriedState, trusted_proxies};
use crate::config::model::{Settings, Traces};
use crate::traces::{CollectorSettings, TraceRules, Tracer};
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns the traces of a configuration; `None` without the setting, and in a command that does not serve.
pub(super) fn tracer(settings: &Settings, carried: &CarriedState) -> Option<Arc<Tracer>> {
    let Traces { ratio, slower, .. } = *settings.traces.as_ref()?;
    let proxies = trusted_proxies(&settings.trusted_proxies);
    let trusts = Box::new(move |peer: SocketAddr| proxies.as_ref().is_some_and(|proxies| proxies.trusts(peer)));
    Some(Arc::new(Tracer::new(TraceRules { ratio, slower, trusts }, carried.exporter()?.queue().clone())))
}

/// Returns where the traces of a configuration are sent.
pub(crate) fn collector(settings: &Settings) -> Option<CollectorSettings> {
    let Traces { url, service, headers, .. } = settings.traces.as_ref()?;
    Some(CollectorSettings { url: url.clone(), service: service.clone(), headers: headers.clone() })
}
