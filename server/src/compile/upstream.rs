//! Compiles upstreams, and continues with those whose settings are unchanged.

use super::Compiler;
use crate::certificates::{CertificatePaths, load, read_file};
use crate::config::MachineRequirementKind;
use crate::config::model::{self, Adaptive, ProxyProtocol, UpstreamProtocol};
use crate::config::value::{ServerAddress, ServerPlace, ServerScheme};
use crate::site::{
    AdaptiveMode, AddressCell, Balance, CapacityRules, FailureRules, HashKey, HealthCheck, ProxyHeaderVersion,
    ServerRules, StickyRules, Upstream, UpstreamRules, continue_counters,
};
use selvedge::client::{Address, ClientTimeouts, ClientTls, Protocol};
use selvedge::tls::{ClientTlsBuilder, RootCertificates};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::sync::Arc;

/// What a cookie of `sticky` has beside its value: scripts of pages do not need it.
const STICKY_ATTRIBUTES: &str = "; Path=/; HttpOnly; SameSite=Lax";

/// An upstream with the settings that it was created from, and a hash of its files.
#[derive(Debug)]
pub(super) struct CarriedUpstream {
    settings: model::Upstream,
    files: u64,
    pub(super) upstream: Arc<Upstream>,
}

impl CarriedUpstream {
    /// Whether another process would have this upstream with these settings: its files are unchanged, too.
    pub(super) fn is_unchanged(&self, settings: &model::Upstream) -> bool {
        self.settings == *settings && hash_of_files(settings).is_ok_and(|hash| hash == self.files)
    }
}

/// The files of an upstream.
struct UpstreamFiles {
    authorities: Option<Vec<u8>>,
    certificate: Option<selvedge::tls::Certificate>,
    secret: Option<[u8; 32]>,
    hash: u64,
}

/// Compiles all upstreams.
pub(super) fn upstreams(compiler: &mut Compiler<'_>) {
    for (number, settings) in compiler.settings().upstreams.iter().enumerate() {
        let Some(files) = upstream_files(compiler, settings) else { continue };
        let known = compiler.earlier.upstreams.get(&settings.name);
        let known = known.filter(|known| known.settings == *settings && known.files == files.hash);
        let hash = files.hash;
        let upstream = match known {
            Some(known) => known.upstream.clone(),
            None => match upstream_rules(compiler, (number, settings), files) {
                Some(rules) => {
                    let mut upstream = Upstream::new(rules);
                    let earlier = compiler.earlier.upstreams.get(&settings.name);
                    earlier.iter().for_each(|earlier| continue_counters(&mut upstream, &earlier.upstream));
                    Arc::new(upstream)
                }
                None => continue,
            },
        };
        let carried = CarriedUpstream { settings: settings.clone(), files: hash, upstream };
        compiler.carried.upstreams.insert(settings.name.clone(), carried);
    }
}

fn upstream_rules(
    compiler: &mut Compiler<'_>,
    (number, settings): (usize, &model::Upstream),
    files: UpstreamFiles,
) -> Option<UpstreamRules> {
    let mut servers = Vec::with_capacity(settings.servers.len());
    for server in &settings.servers {
        let tls = match server.address.scheme {
            ServerScheme::Http => None,
            ServerScheme::Https => Some(Arc::new(client_tls(compiler, (number, settings), &server.address, &files)?)),
        };
        servers.push(ServerRules {
            name: server.address.to_string().into(),
            authority: authority(&server.address).into(),
            addresses: addresses(compiler, &server.address.place),
            weight: NonZeroU16::new(server.weight).expect("the table has a weight from 1"),
            tls,
            protocol: match settings.protocol {
                UpstreamProtocol::Http1 => Protocol::Http1,
                UpstreamProtocol::Http2 => Protocol::Http2,
            },
            proxy_header: settings.proxy_protocol.map(|version| match version {
                ProxyProtocol::V1 => ProxyHeaderVersion::V1,
                ProxyProtocol::V2 => ProxyHeaderVersion::V2,
            }),
        });
    }
    Some(UpstreamRules {
        name: settings.name.as_str().into(),
        servers,
        balance: balance(&settings.balance, files.secret.unwrap_or_else(|| compiler.carried.cookie_secret.bytes())),
        failures: FailureRules {
            failures_max: not_zero(settings.failures.failures_max),
            window: settings.failures.window,
            ejection: settings.failures.ejection,
            ejection_max: settings.failures.ejection_max,
        },
        check: settings.health.as_ref().map(health_check),
        slow_start: settings.slow_start,
        capacity: capacity(settings),
        timeouts: ClientTimeouts {
            connect: settings.timeouts.connect,
            response: settings.timeouts.response,
            silence: settings.timeouts.silence,
            tunnel: settings.timeouts.tunnel,
        },
    })
}

/// Returns the addresses of a server. Those of a name follow the name service.
pub(super) fn addresses(compiler: &Compiler<'_>, place: &ServerPlace) -> Arc<AddressCell> {
    match place {
        ServerPlace::Inet(address) => Arc::new(AddressCell::new([Address::Tcp(*address)])),
        ServerPlace::Unix(path) => Arc::new(AddressCell::new([Address::Unix(Arc::from(path.as_path()))])),
        ServerPlace::Name { host, port } => compiler.carried.resolver.addresses(host, *port),
    }
}

/// Reads the files of an upstream. Their content decides whether it is unchanged, too.
fn upstream_files(compiler: &mut Compiler<'_>, settings: &model::Upstream) -> Option<UpstreamFiles> {
    let mut hasher = DefaultHasher::new();
    let authorities = match &settings.tls.authorities {
        Some(path) => {
            let requirement = MachineRequirementKind::ClientAuthorities(path.clone());
            Some(file_of_upstream(compiler, path, requirement, &mut hasher)?)
        }
        None => None,
    };
    let certificate = match &settings.tls.client_certificate {
        Some(files) => {
            let requirement = MachineRequirementKind::Certificate(files.clone());
            file_of_upstream(compiler, &files.chain, requirement.clone(), &mut hasher)?;
            file_of_upstream(compiler, &files.key, requirement.clone(), &mut hasher)?;
            match load(&CertificatePaths { chain: files.chain.clone(), key: files.key.clone() }) {
                Ok(certificate) => Some(certificate),
                Err(error) => {
                    compiler.problem(&[requirement], error);
                    return None;
                }
            }
        }
        None => None,
    };
    let secret = match &settings.balance {
        model::Balance::Sticky { secret: Some(path), .. } => Some(sticky_secret(compiler, path, &mut hasher)?),
        _ => None,
    };
    Some(UpstreamFiles { authorities, certificate, secret, hash: hasher.finish() })
}

/// Returns the hash that [`upstream_files`] computes.
fn hash_of_files(settings: &model::Upstream) -> std::io::Result<u64> {
    let certificate = settings.tls.client_certificate.iter().flat_map(|files| [&files.chain, &files.key]);
    let secret = match &settings.balance {
        model::Balance::Sticky { secret, .. } => secret.as_ref(),
        _ => None,
    };
    let mut hasher = DefaultHasher::new();
    for path in settings.tls.authorities.iter().chain(certificate).chain(secret) {
        read_file(path)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn file_of_upstream(
    compiler: &mut Compiler<'_>,
    path: &Path,
    requirement: MachineRequirementKind,
    hasher: &mut DefaultHasher,
) -> Option<Vec<u8>> {
    match read_file(path) {
        Ok(content) => {
            content.hash(hasher);
            Some(content)
        }
        Err(error) => {
            compiler.problem(&[requirement], format!("cannot read {}: {error}", path.display()));
            None
        }
    }
}

/// Reads the secret of a cookie: the file may be longer than the key.
fn sticky_secret(compiler: &mut Compiler<'_>, path: &Path, hasher: &mut DefaultHasher) -> Option<[u8; 32]> {
    let requirement = MachineRequirementKind::KeyFile(path.to_owned());
    let content = file_of_upstream(compiler, path, requirement.clone(), hasher)?;
    if content.len() < 32 {
        let what = format!("{} has {} bytes; a secret has at least 32", path.display(), content.len());
        compiler.problem(&[requirement], what);
        return None;
    }
    Some(key_of(&content))
}

fn client_tls(
    compiler: &mut Compiler<'_>,
    (number, settings): (usize, &model::Upstream),
    address: &ServerAddress,
    files: &UpstreamFiles,
) -> Option<ClientTls> {
    let name = match (&settings.tls.server_name, &address.place) {
        (Some(name), _) => name.certificate_name(),
        (None, ServerPlace::Name { host, .. }) => host.clone(),
        (None, place) => place.to_string(),
    };
    let builder = ClientTlsBuilder::new(&name).roots(match &files.authorities {
        Some(text) => RootCertificates::Pem(text),
        None => RootCertificates::System,
    });
    let builder = match &files.certificate {
        Some(certificate) => builder.certificate(certificate.clone()),
        None => builder,
    };
    match builder.build() {
        Ok(tls) => Some(tls),
        Err(error) => {
            let place = match &settings.tls.authorities {
                Some(path) => MachineRequirementKind::ClientAuthorities(path.clone()),
                None => MachineRequirementKind::Upstream(number),
            };
            compiler.problem(&[place], format!("TLS to {address}: {error}"));
            None
        }
    }
}

/// Returns host and port of a server as a Host field has them.
fn authority(address: &ServerAddress) -> String {
    let usual = match address.scheme {
        ServerScheme::Http => ":80",
        ServerScheme::Https => ":443",
    };
    match &address.place {
        ServerPlace::Unix(_) => "localhost".to_owned(),
        place => {
            let text = place.to_string();
            text.strip_suffix(usual).map_or(text.clone(), str::to_owned)
        }
    }
}

fn balance(settings: &model::Balance, secret: [u8; 32]) -> Balance {
    match settings {
        model::Balance::LeastLoaded => Balance::LeastLoaded,
        model::Balance::RoundRobin => Balance::RoundRobin,
        model::Balance::Hash(key) => Balance::Hash(match key {
            model::HashKey::Path => HashKey::Path,
            model::HashKey::Client => HashKey::Client,
            model::HashKey::Header(name) => HashKey::Field(name.as_str().into()),
            model::HashKey::Cookie(name) => HashKey::Cookie(name.as_str().into()),
        }),
        model::Balance::Sticky { cookie, .. } => Balance::Sticky(StickyRules {
            cookie: cookie.as_str().into(),
            attributes: STICKY_ATTRIBUTES.into(),
            secret,
        }),
    }
}

fn health_check(settings: &model::HealthCheck) -> HealthCheck {
    let (first, last) = settings.expect;
    HealthCheck {
        path: settings.path.as_str().into(),
        host: settings.host.as_deref().map(Into::into),
        every: settings.every,
        timeout: settings.timeout,
        expect: first..=last,
    }
}

fn capacity(settings: &model::Upstream) -> CapacityRules {
    let adaptive = match settings.adaptive {
        Adaptive::Off => AdaptiveMode::Off,
        Adaptive::Observe => AdaptiveMode::Observe,
        Adaptive::On => AdaptiveMode::On,
    };
    let unlimited = CapacityRules { adaptive, ..CapacityRules::default() };
    match &settings.requests {
        None => unlimited,
        Some(limit) => CapacityRules {
            requests_max: Some(not_zero(limit.requests_max)),
            queue_max: limit.queue_max,
            queue_timeout: limit.queue_timeout,
            ..unlimited
        },
    }
}

fn not_zero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("the table has numbers from 1")
}

/// Returns a key from all bytes of a file.
fn key_of(content: &[u8]) -> [u8; 32] {
    use blake2::{Blake2s256, Digest};
    Blake2s256::digest(content).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_omit_the_usual_port() {
        let of = |scheme, host: &str, port| {
            authority(&ServerAddress { scheme, place: ServerPlace::Name { host: host.to_owned(), port } })
        };
        assert_eq!(of(ServerScheme::Http, "app.internal", 80), "app.internal");
        assert_eq!(of(ServerScheme::Https, "app.internal", 443), "app.internal");
        assert_eq!(of(ServerScheme::Http, "app.internal", 443), "app.internal:443");
        let address = ServerPlace::Inet("[::1]:8080".parse().unwrap());
        assert_eq!(authority(&ServerAddress { scheme: ServerScheme::Http, place: address }), "[::1]:8080");
    }

    #[test]
    fn secrets_of_equal_files_are_equal() {
        assert_eq!(key_of(&[7; 40]), key_of(&[7; 40]));
        assert_ne!(key_of(&[7; 40]), key_of(&[7; 41]));
    }
}
