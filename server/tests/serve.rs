//! The program `selvedge serve`, as a client sees it: the real binary, real files, raw bytes
//! over a socket.
//!
//! `tree` makes a directory, `program` serves it, `client` asks; each of the other modules
//! holds one part of what the program promises. No test waits for a fixed time: what takes
//! time is looked at again and again, see `wait`.

mod serve {
    mod client;
    mod program;
    mod tree;
    mod wait;

    mod check;
    mod orders;
    mod starting;

    mod methods;
    mod paths;
    mod special;

    mod conditions;
    mod ranges;
    mod representation;
    mod sidecars;

    mod changes;
    mod concurrency;
    mod downloads;

    mod listing;

    mod log_files;
    mod logs;
    mod stopping;
}
