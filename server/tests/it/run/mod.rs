//! `selvedge run`: a configuration in its own folder.

mod changed_access;
mod configurations;
mod example;
mod expectations;
mod explain;
mod explain_arrival;
mod gateway;
mod last;
mod metrics;
mod process;
mod proxy;
mod reload;
mod replaced;
mod selftest;
mod settings;
mod site_logs;
mod status;
mod status_page;
mod tls;
mod traces;
mod upstreams;
