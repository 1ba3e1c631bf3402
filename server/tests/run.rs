//! The program `selvedge run`, as a client sees it: the real binary, a configuration in a
//! folder of its own, raw bytes over a socket.
//!
//! `example` holds what the example of the repository promises, `process` what becomes of the
//! processes and of orders to them, `reload` what a change of the configuration does to those who
//! are connected, `settings` what single settings mean, `status` what is said of all that when
//! somebody asks.

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
    mod status;
}
