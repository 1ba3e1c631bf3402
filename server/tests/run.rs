//! The program `selvedge run`, as a client sees it: the real binary, a configuration in its own folder, raw bytes
//! over a socket.
//!
//! `example` tests the example of the repository, `process` the processes and control commands. `reload` tests what a
//! reload does to open connections, `settings` single settings, `site_logs` logs of many sites, `status` the status.

mod run {
    #[allow(dead_code, reason = "the tests of `serve` use the rest")]
    #[path = "../serve/client.rs"]
    mod client;
    #[allow(dead_code, reason = "the tests of `serve` use the rest")]
    #[path = "../serve/program.rs"]
    mod program;
    #[allow(dead_code, reason = "the tests of `serve` use the rest")]
    #[path = "../serve/tree.rs"]
    mod tree;
    #[path = "../serve/wait.rs"]
    mod wait;

    mod configured;

    mod example;
    mod process;
    mod reload;
    mod settings;
    mod site_logs;
    mod status;
}
