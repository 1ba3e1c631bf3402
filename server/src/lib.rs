#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "program"),
    allow(dead_code, unused_imports, reason = "the program uses all of these modules")
)]

#[cfg(feature = "configuration")]
mod durations;
mod embed;
mod reasons;
mod site;
mod syntax;

#[cfg(feature = "configuration")]
mod compile;
#[cfg(feature = "configuration")]
mod config;
#[cfg(feature = "configuration")]
mod preflight;
#[cfg(feature = "configuration")]
mod traces;

#[cfg(feature = "program")]
mod certificate_status;
#[cfg(feature = "program")]
mod certificate_warnings;
#[cfg(feature = "program")]
mod certificates;
#[cfg(feature = "program")]
mod check;
#[cfg(feature = "program")]
mod cli;
#[cfg(feature = "program")]
mod config_diff;
#[cfg(feature = "program")]
mod config_path;
#[cfg(feature = "program")]
mod control_client;
#[cfg(feature = "program")]
mod expectations;
#[cfg(feature = "program")]
mod explain;
#[cfg(feature = "program")]
mod explanation;
#[cfg(feature = "program")]
mod fmt;
#[cfg(feature = "program")]
mod hash_password;
#[cfg(feature = "program")]
mod last_requests;
#[cfg(feature = "program")]
mod listeners;
#[cfg(feature = "program")]
mod log;
#[cfg(feature = "program")]
mod manual_pages;
#[cfg(feature = "program")]
mod memory_budget;
#[cfg(feature = "program")]
mod metrics;
#[cfg(feature = "program")]
mod options_server;
#[cfg(feature = "program")]
mod process;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "program")]
mod proxy;
#[cfg(feature = "program")]
mod recorder;
#[cfg(feature = "program")]
mod reload;
#[cfg(feature = "program")]
mod reload_outcome;
#[cfg(feature = "program")]
mod remote_control;
#[cfg(feature = "program")]
mod resolver;
#[cfg(feature = "program")]
mod root_warnings;
#[cfg(feature = "program")]
mod run;
#[cfg(feature = "program")]
mod selftest;
#[cfg(feature = "program")]
mod serve;
#[cfg(feature = "program")]
mod shell_completions;
#[cfg(feature = "program")]
mod site_urls;
#[cfg(feature = "program")]
mod snapshot;
#[cfg(feature = "program")]
mod status;
#[cfg(feature = "program")]
mod status_page;
#[cfg(feature = "program")]
mod status_resources;
#[cfg(feature = "program")]
mod trust;
#[cfg(feature = "program")]
mod upstream_log;
#[cfg(feature = "program")]
mod upstream_status;
#[cfg(feature = "program")]
mod watched_lists;

#[cfg(feature = "configuration")]
pub use embed::{InvalidConfiguration, Sites};
pub use embed::{LocalSites, ServeDir};
#[cfg(feature = "program")]
pub use program::run_program;
