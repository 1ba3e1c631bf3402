//! `selvedge run`: a configuration in its own folder.

mod changed_access;
mod configurations;
mod example;
mod gateway;
mod process;
mod proxy;
mod reload;
mod replaced;
mod selftest;
mod settings;
mod site_logs;
mod status;
mod tls;
mod upstreams;
