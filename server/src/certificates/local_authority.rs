//! A certificate authority of this server, for names without a public address. Its certificate allows it to sign for
//! such names only, so a stolen key endangers no other site.

use super::folder::{CertificateFolder, ROOT_FILE};
use crate::syntax::INTERNAL_DOMAINS;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use std::io;
use std::time::{Duration, SystemTime};

/// The key of the authority.
const KEY_FILE: &str = "local-authority.key";

/// The name in the stores of the system and of browsers.
pub(crate) const AUTHORITY_NAME: &str = "Selvedge local authority";

/// Creates the authority of a folder, if it is missing.
///
/// # Errors
/// If a file cannot be read or written, or its content is invalid.
pub(crate) fn create_local_authority(folder: &CertificateFolder) -> io::Result<()> {
    LocalAuthority::open(folder).map(drop)
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const ROOT_DAYS: u32 = 3650;
const LEAF_DAYS: u32 = 90;

/// The authority.
pub(crate) struct LocalAuthority {
    params: CertificateParams,
    key: KeyPair,
    /// Its certificate.
    root: String,
}

impl LocalAuthority {
    /// Opens the authority of a folder, and creates it if it is missing.
    ///
    /// # Errors
    /// If a file cannot be read or written, or its content is invalid.
    pub(crate) fn open(folder: &CertificateFolder) -> io::Result<Self> {
        let params = root_params().map_err(io::Error::other)?;
        if let (Some(key), Some(root)) = (folder.read(KEY_FILE)?, folder.read(ROOT_FILE)?) {
            let key = KeyPair::from_pem(&key).map_err(io::Error::other)?;
            return Ok(Self { params, key, root });
        }
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let root = params.self_signed(&key).map_err(io::Error::other)?.pem();
        folder.write(KEY_FILE, &key.serialize_pem())?;
        folder.write(ROOT_FILE, &root)?;
        Ok(Self { params, key, root })
    }

    /// Signs a certificate for a name or an address. Returns its key and chain.
    ///
    /// # Errors
    /// If the name is invalid.
    pub(crate) fn sign(&self, name: &str) -> io::Result<String> {
        self.try_sign(name).map_err(io::Error::other)
    }

    fn try_sign(&self, name: &str) -> Result<String, Error> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        let now = SystemTime::now();
        // A client's clock may be late.
        (params.not_before, params.not_after) = ((now - DAY).into(), (now + DAY * LEAF_DAYS).into());
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key))?;
        Ok(key.serialize_pem() + &certificate.pem() + &self.root)
    }
}

fn root_params() -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - DAY).into(), (now + DAY * ROOT_DAYS).into());
    let domains = INTERNAL_DOMAINS.map(|domain| GeneralSubtree::DnsName(domain.to_owned()));
    let v4 = [
        ([127, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
        ([169, 254, 0, 0], 16),
    ];
    let v4 = v4.map(|(address, prefix)| CidrSubnet::from_v4_prefix(address, prefix));
    let v6 = [("::1", 128), ("fc00::", 7), ("fe80::", 10)];
    let v6 =
        v6.map(|(address, prefix)| CidrSubnet::from_addr_prefix(address.parse().expect("it is an address"), prefix));
    let networks = v4.into_iter().chain(v6).map(GeneralSubtree::IpAddress);
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: domains.into_iter().chain(networks).collect(),
        excluded_subtrees: Vec::new(),
    });
    Ok(params)
}
