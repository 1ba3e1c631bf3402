//! Tests of the program `selvedge serve` with the real binary, real files and raw bytes over a socket.
//!
//! `tree` creates a directory, `program` serves it, and `client` sends requests. Each other module tests one
//! part of the program's behaviour. No test waits for a fixed time: it polls for a condition, see `wait`.

mod serve {
    mod client;
    mod program;
    mod tree;
    mod wait;

    mod check;
    mod control_commands;
    mod starting;

    mod methods;
    mod paths;
    mod special;

    mod conditions;
    mod precompressed;
    mod ranges;
    mod representation;

    mod changes;
    mod concurrency;
    mod downloads;

    mod listing;

    mod log_files;
    mod logs;
    mod stopping;
}
