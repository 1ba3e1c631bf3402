//! Forwards requests to the servers of an application, and their responses to clients.
//!
//! `rules` are the settings as values. `upstream` is a group of servers with its shared state: which servers work
//! (`health`), how busy they are (`capacity`), and which one gets the next request (`balance`). No step of a request takes
//! a lock unless a server has failed or a request has to wait.

mod adaptive;
mod address_cell;
mod balance;
mod capacity;
mod checks;
mod content;
mod exchange;
mod explanation;
mod failure;
mod failure_history;
mod health;
mod max_forwards;
mod outgoing;
mod path;
mod proxy_rules;
mod retry_budget;
mod rewriting;
mod rules;
mod sticky;
mod upstream;
mod wait_queue;
mod worker;

pub(super) use checks::start_checks;
pub(super) use exchange::{Forwarded, PreparedRequest, forward, prepare};
pub(super) use explanation::explain;
pub(super) use outgoing::RequestFacts;
pub(super) use worker::ProxyWorker;

pub(crate) use address_cell::AddressCell;
pub(crate) use checks::end_checks;
pub(crate) use proxy_rules::{HostPolicy, PathPolicy, ProxyRules, ProxyStatus, RequestBuffering, UrlRewriting};
pub(crate) use rules::{
    AdaptiveMode, Balance, CapacityRules, FailureRules, HashKey, HealthCheck, ProxyHeaderVersion, ServerRules,
    StickyRules, UpstreamRules,
};
pub(crate) use upstream::{ServerChange, ServerCondition, ServerStatus, Upstream, UpstreamEvent, continue_counters};
