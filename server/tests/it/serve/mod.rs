//! `selvedge serve`. Each module tests one part of the program's behaviour.

mod check;
mod control_commands;
mod options;
mod starting;
mod urls;

mod methods;
mod paths;
mod special;

mod compress;
mod conditions;
mod precompressed;
mod ranges;
mod representation;

mod changes;
mod concurrency;
mod downloads;
mod releases;

mod listing;

mod log_files;
mod logs;
mod stopping;
