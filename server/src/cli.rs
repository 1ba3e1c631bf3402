//! The command line.

use crate::log::Format;
use clap::{Args, Parser, Subcommand};
use selvedge::Driver;
use std::path::PathBuf;

/// A web server: strict, safe, clear, fast, and calm under load.
#[derive(Debug, Parser)]
#[command(name = "selvedge", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put a directory on the web, now
    Serve(Serve),
    /// Serve what a configuration says
    Run(Run),
    /// Say everything that is wrong with a configuration, or what is in force
    Check(Check),
    /// Say what can be set, where, and what holds when nothing is said
    Settings(Settings),
    /// Have a running server read its configuration anew; say what has changed, or why nothing has
    Reload(Control),
    /// Stop a running server; what it is doing may finish
    Stop(Control),
    /// Put the program's file as it is now in the place of a running server, without a refused connection
    Upgrade(Control),
    /// Have a running server open its log files anew
    Reopen(Control),
    /// Say how a running server is
    Status(Status),
}

/// Serves what a configuration says, in the foreground and supervised. HUP has it read again, USR1
/// opens the log files anew, USR2 puts a new binary in its place. INT ends it at once; TERM lets
/// what is running finish first.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "selvedge.kdl")]
    pub(crate) config: PathBuf,

    /// How sockets are driven: auto, epoll or io_uring [default: as the configuration says]
    #[arg(long, value_name = "NAME", value_parser = driver)]
    pub(crate) driver: Option<Driver>,
}

/// Reads a configuration and looks at what it needs of the machine, and changes nothing. Ends
/// with an error when there is a problem.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "selvedge.kdl")]
    pub(crate) config: PathBuf,

    /// Print all settings in force, and the most memory that they let the server use
    #[arg(long)]
    pub(crate) effective: bool,
}

/// Gives an order to a running server, and waits until it is done. Ends with an error when it is
/// refused.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The configuration that it runs, which names its control socket
    #[arg(long, value_name = "FILE", default_value = "selvedge.kdl")]
    pub(crate) config: PathBuf,

    /// Its control socket [default: as the configuration says]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// Asks a running server how it is.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) control: Control,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints the table of all settings.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// As JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,

    /// As the page docs/configuration.md
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Serves the files beneath a directory. INT ends it at once; TERM lets what is running
/// finish first.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Where to listen: an address and a port; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// Answer a directory that has no index.html with a list of what is in it
    #[arg(long)]
    pub(crate) listing: bool,

    /// Number of worker threads [default: one for each core this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// How sockets are driven: epoll, io_uring (Linux 6.1, where it is allowed; else epoll), or auto: by
    /// epoll, and by io_uring once they wait for another request beside 16 others at work
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = driver)]
    pub(crate) driver: Driver,

    /// The access log: common, combined, json, off, or a format of Apache's directives, as in
    /// '%h %t "%r" %>s %D'
    #[arg(long, value_name = "FORMAT", default_value = "combined", value_parser = access_log)]
    pub(crate) log: AccessLog,

    /// Where the access log goes [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// Where the error log goes [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) error_log: Option<PathBuf>,
}

/// What the access log is to be.
#[derive(Clone, Debug)]
pub(crate) enum AccessLog {
    /// A line for each request.
    In(Format),
    /// None.
    Off,
}

fn driver(text: &str) -> Result<Driver, String> {
    match text {
        "auto" => Ok(Driver::Auto),
        "epoll" => Ok(Driver::Epoll),
        "io_uring" => Ok(Driver::IoUring),
        _ => Err("there are auto, epoll and io_uring".to_owned()),
    }
}

fn access_log(text: &str) -> Result<AccessLog, String> {
    match text {
        "off" => Ok(AccessLog::Off),
        _ => Format::read(text).map(AccessLog::In).map_err(|problem| problem.to_string()),
    }
}
