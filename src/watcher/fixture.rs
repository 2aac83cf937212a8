//! For tests: a certificate authority, the three files of a watcher, and, in `kcp`, a KCP of any behaviour.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

pub(crate) use self::kcp::{Kcp, Manner, Received, Reply};
use crate::certificates::{CertificateOptions, Certificates};

mod kcp;
pub(crate) mod logs;

pub(crate) const RUNTIME: &str = "0b7c9a6e-runtime-1";

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key: KeyPair,
}

impl Leaf {
    pub(crate) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// One authority for watchers and gateways.
pub(crate) struct Authority {
    pub(crate) certificate: Leaf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::bent(name, |_| ())
    }

    pub(crate) fn bent(name: &str, bend: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        bend(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, KeyPair::from_pem(&key.serialize_pem()).unwrap());
        let certificate = Leaf {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            key,
        };
        Self {
            certificate,
            issuer,
        }
    }

    /// A certificate for server and client, bent.
    pub(crate) fn leaf(&self, bend: impl FnOnce(&mut CertificateParams)) -> Leaf {
        self.leaf_of(KeyPair::generate().unwrap(), bend)
    }

    pub(crate) fn leaf_of(&self, key: KeyPair, bend: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = params(RUNTIME);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        bend(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            key,
        }
    }
}

fn params(name: &str) -> CertificateParams {
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    // This test lives longer than rcgen's default dates would make it seem; see `today`.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}

pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2021, 1, 1);
}

pub(crate) fn to_come(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2099, 1, 1);
}

/// A moment within the dates of everything but what is [`expired`] or [`to_come`]: in the year 2027.
pub(crate) fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

/// The three files, as a mounted Secret shows them: links into a folder that is swapped as a whole.
pub(crate) struct Secret {
    folder: TempDir,
    version: u32,
}

impl Secret {
    pub(crate) fn new(authorities: &str, certificate: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut secret = Self { folder, version: 0 };
        secret.swap(authorities, certificate, key);
        for name in NAMES {
            std::os::unix::fs::symlink(
                Path::new("..data").join(name),
                secret.folder.path().join(name),
            )
            .unwrap();
        }
        secret
    }

    pub(crate) fn of(authority: &Authority, leaf: &Leaf) -> Self {
        let authorities = &authority.certificate.pem;
        Self::new(authorities, &leaf.pem, &leaf.key.serialize_pem())
    }

    /// As the kubelet does it: a new folder, a new link to it, renamed over the old link.
    pub(crate) fn swap(&mut self, authorities: &str, certificate: &str, key: &str) {
        let folder = self.folder.path();
        self.version += 1;
        let version = format!("..version{}", self.version);
        fs::create_dir(folder.join(&version)).unwrap();
        for (name, content) in NAMES.into_iter().zip([authorities, certificate, key]) {
            fs::write(folder.join(&version).join(name), content).unwrap();
        }
        std::os::unix::fs::symlink(&version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn options(&self) -> CertificateOptions {
        let [authorities, certificate, key] = NAMES.map(|name| self.path(name));
        CertificateOptions {
            authorities,
            certificate,
            key,
        }
    }

    pub(crate) fn load(&self) -> Certificates {
        Certificates::load(self.options())
    }
}

pub(crate) const NAMES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
