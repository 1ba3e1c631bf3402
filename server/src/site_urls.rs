//! The URLs at which a person reaches a server, and the browser that opens one.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use selvedge::Endpoint;
use std::env;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::thread;

/// Most addresses of this machine that are shown for one listener.
const ADDRESSES_MAX: usize = 8;

/// An endpoint that is served.
#[derive(Clone, Debug)]
pub(crate) struct ServedEndpoint {
    pub(crate) endpoint: Endpoint,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Whether IPv4 clients reach it if it is `[::]`.
    pub(crate) serves_ipv4: bool,
}

/// Returns a URL for each address of each endpoint. For `0.0.0.0` and `[::]`, these are loopback, and the addresses of
/// this machine in its networks.
pub(crate) fn urls(served: &[ServedEndpoint]) -> Vec<String> {
    let own = own_addresses();
    served.iter().flat_map(|served| urls_of(served, &own)).collect()
}

fn urls_of(ServedEndpoint { endpoint, scheme, serves_ipv4 }: &ServedEndpoint, own: &[IpAddr]) -> Vec<String> {
    let address = match endpoint {
        Endpoint::Unix(_) => return vec![endpoint.to_string()],
        Endpoint::Inet(address) => *address,
    };
    if !address.ip().is_unspecified() {
        return vec![format!("{scheme}://{address}/")];
    }
    let (has_ipv4, has_ipv6) = (address.is_ipv4() || *serves_ipv4, address.is_ipv6());
    let loopback = if has_ipv4 { Ipv4Addr::LOCALHOST.into() } else { IpAddr::from(Ipv6Addr::LOCALHOST) };
    let reached = own.iter().copied().filter(|ip| if ip.is_ipv4() { has_ipv4 } else { has_ipv6 });
    let all = [loopback].into_iter().chain(reached.take(ADDRESSES_MAX));
    all.map(|ip| format!("{scheme}://{}/", SocketAddr::new(ip, address.port()))).collect()
}

/// Returns the addresses of this machine in its networks, IPv4 first. Link-local ones of IPv6 are left out: their URLs
/// would need the name of an interface.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let is_up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let up =
        interfaces.filter(|entry| entry.flags.contains(is_up) && !entry.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    let addresses = up.filter_map(|entry| {
        let address = entry.address?;
        let ipv4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        ipv4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    let is_shown = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<IpAddr> = addresses.filter(is_shown).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Opens a URL in the browser: by the program of the variable BROWSER, or by `xdg-open`.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn open_in_browser(url: &str) -> Result<(), String> {
    let (program, arguments) = browser_command(&env::var("BROWSER").unwrap_or_default(), url);
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot start {program} to open {url}: {error}"))?;
    // The browser ends at some time, and its process has to be reaped.
    thread::spawn(move || child.wait());
    Ok(())
}

/// Returns the program that opens a URL, and its arguments. By convention, the variable BROWSER is a list with colons whose
/// entries have arguments, of which `%s` is the URL. The first one counts.
fn browser_command(browser: &str, url: &str) -> (String, Vec<String>) {
    let first = browser.split(':').find(|entry| !entry.trim().is_empty()).unwrap_or("xdg-open");
    let mut words = first.split_whitespace().map(str::to_owned);
    let program = words.next().unwrap_or_default();
    let mut arguments: Vec<String> = words.map(|word| word.replace("%s", url)).collect();
    if !first.contains("%s") {
        arguments.push(url.to_owned());
    }
    (program, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browser_may_have_arguments_and_alternatives() {
        for (browser, program, arguments) in [
            ("", "xdg-open", &["http://a/"][..]),
            ("firefox", "firefox", &["http://a/"]),
            ("firefox -P x %s", "firefox", &["-P", "x", "http://a/"]),
            (":w3m:lynx %s", "w3m", &["http://a/"]),
        ] {
            let (started, given) = browser_command(browser, "http://a/");
            let expected: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            assert_eq!((started.as_str(), given), (program, expected));
        }
    }

    fn served(endpoint: &str) -> ServedEndpoint {
        let endpoint = Endpoint::Inet(endpoint.parse().expect("it is an address"));
        ServedEndpoint { endpoint, scheme: "http", serves_ipv4: true }
    }

    fn urls(served: &ServedEndpoint) -> Vec<String> {
        urls_of(served, &["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()])
    }

    #[test]
    fn all_addresses_are_those_of_loopback_and_of_the_networks() {
        let (ipv4, ipv6) = (["http://127.0.0.1:80/", "http://192.0.2.7:80/"], "http://[2001:db8::7]:80/");
        assert_eq!(urls(&served("0.0.0.0:80")), ipv4);
        assert_eq!(urls(&served("[::]:80")), [ipv4[0], ipv4[1], ipv6]);
        let ipv6_only = ServedEndpoint { serves_ipv4: false, ..served("[::]:80") };
        assert_eq!(urls(&ipv6_only), ["http://[::1]:80/", ipv6]);
        assert_eq!(urls(&served("192.0.2.7:80")), ["http://192.0.2.7:80/"]);
    }

    #[test]
    fn own_addresses_can_be_reached() {
        assert!(own_addresses().iter().all(|ip| !ip.is_loopback() && !ip.is_unspecified()), "{:?}", own_addresses());
    }
}
