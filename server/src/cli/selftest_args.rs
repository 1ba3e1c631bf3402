//! The options of `selvedge selftest`.

use super::ControlArgs;
use clap::Args;

/// Sends small versions of known attacks to one's own server, and reports which limit held: framing of requests, sizes,
/// slow clients, HTTP/2, TLS. A usual request has to succeed after each attack. Exits with code 1 if an attack was not
/// withstood.
///
/// The address has to be one of loopback, or one of this machine at which the running configuration listens.
#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// URL of a usual GET request, such as http://localhost:8080/. Certificates are not verified
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The running server, whose listeners permit other addresses than those of loopback.
    #[command(flatten)]
    pub(crate) control: ControlArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Longest time of all attacks, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub(crate) seconds: u64,

    /// Attack an address that is neither of loopback nor known to the running server. The host has to be your own
    #[arg(long)]
    pub(crate) i_own_this_host: bool,
}
